#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock virtual
# guest-sanitizers: --suite trixie --clock virtual
# Allocations of the module that fail, for an hour of virtual time, and those of what attaches its probes.

setup() {
	load fabstat
	unload_fabstat
	[ -d /sys/kernel/debug/failslab ] || skip "this kernel has no failslab"
}

teardown() {
	unload_fabstat
	modprobe -rq scsi_debug null_blk || true
}

@test "an hour in which one of a hundred of its allocations fails (in the short run, two minutes): said, and no more than that" {
	seconds=120
	[ "${LENGTH:-short}" != full ] || seconds=3600
	guest failslab_guest.py $seconds
}

@test "probes that could not be attached for want of memory, at a change of the clock or when SCSI came, are attached later" {
	! [ -e /sys/module/scsi_mod ] || modprobe -r sd_mod scsi_mod
	guest failslab_guest.py again
}
