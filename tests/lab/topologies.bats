#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# Topologies of sessions, small: clients of one LUN and a target that stalls, two paths of which one is cut, a stripe set,
# no fabric at all and no storage at all; and `fabtune report` on the records of each.
# Two guests in the short run, begun together: most of a guest's time is its start.
bats_require_minimum_version 1.5.0

setup_file() {
	cd "$BATS_TEST_DIRNAME/../.." || return
	export PYTHONPATH=userspace
	clients > "$BATS_FILE_TMPDIR/clients.toml"
	paths > "$BATS_FILE_TMPDIR/paths.toml"
	stripes > "$BATS_FILE_TMPDIR/stripes.toml"
	others > "$BATS_FILE_TMPDIR/others.toml"
	for name in $(kinds); do
		measured $name 3>&- &
	done
	wait
}

# kinds: what is measured; stripes, and records without fabric or storage (tests/unit/test_records.py), in the full run alone.
kinds() {
	echo clients paths
	[ "${LENGTH:-short}" != full ] || echo stripes others
}

# measured NAME: runs NAME.toml; exit code, and table and verdicts, go to files of that name.
measured() {
	local status=0
	/usr/bin/python3 -m fabtune run "$BATS_FILE_TMPDIR/$1.toml" --jobs 1 --out "$BATS_FILE_TMPDIR/$1" \
		> "$BATS_FILE_TMPDIR/$1.log" 2>&1 || status=$?
	echo $status > "$BATS_FILE_TMPDIR/$1.status"
}

# ended NAME STATUS: what `measured NAME` said is in $output.
ended() {
	output=$(cat "$BATS_FILE_TMPDIR/$1.log")
	echo "$output"
	[ "$(cat "$BATS_FILE_TMPDIR/$1.status")" -eq "$2" ]
	[ -s "$BATS_FILE_TMPDIR/$1/index.html" ]
}

clients() {
	local stalls='"0s", "2s"'
	[ "${LENGTH:-short}" = full ] || stalls='"2s"'
	cat <<-EOF
		seeds = 1
		[factors]
		stall = [$stalls]
		[fixed]
		clients = 4
		op = "read"
		rate = "50mbit"
		depth = 2
		size = "16KiB"
		ramp = "1s"
		runtime = "3s"
		[[expect]]
		says = "no minute with it"
		where = { stall = "2s" }
		figure = "oldest_s"
		at_most = 60
		[plot]
		x = "stall"
	EOF
	[ "${LENGTH:-short}" = full ] || return 0
	cat <<-EOF
		[[expect]]
		says = "served alike"
		where = { stall = "0s" }
		figure = "slowest_share"
		at_least = 0.8
		[[expect]]
		says = "the line is full"
		where = { stall = "0s" }
		figure = "fraction_of_bound"
		at_least = 0.95
		at_most = 1.01
		[[expect]]
		says = "no minute without the stall"
		where = { stall = "0s" }
		figure = "oldest_s"
		at_most = 60
	EOF
}

@test "clients of one LUN are all served, and a target that stalls fails GUPFS's criterion" {
	ended clients 1
	[[ "$output" == *"NOT AS EXPECTED: no minute with it (6"* ]]
	[ "${LENGTH:-short}" = full ] || return 0
	[[ "$output" == *"as expected: served alike"* ]]
	[[ "$output" == *"as expected: the line is full"* ]]
	[[ "$output" == *"as expected: no minute without the stall"* ]]
}

paths() {
	cat <<-EOF
		seeds = 1
		[factors]
		cut = ["1s"]
		[fixed]
		sessions = 2
		op = "read"
		rtt = "20ms"
		depth = 4
		size = "4KiB"
		ramp = "1s"
		runtime = "20s"
		[[expect]]
		says = "one path is gone"
		figure = "paths_failed"
		at_least = 1
		at_most = 1
		[[expect]]
		says = "requests waited for it, and came back"
		figure = "oldest_s"
		at_least = 10
		at_most = 17
		[[expect]]
		says = "the other path served the rest meanwhile"
		figure = "fraction_of_bound"
		at_least = 0.5
		at_most = 0.9
		[plot]
		x = "cut"
	EOF
}

@test "of two paths one is cut: it fails, and the load goes on over the other" {
	ended paths 0
	[ "$(grep -c '^as expected' <<< "$output")" -eq 3 ]
}

stripes() {
	cat <<-EOF
		seeds = 1
		[factors]
		targets = [2]
		[fixed]
		profile = "wan"
		target_rate = 13
		op = "read"
		ramp = "1s"
		runtime = "3s"
		[[expect]]
		says = "both targets give what their disks do: one alone would be half of it"
		figure = "fraction_of_bound"
		at_least = 0.95
		at_most = 1.03
		[plot]
		x = "targets"
	EOF
}

@test "two striped targets, their sessions logged in again for a profile, give what their disks give together" {
	[ "${LENGTH:-short}" = full ] || skip "in the full run"
	ended stripes 0
	[ "$(grep -c '^as expected' <<< "$output")" -eq 1 ]
	# The record says what both ends were set to.
	run -0 zcat "$BATS_FILE_TMPDIR"/stripes/*/run-1/read.run.json.gz
	[[ "$output" == *'"target: tcp.rmem_max of '* ]] && [[ "$output" == *'"tcp.rmem_max of '* ]]
}

others() {
	cat <<-EOF
		seeds = 1
		[factors]
		workload = ["xdd", "net"]
		[fixed]
		fabric = "scsi_debug"
		op = "read"
		depth = 8
		size = "4KiB"
		ramp = "1s"
		runtime = "3s"
		[plot]
		x = "workload"
	EOF
}

@test "every topology leaves records that fabtune report reads" {
	for name in $(kinds); do
		[ "$name" != others ] || ended others 0
		run -0 /usr/bin/python3 -m fabtune report "$BATS_FILE_TMPDIR/$name" --out "$BATS_TEST_TMPDIR/$name.html"
		echo "$name: $output"
		[ -s "$BATS_TEST_TMPDIR/$name.html" ]
		run -0 /usr/bin/python3 -m fabtune report "$BATS_FILE_TMPDIR/$name" --json
		[ "$(grep -c '"file"' <<< "$output")" -eq "$(find "$BATS_FILE_TMPDIR/$name" -name '*.run.json.gz' | wc -l)" ]
		[ "$(grep -c '"file"' <<< "$output")" -ge 1 ]
	done
}
