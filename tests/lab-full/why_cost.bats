#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# What looking costs the session that is looked at, on the virtual clock.

@test "why answers within 12 s, takes 1 % of throughput and of a CPU at most while it looks" {
	cd "$BATS_TEST_DIRNAME/../.."
	PYTHONPATH=userspace run /usr/bin/python3 -m fabtune lab run --suite trixie --clock virtual --timeout-s 1200 \
		tests/lab-full/why_cost_guest.sh
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"bars held"* ]]
	# The figures, on every run.
	echo "$output" | sed -n 's/^.*of a CPU.*$/# &/p' >&3
}
