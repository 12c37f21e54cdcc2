#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite trixie --clock virtual
# `fabtune whatif` on a real session whose window is locked too small: what it foretells is held against what comes.

bats_require_minimum_version 1.5.0

setup_file() {
	modprobe sch_fq || true
	python3 -m fabtune.lab.guest up --rtt 100ms --rate 50mbit
	iscsiadm -m node -o update -n node.conn[0].tcp.window_size -v 131072
	# Two windows of the line: what the target's own buffers may be.
	for place in "" "nsenter --net=/run/netns/target"; do
		$place sysctl -qw net.ipv4.tcp_rmem="4096 1048576 8388608" net.ipv4.tcp_wmem="4096 1048576 8388608"
	done
	python3 -m fabtune.lab.guest login
}

setup() {
	load common
	load until
	DISK=$(ls /sys/class/iscsi_session/session*/device/target*/*/block)
}

teardown() {
	rest
}

rest() {
	[ -z "${LOAD:-}" ] || { kill "$LOAD" && wait "$LOAD"; } 2>/dev/null || true
	LOAD=""
}

moved() {
	awk '{ print $3 }' "/sys/block/$DISK/stat"
}

# under_load SECTORS: returns when so much has passed, slow start included.
under_load() {
	fio --name=x --filename="/dev/$DISK" --direct=1 --ioengine=libaio --rw=randread --bs=256k --iodepth=32 --size=900m \
		--time_based --runtime=3600 >/dev/null 2>&1 3>&- 4>&- &
	LOAD=$!
	local begun
	begun=$(moved)
	until_true "[ \$((\$(moved) - $begun)) -gt $1 ]"
}

# told FILE EXPRESSION: what Python makes of the first direction in FILE.
told() {
	python3 -c "import json; way = json.load(open('$1'))['devices'][0]['ways'][0]; print($2)"
}

@test "what it cannot be asked is named" {
	run -2 fabtune whatif "$DISK"
	[[ $output == *"no profile and no NAME=VALUE"* ]]
	run -2 fabtune whatif iscsi.tcp_windw=0
	[[ $output == *"iscsi.tcp_window"* ]]
	run -2 fabtune whatif wan nosuch
	[[ $output == *"no such block device"* ]]
}

@test "an idle disk, and a value that the model does not know, have no figure" {
	run -5 fabtune whatif iscsi.tcp_window=0 --for 1s
	[[ $output == *"idle, nothing to foretell"* ]]
	run -5 fabtune whatif nic.rx_ring=512 --for 1s
	[[ $output == *"the model knows nothing"*"nic.rx_ring"* ]]
}

@test "without the line's rate it gives an interval, with it a figure; the values then bring what it said" {
	under_load 6000
	run -5 --separate-stderr fabtune whatif iscsi.tcp_window=0 --for 3s --target-netns target
	[[ $output == *"cannot tell: from"*"--rate"* ]]
	fabtune whatif iscsi.tcp_window=0 --for 3s --target-netns target --rate 50mbit --json > both.json
	fabtune whatif iscsi.tcp_window=0 --for 3s --rate 50mbit --json > one.json
	fabtune whatif wan --for 3s --rate 50mbit --json > wan.json
	rest
	python3 -m fabtune.lab.guest logout
	iscsiadm -m node -o update -n node.conn[0].tcp.window_size -v 0
	DISK=$(python3 -m fabtune.lab.guest login)
	under_load 60000
	fabtune whatif iscsi.tcp_window=0 --for 5s --rate 50mbit --json > after.json
	for name in both one wan; do
		[ "$(told $name.json "(way['now_limiter'], way['limiter'])")" = "('receive-window', 'line')" ]
		python3 -c "import sys; a, b = map(float, sys.argv[1:]); print(a, b); assert abs(a - b) <= 0.12 * b" \
			"$(told $name.json "way['bytes_per_s']")" "$(told after.json "way['now_bytes_per_s']")"
	done
}
