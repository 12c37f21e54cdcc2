#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# A thousand real sessions with one LIO target: what show, plan, export, verify, lint and why say is right, and what it takes.

@test "a thousand logins to one target: each verb is right, and its CPU time is kept" {
	cd "$BATS_TEST_DIRNAME/../.."
	# With CLOCK=virtual the seconds are those of a processor that does nothing else.
	machine="--clock real --accel uml"
	[ "${CLOCK:-real}" = real ] || machine="--clock $CLOCK"
	# shellcheck disable=SC2086 # words
	PYTHONPATH=userspace run /usr/bin/python3 -m fabtune lab run --suite trixie $machine --memory-mib 3072 \
		--timeout-s 9000 --out "${OPS_OUT:-$BATS_TEST_TMPDIR}/guest" tests/ops/sessions_guest.sh "${SESSIONS:-1000}"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"right with ${SESSIONS:-1000} sessions"* ]]
}
