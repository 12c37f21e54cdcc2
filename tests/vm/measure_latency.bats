#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# Latencies as reported, by fabstat and by fio, against every request that the kernel saw, the ends of runs included.

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 100ms
	insmod /fabtune/kmod/fabstat.ko
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

long() {
	[ "${LENGTH:-short}" = full ] || skip "in the full run"
}

# held PATH... -- WORKLOAD RAMP RUNTIME SETTING...: log in over such a path, and hold a run against the tracepoints.
held() {
	local path=()
	while [ "$1" != -- ]; do
		path+=("$1")
		shift
	done
	shift
	python3 -m fabtune.lab.guest path "${path[@]}"
	disk=$(python3 -m fabtune.lab.guest login)
	run python3 /fabtune/tests/vm/latency_reference.py "$disk" "$@"
	echo "$output"
	python3 -m fabtune.lab.guest logout
	[ "$status" -eq 0 ]
}

@test "untouched over 100 ms: 32 reads of 256 KiB that take seconds each" {
	held --rtt 100ms -- xdd 4s 6s op=read
}

@test "reads and writes together: 70/30, 16 of 4 KiB, over 10 ms" {
	held --rtt 10ms -- oltp 1s 3s
}

@test "untouched over 100 ms: writes" {
	long
	held --rtt 100ms -- xdd 4s 6s op=write
}

@test "one read of 4 KiB at a time over 20 ms" {
	long
	held --rtt 20ms -- xdd 1s 4s op=read block_bytes=4k queue_depth=1
}

@test "8 reads of 64 KiB over 20 ms" {
	long
	held --rtt 20ms -- xdd 1s 4s op=read block_bytes=64k queue_depth=8
}

@test "8 writes of 64 KiB over 20 ms" {
	long
	held --rtt 20ms -- xdd 1s 4s op=write block_bytes=64k queue_depth=8
}

@test "32 reads of 256 KiB without a round trip" {
	long
	held --rtt 0ms -- xdd 1s 3s op=read
}

@test "32 writes of 256 KiB without a round trip" {
	long
	held --rtt 0ms -- xdd 1s 3s op=write
}

@test "32 reads of 4 KiB over 10 ms that loses one packet in a thousand" {
	long
	held --rtt 10ms --loss 0.1% -- xdd 1s 4s op=read block_bytes=4k
}

@test "4 reads of 1 MiB over 50 ms" {
	long
	held --rtt 50ms -- xdd 3s 6s op=read block_bytes=1m queue_depth=4
}

@test "16 writes of 16 KiB over a slow path" {
	long
	held --rtt 5ms --rate 100mbit -- xdd 1s 4s op=write block_bytes=16k queue_depth=16
}

@test "random reads of 4 KiB, one at a time, over 5 ms" {
	long
	held --rtt 5ms -- latency 1s 4s
}
