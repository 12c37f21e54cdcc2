#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# guest-full: --suite sid --clock virtual
# together: module
# What is recorded on demand: the wait before the first issue, times by size, the slowest requests, tracepoints.

EVENTS=/sys/kernel/tracing/events/fabstat

setup() {
	load fabstat
	unload_fabstat
	modprobe -r scsi_debug null_blk
}

teardown() {
	! [ -d $EVENTS ] || echo 0 > $EVENTS/enable
	! [ -d "/sys/kernel/config/nullb/odd name" ] || rmdir "/sys/kernel/config/nullb/odd name"
	unload_fabstat
	modprobe -r scsi_debug null_blk
}

# slow_null_blk: /dev/nullb0 takes 8 requests at a time, 1 ms each.
slow_null_blk() {
	modprobe null_blk queue_mode=2 irqmode=2 completion_nsec=1000000 submit_queues=1 hw_queue_depth=8 nr_devices=1 gb=1
}

# in_threads JOBS REQUESTS: so many threads, each with one request at a time.
in_threads() {
	load_disk nullb0 --rw=randread --bs=4k --ioengine=psync --thread --numjobs="$1" "--number_ios=$2" --size=64m --group_reporting --output-format=json
}

@test "nothing is recorded before it is asked for" {
	slow_null_blk
	load_fabstat
	in_threads 4 20
	! grep -q '^detail' /sys/kernel/debug/fabstat/stats || false
	[ "$(grep -c '^slow' /sys/kernel/debug/fabstat/slowest)" -eq 0 ]
	expect nullb0 'not read.details'
}

@test "what a request waits for a tag is its queue wait, not the device's time" {
	exact
	slow_null_blk
	load_fabstat detail=Y
	grep -q ' wait_from=submitted ' /sys/kernel/debug/fabstat/stats || skip "this kernel stamps no bio: it does not know the wait for a tag"
	in_threads 32 50
	# Wait and device make up what each thread saw, by its own clock; tags are not given in turn.
	seen_ns=$(python3 -c 'import json; read = json.load(open("/tmp/fio.log"))["jobs"][0]["read"]; print(round(read["clat_ns"]["mean"] * read["total_ios"]))')
	wait_ns=$(sed -n 's/^detail .*op=read time=wait sum_ns=\([0-9]*\) .*/\1/p' /sys/kernel/debug/fabstat/stats)
	expect nullb0 "$(at_least 0.95) < ($wait_ns + read.device_ns) / $seen_ns <= 1 and $wait_ns > $(at_least 1) * read.device_ns" \
		"hist('read').percentile(50).value_ms < $(at_most 1.3)" \
		'read.details["wait"].count == read.completed'
}

@test "what a request waits in an I/O scheduler is its queue wait" {
	exact
	slow_null_blk
	echo mq-deadline > /sys/block/nullb0/queue/scheduler
	load_fabstat detail=Y
	in_threads 16 50
	# 16 at once, 8 with the device: 8 wait, and 8 leave each ms.
	expect nullb0 "abs(read.details['wait'].percentile(50).value_ms - 1) < $(at_most 0.3)" \
		"hist('read').percentile(50).value_ms < $(at_most 1.3)"
}

@test "no queue wait is made up for a request that the kernel has not stamped" {
	exact
	slow_null_blk
	load_fabstat detail=Y
	# The stamps that these leave behind are a device time old when their tag is used again, and older.
	in_threads 8 20
	echo 0 > /sys/block/nullb0/queue/iostats
	in_threads 1 100
	expect nullb0 "read.completed == 260 and read.details['wait'].percentile(99).value_ms < $(at_most 0.5)"
	if grep -q ' wait_from=submitted ' /sys/kernel/debug/fabstat/stats; then
		expect nullb0 'read.details["wait"].count == 260'
	else
		expect nullb0 'read.details["wait"].count == 160'
	fi
	# A flush is stamped always.
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	echo "write back" > "/sys/block/$disk/queue/write_cache"
	echo 0 > "/sys/block/$disk/queue/iostats"
	load_disk "$disk" --rw=write --bs=4k --fsync=1 --number_ios=10 --size=8m
	expect "$disk" 'flush.completed > 5 and flush.details["wait"].count == flush.completed'
}

@test "details that have no memory are said to be missing, though no time of the device is" {
	slow_null_blk
	load_fabstat
	# By one CPU: each has memory of its own.
	load_disk nullb0 --rw=randread --bs=4k --number_ios=10 --size=64m --cpus_allowed=0
	echo 0 > $PARAMETERS/memory_limit_mib
	echo Y > $PARAMETERS/detail
	load_disk nullb0 --rw=randread --bs=4k --number_ios=20 --size=64m --cpus_allowed=0
	expect nullb0 'hist("read").count == read.completed == 30 and not read.details and events["no_histogram"] > 0'
}

@test "device times are told apart by the size of the request" {
	slow_null_blk
	load_fabstat detail=Y
	load_disk nullb0 --rw=randread --bsrange=4k-4k --number_ios=10 --size=64m
	load_disk nullb0 --rw=randread --bs=32k --number_ios=20 --size=64m
	load_disk nullb0 --rw=randwrite --bs=64k --number_ios=30 --size=64m
	expect nullb0 'read.details["32KiB"].count == 20 and "256KiB" not in read.details and write.details["256KiB"].count == 30' \
		'sum(one.count for name, one in read.details.items() if name != "wait") == read.completed'
	fabtune stat nullb0 | grep -q 'up to 256 KiB'
}

@test "the slowest requests say what refused them, and how often" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16 statistics=1)
	load_fabstat detail=Y
	echo 20 > /sys/bus/pseudo/drivers/scsi_debug/every_nth
	echo 0x8000 > /sys/bus/pseudo/drivers/scsi_debug/opts
	load_disk "$disk" --rw=randread --bs=4k --iodepth=4 --number_ios=200 --size=8m
	echo 0 > /sys/bus/pseudo/drivers/scsi_debug/opts
	fabtune stat "$disk"
	fabtune stat "$disk" --json > /tmp/stat.json
	python3 - <<-'PYTHON'
		import json, os
		device = json.load(open("/tmp/stat.json"))["devices"][0]
		kept = device["slowest"]
		assert len(kept) == 16, kept
		whole = [one["wait_ms"] + one["total_ms"] for one in kept]
		assert whole == sorted(whole, reverse=True) and whole[0] > 4, whole
		assert max(one["total_ms"] for one in kept) <= device["ops"]["read"]["total_ms"]["max"] * 1.07
		refused = [one for one in kept if one["sent_back"]]
		assert refused and all(one["reasons"][0] in ("host_busy", "held_backoff") for one in refused), refused
		assert any("host_busy" in one["reasons"] for one in refused) and all(one["cpu"] in range(os.cpu_count()) for one in kept)
	PYTHON
}

@test "what is held back before its first issue has waited for it as any other" {
	scsi_debug_disk delay=0 dev_size_mb=16 statistics=1 max_luns=2 > /dev/null
	disks=($(grep -l scsi_debug /sys/block/sd*/device/model | cut -d / -f 4))
	[ ${#disks[@]} -eq 2 ]
	load_fabstat detail=Y
	echo 20 > /sys/bus/pseudo/drivers/scsi_debug/every_nth
	echo 0x8000 > /sys/bus/pseudo/drivers/scsi_debug/opts
	# A busy host holds the requests of both its disks.
	fio --rw=randread --bs=4k --iodepth=4 --number_ios=200 --size=8m --direct=1 --ioengine=libaio --output=/tmp/fio.log \
		--name=a "--filename=/dev/${disks[0]}" --name=b "--filename=/dev/${disks[1]}"
	echo 0 > /sys/bus/pseudo/drivers/scsi_debug/opts
	held=0
	for disk in "${disks[@]}"; do
		expect "$disk" 'read.details["wait"].count == read.completed and books'
		held=$((held + $(seen "$disk" 'events["held_backoff"]')))
	done
	[ "$held" -gt 0 ]
}

@test "a disk whose name has a blank stands among the slowest, and among the stuck, like any other" {
	modprobe null_blk nr_devices=0
	dir="/sys/kernel/config/nullb/odd name"
	mkdir "$dir"
	# 20 s each, by a timer.
	echo 2 > "$dir/irqmode"; echo 20000000000 > "$dir/completion_nsec"; echo 64 > "$dir/size"; echo 1 > "$dir/power"
	named() { [ -b "/dev/odd name" ]; }
	wait_for named || skip "null_blk gives disks names of its own before Linux 6.10"
	load_fabstat detail=Y stuck_ms=1
	dd "if=/dev/odd name" of=/dev/null bs=4k count=1 iflag=direct status=none &
	stuck() { fabtune stuck --json | python3 -c 'import json, sys; assert "odd name" in {one["disk"] for one in json.load(sys.stdin)["requests"]}'; }
	wait_for stuck
	wait
	fabtune stat "odd name" --json | python3 -c 'import json, sys; assert json.load(sys.stdin)["devices"][0]["slowest"]'
	rmdir "$dir"
}

@test "the slowest are those since details were switched on, and no others" {
	slow_null_blk
	load_fabstat detail=Y
	kept() { grep -c "^slow .* op=$1 " /sys/kernel/debug/fabstat/slowest || true; }
	# A queue makes these slow, and they would hide the next ones.
	load_disk nullb0 --rw=randread --bs=4k --iodepth=64 --number_ios=200 --size=64m
	[ "$(kept read)" -eq 16 ]
	echo N > $PARAMETERS/detail
	[ "$(kept read)" -eq 16 ]
	echo Y > $PARAMETERS/detail
	[ "$(kept read)" -eq 0 ]
	load_disk nullb0 --rw=randwrite --bs=4k --iodepth=1 --number_ios=20 --size=64m
	[ "$(kept write)" -eq 16 ]
	# What is on already goes on.
	echo Y > $PARAMETERS/detail
	[ "$(kept write)" -eq 16 ]
}

@test "a disk with everything to be recorded has a histogram for everything" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16 statistics=1 lbpu=1)
	load_fabstat detail=Y
	echo 3 > /sys/bus/pseudo/drivers/scsi_debug/every_nth
	echo 0x8000 > /sys/bus/pseudo/drivers/scsi_debug/opts
	for size in 4k 32k 256k 512k; do
		load_disk "$disk" --rw=randrw --bs=$size --iodepth=4 --number_ios=60 --size=8m --fsync=4 --cpus_allowed=0
	done
	load_disk "$disk" --rw=randtrim --bs=4k --iodepth=4 --number_ios=60 --size=8m --cpus_allowed=0
	echo 0 > /sys/bus/pseudo/drivers/scsi_debug/opts
	expect "$disk" 'events["no_histogram"] == 0 and books and d.in_flight == 0'
}

@test "an error is told among the slowest" {
	disk=$(scsi_debug_disk ndelay=1000000 dev_size_mb=16)
	requires_injection
	load_fabstat detail=Y
	# Unrecovered read errors.
	inject "$disk" "2 -5 0x28 0 0 0x2 0x3 0x11 0"
	! dd "if=/dev/$disk" of=/dev/null bs=4k count=1 iflag=direct status=none || return 1
	grep -q "^slow .* error=error_medium " /sys/kernel/debug/fabstat/slowest
}

@test "tracepoints tell of each slow request and of each refusal, and of nothing else" {
	disk=$(scsi_debug_disk ndelay=8000000 dev_size_mb=16 statistics=1)
	load_fabstat slow_ms=5
	echo > /sys/kernel/tracing/trace
	echo 1 > $EVENTS/enable
	echo 20 > /sys/bus/pseudo/drivers/scsi_debug/every_nth
	echo 0x8000 > /sys/bus/pseudo/drivers/scsi_debug/opts
	load_disk "$disk" --rw=randread --bs=4k --iodepth=4 --number_ios=200 --size=8m
	echo 0 > /sys/bus/pseudo/drivers/scsi_debug/opts
	echo 0 > $EVENTS/enable
	grep -m3 -E ' (slow|refused): ' /sys/kernel/tracing/trace
	[ "$(grep -c ' slow: ' /sys/kernel/tracing/trace)" -eq "$(seen "$disk" 'i.completed')" ]
	[ "$(grep -c ' refused: .*reason=host_busy' /sys/kernel/tracing/trace)" -eq "$(seen "$disk" 'events["host_busy"]')" ]
	[ "$(grep -c ' refused: ' /sys/kernel/tracing/trace)" -ge 5 ]
	# What is fast enough is not told.
	echo 1000 > $PARAMETERS/slow_ms
	echo > /sys/kernel/tracing/trace
	echo 1 > $EVENTS/slow/enable
	load_disk "$disk" --rw=randread --bs=4k --number_ios=10 --size=8m
	[ "$(grep -c ' slow: ' /sys/kernel/tracing/trace)" -eq 0 ]
}

@test "switched on and off under load it loses no request" {
	slow_null_blk
	load_fabstat
	fio --name=load --filename=/dev/nullb0 --direct=1 --ioengine=libaio --rw=randrw --bs=4k --iodepth=16 --number_ios=3000 --size=64m --output=/tmp/fio.log &
	for turn in $(seq 10); do
		echo Y > $PARAMETERS/detail
		sleep 0.02
		echo N > $PARAMETERS/detail
		sleep 0.01
	done
	wait
	expect nullb0 'read.bytes + write.bytes >= 3000 * 4096 and books and d.in_flight == 0' \
		'hist("read").count == read.completed and 0 < read.details["wait"].count < read.completed'
}
