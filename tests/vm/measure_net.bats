#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# together: path
# The network before the storage: what measure net says of a path whose truth is known.

setup_file() {
	load stands
	stands --rtt 10ms --rate 300mbit
	ip netns exec target iperf3 --server --daemon
	export PEER=10.2.0.1
}

teardown_file() {
	ip netns pids target | xargs -r ps -o pid=,comm= -p | awk '$2 == "iperf3" {print $1}' | xargs -r kill
}

setup() {
	cd "$BATS_TEST_TMPDIR"
}

field() {
	zcat runs/*.run.json.gz | python3 -c "import json, statistics, sys; record = json.load(sys.stdin); print(($1))"
}

@test "round trip, MTU and window-bound TCP are what the path was made to be" {
	run fabtune measure net --peer $PEER --runtime 1s --windows 64k,0 --streams 1 --json
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(field '9.9 < statistics.median(record["round_trips_ms"]) < 10.8')" = True ]
	[ "$(field 'record["path_mtu_bytes"]')" = 1500 ]
	# A window of 64 KiB, which the kernel doubles for its own bookkeeping, cannot fill 10 ms at 300 Mb/s.
	[ "$(field '[len(record["steps"]), all(s["iperf3"]["end"]["sum_received"]["bits_per_second"] < 2e8 for s in record["steps"][:2])]')" = "[4, True]" ]
}

@test "a path that swallows large packets is told from one that says what it takes" {
	[ "${LENGTH:-short}" = full ] || skip "in the full run"
	# What arrives at the middle of the path and is too large for it is dropped without a word.
	ip -n wan link set w0 mtu 1400
	run fabtune measure net --peer $PEER --runtime 1s --streams 1
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"black hole"*"marked incomplete"* ]]
	# veth lets four bytes more pass, for a VLAN tag.
	[ "$(field 'record["interface_mtu_bytes"], record["path_mtu_bytes"]')" = "(1500, 1404)" ]
	rm -r runs
	# A router that knows that its next link is narrow answers.
	ip -n shaper link set s1 mtu 1400
	run fabtune measure net --peer $PEER --runtime 0.5s --streams 1 --json
	ip -n shaper link set s1 mtu 1500
	ip -n wan link set w0 mtu 1500
	ip route flush cache
	[ "$status" -eq 0 ]
	[[ "$output" == *"and says so"* ]]
	[ "$(field 'record["interface_mtu_bytes"], record["path_mtu_bytes"]')" = "(1500, 1400)" ]
}

@test "a peer without a server, and no peer at all, are said" {
	run fabtune measure net --peer 10.2.0.1 --port 5999 --runtime 1s
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"iperf3 --server"* ]]
	run fabtune measure net
	[ "$status" -eq 2 ]
	[[ "$output" == *"--peer"* ]]
}
