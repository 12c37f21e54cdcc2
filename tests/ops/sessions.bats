#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# A thousand real sessions with one LIO target: what show, plan, export, verify, lint and why say is right, and what it takes.

@test "a thousand logins to one target: each verb is right, and what it takes is kept" {
	cd "$BATS_TEST_DIRNAME/../.."
	# On the virtual clock seconds are those of a processor that does nothing else.
	PYTHONPATH=userspace run /usr/bin/python3 -m fabtune lab run --suite trixie --clock virtual --memory-mib 3072 \
		--timeout-s 9000 --out "${OPS_OUT:-$BATS_TEST_TMPDIR}/guest" tests/ops/sessions_guest.sh "${SESSIONS:-1000}"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"right with ${SESSIONS:-1000} sessions"* ]]
}
