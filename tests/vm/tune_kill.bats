#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite bookworm --clock real --accel uml
# apply, re-login, persist and revert, killed or cut off from their disk at every step and at random moments.

bats_require_minimum_version 1.5.0

@test "after a kill at any point verify tells the truth, and revert brings back every value and the session" {
	modprobe loop || [ -e /dev/loop-control ]
	python3 -m fabtune.lab.guest up --rtt 0ms
	python3 -m fabtune.lab.guest login
	count=8
	[ "$LENGTH" = short ] || count=500
	run --separate-stderr python3 /fabtune/tests/vm/kill_points.py "$count"
	echo "$output"
	echo "$stderr"
	[ "$status" -eq 0 ]
	[[ "${lines[-1]}" == "$count cases, 0 failed" ]]
}
