#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite trixie --clock virtual
# What a capture proves of a session, against known configurations.

setup_file() {
	# What is judged are PDUs, as many at any rate.
	python3 -m fabtune.lab.guest up --rtt 1ms --rate 50mbit
}

@test "known configurations (12, in the short run 3) are confirmed from the wire, and wrong claims contradicted" {
	run python3 /fabtune/tests/vm/proof_grid.py
	echo "$output"
	[ "$status" -eq 0 ]
	count=$([ "$LENGTH" = full ] && echo 12 || echo 3)
	[[ "${lines[-1]}" == "$count configurations, "*", $((count * 5)) wrong ones contradicted, 0 wrong" ]]
}

@test "measure --capture says configured and seen, and a contradicted claim gives exit code 3" {
	disk=$(python3 -m fabtune.lab.guest login)
	words=(measure xdd --on "/dev/$disk" --confirm="$disk" --set total_bytes=2m --set queue_depth=4 --capture)
	run fabtune "${words[@]}" --out "$BATS_TEST_TMPDIR/right"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *ImmediateData*"as configured"* ]]
	run fabtune "${words[@]}" --out "$BATS_TEST_TMPDIR/wrong" --claim CommandWindow=999
	echo "$output"
	[ "$status" -eq 3 ]
	[[ "$output" == *"not as configured"* ]]
	python3 -m fabtune.lab.guest logout
}

@test "a capture waits for a quiet session, so that no PDU is cut, and says when it never is" {
	disk=$(python3 -m fabtune.lab.guest login)
	run python3 /fabtune/tests/vm/busy_session.py "$disk"
	echo "$output"
	[ "$status" -eq 0 ]
	python3 -m fabtune.lab.guest logout
}
