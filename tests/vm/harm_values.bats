#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite bookworm --clock real --accel uml
# Values that hurt later: an off that a bound switches on, a login that fails at the next boot, buffers beyond
# the host's memory; and the read-ahead that a long path needs.

CONFIGFS=/sys/kernel/config/target/iscsi/iqn.2026-01.lab.fabtune:target/tpgt_1

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 37ms --rate 622mbit --size-mib 64 --keeps-data
	python3 -m fabtune.lab.guest login
}

setup() {
	load common
}

teardown() {
	umount /mnt 2>/dev/null || true
	fabtune revert --force --allow-relogin >/dev/null 2>&1 || true
	for name in lab-linear lab-mixed; do dmsetup remove --noudevsync "$name" 2>/dev/null || true; done
	echo 1 > $CONFIGFS/param/MaxOutstandingR2T
}

record() {
	iscsiadm -m node -T iqn.2026-01.lab.fabtune:target -p 10.2.0.1:3260 -o update -n "$1" -v "$2"
}

relogin() {
	python3 -m fabtune.lab.guest logout
	python3 -m fabtune.lab.guest login
}

ahead_of() {
	echo "/sys/block/dm-$(dmsetup info --columns --noheadings -o minor "$1")/queue/read_ahead_kb"
}

connection() {
	cat /sys/class/iscsi_connection/connection*/"$1"
}

@test "pings that are off stay off, whatever a profile wants at least" {
	record 'node.conn[0].timeo.noop_out_interval' 0
	record 'node.conn[0].timeo.noop_out_timeout' 0
	relogin
	[ "$(connection recv_tmo)" -eq 0 ]
	fabtune apply wan-satellite --role initiator --rtt 37ms --rate 622mbit --allow-relogin
	interval=$(connection recv_tmo) timeout=$(connection ping_tmo)
	fabtune revert --allow-relogin
	record 'node.conn[0].timeo.noop_out_interval' 5
	record 'node.conn[0].timeo.noop_out_timeout' 5
	relogin
	[ "$interval" -eq 0 ]
	[ "$timeout" -eq 0 ]
}

@test "a target's MaxOutstandingR2T with which the next login would fail is named, and the record left alone" {
	echo 6 > $CONFIGFS/param/MaxOutstandingR2T
	run fabtune plan wan --role initiator --rtt 37ms --rate 622mbit --json
	[ "$status" -eq 0 ]
	[[ "$output" == *"offers 6: 6 is not a power of two"*"4 would work"* ]]
	run fabtune apply wan --role initiator --rtt 37ms --rate 622mbit
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"not written: iscsi.max_outstanding_r2t: target"*"offers 6"* ]]
	relogin
	[ "$(cat /sys/class/iscsi_session/session*/max_outstanding_r2t)" -eq 1 ]
	[ "$(cat /sys/block/sd*/device/queue_depth)" -eq 128 ]
}

@test "a target goes on taking the digest that an initiator logged in with" {
	cat > digest.toml <<-'END'
		summary = "no digests"
		[target."lio.header_digest"]
		value = "None"
		why = "a test"
	END
	record 'node.conn[0].iscsi.HeaderDigest' CRC32C
	relogin
	[ "$(cat $CONFIGFS/param/HeaderDigest)" = CRC32C,None ]
	run fabtune apply "$PWD/digest.toml" --role target --netns target
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"may ask for nothing but CRC32C, and could not log in again"* ]]
	relogin
	record 'node.conn[0].iscsi.HeaderDigest' None
	relogin
}

@test "verify says which session does not run with what was written yet, or still with what was taken back" {
	printf 'summary = "one"\n[initiator."iscsi.cmds_max"]\nvalue = 256\nwhy = "a test"\n' > one.toml
	fabtune apply "$PWD/one.toml" --role initiator || [ $? -eq 4 ]
	run fabtune verify
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"does not run with all that was written"*"apply PROFILE --allow-relogin"*"0 differ, 1 waiting for a new login"* ]]
	relogin
	run fabtune verify
	[ "$status" -eq 0 ]
	fabtune revert || [ $? -eq 4 ]
	run fabtune verify
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"values that were taken back"* ]]
	relogin
	run fabtune verify
	[ "$status" -eq 0 ]
}

@test "profile default, what an untouched system has, changes nothing on an untouched system" {
	run fabtune plan default --json --role initiator
	[ "$status" -eq 0 ]
	python3 -c "
import json, sys
rows = json.loads(sys.argv[1])['rows']
changes = [(one['tunable'], one['now'], one['wanted']) for one in rows if one['state'] == 'change']
print(*changes)
sys.exit(bool(changes) or len(rows) < 30)" "$output"
}

@test "apply names what is not possible on this host, and why" {
	printf 'summary = "one"\n[initiator."route.congctl"]\nvalue = "bbr"\nwhy = "a test"\n' > one.toml
	# Two routes that the kernel tells apart by nothing but their place.
	ip route append 10.2.0.0/24 via 10.1.0.253 dev i0
	run fabtune apply "$PWD/one.toml" --role initiator
	ip route del 10.2.0.0/24 via 10.1.0.253 dev i0
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"not possible here: route.congctl of "*": "*"nothing to change"* ]]
}

@test "a plan whose buffers exceed the host's memory is refused, and one that says so is taken" {
	run fabtune apply wan --role initiator --rtt 100ms --rate 100gbit --set io_size=1MiB
	echo "$output"
	[ "$status" -eq 2 ]
	[[ "$output" == *"too much memory at worst"*"--set memory_percent="* ]]
	[ "$(cut -f3 /proc/sys/net/ipv4/tcp_rmem)" -lt 1073741824 ]
	run fabtune apply wan --role initiator --rtt 100ms --rate 100gbit --set io_size=1MiB --set memory_percent=1000
	[ "$status" -eq 4 ]
}

@test "wan reads ahead on the disk and on what lies on it alone, and revert gives both back" {
	disk=$(cd /sys/block && echo sd*)
	modprobe loop
	truncate -s 16M /tmp/other
	loop=$(losetup -f --show /tmp/other)
	dmsetup create lab-linear --noudevsync --table "0 65536 linear /dev/$disk 0"
	dmsetup create lab-mixed --noudevsync --table "0 8192 linear /dev/$disk 65536
8192 8192 linear $loop 0"
	mine=$(ahead_of lab-linear) foreign=$(ahead_of lab-mixed)
	before=$(cat "$mine" "$foreign" /sys/block/"$disk"/queue/read_ahead_kb)
	shared=$(cat "$foreign")
	fabtune apply wan --role initiator --rtt 37ms --rate 622mbit || [ $? -eq 4 ]
	[ "$(cat /sys/block/"$disk"/queue/read_ahead_kb)" -eq 5616 ]
	[ "$(cat "$mine")" -eq 5616 ]
	[ "$(cat "$foreign")" = "$shared" ]
	fabtune revert || [ $? -eq 4 ]
	[ "$(cat "$mine" "$foreign" /sys/block/"$disk"/queue/read_ahead_kb)" = "$before" ]
	dmsetup remove --noudevsync lab-linear
	dmsetup remove --noudevsync lab-mixed
	losetup -d "$loop"
}

@test "a read-ahead that somebody switched off stays off" {
	disk=$(cd /sys/block && echo sd*)
	# The kernel gives a disk's read-ahead its default again with each rescan, and a login may still be at it.
	for try in 1 2 3 4 5; do
		echo 0 > /sys/block/"$disk"/queue/read_ahead_kb
		fabtune plan wan --role initiator --rtt 37ms --rate 622mbit --all --json > plan.json
		row=$(python3 -c "
import json
(row,) = [one for one in json.load(open('plan.json'))['rows'] if one['tunable'] == 'block.read_ahead_kb']
print(row['now'], row['wanted'], row['state'], row['note'])")
		[[ "$row" != 0* ]] || break
	done
	echo 128 > /sys/block/"$disk"/queue/read_ahead_kb
	echo "$row"
	[ "$row" = "0 0 kept off, and a bound switches nothing on" ]
}

@test "a value that the kernel rounded is right already: nothing is left to plan after apply, nor written again" {
	printf 'summary = "one"\n[initiator."block.read_ahead_kb"]\nat_least = 6075\nwhy = "a test"\n' > ahead.toml
	fabtune apply "$PWD/ahead.toml" --role initiator
	[ "$(cat /sys/block/sd*/queue/read_ahead_kb)" -eq 6072 ]
	run fabtune plan "$PWD/ahead.toml" --role initiator --exit-code
	echo "$output"
	[ "$status" -eq 0 ]
	fabtune plan "$PWD/ahead.toml" --role initiator --out ahead.plan
	fabtune apply --plan ahead.plan
	fabtune apply "$PWD/ahead.toml" --role initiator
	run -0 fabtune verify "$PWD/ahead.toml" --role initiator
	[ "$(fabtune history | grep -c ahead)" -eq 1 ]
	run -0 fabtune revert
	[[ "$output" == *"1 restored"* ]]
	[ "$(cat /sys/block/sd*/queue/read_ahead_kb)" -eq 128 ]
}
