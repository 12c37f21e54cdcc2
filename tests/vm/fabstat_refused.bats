#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# guest-full: --suite sid --clock virtual
# together: module
# Every way a SCSI request is refused is counted under its own name, and only there.

setup() {
	load fabstat
	unload_fabstat
}

teardown() {
	unload_fabstat
	modprobe -r scsi_debug
}

# only EVENT=COUNT...: these refusals were counted on $disk, and no other.
only() {
	expect "$disk" "{name: count for name, count in events.items() if count and name.split('_')[0] not in ('requeued', 'held', 'error')} == dict($(IFS=,; echo "$*"))"
}

# ten reads that each meet the injected answer once
ten_reads() {
	load_disk "$disk" --rw=read --bs=4k --iodepth=1 --number_ios=20 --size=1m
}

@test "TASK SET FULL from the target" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	requires_injection
	load_fabstat
	inject "$disk" "2 -10 0x28 0 0 0x28 0 0 0"
	ten_reads
	only task_set_full=10
	# The first request met all ten in a row; it alone was refused, and came through at the eleventh issue.
	expect "$disk" 'events["requeued_by_target"] == 10 and read.sent_back == 10 and books and read.errors == 0' \
		'i.queue_full == 10' \
		'read.refused == 1 and hist("read", "refused").count == 1 and read.refused_ns > 0' \
		'read.total_ns > read.device_ns and hist("read", "total").percentile(100).low_ns > hist("read").percentile(100).high_ns'
}

@test "TASK SET FULL, as older kernels inject it: at a full queue" {
	# Long enough that the queue is full most of the time on a slow kernel, too.
	disk=$(scsi_debug_disk ndelay=999999999 dev_size_mb=16 statistics=1)
	echo 4 > "/sys/block/$disk/device/queue_depth"
	echo 5 > /sys/bus/pseudo/drivers/scsi_debug/every_nth
	load_fabstat
	echo 0x800 > /sys/bus/pseudo/drivers/scsi_debug/opts
	# From 5.11 on the status comes with DID_ABORT, so the midlayer fails the request.
	load_disk "$disk" --rw=randread --bs=4k --iodepth=8 --number_ios=200 --size=800k --continue_on_error=io || true
	echo 0 > /sys/bus/pseudo/drivers/scsi_debug/opts
	expect "$disk" 'events["task_set_full"] >= 10 and events["task_set_full"] == read.errors + read.sent_back == i.queue_full' \
		'books and d.in_flight == 0'
}

@test "BUSY from the target" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	requires_injection
	load_fabstat
	inject "$disk" "2 -10 0x28 0 0 0x8 0 0 0"
	ten_reads
	only busy=10
	expect "$disk" 'events["requeued_by_target"] == 10 and books and i.queue_full == 10'
}

@test "host, device and target busy from the driver" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	requires_injection
	load_fabstat
	inject "$disk" "1 -3 0x28 0x1055"
	ten_reads
	only host_busy=3
	inject "$disk" "1 -4 0x28 0x1056"
	ten_reads
	only host_busy=3 device_busy=4
	inject "$disk" "1 -5 0x28 0x1058"
	ten_reads
	only host_busy=3 device_busy=4 target_busy=5
	expect "$disk" 'events["requeued_by_driver"] == 12 and read.sent_back == 12 and books and i.queue_full == 12' \
		'hist("read", "refused").count == read.refused == 3'
}

@test "host busy from the driver, as older kernels inject it" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16 statistics=1)
	load_fabstat
	echo 7 > /sys/bus/pseudo/drivers/scsi_debug/every_nth
	echo 0x8000 > /sys/bus/pseudo/drivers/scsi_debug/opts
	load_disk "$disk" --rw=read --bs=4k --number_ios=140 --size=1m
	echo 0 > /sys/bus/pseudo/drivers/scsi_debug/opts
	expect "$disk" 'events["host_busy"] >= 20 and events["host_busy"] == events["requeued_by_driver"] and books and i.queue_full == events["host_busy"]' \
		'read.completed >= 140 and read.errors == 0'
}

@test "commands that fail before they moved anything are errors, not requests done in part" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	requires_injection
	load_fabstat
	# Unrecovered read errors, at which fio would give up.
	inject "$disk" "2 -5 0x28 0 0 0x2 0x3 0x11 0"
	for turn in $(seq 5); do ! dd "if=/dev/$disk" of=/dev/null bs=4k count=1 "skip=$turn" iflag=direct status=none || return 1; done
	expect "$disk" 'read.errors == 5 == events["error_medium"] and events["partial"] == 0 and books'
	# A unit attention: the midlayer tries again, and the request comes through.
	inject "$disk" "2 -3 0x28 0 0 0x2 0x6 0x29 0"
	ten_reads
	expect "$disk" 'read.errors == 5 and events["partial"] == 0 and read.sent_back >= 3 and books and d.in_flight == 0'
}

@test "timeouts, and the error handler they wake" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16 statistics=1)
	echo 1 > "/sys/block/$disk/device/timeout"
	load_fabstat
	load_disk "$disk" --rw=read --bs=4k --number_ios=1 --size=4k
	if [ -d /sys/kernel/debug/scsi_debug ]; then
		inject "$disk" "0 -2 0x28"
	else
		echo -2 > /sys/bus/pseudo/drivers/scsi_debug/every_nth
		echo 4 > /sys/bus/pseudo/drivers/scsi_debug/opts
	fi
	fio --name=a "--filename=/dev/$disk" --direct=1 --rw=read --bs=4k --offset=1m --number_ios=2 --size=8k --ioengine=psync --continue_on_error=io --output=/tmp/fio.log || true
	echo 0 > /sys/bus/pseudo/drivers/scsi_debug/opts
	expect "$disk" 'events["timeout"] >= 2 and events["timed_out"] == events["timeout"]' \
		'books and d.in_flight == 0'
	# The driver took them, and refused nothing.
	expect "$disk" 'read.refused == 0 == events["requeued_by_driver"] and events["requeued_by_target"] == read.sent_back > 0'
	# What the error handler sent to abort them is nobody's request, and is not under way for ever.
	fabtune stuck --json > /tmp/stuck.json
	python3 -c 'import json; assert not json.load(open("/tmp/stuck.json"))["requests"]' || { cat /tmp/stuck.json; return 1; }
}

@test "requests that a device set offline never saw" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	load_fabstat
	load_disk "$disk" --rw=read --bs=4k --number_ios=1 --size=4k
	issued=$(seen "$disk" 'read.issued')
	python3 - "$disk" <<-'PYTHON'
		import mmap, os, sys
		from pathlib import Path
		handle = os.open(f"/dev/{sys.argv[1]}", os.O_RDONLY | os.O_DIRECT)
		state = Path(f"/sys/block/{sys.argv[1]}/device/state")
		state.write_text("offline\n")
		failed = 0
		for turn in range(5):
		    try:
		        os.preadv(handle, [mmap.mmap(-1, 4096)], 4096 * turn)
		    except OSError:
		        failed += 1
		state.write_text("running\n")
		assert failed == 5, failed
	PYTHON
	expect "$disk" "events['never_issued'] == read.errors == 5 and read.issued == $issued and books" \
		"sum(read.errors_by_class.values()) == 5 and read.errors_by_class == {name: count for name, count in events.items() if name.startswith('error_') and count}"
}
