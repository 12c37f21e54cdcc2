#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# Six cells of `make bench-tune`: `fabtune tune`, told nothing, beside an untouched host, each in a guest of User Mode
# Linux on a virtual clock: clean and lossy, reads and writes, 66 to 176 Mb/s.  What a cell draws by chance differs from
# run to run, so that one misses a bar now and then: not for the short check.
bats_require_minimum_version 1.5.0

@test "told nothing, tune fills six paths, clean and lossy, in time and without holding up the load" {
	cd "$BATS_TEST_DIRNAME/../.."
	# Compiled once (make lab-uml-virtual): a quarter of an hour of CPU that no check is to take by itself.
	PYTHONPATH=userspace /usr/bin/python3 -c 'from fabtune.lab.uml_virtual import find_virtual_uml; find_virtual_uml()' ||
		skip "that kernel is not built here: make lab-uml-virtual"
	run /usr/bin/python3 tests/bench/tune.py --alone --jobs 1 --out "$BATS_TEST_TMPDIR" \
		--only cell-05 --only cell-29 --only cell-30 --only cell-36 --only cell-39 --only cell-40
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"6 cells, all bars held"* ]]
}
