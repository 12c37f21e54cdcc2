#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock real
# apply and revert, killed or cut off from their disk at every step and at random moments.

bats_require_minimum_version 1.5.0

@test "revert gives every value back in 200 kills and power cuts" {
	modprobe loop
	python3 -m fabtune.lab.guest up --rtt 0ms
	python3 -m fabtune.lab.guest login
	run --separate-stderr python3 /fabtune/tests/vm/kill_points.py 200
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "${lines[-1]}" == *" cases, 0 failed" ]]
}
