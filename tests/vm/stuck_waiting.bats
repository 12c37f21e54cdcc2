#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# guest-full: --suite sid --clock virtual
# A session whose target is cut off: its requests wait in the block layer, and the module, loaded late, knows of none.

bats_require_minimum_version 1.5.0

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 2ms
}

setup() {
	load fabstat
	load until
}

teardown() {
	ip netns exec wan sysctl -qw net.ipv4.ip_forward=1
	unload_fabstat
	python3 -m fabtune.lab.guest logout || true
}

reads_block() {
	dd "if=/dev/$disk" of=/dev/null bs=4k count=1 "skip=$1" iflag=direct status=none 3>&- 4>&- &
}

@test "what a blocked session sent back and what came after it is listed, with the module and without it" {
	# Nothing is given up, however long it takes.
	iscsiadm -m node -o update -n node.session.timeo.replacement_timeout -v 600
	disk=$(python3 -m fabtune.lab.guest login)
	# While it is still being found, its partitions are read under a lock that everybody who opens it waits for.
	udevadm settle
	dd "if=/dev/$disk" of=/dev/null bs=4k count=1 iflag=direct status=none
	ip netns exec wan sysctl -qw net.ipv4.ip_forward=0
	reads_block 5
	until_true '[ "$(cat /sys/class/iscsi_session/session*/state)" != LOGGED_IN ]'
	reads_block 9
	sleep 2
	load_fabstat stuck_ms=1500
	run -0 fabtune stuck
	echo "$output"
	[[ "$output" == *" $disk "*read*dispatch*unknown*"$disk"*read*scheduler* ]]
	[[ "$output" != *"no request"* && "$output" != *"not seen"* ]]
	fabtune stuck --json | python3 -c '
import json, sys
told = json.load(sys.stdin)
sent, later = told["waiting"]
assert told["requests"] == [] == told["waiting_unseen"], told
assert (sent["disk"], sent["op"], sent["lba"], sent["blocks"], sent["place"]) == (sys.argv[1], "read", 40, 8, "dispatch"), told
assert 2000 < sent["age_ms"] < 300_000, told
assert (later["op"], later["lba"], later["age_ms"], later["place"]) == ("read", None, None, "scheduler"), told' "$disk"
	unload_fabstat
	run -1 fabtune stuck
	[[ "$output" == *unknown*"$disk"*read*scheduler* ]]
	load_fabstat stuck_ms=1500
	ip netns exec wan sysctl -qw net.ipv4.ip_forward=1
	wait
	[ "$(fabtune stuck)" = "no request is older than 1.5 s" ]
}
