#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# A real iSCSI session: who closes the window, what is stuck when the target freezes.

TPG=/sys/kernel/config/target/iscsi/iqn.2026-01.lab.fabtune:target/tpgt_1
ACL=$TPG/acls/iqn.2026-01.lab.fabtune:initiator
NODE="-m node -T iqn.2026-01.lab.fabtune:target"

setup_file() {
	load fabstat
	python3 -m fabtune.lab.guest up --rtt 2ms
	mkdir $ACL $ACL/lun_0
	ln -s $TPG/lun/lun_0 $ACL/lun_0/disk
	load_fabstat
}

setup() {
	load fabstat
}

teardown() {
	thaw
	python3 -m fabtune.lab.guest logout || true
	echo 64 > $ACL/cmdsn_depth
	iscsiadm $NODE -o update -n node.session.cmds_max -v 128
	iscsiadm $NODE -o update -n node.session.queue_depth -v 32
	echo 60000 > $PARAMETERS/stuck_ms
}

FREEZE="ip netns exec wan sysctl -q -w net.ipv4.ip_forward=0"

thaw() {
	ip netns exec wan sysctl -q -w net.ipv4.ip_forward=1
}

@test "the module tells session, target and portal of a disk" {
	disk=$(python3 -m fabtune.lab.guest login)
	load_disk "$disk" --rw=randread --bs=4k --iodepth=4 --number_ios=100 --size=64m
	expect "$disk" 'd.driver == "iscsi_tcp" and d.parent.startswith("session") and d.hctl.count(":") == 3'
	run fabtune stat
	echo "$output"
	[[ "$output" == *"iqn.2026-01.lab.fabtune:target 10.2.0.1:3260"* ]]
	run fabtune stat "$disk" --json
	python3 -c 'import json, sys; d = json.load(sys.stdin)["devices"][0]; assert d["transport"] == "iscsi" and d["portal"] == "10.2.0.1:3260", d' <<< "$output"
}

@test "a target that takes two commands at a time closes its window: target busy" {
	echo 2 > $ACL/cmdsn_depth
	[ "$(cat $ACL/cmdsn_depth)" -eq 2 ]
	disk=$(python3 -m fabtune.lab.guest login)
	load_disk "$disk" --rw=randread --bs=4k --iodepth=32 --number_ios=400 --size=64m
	cat $ACL/info
	expect "$disk" 'events["target_busy"] > 50 and i.queue_full == events["target_busy"]'
	# What the initiator holds back is the pause after each refusal, not a limit of its own.
	expect "$disk" 'events["held_target"] == 0 and events["requeued_by_driver"] == events["target_busy"]'
	expect "$disk" 'books and d.in_flight == 0 and read.errors == 0 and read.refused > 50'
}

@test "an initiator with cmds_max 16 is its own limit: the depth stands at it, and nobody refuses" {
	iscsiadm $NODE -o update -n node.session.cmds_max -v 16
	iscsiadm $NODE -o update -n node.session.queue_depth -v 128
	disk=$(python3 -m fabtune.lab.guest login)
	fabtune stat --save /tmp/before
	load_disk "$disk" --rw=randread --bs=4k --iodepth=64 --number_ios=400 --size=64m
	fabtune stat --save /tmp/after
	# 15 of the 16 are kept for management, and libiscsi gives host, target and LUN the same limit.
	expect "$disk" 'd.limit == 1 and d.highest == 1 and i.at_limit_ns > 0.9 * read.device_ns'
	expect "$disk" 'i.queue_full == 0 and events["requeued_by_driver"] == 0'
	expect "$disk" 'books and d.in_flight == 0 and read.errors == 0'
	# What the host's LUNs share stands beside it, so that it is seen with several of them as well.
	fabtune stat --diff /tmp/before /tmp/after --json | python3 -c '
import json, sys
hosts = json.load(sys.stdin)["hosts"]
assert [host["can_queue"] for host in hosts] == [1] and 0.3 < hosts[0]["mean_depth"] <= 1, hosts'
}

@test "a target frozen for 70 s: every outstanding request is on the stuck list, with its age, and none is lost" {
	# Nothing is given up, however long a slow kernel's commands take beyond these 70 s.
	iscsiadm $NODE -o update -n node.session.timeo.replacement_timeout -v 600
	disk=$(python3 -m fabtune.lab.guest login)
	load_disk "$disk" --rw=randread --bs=4k --iodepth=4 --number_ios=50 --size=64m
	before=$(seen "$disk" 'read.completed')
	# By fio itself when it is about to begin: a slow kernel takes longer for its start than the session lives, and gives
	# back what is under way before the last of the 16 is.
	cd /tmp
	fio --name=a "--filename=/dev/$disk" --direct=1 --rw=randread --bs=4k --iodepth=16 --number_ios=16 --size=64m --ioengine=libaio "--exec_prerun=$FREEZE" --output=/tmp/fio.log &
	all_in_flight() { awk '{ exit $1 < 16 }' "/sys/block/$disk/inflight"; }
	until all_in_flight; do
		kill -0 $!
		sleep 0.1
	done
	frozen=$(cut -d' ' -f1 /proc/uptime)
	# Where CPUs are several a command takes seconds of the real clock at times.
	early_s=$([ "$(nproc)" -eq 1 ] && echo 59 || echo 45)
	sleep "$early_s"
	# A slow kernel takes its time to look, and then some may be that old.
	fabtune stuck --json | python3 -c '
import json, sys
ages_ms = [one["age_ms"] for one in json.load(sys.stdin)["requests"]]
assert all(age_ms >= 60000 for age_ms in ages_ms) and (sys.argv[1] != "1" or not ages_ms), ages_ms' "$(nproc)"
	sleep $((70 - early_s))
	fabtune stuck
	fabtune stuck --json | python3 -c '
import json, sys
age_s = float(open("/proc/uptime").read().split()[0]) - float(sys.argv[1])
found = json.load(sys.stdin)["requests"]
assert len(found) == 16, len(found)
assert all(abs(one["age_ms"] / 1e3 - age_s) < float(sys.argv[3]) for one in found), (age_s, found)
assert all(one["disk"] == sys.argv[2] and one["op"] == "read" and one["bytes"] == 4096 for one in found), found
assert [one["age_ms"] for one in found] == sorted((one["age_ms"] for one in found), reverse=True)
assert "iqn.2026-01.lab.fabtune:target" in found[0]["device"]
assert len({one["sector"] for one in found}) == 16' "$frozen" "$disk" "$(at_most 1.5)"
	thaw
	wait
	[ "$(fabtune stuck)" = "no request is older than 60 s" ]
	# Sent back when the session was given up for lost, and issued again on the next connection.
	expect "$disk" 'read.sent_back >= 16 and events["requeued_by_target"] == 16'
	expect "$disk" "read.completed == $before + 16 and books and d.in_flight == 0 and read.errors == 0"
	expect "$disk" 'hist("read", "total").percentile(100).high_ns > 69e9'
}
