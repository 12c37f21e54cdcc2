#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# The drgn script names a stuck request on a live kernel, and in the dump of the same kernel after its crash.

@test "drgn names the stuck request, live and from a vmcore" {
	cd "$BATS_TEST_DIRNAME/../.."
	/usr/bin/python3 tests/ops/crash_dump.py "${OPS_OUT:-$BATS_TEST_TMPDIR}/dump"
}
