#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock real --accel uml
# guest-full: --suite trixie --clock virtual
# `fabtune guard --heal` beside a session under its load: a path that steps, a value that was undone, one that somebody set.

bats_require_minimum_version 1.5.0

setup_file() {
	modprobe sch_fq || true
	python3 -m fabtune.lab.guest up --rtt 20ms --rate 100mbit
	python3 -m fabtune.lab.guest login
	# What connections find must be there before they are made; afterwards live values alone change.
	fabtune apply wan --role target --netns target --rtt 20ms --rate 100mbit || [ $? -eq 4 ]
	fabtune apply wan --role initiator --rtt 20ms --rate 100mbit --allow-relogin
}

teardown_file() {
	fabtune revert --allow-relogin || true
}

# reads [OPTION...]: reads the disk until it is ended.  Four requests fill the line up to 80 ms, and half of it over
# 150 ms: one that is full there, too, guard takes for full of the load's own queue, and leaves its values alone.
reads() {
	fio --name=x --filename="/dev/$DISK" --readonly --direct=1 --ioengine=libaio --rw=read --bs=256k --iodepth=4 --size=900m \
		--time_based --runtime=3600 "$@" >/dev/null 2>&1 3>&- 4>&- &
	LOAD=$!
}

setup() {
	load common
	load until
	DISK=$(basename /sys/class/iscsi_session/session*/device/target*/*/block/*)
	SID=$(basename /sys/class/iscsi_session/session*)
	reads --rate=2m
	PYTHONUNBUFFERED=1 fabtune guard --heal --json > told 2> err 3>&- 4>&- &
	GUARD=$!
}

teardown() {
	kill "$GUARD" "$LOAD" && wait "$GUARD" "$LOAD" || true
	cat told err
	python3 -m fabtune.lab.guest path --rtt 20ms --rate 100mbit
}

read_ahead() {
	cat "/sys/block/$DISK/queue/read_ahead_kb"
}

moved() {
	awk '{ print $3 }' "/sys/block/$DISK/stat"
}

told() {
	grep -c "\"kind\": \"$1\"" told
}

@test "a path that steps from 20 to 150 ms and to 50 ms is followed with live values alone, in the same session" {
	# Of a line that is full already when it is first looked at nobody knows whether its round trip is a queue's.
	until_true '[ "$(grep -o planned_rtt_s /run/fabtune/guard.json | wc -l)" -eq 2 ]'
	kill "$LOAD"
	wait "$LOAD" || true
	reads
	# And what the line carries is to be known: over a longer path it is less.
	until_true 'carries 9000000'
	for _ in 1 2; do
		touch looked
		until_true '[ /run/fabtune/guard.json -nt looked ]'
	done
	first=$(read_ahead)
	python3 -m fabtune.lab.guest path --rtt 150ms --rate 100mbit
	# On its way there TCP's smoothed round trip may rest at another value, which is followed first.
	until_true '[ "$(read_ahead)" -gt $((5 * first)) ]'
	grep followed told
	python3 -m fabtune.lab.guest path --rtt 50ms --rate 100mbit
	before=$(told path-moved)
	until_true '[ "$(told path-moved)" -gt '$before' ]'
	[ "$(basename /sys/class/iscsi_session/session*)" = "$SID" ]
	kill -0 "$LOAD"
	run ! grep Traceback err
}

@test "a value that was undone comes back, and one that somebody has set stays and is told of" {
	idle=/proc/sys/net/ipv4/tcp_slow_start_after_idle
	[ "$(cat $idle)" = 0 ]
	until_true '[ -e /run/fabtune/guard.json ]'
	echo 1 > $idle
	echo 3 > "/sys/block/$DISK/queue/read_ahead_kb"
	until_true '[ "$(told healed)" -ge 1 ]'
	until_true '[ "$(told drift)" -ge 1 ]'
	[ "$(cat $idle)" = 0 ]
	[ "$(read_ahead)" = 3 ] || [ "$(read_ahead)" = 4 ] || [ "$(read_ahead)" = 0 ]
	grep '"drift"' told | grep -q read_ahead
}
