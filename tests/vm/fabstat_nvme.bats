#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# guest-full: --suite sid --clock virtual
# together: module
# Errors of NVMe by class, and why its commands are sent again: each is made by a target that fails so.

setup_file() {
	modprobe -a nvme_tcp nvmet_tcp
	# Each path is a disk of its own, and what a controller answers is not hidden by another path.
	modprobe -r nvmet_tcp nvmet nvme_tcp nvme_fabrics nvme_core
	modprobe nvme_core multipath=N
	modprobe -a nvme_tcp nvmet_tcp
}

teardown_file() {
	modprobe -r nvmet_tcp nvmet nvme_tcp nvme_fabrics nvme_core
}

setup() {
	load fabstat
	unload_fabstat
	target=/sys/kernel/config/nvmet/subsystems/classes
	port=/sys/kernel/config/nvmet/ports/1
}

teardown() {
	nvme disconnect-all
	rm -f $port/subsystems/classes
	rmdir $port $target/namespaces/1 $target
	! mountpoint -q /tmp/small || umount /tmp/small
	echo 5 > /sys/module/nvme_core/parameters/max_retries
	unload_fabstat
	modprobe -rq scsi_debug null_blk
}

# serve PATH [ATTRIBUTE=VALUE]...: nvmet makes it the disk nvme0n1.
serve() {
	local word
	mkdir -p $target/namespaces/1 $port
	echo 1 > $target/attr_allow_any_host
	echo "$1" > $target/namespaces/1/device_path
	for word in "${@:2}"; do
		echo "${word#*=}" > "$target/namespaces/1/${word%=*}"
	done
	echo 1 > $target/namespaces/1/enable
	echo ipv4 > $port/addr_adrfam; echo tcp > $port/addr_trtype
	echo 127.0.0.1 > $port/addr_traddr; echo 4420 > $port/addr_trsvcid
	ln -s $target $port/subsystems/classes
	nvme connect --transport tcp --traddr 127.0.0.1 --trsvcid 4420 --nqn classes
	wait_for test -b /dev/nvme0n1
	udevadm settle
	load_fabstat
}

null_disk() {
	modprobe -r null_blk
	modprobe null_blk queue_mode=2 irqmode=2 completion_nsec="$1" nr_devices=1 gb=1 "${@:2}" && echo /dev/nullb0
}

# fails_to_read BLOCK: that block of 4 KiB.
fails_to_read() {
	! dd if=/dev/nvme0n1 of=/dev/null iflag=direct bs=4k skip="$1" count=1 status=none || false
}

@test "a sector that the controller cannot read is a medium error, and each time it is tried again is told" {
	# scsi_debug's own bad sector is 0x1234.
	serve "/dev/$(scsi_debug_disk delay=0 dev_size_mb=16 opts=2)"
	fails_to_read $((0x1234 / 8))
	expect nvme0n1 'read.errors == 1 == events["error_medium"] and read.errors_by_class == {"error_medium": 1}' \
		'read.sent_back == events["requeued_by_target"] and books and d.in_flight == 0'
}

@test "the tag that the driver keeps for itself is not in the limit" {
	# Long enough to send that many meanwhile, by the real clock, too.
	serve "$(null_disk 1000000000)"
	load_disk nvme0n1 --rw=randread --bs=4k --iodepth=200 --number_ios=1000 --size=64m --cpus_allowed=0
	expect nvme0n1 'd.highest == d.limit and i.at_limit_ns > 0 and books and d.in_flight == 0'
}

@test "a target without room answers so" {
	mkdir -p /tmp/small
	mount -t tmpfs -o size=1m none /tmp/small
	truncate -s 16M /tmp/small/disk
	serve /tmp/small/disk buffered_io=1
	! dd if=/dev/zero of=/dev/nvme0n1 oflag=direct bs=4k count=512 status=none || false
	expect nvme0n1 'write.errors == 1 == events["error_space"] and write.completed > 200 and books'
}

@test "a namespace that is not to be had through this controller is an error of the path" {
	serve "$(null_disk 0)"
	echo inaccessible > $port/ana_groups/1/ana_state
	fails_to_read 8
	expect nvme0n1 'read.errors == 1 == events["error_path"] and books and d.in_flight == 0' \
		'read.sent_back == 5 == events["nvme_path"] == events["requeued_by_target"] and read.refused == 1'
	echo optimized > $port/ana_groups/1/ana_state
}

@test "what fails because its controller is out of reach was never sent: an error, and none from before" {
	serve "$(null_disk 0)"
	nvme disconnect-all
	nvme connect --transport tcp --traddr 127.0.0.1 --trsvcid 4420 --nqn classes --reconnect-delay 1 --ctrl-loss-tmo 600
	wait_for test -b /dev/nvme0n1
	# The nvme-cli of Debian 12 has no option for it.
	echo 1 > /sys/class/nvme/nvme0/fast_io_fail_tmo
	udevadm settle
	dd if=/dev/nvme0n1 of=/dev/null iflag=direct bs=4k count=1 status=none
	rm $port/subsystems/classes
	reconnects() { [ "$(cat /sys/class/nvme/nvme0/state)" = connecting ]; }
	wait_for reconnects
	# The first one waits until nobody waits for the controller any more.
	for block in 1 2 3 4 5; do fails_to_read $block; done
	fabtune stat nvme0n1
	expect nvme0n1 'read.errors == events["never_issued"] == events["error_transport"] >= 5 and events["unmatched"] == 0' \
		'books and d.in_flight == 0 and read.completed > 0'
	[ "$(fabtune stuck --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["requests"]))')" -eq 0 ]
	ln -s $target $port/subsystems/classes
}

@test "what a connection that is gone takes no more is sent back by the driver, which had started it" {
	serve "$(null_disk 0)"
	nvme disconnect-all
	nvme connect --transport tcp --traddr 127.0.0.1 --trsvcid 4420 --nqn classes --reconnect-delay 1
	wait_for test -b /dev/nvme0n1
	udevadm settle
	# Who sends on a dead socket gets a signal, and so does a process for which the kernel sends.
	env --ignore-signal=PIPE fio --name=load --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio --rw=randwrite \
		--bs=128k --iodepth=32 --continue_on_error=io --time_based --runtime=1h > /tmp/fio.log 2>&1 &
	load=$!
	dmesg --clear
	# Where another CPU is quicker, nothing is sent any more that the connection does not take: then once more.
	unsent() {
		dmesg | grep -q "failed to send request" && return
		[ "$(cat /sys/class/nvme/nvme0/state)" != live ] || ss -K dport = 4420 > /dev/null
		false
	}
	tried=yes
	wait_for unsent || tried=""
	# fio goes on from EIO alone: another error has ended it by itself.
	kill $load || true
	wait $load || true
	[ -n "$tried" ] || skip "each time the driver knew before it sent"
	unsent=$(dmesg | grep -c "failed to send request")
	# Sent back, but for the last one of those that had been sent back often enough.
	expect nvme0n1 "events['requeued_by_driver'] == $unsent - events.get('error_path', 0) - events.get('error_transport', 0)" \
		'events["nvme_path"] == 0 and write.completed > 0 and books and d.in_flight == 0' \
		'write.sent_back == events["requeued_by_driver"] + events["requeued_by_target"]'
}

@test "what a reset of the controller aborts is sent again, or fails as aborted" {
	# So slow that there is something to abort on a slow kernel, too.
	serve "$(null_disk 500000000)"
	# As many as fio keeps: the first of them counts there before its driver has it.
	under_way() { awk '{ exit $1 + $2 < 16 }' /sys/block/nvme0n1/inflight; }
	for retries in 5 0; do
		echo $retries > /sys/module/nvme_core/parameters/max_retries
		fio --name=load --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio --rw=randread --bs=4k --iodepth=16 \
			--number_ios=400 --size=64m --continue_on_error=io --output=/tmp/fio.log &
		sleep 0.2
		wait_for under_way
		echo 1 > /sys/class/nvme/nvme0/reset_controller
		wait $! || [ $retries -eq 0 ]
		fabtune stat nvme0n1
		if [ $retries -eq 5 ]; then
			expect nvme0n1 'events["nvme_aborted"] >= 1 and read.sent_back == events["requeued_by_target"] and read.errors == 0' \
				'events["nvme_aborted"] == events["requeued_by_target"] and read.refused == 0 and books'
		fi
	done
	expect nvme0n1 'read.errors == events["error_aborted"] >= 1 and books and d.in_flight == 0'
}

@test "a flush that a reset aborts, and that is sent again, has completed once" {
	modinfo -p null_blk | grep -q ^cache_size: || skip "this kernel's null_blk has no write cache to flush"
	serve "$(null_disk 2000000000 memory_backed=1 cache_size=1)"
	python3 -c 'import os; os.fsync(os.open("/dev/nvme0n1", os.O_WRONLY))' &
	# Before a slow kernel has started Python the flush is over.
	flushing() { grep -q " op=flush issued=1 " /sys/kernel/debug/fabstat/stats; }
	wait_for flushing
	echo 1 > /sys/class/nvme/nvme0/reset_controller
	wait $!
	expect nvme0n1 'flush.completed == 1 == flush.sent_back and events["failed_over"] == 0 == flush.errors' \
		'events["nvme_aborted"] == 1 == events["requeued_by_target"] and books and d.in_flight == 0'
}

@test "each answer that a controller may give has its class" {
	serve "$(null_disk 0)"
	faults=/sys/kernel/debug/nvme0n1/fault_inject
	[ -d $faults ] || skip "this kernel does not inject faults"
	echo 0 > $faults/verbose; echo 100 > $faults/probability; echo 1 > $faults/dont_retry
	seen=0
	for answer in medium:0x280 medium:0x281 protection:0x282 reservation:0x83 space:0x81 target:0x80 unsupported:0x1 \
		offline:0xb transport:0x370 path:0x300 path:0x302 path:0x360 aborted:0x7 aborted:0x8 aborted:0x371 io:0x6; do
		echo $((${answer#*:})) > $faults/status
		echo 1 > $faults/times
		before=$(seen nvme0n1 "events['error_${answer%:*}']" || echo 0)
		fails_to_read 8
		seen=$((seen + 1))
		echo "$answer"
		expect nvme0n1 "events['error_${answer%:*}'] == $((before + 1)) and read.errors == $seen and books"
	done
}

@test "an append to a zone is a write" {
	# Its null_blk has the parameter all the same.
	grep -qw blkdev_report_zones /proc/kallsyms || skip "this kernel has no zoned disks"
	serve "$(null_disk 0 zoned=1 zone_size=64)"
	head -c 4096 /dev/zero > /tmp/appended
	# The target appends to its own disk; what the initiator passes through has no class of the kernel's.
	for _ in 1 2 3; do
		nvme zns zone-append /dev/nvme0n1 --zslba=0 --data-size=4096 --data=/tmp/appended
	done
	expect nullb0 'write.completed == 3 == write.issued and write.errors == 0 and write.bytes == 3 * 4096 and books'
	expect nvme0n1 'write.issued == 0 and other.completed >= 3 and books'
}
