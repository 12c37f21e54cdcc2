#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# A host that is reset in the middle of apply or revert, boots from its own files, and takes everything back.

@test "after 12 resets at random moments revert gives every value back" {
	run /usr/bin/python3 "$BATS_TEST_DIRNAME/reset_cases.py" 12 "$BATS_TEST_TMPDIR"
	echo "$output"
	[ "$status" -eq 0 ]
}
