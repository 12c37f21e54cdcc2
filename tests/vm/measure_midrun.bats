#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite trixie --clock virtual
# What measure says and keeps when the world ends in mid-run.

TPG=/sys/kernel/config/target/iscsi/iqn.2026-01.lab.fabtune:target/tpgt_1

bats_require_minimum_version 1.5.0

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 5ms --rate 100mbit
}

setup() {
	load disks
	cd "$BATS_TEST_TMPDIR"
}

teardown() {
	# A test that failed midway leaves nothing to the next.
	if [ -n "${measure:-}" ]; then kill -KILL "$measure" || true; fi
	if compgen -G '/sys/class/iscsi_session/session*' > /dev/null; then python3 -m fabtune.lab.guest logout || true; fi
}

field() {
	zcat runs/*.run.json.gz | python3 -c "import json, sys; record = json.load(sys.stdin); print(($1))"
}

# start WORD...: measure in the background, as a terminal would start it: a shell's own background jobs are deaf to Ctrl-C.
start() {
	env --default-signal=INT fabtune measure "$@" 2> err &
	measure=$!
}

# moved DISK REQUESTS: wait until the load has read that many.
moved() {
	until [ "$(awk '{print $1}' "/sys/block/$1/stat")" -gt "$2" ]; do
		kill -0 "$measure" || { cat err; return 1; }
		sleep 0.05
	done
}

# ends CODE: the exit code of what was started; no traceback, no load left.
ends() {
	local status=0
	wait "$measure" || status=$?
	measure=
	cat err
	[ "$status" -eq "$1" ]
	run ! grep Traceback err
}

@test "without fio the message names the package, and nothing is left" {
	mount --bind /dev/null /usr/bin/fio
	run fabtune measure latency --on .
	umount /usr/bin/fio
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"fio not found; install it with: apt-get install fio"* ]]
	[ ! -e runs ]
}

@test "a device that vanishes in mid-run ends it, what was measured is kept" {
	disk=$(scsi_debug_disk 64)
	# Ticks: the guest waits for the disk, and not the disk for the guest.
	echo 5 > /sys/bus/pseudo/drivers/scsi_debug/delay
	start oltp --on "/dev/$disk" --confirm="$disk" --runtime 120s --ramp 0s
	moved "$disk" 700
	sleep 1.5
	echo 1 > "/sys/block/$disk/device/delete"
	ends 1
	grep -E "$disk has vanished|fio ended with status" err
	grep -q "marked incomplete" err
	[ "$(field 'record["complete"], len(record["steps"][0]["samples"]) >= 2')" = "(False, True)" ]
	[ "$(field 'record["steps"][0]["fio"]["jobs"][0]["read"]["total_ios"] > 500')" = True ]
	run ! pgrep -x fio
	rmmod scsi_debug
}

@test "a target that dies for good ends the run with fio's own error, what was measured is kept" {
	iscsiadm -m node -o update -n node.session.timeo.replacement_timeout -v 3
	disk=$(python3 -m fabtune.lab.guest login)
	start xdd --on "/dev/$disk" --set op=read --runtime 300s --ramp 0s
	moved "$disk" 60
	sleep 1.5
	echo 0 > $TPG/enable
	ends 1
	grep -q "fio ended with status .*Input/output error" err
	[ "$(field 'record["complete"], record["steps"][0]["fio"]["jobs"][0]["read"]["total_ios"] > 50')" = "(False, True)" ]
	[ "$(field 'len(record["steps"][0]["samples"]) >= 2')" = True ]
	echo 1 > $TPG/enable
	iscsiadm -m node -o update -n node.session.timeo.replacement_timeout -v 120
}

@test "stress128 passes where requests come back, and fails where one stays out for more than a minute" {
	[ "${LENGTH:-short}" = full ] || skip "in the full run"
	modprobe -q --dry-run null_blk || skip "no slow disks here"
	insmod /fabtune/kmod/fabstat.ko
	words=(--set op=write --set processes=4 --set total_bytes=16m --runtime 2s --ramp 0s)
	quick=$(slow_disk quick 5)
	run fabtune measure stress128 --on "/dev/$quick" --confirm="$quick" "${words[@]}"
	echo "$output"
	[ "$status" -eq 0 ]
	rm -r runs
	slow=$(slow_disk slow 65000)
	# They are late, not lost: the block layer is to wait for them.
	echo 200000 > "/sys/block/$slow/queue/io_timeout"
	run fabtune measure stress128 --on "/dev/$slow" --confirm="$slow" "${words[@]}"
	echo "$output"
	[ "$status" -eq 3 ]
	[[ "$output" == *"no request stays outstanding"* ]]
	[ "$(field 'record["complete"], len(record["steps"][0]["stuck"]["requests"]) > 0')" = "(True, True)" ]
	rmmod fabstat
	run fabtune measure stress128 --on "/dev/$quick" --confirm="$quick" "${words[@]}"
	[ "$status" -eq 1 ]
	[[ "$output" == *"load fabstat.ko first"* ]]
}

@test "a target that falls silent: Ctrl-C still ends the run, says why fio cannot end, and keeps the record" {
	disk=$(python3 -m fabtune.lab.guest login)
	start xdd --on "/dev/$disk" --set op=read --runtime 300s --ramp 0s
	moved "$disk" 60
	# Unplugged: no answer, no reset.
	ip -n target link set dev t0 down
	# Requests completed: the time in the same line goes on as long as one is outstanding.
	local before= now
	until now=$(awk '{print $1}' "/sys/block/$disk/stat") && [ "$now" = "$before" ]; do
		before=$now
		sleep 1
	done
	kill -INT "$measure"
	ends 130
	[ "$(field 'record["problem"]')" = "interrupted by the user" ]
	[[ "$(field 'record["steps"][0]["problem"]')" == *"requests are outstanding"* ]]
	ip -n target link set dev t0 up
	ip -n target route add 10.1.0.0/24 via 10.2.0.254 2> /dev/null || true
	# The session recovers, so that the kernel can reap fio.
	until ! pgrep -x fio > /dev/null; do sleep 0.5; done
}
