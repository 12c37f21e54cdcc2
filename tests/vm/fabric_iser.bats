#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock virtual
# guest-full: --suite sid --clock virtual
# iSER over soft RoCE, through the emulated path.

setup_file() {
	load fabric
	bring_up iser
}

setup() {
	load fabric
	cd "$BATS_TEST_TMPDIR"
}

teardown() {
	lab logout || true
}

# Demo mode keeps an initiator's first command window until its ACL has come and gone.
forget_the_initiator() {
	mkdir "$tpg/acls/iqn.2026-01.lab.fabtune:initiator"
	rmdir "$tpg/acls/iqn.2026-01.lab.fabtune:initiator"
}

@test "what is written by RDMA through the routers is read back, and a changed byte is noticed" {
	disk=$(lab login)
	[ "$(cat /sys/class/iscsi_transport/iser/handle)" != 0 ]
	iscsiadm -m session | grep '^iser:'
	crossed 8 verified "$disk" 16
	flip_is_noticed "$disk"
	expect "$disk" 'books and d.in_flight == 0 and write.errors == 0'
	# A few packets of TCP discovered the target; the data went another way.
	run ss -Htn state established '( dport = :3260 )'
	[ -z "$output" ]
}

@test "throughput is measured" {
	disk=$(lab login)
	crossed 8 measures "$disk"
}

@test "a target that takes two commands at a time closes its window: fabstat counts it as on TCP" {
	tpg=/sys/kernel/config/target/iscsi/iqn.2026-01.lab.fabtune:target/tpgt_1
	echo 2 > $tpg/attrib/default_cmdsn_depth
	forget_the_initiator
	disk=$(lab login)
	load_disk "$disk" --rw=randread --bs=4k --iodepth=32 --number_ios=400 --size=64m
	echo 64 > $tpg/attrib/default_cmdsn_depth
	expect "$disk" 'events["target_busy"] > 50 and i.queue_full == events["target_busy"]'
	expect "$disk" 'books and d.in_flight == 0 and read.errors == 0'
}
