#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml --memory-mib 1024
# guest-full: --suite bookworm --clock real --accel uml --memory-mib 1024
# Random sequences on random hosts, the short form of `make check-harm`: tests/harm/drive.py --help tells how to replay one.

bats_require_minimum_version 1.5.0

@test "random sequences on random hosts: every value back, no session in use ended, verify true" {
	count=5
	[ "$LENGTH" = short ] || count=12
	run --separate-stderr python3 /fabtune/tests/harm/drive.py --seeds "1-$count" --steps 3
	# shellcheck disable=SC2154
	echo "$output" "$stderr"
	[ "$status" -eq 0 ]
	[ "$(grep -c '"ok": true' <<<"$output")" -eq "$count" ]
}
