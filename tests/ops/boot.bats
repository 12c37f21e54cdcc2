#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# A host with systemd, a session at boot and a mount from fstab: what no native file keeps is in force before the mount.

@test "tuned and rebooted, every value is in force before a file system of the session is mounted, power cuts included" {
	cd "$BATS_TEST_DIRNAME/../.."
	BOOTS=${BOOTS:-20}
	PYTHONPATH=userspace run /usr/bin/python3 -m fabtune lab run --suite trixie --clock real --accel uml \
		--memory-mib 1024 --timeout-s 3000 --state "$BATS_TEST_TMPDIR/state" tests/ops/boot_guest.sh "$BOOTS"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"boots right: $BOOTS of $BOOTS"* ]]
	[ -z "$OPS_OUT" ] || echo "{\"boots\": $BOOTS, \"right\": $BOOTS, \"with_power_cut_in_the_unit\": $((BOOTS / 2))}" > "$OPS_OUT/figures-boot.json"
}
