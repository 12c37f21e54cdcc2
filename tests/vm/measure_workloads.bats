#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual --memory-mib 3072
# Every workload against its own description, as the kernel's tracepoints see it.

setup_file() {
	load disks
	# A timer completes each request after 1 ms, so that queues fill.
	modprobe null_blk queue_mode=2 irqmode=2 completion_nsec=1000000 hw_queue_depth=1024 gb=1 bs=512 max_sectors=4096
	# Requests are looked at whole, so the queue must not split them.
	echo 1024 > /sys/block/nullb0/queue/max_sectors_kb
	disk=/dev/$(scsi_debug_disk 512)
	# A scheduler would merge and sort; the studies' raw devices did neither.
	echo none > "/sys/block/${disk##*/}/queue/scheduler"
	mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$disk"
	mkdir -p /mnt/work
	mount "$disk" /mnt/work
	insmod /fabtune/kmod/fabstat.ko
}

teardown_file() {
	umount /mnt/work
	rmmod fabstat
}

setup() {
	load disks
}

# The short run takes what says most about sizes, depth, mix and order.
long() {
	[ "${LENGTH:-short}" = full ] || skip "in the full run"
}

shape() {
	run python3 /fabtune/tests/vm/workload_shapes.py "$@"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -ge 2 ]
}

@test "xdd: 256 KiB in order, 32 outstanding" {
	# One CPU needs most of a millisecond to issue a request of this size.
	shape xdd "/dev/$(slow_disk slow100 100)" total_bytes=64m
}

@test "pioraw: sizes and slices by processes" {
	long
	shape pioraw /dev/nullb0 total_bytes=64m block_bytes=1k,64k,256k processes=1,4 --runtime:300ms --ramp:0s
}

@test "oltp: 4 KiB, 70/30, random, 16 outstanding" {
	shape oltp /dev/nullb0 total_bytes=64m --runtime:400ms --ramp:0s
}

@test "latency: 4 KiB, one at a time" {
	long
	shape latency /dev/nullb0 total_bytes=64m --runtime:2s --ramp:0s
}

@test "stress128: 128 threads with one request each, written, then read; fabstat judges" {
	long
	# Half a second a request: one CPU then has the time to keep 128 of them outstanding.
	shape stress128 "/dev/$(slow_disk slow500 500)" processes=128 block_bytes=256k total_bytes=256m --runtime:3s --ramp:0s
}

@test "ioverify: all written once in random order and read back" {
	long
	shape ioverify /mnt/work total_bytes=4m
}

@test "pileup: even sizes of 50 to 60 KB at any byte of every file, through the page cache" {
	# Out of the page cache reads are many.
	shape pileup /mnt/work files=4 file_bytes=8m threads=1,8 --runtime:1s --ramp:0s
}

@test "lmdd: one job and two, each with 1000 KiB in order, flushed, read back" {
	long
	shape lmdd /mnt/work jobs=1,2 job_bytes=20480000
}

@test "mptio: six phases on the device, the rotated reads of the neighbour's region" {
	# The disk takes no request of 1 MiB in one piece.
	shape mptio /dev/nullb0 processes=3 block_bytes=256k cache_file_bytes=512k disk_file_bytes=1m
}

@test "mptio-files: six phases, the rotated reads of the neighbour's file" {
	long
	shape mptio-files /mnt/work processes=3 cache_file_bytes=2m disk_file_bytes=4m
}

@test "mptio-shared: eight processes in one file" {
	long
	shape mptio-shared /mnt/work part_bytes=4m
}

@test "daq: 8 writers at the rate asked for, 8 readers as fast as they can" {
	long
	shape daq /mnt/work stream_bytes_per_s=2000000 file_bytes=8m --runtime:4s --ramp:0s
}

@test "metabench: files in own directories and in one, created, looked up, deleted" {
	long
	shape metabench /mnt/work files=50 processes=4
}
