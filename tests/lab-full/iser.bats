#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# Linux 6.12 once locked up under this load over iSER: a completion worker kept the only CPU for good.

# loaded KERNEL: small reads and writes, one at a time, on that suite's kernel; a soft lockup ends the guest with its stack.
loaded() {
	PYTHONPATH=userspace run /usr/bin/python3 -m fabtune lab run --suite trixie --kernel-suite "$1" \
		--append softlockup_panic=1 --timeout-s 900 --out "$BATS_TEST_TMPDIR/$1" tests/lab-full/iser_guest.sh
	echo "$output"
	grep -A 40 'soft lockup' "$BATS_TEST_TMPDIR/$1/console.log" || true
	[ "$status" -eq 0 ]
	[[ "$output" == *"moved: read"*"moved: write"* ]]
}

@test "one request of 16 KiB at a time over iSER at 1 Gb/s ends, on 6.12 and on 7.2" {
	cd "$BATS_TEST_DIRNAME/../.."
	loaded trixie
	loaded sid
}
