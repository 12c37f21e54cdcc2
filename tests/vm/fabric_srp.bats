#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock virtual
# SRP over soft RoCE, through the emulated path: login, verified data, throughput.

setup_file() {
	export FABRIC=srp
	load fabric
	load fabstat
	lab up --rtt 2ms --size-mib 64 --keeps-data
	load_fabstat
}

setup() {
	load fabric
	load fabstat
	cd "$BATS_TEST_TMPDIR"
}

teardown() {
	lab logout || true
	echo "# empty" > /etc/srp_daemon.conf
}

@test "what is written through the routers is read back, and a changed byte is noticed" {
	disk=$(lab login)
	crossed 8 verified "$disk" 16
	flip_is_noticed "$disk"
	run fabtune stat "$disk" --json
	echo "$output"
	[ "$status" -eq 0 ]
	expect "$disk" 'books and d.in_flight == 0 and write.errors == 0 and d.driver == "ib_srp"'
}

@test "throughput is measured" {
	disk=$(lab login)
	crossed 8 measures "$disk"
}
