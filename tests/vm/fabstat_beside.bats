#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# together: module
# On the same tracepoints as blktrace, bpftrace and ftrace: all see the same requests.

setup() {
	load fabstat
}

teardown() {
	unload_fabstat
	modprobe -r null_blk
}

@test "blktrace, bpftrace, ftrace and the module count the same requests, and go in any order" {
	command -v bpftrace > /dev/null || skip "this image has no bpftrace"
	[ -e /sys/kernel/btf/vmlinux ] || skip "this kernel tells bpftrace nothing of its types"
	modprobe null_blk queue_mode=2 irqmode=0 nr_devices=1 gb=1
	load_fabstat
	blktrace -d /dev/nullb0 -a issue -a complete -D /tmp -o trace -b 4096 -n 16 > /tmp/blktrace.log 2>&1 &
	blktrace=$!
	bpftrace -e 'tracepoint:block:block_rq_issue /args.nr_sector == 8/ { @issue++ } tracepoint:block:block_rq_complete /args.nr_sector == 8/ { @complete++ }' > /tmp/bpftrace.log 2>&1 &
	bpftrace=$!
	echo 8192 > /sys/kernel/tracing/buffer_size_kb
	echo 1 > /sys/kernel/tracing/events/block/block_rq_complete/enable
	wait_for grep -q Attach /tmp/bpftrace.log
	wait_for test -e /tmp/trace.blktrace.0
	load_disk nullb0 --rw=randread --bs=4k --iodepth=8 --number_ios=2000 --size=64m
	echo 0 > /sys/kernel/tracing/events/block/block_rq_complete/enable
	kill -INT $bpftrace $blktrace
	wait $bpftrace $blktrace || true
	counted=$(seen nullb0 'read.completed')
	[ "$counted" -ge 2000 ]
	expect nullb0 'hist("read").count == read.completed and books and d.in_flight == 0'
	cat /tmp/bpftrace.log
	grep -q "@issue: $counted" /tmp/bpftrace.log
	grep -q "@complete: $counted" /tmp/bpftrace.log
	[ "$(grep -c 'block_rq_complete:.* R ' /sys/kernel/tracing/trace)" -eq "$counted" ]
	[ "$(blkparse -D /tmp -i trace -a complete -f '%a %d\n' -q | grep -c '^C R')" -eq "$counted" ]
	# The module leaves first, the others keep seeing.
	bpftrace -e 'tracepoint:block:block_rq_issue { @issue++ }' > /tmp/bpftrace.log 2>&1 &
	bpftrace=$!
	: > /tmp/bpftrace.log
	wait_for grep -q Attach /tmp/bpftrace.log
	rmmod fabstat
	load_disk nullb0 --rw=randread --bs=4k --number_ios=100 --size=64m
	kill -INT $bpftrace
	wait $bpftrace || true
	[ "$(sed -n 's/@issue: //p' /tmp/bpftrace.log)" -ge 100 ]
}
