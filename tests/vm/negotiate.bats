#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock virtual
# What a login agrees on is what the preview said, over a grid of settings.

@test "the preview of 224 pairs of settings is what a login to LIO agrees on" {
	python3 -m fabtune.lab.guest up --rtt 0ms
	run python3 /fabtune/tests/vm/negotiate_grid.py
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "${lines[-1]}" == "224 pairs, 0 differ" ]]
}
