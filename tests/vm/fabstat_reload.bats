#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# guest-full: --suite sid --clock virtual
# The SCSI midlayer itself comes and goes while the module stays.  In a guest of its own, where nothing has loaded it yet.

bats_require_minimum_version 1.5.0

setup() {
	load fabstat
}

teardown() {
	unload_fabstat
}

scsi_gone() {
	modprobe -r scsi_transport_sas scsi_mod 2> /dev/null || [ ! -d /sys/module/scsi_mod ]
}

@test "scsi_mod loaded after the module is seen, and may be unloaded and loaded again while the module stays" {
	! grep -q '/scsi_mod.ko$' "/lib/modules/$(uname -r)/modules.builtin" || skip "this kernel has SCSI built in"
	[ ! -d /sys/module/scsi_mod ]
	load_fabstat
	[[ "$(fabtune stat --json)" == *'"scsi": false'* ]]
	for turn in 1 2 3; do
		disk=$(scsi_debug_disk ndelay=1000000 dev_size_mb=16)
		[[ "$(fabtune stat --json)" == *'"scsi": true'* ]]
		load_disk "$disk" --rw=randread --bs=4k --number_ios=100 --size=1m
		expect "$disk" 'd.driver == "scsi_debug" and d.hctl.count(":") == 3 and 100 <= read.completed < 200 and books'
		modprobe -r scsi_debug sd_mod
		wait_for scsi_gone
		[[ "$(fabtune stat --json)" == *'"scsi": false'* ]]
		# 7.2 leaks every host of scsi_debug, with this module or without it: the next host 0 finds its name taken.
		! compgen -G "/sys/devices/virtual/workqueue/scsi_tmf_*" || break
	done
}

@test "doctor says that the module is not built, not loaded, ready, or refused for its signature, as the kernel does" {
	[ "${LENGTH:-short}" = full ] || skip "in the full run"
	place=/lib/modules/$(uname -r)/updates/dkms
	run fabtune doctor
	[ "$status" -eq 4 ]
	[[ "$output" == *"fabstat is not built for the running kernel $(uname -r)"*"apt install fabstat-dkms"* ]]
	mkdir -p "$place"
	cp /fabtune/kmod/fabstat.ko "$place/"
	depmod
	run fabtune doctor
	[ "$status" -eq 4 ]
	[[ "$output" == *"is built for $(uname -r) and not loaded"*"to do: modprobe fabstat"* ]]
	modprobe fabstat
	run -0 fabtune doctor
	[[ "$output" != *"to do ("* && "$output" == *"is loaded"* ]]
	rmmod fabstat
	# From now on this kernel takes only modules that somebody it trusts has signed.
	echo 1 > /sys/module/module/parameters/sig_enforce
	! modprobe fabstat || false
	run -1 fabtune stat
	[[ "$output" == *"fabstat.ko is not signed, and module.sig_enforce lets the kernel load signed modules only"* ]]
	run fabtune doctor
	[ "$status" -eq 4 ]
	[[ "$output" == *"fabstat.ko is not signed"* ]]
}
