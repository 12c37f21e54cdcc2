#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml --memory-mib 2048
# guest-full: --suite trixie --clock virtual --memory-mib 2048
# What measure refuses to write to, and what it says where there is no room.

setup_file() {
	modprobe brd rd_nr=2 rd_size=65536
	export RAM=/dev/ram0
}

setup() {
	cd "$BATS_TEST_TMPDIR"
}

# The one record below runs/, as JSON.
the_record() {
	zcat runs/*.run.json.gz
}

field() {
	the_record | python3 -c "import json, sys; record = json.load(sys.stdin); print($1)"
}

@test "a mounted device is refused, confirmed or not" {
	mkfs.ext4 -q "$RAM" && mkdir -p mnt && mount "$RAM" mnt
	run fabtune measure xdd --on "$RAM" --confirm=ram0
	umount mnt
	echo "$output"
	[ "$status" -eq 2 ]
	[[ "$output" == *"ram0 is mounted on "*"unmount it"* ]]
	[ ! -e runs ]
}

@test "a device in swap, or held by another, is refused" {
	mkswap "$RAM" && swapon "$RAM"
	run fabtune measure oltp --on "$RAM" --confirm=ram0
	swapoff "$RAM"
	[ "$status" -eq 2 ]
	[[ "$output" == *"is swap space"* ]]
	wipefs --all --quiet "$RAM"
	modprobe dm_mod
	echo "0 1000 linear $RAM 0" | dmsetup --noudevsync create held
	run fabtune measure oltp --on "$RAM" --confirm=ram0
	dmsetup --noudevsync remove held
	echo "$output"
	[ "$status" -eq 2 ]
	[[ "$output" == *"ram0 is held by dm-0"* ]]
}

@test "a device with a signature has to be named, and the message names it" {
	mkfs.ext4 -q -F "$RAM"
	before=$(md5sum < "$RAM")
	for words in "" "--confirm=ram1" "--confirm=/dev/ram0"; do
		run fabtune measure xdd --on "$RAM" $words < /dev/null
		echo "$output"
		[ "$status" -eq 2 ]
		[[ "$output" == *"/dev/ram0: 0.067 GB"*"ext4 at byte 1080"*"--confirm=ram0"* ]]
	done
	[ "$(md5sum < "$RAM")" = "$before" ]
}

@test "a workload that only reads needs no confirmation" {
	run fabtune measure latency --on "$RAM" --set total_bytes=16m --runtime 1s --ramp 0s
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "a full file system ends the run, the record says so" {
	mkdir small && mount -t tmpfs -o size=8m tmpfs small
	run fabtune measure lmdd --on small --set jobs=1 --set job_bytes=7m
	[ "$status" -eq 0 ]
	rm -r runs
	sed 's/^space.*//' /fabtune/userspace/fabtune/measure/workloads/lmdd.toml > big.toml
	run fabtune measure ./big.toml --on small --set jobs=1 --set job_bytes=20m
	umount small
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"No space left on device"*"incomplete"* ]]
	[ "$(field 'record["complete"]')" = False ]
}

@test "no room for the record is an error, and nothing partial stays" {
	mkdir small && mount -t tmpfs -o size=4k tmpfs small
	head -c 4096 /dev/zero > small/full
	run fabtune measure latency --on "$RAM" --set total_bytes=16m --runtime 1s --ramp 0s --out small
	left=$(ls -A small)
	umount small
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"cannot keep the run record: No space left on device"* ]]
	[ "$left" = full ]
}
