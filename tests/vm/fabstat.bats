#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# guest: --suite sid --clock virtual
# together: module
# What the module counts is what happened: against fio, diskstats, known delays and the verbs that show it.

# thorough: what the default suite's kernel stands for, the others show in the full run alone.
thorough() {
	[ "${LENGTH:-short}" = full ] || grep -q '^VERSION_CODENAME=trixie$' /etc/os-release || skip "in the full run"
}

DELAY=/sys/bus/pseudo/drivers/scsi_debug/delay

setup() {
	load fabstat
	unload_fabstat
}

teardown() {
	unload_fabstat
	! [ -d /sys/kernel/config/nullb/nullb0 ] || rmdir /sys/kernel/config/nullb/nullb0
	modprobe -r scsi_debug null_blk
}

# diskstats FIELD of /sys/block/DISK/stat, counted from 1.
field() {
	awk -v n="$2" '{ print $n }' "/sys/block/$1/stat"
}

@test "counters equal diskstats and the histograms' totals, on the raw disk" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=64 lbpu=1 lbpws=1)
	echo "write back" > "/sys/block/$disk/queue/write_cache"
	load_fabstat
	before=($(cat "/sys/block/$disk/stat"))
	load_disk "$disk" --rw=randrw --bs=4k --size=8m --fsync=8
	load_disk "$disk" --rw=randwrite --bsrange=512-64k --iodepth=16 --size=8m
	blkdiscard --offset 8m --length 16m "/dev/$disk"
	after=($(cat "/sys/block/$disk/stat"))
	stat() { echo $((after[$1 - 1] - before[$1 - 1])); }
	[ "$(stat 1)" -gt 500 ] && [ "$(stat 5)" -gt 500 ] && [ "$(stat 12)" -gt 0 ] && [ "$(stat 16)" -gt 50 ]
	# diskstats counts an fsync twice: as a write without data, which no device sees, and as a flush.
	expect "$disk" "(read.completed, discard.completed, flush.completed) == ($(stat 1), $(stat 12), $(stat 16))" \
		"write.completed + flush.completed == $(stat 5)" \
		"(read.bytes, write.bytes, discard.bytes) == ($(stat 3) * 512, $(stat 7) * 512, $(stat 14) * 512)"
	all_books_close
}

@test "under a file system with journal flushes and discards the books close as well" {
	thorough
	disk=$(scsi_debug_disk delay=0 dev_size_mb=64 lbpu=1 lbpws=1)
	echo "write back" > "/sys/block/$disk/queue/write_cache"
	mkfs.ext4 -q -E nodiscard "/dev/$disk"
	mkdir -p /tmp/mnt
	load_fabstat
	before=($(cat "/sys/block/$disk/stat"))
	mount "/dev/$disk" /tmp/mnt
	fio --name=a --directory=/tmp/mnt --rw=randrw --bs=4k --size=8m --direct=1 --fsync=8 --output=/tmp/fio.log
	fstrim /tmp/mnt
	umount /tmp/mnt
	after=($(cat "/sys/block/$disk/stat"))
	stat() { echo $((after[$1 - 1] - before[$1 - 1])); }
	[ "$(stat 12)" -gt 0 ] && [ "$(stat 16)" -gt 50 ]
	# diskstats takes the write zeroes of the journal's first blocks for writes.
	expect "$disk" "(read.completed, discard.completed, flush.completed) == ($(stat 1), $(stat 12), $(stat 16))" \
		"read.bytes + write.bytes + other.bytes == ($(stat 3) + $(stat 7)) * 512" \
		"write.completed + other.completed <= $(stat 5)"
	all_books_close
}

@test "a flush that fails is one error, and so are data that fail under one: nothing is unmatched" {
	thorough
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	[ -d /sys/kernel/debug/scsi_debug ] || skip "scsi_debug injects single errors from Linux 6.7 on"
	echo "write back" > "/sys/block/$disk/queue/write_cache"
	modprobe null_blk nr_devices=0
	dir=/sys/kernel/config/nullb/nullb0
	mkdir $dir
	[ -e $dir/fua ] || skip "null_blk does without FUA from Linux 6.11 on"
	echo 2 > $dir/queue_mode; echo 64 > $dir/size; echo 1 > $dir/memory_backed; echo 1 > $dir/cache_size
	echo 0 > $dir/fua; echo +0-7 > $dir/badblocks; echo 1 > $dir/power
	wait_for test -b /dev/nullb0
	load_fabstat
	inject "$disk" "2 -1 0x35 0 0 0x2 0x4 0x44 0"
	! python3 -c 'import os, sys; os.fsync(os.open(sys.argv[1], os.O_RDWR))' "/dev/$disk" || return 1
	expect "$disk" 'flush.errors == 1 and write.errors == 0 and books and d.in_flight == 0' \
		'not events["never_issued"] and not events["unmatched"]'
	! dd if=/dev/zero of=/dev/nullb0 bs=4k count=1 oflag=direct,dsync status=none || return 1
	dd if=/dev/zero of=/dev/nullb0 bs=4k count=1 seek=8 oflag=direct,dsync status=none
	expect nullb0 'write.completed == 2 and write.errors == 1 and flush.completed and flush.errors == 0' \
		'not events["never_issued"] and not events["unmatched"] and books and d.in_flight == 0'
}

all_books_close() {
	expect "$disk" 'all(hist(op).count == ops[op].completed for op in ops)' \
		'all(hist(op, "total").count == ops[op].completed for op in ops)' \
		'books and d.in_flight == 0 and d.forgotten == 0' \
		'not any(events[name] for name in ("unmatched", "untracked", "never_issued", "no_histogram"))'
}

@test "a delay of 1 ms lands in the bucket that holds 1 ms, at every percentile" {
	exact
	thorough
	disk=$(scsi_debug_disk ndelay=1000000 dev_size_mb=16)
	load_fabstat
	load_disk "$disk" --rw=randread --bs=4k --iodepth=4 --number_ios=500 --size=100%
	for percent in 0.1 50 99.9; do
		expect "$disk" "i.percentile($percent, 'read').low_ns <= $(at_most 1_048_576) and i.percentile($percent, 'read').high_ns > 1_000_000"
	done
	expect "$disk" "0.95e6 < read.device_ns / read.completed < $(at_most 1.05e6)"
}

@test "the depth's integral agrees with Little's law, and the limit's time with the load" {
	exact
	thorough
	disk=$(scsi_debug_disk ndelay=2000000 dev_size_mb=16 max_queue=32)
	echo 8 > "/sys/block/$disk/device/queue_depth"
	load_fabstat
	load_disk "$disk" --rw=randread --bs=4k --iodepth=4 --number_ios=400 --size=100%
	# L = lambda W: the integral is kept apart from the times it is compared with.
	expect "$disk" 'd.highest == 4 and i.at_limit_ns == 0' \
		'abs(i.depth_ns / (read.device_ns + sum(op.device_ns for name, op in ops.items() if name != "read")) - 1) < 1e-3'
	load_disk "$disk" --rw=randread --bs=4k --iodepth=16 --number_ios=800 --size=100%
	# 800 requests, 8 at a time, 2 ms each: 200 ms at the limit, but for the moments between two.
	expect "$disk" 'd.highest == 8 and d.limit == 8' \
		'0.15e9 < i.at_limit_ns < 0.25e9' \
		'd.in_flight == 0'
}

@test "when the kernel gives up the cycle counter the module follows, and its times and integrals stay right" {
	exact
	thorough
	clocks=/sys/devices/system/clocksource/clocksource0
	[ "$(cat $clocks/current_clocksource)" = tsc ]
	other=$(tr ' ' '\n' < $clocks/available_clocksource | grep -v -m1 '^tsc$')
	disk=$(scsi_debug_disk ndelay=1000000 dev_size_mb=16)
	load_fabstat
	grep -q ' clock=counter ' /sys/kernel/debug/fabstat/stats
	load_disk "$disk" --rw=randread --bs=4k --iodepth=4 --number_ios=200 --size=100%
	echo "$other" > $clocks/current_clocksource
	followed() { grep -q ' clock=timekeeper ' /sys/kernel/debug/fabstat/stats; }
	wait_for followed
	load_disk "$disk" --rw=randread --bs=4k --iodepth=4 --number_ios=200 --size=100%
	echo tsc > $clocks/current_clocksource
	returned() { grep -q ' clock=counter ' /sys/kernel/debug/fabstat/stats; }
	wait_for returned
	load_disk "$disk" --rw=randread --bs=4k --iodepth=4 --number_ios=200 --size=100%
	expect "$disk" 'read.completed >= 600 and books and d.in_flight == 0 and d.forgotten == 0' \
		"hist('read').count == read.completed and 0.9e6 < read.device_ns / read.completed < $(at_most 1.1e6)" \
		'abs(i.depth_ns / sum(op.device_ns for op in ops.values()) - 1) < 1e-3'
}

@test "requests that began before load are counted as unmatched, and only they" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	# Jiffies: a minute, long enough for a slow kernel.
	echo 300 > "/sys/block/$disk/device/timeout"
	echo 15000 > $DELAY
	fio --name=early "--filename=/dev/$disk" --rw=randread --bs=4k --iodepth=7 --number_ios=7 --size=1m --direct=1 --ioengine=libaio --output=/tmp/early.log &
	wait_for some_in_flight
	# fio submits all of them at once; adjacent ones may have been merged.
	inflight=$(field "$disk" 9)
	sleep 0.2
	load_fabstat stuck_ms=100
	# On a host that hangs they are what there is to see.
	fabtune stuck --json > /tmp/stuck.json
	early="[one for one in json.load(open('/tmp/stuck.json'))['requests'] if one['disk'] == '$disk']"
	python3 -c "import json; early = $early; print(early); assert len(early) == $inflight; assert all(one['state'] == 'before_load' and one['op'] == 'read' and 100 <= one['age_ms'] < 60000 for one in early)"
	fabtune stuck
	wait
	echo 0 > $DELAY
	[ "$(fabtune stuck --json | python3 -c "import json, sys; print(len(json.load(sys.stdin)['requests']))")" -eq 0 ]
	expect "$disk" "events['unmatched'] == $inflight and d.in_flight == 0"
	load_disk "$disk" --rw=read --bs=4k --number_ios=3 --size=16k
	expect "$disk" "events['unmatched'] == $inflight and read.completed >= 3 and books"
}

@test "a request that began before load on a queue without statistics is stuck for an unknown time" {
	thorough
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	echo none > "/sys/block/$disk/queue/scheduler"
	# The stamps of these are what the kernel may leave in requests that it does not stamp.
	load_disk "$disk" --rw=randread --bs=4k --iodepth=64 --number_ios=500 --size=1m
	echo 0 > "/sys/block/$disk/queue/iostats"
	echo 5000 > $DELAY
	dd "if=/dev/$disk" of=/dev/null bs=4k count=1 iflag=direct status=none &
	sleep 0.2
	load_fabstat
	run fabtune stuck
	echo "$output"
	[[ "$output" == *unknown*"$disk"*read*"before load"* ]]
	wait
	echo 0 > $DELAY
	run fabtune stuck
	[[ "$output" == "no request is older"* ]]
}

@test "switched off it counts nothing, and what was in flight is forgotten, not lost" {
	thorough
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	load_fabstat
	load_disk "$disk" --rw=read --bs=4k --number_ios=2 --size=16k
	before=$(seen "$disk" 'i.completed')
	echo 5000 > $DELAY
	fio --name=a "--filename=/dev/$disk" --rw=read --bs=4k --iodepth=5 --number_ios=5 --size=20k --direct=1 --ioengine=libaio --output=/tmp/a.log &
	wait_for test_in_flight "$disk"
	flying=$(seen "$disk" 'd.in_flight')
	echo N > $PARAMETERS/enabled
	wait
	echo 0 > $DELAY
	load_disk "$disk" --rw=read --bs=4k --number_ios=2 --size=16k
	expect "$disk" "d.forgotten == $flying and d.in_flight == 0"
	told() { sed -n "s/^module .* $1=\([0-9]*\).*/\1/p" /sys/kernel/debug/fabstat/stats; }
	[ "$(told counting_since_ns)" -eq 0 ]
	went_off=$(told time_ns)
	off=$(seen "$disk" 'i.completed')
	echo Y > $PARAMETERS/enabled
	[ "$(told counting_since_ns)" -gt "$went_off" ]
	load_disk "$disk" --rw=read --bs=4k --number_ios=2 --size=16k
	expect "$disk" "i.completed >= $off + 2 and sum(op.issued for op in ops.values()) == i.completed + d.forgotten"
	[ "$off" -ge "$before" ]
}

some_in_flight() {
	[ "$(field "$disk" 9)" -gt 0 ]
}

test_in_flight() {
	[ "$(seen "$1" 'd.in_flight')" -gt 0 ]
}

@test "null_blk, whose requests never meet SCSI, is counted and named" {
	thorough
	modprobe null_blk queue_mode=2 irqmode=0 nr_devices=1 gb=1
	load_fabstat
	load_disk nullb0 --rw=randwrite --bs=4k --iodepth=16 --number_ios=5000 --size=64m
	expect nullb0 'write.completed == 5000 and write.bytes == 5000 * 4096 and hist("write").count == 5000' \
		'd.driver == "null_blk" and d.hctl == "-" and d.dev == open("/sys/block/nullb0/dev").read().strip()'
}

@test "a null_blk that throttles shows requests sent back by it, in the refused times too" {
	thorough
	modprobe null_blk nr_devices=0
	dir=/sys/kernel/config/nullb/nullb0
	mkdir $dir
	echo 2 > $dir/queue_mode; echo 64 > $dir/size; echo 5 > $dir/mbps; echo 1 > $dir/memory_backed
	echo 1 > $dir/power
	wait_for test -b /dev/nullb0
	load_fabstat
	load_disk nullb0 --rw=write --bs=64k --iodepth=8 --number_ios=64 --size=4m
	expect nullb0 'events["requeued_unstarted"] + events["requeued_by_driver"] > 0' \
		'write.refused > 0 and hist("write", "refused").count == write.refused' \
		'books and d.in_flight == 0 and write.completed == hist("write", "total").count'
}

@test "a removed disk stays readable as gone, and its successor is another device" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	load_fabstat
	load_disk "$disk" --rw=read --bs=4k --number_ios=100 --size=1m
	first=$(seen "$disk" 'd.id')
	modprobe -r scsi_debug
	gone() { fabtune stat --all --json | python3 -c '
import json, sys
print(*[(d["id"], d["ops"]["read"]["completed"]) for d in json.load(sys.stdin)["devices"] if d["state"] == "gone"])' | grep -q "($first, "; }
	wait_for gone
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	load_disk "$disk" --rw=read --bs=4k --number_ios=10 --size=1m
	expect "$disk" "d.id != $first and d.state == 'live' and read.completed < 100"
	gone
}

@test "a disk that its driver lets go of and takes again is the one that it is now" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	load_fabstat
	load_disk "$disk" --rw=read --bs=4k --number_ios=10 --size=1m
	name=$(basename "$(readlink -f "/sys/block/$disk/device")")
	echo "$name" > /sys/bus/scsi/drivers/sd/unbind
	gone() { [ ! -e "/sys/block/$disk" ]; }
	wait_for gone
	echo "$name" > /sys/bus/scsi/drivers/sd/bind
	wait_for debug_disk
	disk=$(debug_disk)
	# Who looks for such changes does so once a second.
	now() {
		dd "if=/dev/$disk" of=/dev/null bs=4k count=1 iflag=direct status=none
		grep -q "^device .*disk=$disk .*diskseq=$(cat "/sys/block/$disk/diskseq")\( \|$\)" /sys/kernel/debug/fabstat/stats
	}
	wait_for now
	expect "$disk" 'read.completed > 10 and books'
	# Its memory may be its predecessor's, and that be seen by nobody between the two.
	for turn in 1 2 3 4 5; do
		echo "$name" > /sys/bus/scsi/drivers/sd/unbind
		echo "$name" > /sys/bus/scsi/drivers/sd/bind
		wait_for debug_disk
		disk=$(debug_disk)
		wait_for now
	done
}

@test "the memory ceiling is kept: histograms go first, then the counting of new devices, and both are said" {
	thorough
	modprobe null_blk queue_mode=2 irqmode=0 nr_devices=4 gb=1
	load_fabstat memory_limit_mib=0
	load_disk nullb0 --rw=randread --bs=4k --number_ios=100 --size=64m
	fabtune stat --json --all | python3 -c '
import json, sys
module = json.load(sys.stdin)["module"]
print(module)
assert module["memory_bytes"] == 0 and module["untracked"] >= 200 and module["memory_refused"] > 0
# Not each request asks: that would be several words that all CPUs write.
assert module["memory_refused"] <= 10'
	unload_fabstat
	load_fabstat
	# By one CPU: each has memory of its own.
	load_disk nullb0 --rw=randread --bs=4k --number_ios=100 --size=64m --cpus_allowed=0
	used=$(fabtune stat --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["module"]["memory_bytes"])')
	[ "$used" -gt 0 ]
	[ "$used" -lt 65536 ]
	# Without memory for a histogram the rest is counted as ever, and once there is some again the samples are, too.
	echo 0 > $PARAMETERS/memory_limit_mib
	load_disk nullb0 --rw=randwrite --bs=4k --number_ios=300 --size=64m --cpus_allowed=0
	expect nullb0 'write.completed == 300 == events["no_histogram"] and hist("write").count == 0 and books'
	echo 128 > $PARAMETERS/memory_limit_mib
	counted_again() {
		load_disk nullb0 --rw=randwrite --bs=4k --number_ios=1 --size=64m --cpus_allowed=0
		[ "$(seen nullb0 'hist("write").count')" -gt 0 ]
	}
	wait_for counted_again
	expect nullb0 'write.completed == hist("write").count + events["no_histogram"] and events["no_histogram"] >= 300'
}

@test "hardware queues that have limits of their own are told apart, and a full one is seen" {
	exact
	thorough
	modprobe null_blk queue_mode=2 irqmode=2 completion_nsec=1000000 submit_queues=1 poll_queues=1 hw_queue_depth=8 nr_devices=1 gb=1
	load_fabstat
	load_disk nullb0 --rw=randread --bs=4k --iodepth=4 --number_ios=200 --size=64m
	expect nullb0 'd.limit == 8 and d.limit_of == "queue" and d.highest == 4 and i.at_limit_ns == 0'
	load_disk nullb0 --rw=randread --bs=4k --iodepth=32 --number_ios=800 --size=64m
	# 800 requests, 8 at a time, 1 ms each: 100 ms at the limit, but for the moments between two.
	expect nullb0 'd.limit == 8 and d.highest == 8 and [(q.queue, q.limit, q.highest, q.issued) for q in d.queues] == [(0, 8, 8, 1000)]' \
		"0.07e9 < i.at_limit_ns < $(at_most 0.13e9) and d.in_flight == 0 and books"
}

@test "a limit that is lowered while requests come is the limit, and the time at it is seen" {
	exact
	modprobe null_blk queue_mode=2 irqmode=2 completion_nsec=1000000 submit_queues=1 hw_queue_depth=64 nr_devices=1 gb=1
	echo none > /sys/block/nullb0/queue/scheduler
	disk=$(scsi_debug_disk ndelay=1000000 dev_size_mb=16 max_queue=64)
	load_fabstat
	for one in nullb0 "$disk"; do
		load_disk "$one" --rw=randread --bs=4k --iodepth=16 --number_ios=200 --size=16m
		expect "$one" 'd.limit > 16 and i.at_limit_ns == 0'
		echo 4 > "/sys/block/$one/queue/nr_requests"
	done
	# Who looks for such changes does so once a second.
	sleep 1.2
	for one in nullb0 "$disk"; do
		load_disk "$one" --rw=randread --bs=4k --iodepth=16 --number_ios=400 --size=16m
		# 400 requests, 4 at a time, 1 ms each: 100 ms at the limit, but for the moments between two.  From 6.18 on a SCSI
		# host may keep a tag for itself: 3 at a time then.
		expect "$one" 'd.limit in (3, 4) and 4 < d.highest <= 16 and d.in_flight == 0 and books' \
			"0.05e9 < i.at_limit_ns < $(at_most 0.16e9)"
	done
	# SCSI's own limit is the lower one again.
	echo 2 > "/sys/block/$disk/device/queue_depth"
	sleep 1.2
	load_disk "$disk" --rw=randread --bs=4k --iodepth=16 --number_ios=40 --size=16m
	expect "$disk" 'd.limit == 2 and d.in_flight == 0 and books'
}

@test "stat names what is missing, and refuses bad input with exit 2" {
	thorough
	run fabtune stat
	[ "$status" -eq 1 ]
	[[ "$output" == *"not loaded"*"not built for the running kernel"* ]]
	modprobe null_blk queue_mode=2 irqmode=0 nr_devices=1 gb=1
	load_fabstat
	run fabtune stat nosuchdisk
	[ "$status" -eq 2 ]
	[[ "$output" == *nosuchdisk* ]]
	run fabtune stat --watch 0
	[ "$status" -eq 2 ]
	fabtune stat --save /tmp/a
	load_disk nullb0 --rw=randread --bs=4k --number_ios=300 --size=64m
	fabtune stat --save /tmp/b
	run fabtune stat --diff /tmp/a /tmp/b
	[ "$status" -eq 0 ]
	[[ "$output" == *nullb0*read* ]]
	run fabtune stat --diff /tmp/b /tmp/a
	[ "$status" -eq 2 ]
	unload_fabstat
	load_fabstat
	fabtune stat --save /tmp/c
	run fabtune stat --diff /tmp/a /tmp/c
	[ "$status" -eq 2 ]
	[[ "$output" == *reloaded* ]]
	run fabtune stuck --json
	[ "$status" -eq 0 ]
}
