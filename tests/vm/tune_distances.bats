#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# `fabtune tune` on a host with two sessions: one of 100 ms and 100 Mb/s, one of 0.1 ms, whose records are its own.

bats_require_minimum_version 1.5.0

setup_file() {
	modprobe sch_fq || true
	python3 -m fabtune.lab.guest up --rtt 100ms --rate 100mbit
	python3 -m fabtune.lab.guest login
	local base=/sys/kernel/config/target near=iqn.2026-01.lab.fabtune:near attribute
	local tpg=$base/iscsi/$near/tpgt_1
	mkdir -p $tpg
	ip link set lo up
	ip addr replace 10.9.0.1/32 dev lo
	mkdir $tpg/np/10.9.0.1:3260
	mkdir $tpg/lun/lun_0
	ln -s $base/core/rd_mcp_0/disk0 $tpg/lun/lun_0/disk
	for attribute in generate_node_acls=1 cache_dynamic_acls=1 demo_mode_write_protect=0 authentication=0; do
		echo "${attribute#*=}" > "$tpg/attrib/${attribute%=*}"
	done
	echo 1 > $tpg/enable
	iscsiadm -m discovery -t st -p 10.9.0.1:3260
	iscsiadm -m node -T $near -p 10.9.0.1:3260 -o update -n node.session.iscsi.DefaultTime2Wait -v 2
	iscsiadm -m node -T $near -p 10.9.0.1:3260 --login
}

setup() {
	load common
	load climbing
	load until
	until_true 'disk near && disk target'
	DISK=$(disk target)
	ip netns exec target sysctl -qw net.ipv4.tcp_wmem="4096 16384 262144"
}

teardown() {
	rest
	[ -z "${NEAR_LOAD:-}" ] || kill "$NEAR_LOAD" || true
	fabtune revert --reconnect >/dev/null 2>&1 || true
}

# disk TARGET: the disk of its session.
disk() {
	local session
	session=$(grep -l ":$1\$" /sys/class/iscsi_session/session*/targetname) &&
		basename "$(compgen -G "${session%/*}/device/target*/*/block/*")"
}

time2wait() {
	iscsiadm -m node -T iqn.2026-01.lab.fabtune:near -p 10.9.0.1:3260 -o show |
		sed -n 's/^node.session.iscsi.DefaultTime2Wait = //p'
}

@test "the far session is tuned beside the near one, though that is busy as well" {
	fio --name=near --filename="/dev/$(disk near)" --direct=1 --ioengine=libaio --rw=randread --bs=4k --iodepth=1 \
		--rate_iops=200 --size=100m --time_based --runtime=3600 >/dev/null 2>&1 3>&- 4>&- &
	NEAR_LOAD=$!
	under_load randread 32
	fabtune tune --yes --for 8s --target-netns target --json > tune.json
	cat tune.json
	[ "$(of '["steps"][0]["kept"]')" = True ]
	[ "$(of '["last_bytes_per_s"] > 8e6')" = True ]
	[ "$(ip netns exec target sysctl -n net.ipv4.tcp_wmem | cut -f 3)" -gt 1000000 ]
}

@test "what is tuned on the far disk alone leaves the near session's record as it was" {
	# In the short run tests/unit/test_tune_planned.py looks at the plan of such a step.
	[ "${LENGTH:-short}" = full ] || skip "in the full run"
	under_load randread 32
	fabtune tune --yes --for 8s --target-netns target --on "$DISK" --json > tune.json
	cat tune.json
	[ "$(of '["steps"][0]["kept"]')" = True ]
	[ "$(time2wait)" = 2 ]
}
