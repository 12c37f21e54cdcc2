#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# How far the measured parts of a request's time are from the whole, by causes that put it into different parts.

@test "the parts of a request's time sum to it within 2 % at the median and 5 % at most, wherever it is spent" {
	cd "$BATS_TEST_DIRNAME/../.."
	PYTHONPATH=userspace run /usr/bin/python3 -m fabtune lab run --suite "${SUITE:-trixie}" --clock virtual --timeout-s 3000 \
		tests/lab-full/request_time_guest.sh depth-read-20ms-1 depth-write-20ms-1 locked-window-read-20ms-1 \
		locked-window-write-20ms-1 line-read-20ms-1 line-write-20ms-1 disk-late-read-5ms-1 target-wmem-read-20ms-1 \
		initiator-wmem-write-20ms-1 pacing-read-20ms-1 untouched-read-100ms-1 r2t-write-20ms-1
	echo "$output"
	[ "$status" -eq 0 ]
	# The figures, on every run.
	grep -E '^(PARTS|SUM)' <<<"$output" | sed 's/^/# /' >&3
	[[ "$output" != *"own iSCSI queue:"* ]]
	[[ "$output" == *"bars held"* ]]
}
