#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock real '--device=-device e1000e'
# guest-full: --suite trixie --clock real '--device=-device vmxnet3'
# Every NIC and qdisc tunable that a driver has: written, read back, taken back; what it lacks is said.

setup_file() {
	modprobe e1000e
	modprobe vmxnet3
	modprobe sch_fq
	modprobe iscsi_target_mod
	for nic in /sys/class/net/*/device; do nic=${nic%/device}; nic=${nic##*/}; done
	ip addr add 192.0.2.1/24 dev "$nic"
	ip link set "$nic" up
	mkdir -p /sys/kernel/config/target/iscsi/iqn.2026-01.lab.fabtune:nic/tpgt_1
	mkdir /sys/kernel/config/target/iscsi/iqn.2026-01.lab.fabtune:nic/tpgt_1/np/192.0.2.1:3260
}

@test "the NIC's tunables can be written, read back and taken back" {
	cd "$BATS_TEST_TMPDIR"
	run python3 /fabtune/tests/vm/vocabulary.py nic qdisc
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"written: nic.rx_ring"* ]]
	[[ "$output" == *"written: nic.mtu"* ]]
	[[ "$output" == *"written: qdisc.kind"* ]]
	[[ "$output" == *"unsupported: "* ]]
}
