#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# guest-full: --suite sid --clock virtual
# A session that a mounted file system is being written through gets new values in place: none of them is logged out,
# no request fails, no byte is lost.

bats_require_minimum_version 1.5.0
load reconnect

path="--rtt 74ms --rate 100mbit"

setup_file() {
	mounted $path
}

setup() {
	load common
	load until
}

read_kb_per_s() {
	fio --name=x --filename="/dev/$DISK" --readonly --direct=1 --ioengine=libaio --rw=read --bs=256k --iodepth=32 \
		--time_based --runtime=1 --ramp_time=2 --output-format=json > fio.json
	value fio.json "round(told['jobs'][0]['read']['bw_bytes'] / 1e3)"
}

@test "apply --reconnect brings the whole profile into force under a mounted, busy file system, and revert takes it back" {
	before=$(read_kb_per_s)
	writer_starts
	run -4 fabtune apply wan --role target --netns target $path
	fabtune plan wan --role initiator $path --json > plan.json
	run -0 --separate-stderr fabtune apply wan --role initiator $path --reconnect --json
	echo "$output" > applied.json
	[ "$(value applied.json "len(told['reconnected'])")" = 1 ]
	# Nothing is left that only a new login brings.
	[ "$(value applied.json "told['pending']")" = "[]" ]
	[ "$(cat $SESSION/max_outstanding_r2t)" = 16 ]
	writer_ended_well
	after=$(read_kb_per_s)
	echo "# before $before, after $after KB/s, of 12000" >&3
	[ "$after" -ge 11500 ]
	[ "$after" -ge $((3 * before)) ]
	# The pause is no longer than the plan says.
	[ "$(value written.json "told['pause_s'] <= 2.0")" = True ]
	[ "$(value plan.json "told['reconnect']['pause_s'] + 0.3 >= $(value written.json "told['pause_s']")")" = True ]

	writer_starts
	run -0 fabtune revert --reconnect
	[ "$(cat $SESSION/max_outstanding_r2t)" = 1 ]
	writer_ended_well
	[ "$(read_kb_per_s)" -le $((before + 1000)) ]
	[ "$(value written.json "told['pause_s'] <= 4.0")" = True ]
	run -0 fabtune verify
}
