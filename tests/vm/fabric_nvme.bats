#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# NVMe/TCP, the line of reference, through the emulated path.

setup_file() {
	load fabric
	bring_up nvme-tcp
}

setup() {
	load fabric
	cd "$BATS_TEST_TMPDIR"
}

teardown() {
	lab logout || true
}

@test "what is written through the routers is read back, and a changed byte is noticed" {
	disk=$(lab login)
	crossed 8 verified "$disk" 16
	flip_is_noticed "$disk"
	expect "$disk" 'books and d.in_flight == 0 and write.errors == 0'
}

@test "throughput is measured" {
	disk=$(lab login)
	crossed 8 measures "$disk"
}
