#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# The limit of the page cache leaves a load of many threads the memory that it needs for itself.

@test "sixteen threads read files through a page cache of 24 MiB to the end" {
	cd "$BATS_TEST_DIRNAME/../.."
	# Without room for the threads themselves the kernel looked for a page to take back, and this did not end.
	run timeout --foreground 1200 env PYTHONPATH=userspace /usr/bin/python3 -m fabtune run pileup --only threads=16 \
		--out "$BATS_TEST_TMPDIR/pileup"
	echo "$output"
	[ "$status" -eq 0 ]
	# 256 MiB of files, of which a tenth fits: nine tenths of what is read crosses the path, whose window holds it at 26 MB/s.
	/usr/bin/python3 - "$BATS_TEST_TMPDIR/pileup/summary.json" <<-'CHECK'
		import json, sys
		(point,) = json.load(open(sys.argv[1]))
		assert point["seeds"] == 3 and point["mb_per_s"] <= 26 / 0.9, point
	CHECK
}
