# SPDX-License-Identifier: GPL-2.0-or-later
# Disks for the tests of workloads.

# scsi_debug_disk MIB: load scsi_debug and print the name of its disk once it can be opened.
scsi_debug_disk() {
	modprobe sd_mod
	modprobe scsi_debug dev_size_mb="$1" delay=0
	local path
	until path=$(compgen -G '/sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block/*') &&
		[ -b "/dev/${path##*/}" ] && : < "/dev/${path##*/}"; do
		sleep 0.05
	done
	echo "${path##*/}"
}

# slow_disk NAME MS [MIB]: a disk of 1 GiB, or so large, that keeps every request for MS milliseconds; prints its name.
slow_disk() {
	# Disks are made below configfs alone, unless the test has loaded the module with one of its own.
	modprobe null_blk nr_devices=0
	mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
	local disk=/sys/kernel/config/nullb/$1 setting
	mkdir "$disk"
	for setting in "size=${3:-1024}" blocksize=512 irqmode=2 "completion_nsec=${2}000000" hw_queue_depth=1024 power=1; do
		echo "${setting#*=}" > "$disk/${setting%%=*}"
	done
	# Kernels before 6.3 call it nullb1.
	if [ -b "/dev/$1" ]; then echo "$1"; else echo "nullb$(cat "$disk/index")"; fi
}
