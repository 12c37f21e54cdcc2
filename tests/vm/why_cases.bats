#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# The short form of `make bench-why`: does `fabtune why` name what limits each of twelve sessions, and advise nothing where
# the line is full?  What limits is known from the bench's own runs, in which each candidate was lifted alone
# (tests/bench/why/short.toml and short.json).  Five of them are limiters that why.bats has, too: the full run's.

bats_require_minimum_version 1.5.0

HAS_WHY=(
	short-window-read-50ms-1 short-target-buffer-read-100ms-1 short-loss-read-20ms-1 short-pacing-write-5ms-1
	short-depth-mixed-50ms-1
)
[ "${LENGTH:-short}" != full ] || HAS_WHY=()

setup_file() {
	python3 /fabtune/tests/bench/why_short_guest.py "$BATS_FILE_TMPDIR" "${HAS_WHY[@]}"
}

right() {
	[[ " ${HAS_WHY[*]} " != *" $1 "* ]] || skip "in the full run"
	cat "$BATS_FILE_TMPDIR/$1"
	grep -q ^right: "$BATS_FILE_TMPDIR/$1"
}

@test "reads that fill the line, though the target refuses some: nothing is advised" {
	right short-line-refusing-read-20ms-1
}

@test "reads: the initiator's locked window" {
	right short-window-read-50ms-1
}

@test "writes: the target's receive window" {
	right short-target-window-write-50ms-1
}

@test "reads: the target's send buffer" {
	right short-target-buffer-read-100ms-1
}

@test "reads: the commands that the session may have" {
	right short-cmds-max-read-20ms-1
}

@test "writes: the target's window of commands" {
	right short-command-window-write-20ms-1
}

@test "writes: leave to send" {
	right short-r2t-write-20ms-1
}

@test "reads: lost packets" {
	right short-loss-read-20ms-1
}

@test "writes: a limit to the rate on the initiator" {
	right short-pacing-write-5ms-1
}

@test "reads and writes: the target's disk" {
	right short-disk-mixed-5ms-1
}

@test "reads and writes: too few requests" {
	right short-depth-mixed-50ms-1
}

@test "writes: the initiator's send buffer, though leave to send would limit, too" {
	right short-both-buffer-r2t-write-50ms-1
}
