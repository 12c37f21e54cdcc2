#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# guest-full: --suite trixie --clock real --smp 2
# guest-full: --suite bookworm --clock virtual
# guest-full: --suite sid --clock virtual
# together: module
# Loading, unloading and switching under I/O, devices and drivers that come and go: run-bats fails on any warning.

# turns FULL SHORT: how often a loop goes round, by the length of the run (run-bats sets LENGTH).
turns() { if [ "${LENGTH:-short}" = full ]; then echo "$1"; else echo "$2"; fi; }

setup() {
	load fabstat
	unload_fabstat
}

teardown() {
	touch /tmp/stop
	wait
	unload_fabstat
	modprobe -r scsi_debug null_blk
}

# background DISK...: reads and writes on the disks until /tmp/stop is there.
background() {
	local disk
	rm -f /tmp/stop
	for disk in "$@"; do
		while [ ! -e /tmp/stop ]; do
			# A steady load that leaves the guest's CPUs time to load modules.
			fio --name=a "--filename=/dev/$disk" --rw=randrw --bs=4k --iodepth=16 --direct=1 --ioengine=libaio --size=16m --rate_iops=500 \
				--time_based --runtime=5 --output=/dev/null || true
		done &
	done
}

@test "loads and unloads under I/O (200, in the short run 5) on SCSI and null_blk: no leak, no warning" {
	disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
	modprobe null_blk queue_mode=2 irqmode=0 nr_devices=1 gb=1
	background "$disk" nullb0
	load_fabstat; sleep 0.2; rmmod fabstat
	before=$(slab_kib)
	for turn in $(seq "$(turns 200 5)"); do
		load_fabstat
		# Long enough that both disks have been seen in most turns.
		[ $((turn % 5)) -ne 0 ] || wait_for seen "$disk" 'i.completed > 0'
		[ $((turn % 3)) -ne 0 ] || echo N > $PARAMETERS/enabled
		[ $((turn % 6)) -ne 0 ] || echo Y > $PARAMETERS/enabled
		rmmod fabstat
	done
	# RCU gives memory back late.
	grown() { [ $(($(slab_kib) - before)) -lt 4096 ]; }
	wait_for grown
}

@test "disks deleted and drivers reloaded under I/O, readers at work: nothing is lost, ids are not mixed up" {
	load_fabstat
	rm -f /tmp/stop
	# With pauses, in which one CPU gets on with the rest.
	while [ ! -e /tmp/stop ]; do
		cat /sys/kernel/debug/fabstat/stats /sys/kernel/debug/fabstat/stuck > /dev/null
		sleep 0.02
	done &
	for turn in $(seq "$(turns 15 2)"); do
		disk=$(scsi_debug_disk delay=0 dev_size_mb=16)
		fio --name=a "--filename=/dev/$disk" --rw=randrw --bs=4k --iodepth=16 --direct=1 --ioengine=libaio --size=16m \
			--time_based --runtime=5 --output=/dev/null &
		io=$!
		wait_for seen "$disk" 'i.completed > 0'
		echo 1 > "/sys/block/$disk/device/delete"
		wait $io || true
		modprobe -r scsi_debug
		modprobe null_blk queue_mode=2 irqmode=0 nr_devices=2 gb=1
		load_disk nullb1 --rw=randread --bs=4k --number_ios=500 --size=16m
		expect nullb1 'read.completed >= 500 and books and d.in_flight == 0'
		modprobe -r null_blk
	done
	touch /tmp/stop
	settled() { ! grep -q 'state=\(live\|dying\)' /sys/kernel/debug/fabstat/stats; }
	wait_for settled
	python3 - <<-'PYTHON'
		from fabtune.stat import snapshot
		found = snapshot()
		gone = [device for device in found.devices if device.state == "gone"]
		assert 1 <= len(gone) <= 16, len(gone)
		for device in gone:
		    assert device.in_flight == 0, device
		    for name, op in device.ops.items():
		        assert op.issued == op.completed + op.sent_back, (device, name)
		        assert op.histograms["device"].count == op.completed, (device, name)
	PYTHON
}
