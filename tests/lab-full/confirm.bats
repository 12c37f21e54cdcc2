#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# The dead-man's switch on a host with systemd, over a power cut.

@test "a power cut or the end of the limit takes an unconfirmed apply back, its boot files included; confirmed it stays" {
	cd "$BATS_TEST_DIRNAME/../.."
	PYTHONPATH=userspace run /usr/bin/python3 -m fabtune lab run --suite trixie --clock real --accel uml \
		--memory-mib 1024 --timeout-s 900 --state "$BATS_TEST_TMPDIR/state" tests/lab-full/confirm_guest.sh
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"all as it should be"* ]]
}

@test "an iscsid started by hand outlives who takes values back, and a boot does not wait for a target that comes later" {
	cd "$BATS_TEST_DIRNAME/../.."
	PYTHONPATH=userspace run /usr/bin/python3 -m fabtune lab run --suite trixie --clock real --accel uml \
		--memory-mib 1024 --timeout-s 900 --state "$BATS_TEST_TMPDIR/state" tests/lab-full/switch_guest.sh
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"a boot does not wait for the target"* ]]
}
