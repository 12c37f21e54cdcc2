#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock virtual
# guest-sanitizers: --suite trixie --clock virtual
# guest-sanitizers kasan kcsan: --suite trixie --clock real --smp 2
# What is done very often, under load: loads, deletions, fail-overs and resets.  The debug kernels of `make check-sanitizers`
# do their parts of 1,000 loads, 10,000 deletions, 200 fail-overs and 200 resets: most is done where locks, RCU, leaks and
# freed memory are watched cheaply, on one CPU, and a part with KASAN or KCSAN on two, which get in each other's way.

# part ALL SHORT: how often, by the length of the run (run-bats sets LENGTH) and by how slow the kernel is: the parts of
# the four debug kernels make ALL.
part() {
	local percent
	[ "${LENGTH:-short}" = full ] || { echo "$2"; return; }
	case $(uname -r) in
		*-scsi-builtin) percent=70 ;;
		*-rt) percent=20 ;;
		# There each instruction costs many times as much.
		*) percent=5 ;;
	esac
	echo $(($1 * percent / 100))
}

# under_way_ms MS: how long a request takes that is to be under way still when the probes have been taken off, or a
# controller's queues quiesced.  Both wait for RCU, which takes longer on PREEMPT_RT, and by the real clock.
under_way_ms() {
	if [ "$(nproc)" -gt 1 ] || [[ "$(uname -r)" == *-rt ]]; then
		echo $((8 * $1))
	else
		echo "$1"
	fi
}

setup() {
	load fabstat
	unload_fabstat
}

teardown() {
	touch /tmp/stop
	wait
	rm -f /tmp/stop
	! dmsetup info mp > /dev/null 2>&1 || dmsetup remove --noudevsync mp
	! [ -d /sys/class/nvme/nvme0 ] || nvme disconnect-all
	unload_fabstat
	modprobe -rq scsi_debug
	# The last test leaves a target on it behind.
	modprobe -rq null_blk || true
}

# background DISK...: reads and writes on each, until stop_background.
background() {
	rm -f /tmp/stop
	local disk jobs=()
	for disk in "$@"; do
		jobs+=("--name=$disk" "--filename=/dev/$disk")
	done
	# It leaves a guest of one CPU the time for the rest.
	fio --rw=randrw --bs=4k --iodepth=16 --direct=1 --ioengine=libaio --size=8m --rate_iops=80 --time_based --runtime=100000 \
		--trigger-file=/tmp/stop --output=/tmp/fio.log "${jobs[@]}" &
	load=$!
	for disk in "$@"; do
		wait_for busy "/sys/block/$disk"
	done
}

# busy DIRECTORY: whether that disk of sysfs has requests in flight.
busy() { awk '{ exit $1 + $2 == 0 }' "$1/inflight"; }

# stop_background: and fails if the load has.
stop_background() {
	touch /tmp/stop
	wait "$load" || { cat /tmp/fio.log; return 1; }
}

@test "loads and unloads under load (1,000 in all, in the short run 6): no leak, and the books balance at the end of each" {
	ms=$(under_way_ms 50)
	# A load stays for two requests.
	seconds=$(awk "BEGIN { print 2 * $ms / 1000 }")
	disk=$(scsi_debug_disk ndelay="${ms}000000" dev_size_mb=16)
	modprobe null_blk queue_mode=2 irqmode=2 completion_nsec="${ms}000000" nr_devices=1 gb=1
	background "$disk" nullb0
	guest endurance_guest.py loads 6 "$seconds"
	before=$(slab_kib)
	guest endurance_guest.py loads "$(part 1000 6)" "$seconds"
	stop_background
	# RCU gives memory back late.  kmemleak sees what is lost; this, what is kept.
	grown() { [ $(($(slab_kib) - before)) -lt 4096 ]; }
	wait_for grown
	echo "the kernel has $(($(slab_kib) - before)) KiB more than before" >> /results/endurance.txt
}

@test "devices deleted under load (10,000 in all, in the short run 80): the books that are kept balance, memory comes back" {
	load_fabstat
	guest endurance_guest.py deletions "$(part 10000 80)"
}

@test "dm-multipath's fail-overs under load (200 in all, in the short run 4): no error, no phantom, books that balance" {
	modprobe sd_mod
	modprobe scsi_debug add_host=2 vpd_use_hostno=0 dev_size_mb=16 ndelay=20000000
	disks() { grep -l scsi_debug /sys/block/sd*/device/model | cut -d / -f 4; }
	two() { [ "$(disks | wc -l)" -eq 2 ] && for disk in $(disks); do [ -b "/dev/$disk" ] || return 1; done; }
	wait_for two
	modprobe -a dm_multipath dm_round_robin
	# A group for each path: the second one is taken when the first one fails.
	path=($(disks))
	dmsetup create --noudevsync mp --table "0 $(blockdev --getsz "/dev/${path[0]}") multipath 1 queue_if_no_path 0 2 1 \
		round-robin 0 1 1 /dev/${path[0]} 1000 round-robin 0 1 1 /dev/${path[1]} 1000"
	head=$(dmsetup info -c --noheadings -o blkdevname mp)
	wait_for test -b "/dev/$head"
	load_fabstat
	background "$head"
	failed() { dmsetup status mp | grep -q " $(cat "/sys/block/${path[$1]}/dev") F "; }
	for turn in $(seq "$(part 200 4)"); do
		now=$(((turn + 1) % 2))
		wait_for busy "/sys/block/${path[$now]}"
		if [ $((turn % 4)) -lt 2 ]; then
			# What is under way comes back, what is sent from now on fails.
			echo offline > "/sys/block/${path[$now]}/device/state"
			wait_for failed $now
			echo running > "/sys/block/${path[$now]}/device/state"
		else
			dmsetup message mp 0 "fail_path /dev/${path[$now]}"
		fi
		wait_for busy "/sys/block/${path[$((1 - now))]}"
		dmsetup message mp 0 "reinstate_path /dev/${path[$now]}"
	done
	stop_background
	dmsetup status mp
	failures=$(dmsetup status mp | grep -oE ' [0-9]+:[0-9]+ [AF] [0-9]+' | awk '{ sum += $3 } END { print sum }')
	[ "$failures" -ge "$(part 200 4)" ]
	balanced
	for disk in "${path[@]}"; do
		expect "$disk" 'read.completed > 0 and write.completed > 0'
	done
	expect "$head" 'read.errors == 0 == write.errors and events["unmatched"] == 0'
	# Nothing is under way, however short a time counts as stuck.
	echo 0 > $PARAMETERS/stuck_ms
	[ "$(fabtune stuck --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["requests"]))')" -eq 0 ]
}

@test "resets of NVMe controllers under load (200 in all, in the short run 4): no error, books that balance on both paths" {
	nvme_two_paths endurance "$(under_way_ms 20)"
	# Both carry the load.
	echo round-robin > /sys/class/nvme-subsystem/nvme-subsys0/iopolicy
	load_fabstat
	background nvme0n1
	lives() { [ "$(cat "/sys/class/nvme/nvme$1/state")" = live ]; }
	for turn in $(seq "$(part 200 4)"); do
		number=$((turn % 2))
		wait_for busy "$(compgen -G "/sys/class/nvme/nvme$number/nvme*c${number}n1")"
		echo 1 > /sys/class/nvme/nvme$number/reset_controller
		wait_for lives $number
	done
	stop_background
	balanced
	failed_over=0
	for number in 0 1; do
		path=$(basename "$(compgen -G "/sys/class/nvme/nvme$number/nvme*c${number}n1")")
		expect "$path" 'read.errors == 0 == write.errors and events["failed_over"] == read.sent_back + write.sent_back'
		failed_over=$((failed_over + $(seen "$path" 'events["failed_over"]')))
	done
	echo "$failed_over requests failed over"
	[ "$failed_over" -ge "$(part 200 4)" ]
}
