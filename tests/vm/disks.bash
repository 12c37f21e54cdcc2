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
