#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# guest-full: --suite sid --clock virtual
# together: module
# Devices on top of others: each request is counted once at each of them, and what goes another way is no success.

setup() {
	load fabstat
	unload_fabstat
}

teardown() {
	! dmsetup info mp > /dev/null 2>&1 || dmsetup remove --noudevsync mp
	! mountpoint -q /tmp/journal || umount /tmp/journal
	! [ -d /sys/class/nvme/nvme0 ] || no_nvme_paths stacks
	unload_fabstat
	modprobe -r scsi_debug
}

# multipath_of DISK...: makes a request-based device, $head, with these paths.
multipath_of() {
	local paths=("${@/%/ 1000}")
	modprobe -a dm_multipath dm_round_robin
	dmsetup create --noudevsync mp \
		--table "0 $(blockdev --getsz "/dev/$1") multipath 0 0 1 1 round-robin 0 $# 1 ${paths[*]/#//dev/}"
	head=$(dmsetup info -c --noheadings -o blkdevname mp)
	wait_for test -b "/dev/$head"
}

@test "dm-multipath: each request is counted once at the head and once at its path" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	multipath_of "$disk"
	load_fabstat
	load_disk "$head" --rw=randrw --bs=4k --iodepth=8 --number_ios=400 --size=8m
	for device in "$head" "$disk"; do
		expect "$device" 'events["unmatched"] == 0 and read.bytes + write.bytes == 400 * 4096 and books and d.in_flight == 0' \
			'hist("read").count == read.completed and hist("write").count == write.completed'
	done
}

@test "dm-multipath: a path that refuses leaves no phantom behind, and the wait is the head's" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16 statistics=1)
	multipath_of "$disk"
	load_fabstat
	echo Y > $PARAMETERS/detail
	echo > /sys/kernel/tracing/trace
	echo 1 > /sys/kernel/tracing/events/fabstat/refused/enable
	echo 7 > /sys/bus/pseudo/drivers/scsi_debug/every_nth
	echo 0x8000 > /sys/bus/pseudo/drivers/scsi_debug/opts
	load_disk "$head" --rw=randread --bs=4k --iodepth=8 --number_ios=280 --size=8m
	echo 0 > /sys/bus/pseudo/drivers/scsi_debug/opts
	echo 0 > /sys/kernel/tracing/events/fabstat/refused/enable
	# Each refusal is told of the path, and of the head with the path's reason.
	refused=$(seen "$disk" 'events["host_busy"]')
	for device in "$disk" "$head"; do
		told=$(grep -c " refused: $(tr : , < "/sys/block/$device/dev") .*reason=host_busy" /sys/kernel/tracing/trace)
		echo "$device: told $told of $refused"
		# Where a CPU is taken from dm between the two, the head is told what dm itself says: rare, and on one CPU never.
		[ "$told" -eq "$refused" ] || { [ "$device" = "$head" ] && [ "$(nproc)" -gt 1 ] && [ "$((2 * told))" -gt "$refused" ]; }
	done
	awk -v disk="disk=$head" '$1 == "slow" && $0 ~ disk' /sys/kernel/debug/fabstat/slowest | grep host_busy
	expect "$disk" 'events["host_busy"] >= 20 and events["requeued_by_driver"] == events["host_busy"] and books and d.in_flight == 0'
	# While the path refuses, the head may merge what waits.
	expect "$head" 'read.bytes == 280 * 4096 and read.refused >= 20 and read.refused_ns > 0 and books and d.in_flight == 0' \
		'events["unmatched"] == 0 and hist("read", "refused").count == read.refused'
	# Nothing is under way, however short a time counts as stuck.
	echo 0 > $PARAMETERS/stuck_ms
	fabtune stuck --json
	[ "$(fabtune stuck --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["requests"]))')" -eq 0 ]
	echo 60000 > $PARAMETERS/stuck_ms
}

@test "dm-multipath: what the target sends back waits at its path, and is counted there" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	requires_injection
	multipath_of "$disk"
	load_fabstat
	inject "$disk" "2 -10 0x28 0 0 0x28 0 0 0"
	load_disk "$head" --rw=read --bs=4k --iodepth=1 --number_ios=20 --size=1m
	expect "$disk" 'events["task_set_full"] == 10 == events["requeued_by_target"] and read.refused == 1 and read.refused_ns > 0'
	for device in "$head" "$disk"; do
		expect "$device" 'read.bytes == 20 * 4096 and events["unmatched"] == 0 and books and d.in_flight == 0'
	done
}

@test "dm-multipath: a head that stands still because each path has been busy is seen to be held" {
	scsi_debug_disk delay=0 dev_size_mb=16 add_host=2
	requires_injection
	two_disks() {
		mapfile -t disks < <(cd /sys/block && grep -l scsi_debug sd*/device/model | cut -d / -f 1)
		[ ${#disks[@]} -eq 2 ]
	}
	wait_for two_disks
	wait_for test -b "/dev/${disks[1]}"
	multipath_of "${disks[@]}"
	load_fabstat
	for disk in "${disks[@]}"; do
		# The driver takes no command: SCSI_MLQUEUE_DEVICE_BUSY.
		inject "$disk" "1 -1 0x2a 0x1056"
	done
	dd if=/dev/zero "of=/dev/$head" bs=4k count=1 oflag=direct status=none &
	held() { [ "$(seen "$head" 'events["held_other"] >= 100')" = True ]; }
	wait_for held
	# A kernel that looked at its paths again would have written it long ago.
	kill -0 $!
	expect "$head" 'd.in_flight == 0 and events["requeued_unstarted"] >= 100 and write.completed == 0'
	for disk in "${disks[@]}"; do
		expect "$disk" 'd.in_flight == 0 and events["device_busy"] == 1 == events["requeued_by_driver"] and books'
	done
	echo 0 > $PARAMETERS/stuck_ms
	waiting=$(fabtune stuck --json | python3 -c 'import json, sys; print(*[(r["disk"], r["state"]) for r in json.load(sys.stdin)["requests"]])')
	[ "$waiting" = "('$head', 'sent_back')" ]
	echo 60000 > $PARAMETERS/stuck_ms
	# What multipathd's checkers do: any command that ends frees the path.
	dd "if=/dev/${disks[0]}" of=/dev/null bs=4k count=1 iflag=direct status=none
	wait $!
	expect "$head" 'd.in_flight == 0 and write.completed == 1 and books'
}

@test "dm-multipath: what a path's driver fails after it has begun is no reason to keep the path for ever" {
	modprobe loop && losetup /dev/loop0 > /dev/null 2>&1 && skip "its disk is in use"
	[ -b /dev/loop0 ] || skip "this kernel has no loop"
	modprobe -a dm_multipath dm_round_robin
	# A loop without a file begins each request before it finds that out.
	dmsetup create --noudevsync mp --table "0 8192 multipath 0 0 1 1 round-robin 0 1 1 /dev/loop0 1000"
	head=$(dmsetup info -c --noheadings -o blkdevname mp)
	wait_for test -b "/dev/$head"
	load_fabstat
	! dd if=/dev/zero "of=/dev/$head" bs=4k count=1 oflag=direct status=none || return 1
	expect "$head" 'd.in_flight == 0 and write.errors == 1'
	expect loop0 'd.in_flight >= 1 and write.completed == 0'
	dmsetup remove --noudevsync mp
	# LOOP_CTL_REMOVE
	python3 -c 'import fcntl; fcntl.ioctl(open("/dev/loop-control"), 0x4C81, 0)'
	gone() { grep "^device .* state=gone disk=loop0 .* in_flight=0 .* forgotten=[1-9]" /sys/kernel/debug/fabstat/stats; }
	wait_for gone
}

@test "NVMe multipath: what a reset sends to the other path is no completion, and no error" {
	# The resets below find 32 requests under way: a queue is quiesced by RCU's clock, which is slow on PREEMPT_RT, and with
	# KASAN a request may cost longer than others take.
	nvme_two_paths stacks 4000
	load_fabstat
	# Two neighbours that meet would be one request of 8 KiB.
	for queue in /sys/class/nvme/nvme*/nvme*c*n1/queue; do
		echo 2 > "$queue/nomerges"
	done
	fio --name=load --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio --rw=randread --bs=4k --iodepth=32 --number_ios=300 \
		--size=64m --output=/tmp/fio.log &
	# As many as fio keeps, not the few with which it begins.
	under_way() { awk '{ sum += $1 + $2 } END { exit sum < 32 }' /sys/class/nvme/nvme*/nvme*c*n1/inflight; }
	for turn in 1 2 3; do
		sleep 0.3
		wait_for under_way
		echo 1 > /sys/class/nvme/nvme$((turn % 2))/reset_controller
	done
	wait $!
	path() { basename "$(compgen -G "/sys/class/nvme/nvme$1/nvme*c$1n1")"; }
	total=0
	failed=0
	for number in 0 1; do
		expect "$(path $number)" 'read.bytes == 4096 * read.completed and read.errors == 0 and books and d.in_flight == 0' \
			'read.sent_back == events["failed_over"] and hist("read").count == read.completed'
		total=$((total + $(seen "$(path $number)" read.completed)))
		failed=$((failed + $(seen "$(path $number)" 'events["failed_over"]')))
	done
	echo "completed $total, failed over $failed"
	# The head has no queue: asked for it, stat shows its hidden paths.
	fabtune stat nvme0n1 > /tmp/head
	for number in 0 1; do
		grep "$(path $number)" /tmp/head
	done
	[ "$total" -ge 300 ] && [ "$failed" -ge 16 ]
}

@test "NVMe multipath: a flush that a reset takes from its controller is no completion" {
	modinfo -p null_blk | grep -q ^cache_size: || skip "this kernel's null_blk has no write cache to flush"
	nvme_two_paths stacks 4000 memory_backed=1 cache_size=1
	load_fabstat
	flush() { taskset -c 0 python3 -c 'import os; os.fsync(os.open("/dev/nvme0n1", os.O_WRONLY))'; }
	# The first flushes make the histogram that later ones find there.
	flush
	flush
	flush &
	# Quick to look at: a kernel with sanitizers takes seconds for each start of Python, as long as a flush.
	flushes() {
		path=$(awk '$1 == "device" { path = "" }
			$1 == "device" && match($0, / disk=nvme[0-9]+c[0-9]+n1 /) { path = substr($0, RSTART + 6, RLENGTH - 7) }
			$1 == "op" && path != "" && / op=flush issued=3 completed=2 / { print path }' /sys/kernel/debug/fabstat/stats)
		[ "$path" ]
	}
	wait_for flushes
	number=${path#*c}
	echo 1 > "/sys/class/nvme/nvme${number%n1}/reset_controller"
	wait $! || true
	expect "$path" 'flush.sent_back == 1 == events["failed_over"] and flush.completed == 2 and flush.errors == 0' \
		'hist("flush").count == 2 and books and d.in_flight == 0'
}

@test "NVMe multipath: data that follow a flush, and that a reset takes from their controller, are told once" {
	modinfo -p null_blk | grep -q ^cache_size: || skip "this kernel's null_blk has no write cache to flush"
	# So slow that a kernel with sanitizers is in time, too.
	nvme_two_paths stacks 4000 memory_backed=1 cache_size=1
	truncate -s 16M /tmp/image
	mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /tmp/image
	dd if=/tmp/image of=/dev/nvme0n1 bs=4M oflag=direct status=none
	mkdir -p /tmp/journal
	mount /dev/nvme0n1 /tmp/journal
	# Who looks what was written there has done so before the module sees them.
	udevadm settle
	load_fabstat
	dd if=/dev/zero of=/tmp/journal/file bs=4k count=1 conv=fsync status=none &
	# The journal's last block is written when the flush before it has come back.
	commits() {
		path=$(awk '$1 == "device" { path = "" }
			$1 == "device" && match($0, / disk=nvme[0-9]+c[0-9]+n1 /) && / in_flight=1 / { path = substr($0, RSTART + 6, RLENGTH - 7) }
			$1 == "op" && path != "" && / op=flush issued=1 completed=1 / { print path }' /sys/kernel/debug/fabstat/stats)
		[ "$path" ]
	}
	wait_for commits
	number=${path#*c}
	echo 1 > "/sys/class/nvme/nvme${number%n1}/reset_controller"
	wait $!
	# The file system writes in the background, too.
	umount /tmp/journal
	expect "$path" 'write.sent_back == 1 == events["failed_over"] and write.errors == 0 and flush.completed >= 1' \
		'events["unmatched"] == 0 == events["never_issued"] and books and d.in_flight == 0'
}

@test "NVMe multipath: what fails over before it was sent is told of the path that never had it" {
	nvme_two_paths stacks 4000
	# What looks for partitions is under way; who opens the disk waits for it.
	dd if=/dev/nvme0n1 of=/dev/null bs=4k count=1 iflag=direct status=none
	udevadm settle
	load_fabstat
	# More than a controller takes at a time: the rest waits in the scheduler of the path.
	for queue in /sys/class/nvme/nvme*/nvme*c*n1/queue; do
		grep -q mq-deadline "$queue/scheduler" || skip "this kernel has no I/O scheduler"
		echo mq-deadline > "$queue/scheduler"
		echo 2 > "$queue/nomerges"
	done
	fio --name=load --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio --rw=randread --bs=4k --iodepth=240 \
		--number_ios=240 --size=64m --cpus_allowed=0 --output=/tmp/fio.log &
	load=$!
	waits() {
		path=$(awk '$1 == "device" && match($0, / disk=nvme[0-9]+c[0-9]+n1 /) {
			path = substr($0, RSTART + 6, RLENGTH - 7); match($0, / in_flight=[0-9]+/)
			if (0 + substr($0, RSTART + 11, RLENGTH - 11) >= 126) print path }' /sys/kernel/debug/fabstat/stats)
		[ "$path" ]
	}
	wait_for waits
	number=${path#*c}
	# Its target closes the connections of this path.
	rm "/sys/kernel/config/nvmet/ports/$((${number%n1} + 1))/subsystems/stacks"
	wait $load
	# None of them is an error, and what was not sent is none that the books know.
	expect "$path" 'events["never_issued"] >= 16 and events["unmatched"] == 0 and read.errors == 0' \
		'read.sent_back == events["failed_over"] >= 64 and books and d.in_flight == 0'
	echo 0 > $PARAMETERS/stuck_ms
	[ "$(fabtune stuck --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["requests"]))')" -eq 0 ]
	echo 60000 > $PARAMETERS/stuck_ms
}
