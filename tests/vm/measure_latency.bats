#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# together: session
# Latencies as reported, by fabstat and by fio, against every request that the kernel saw, the ends of runs included.

setup_file() {
	load stands
	stands --rtt 100ms
	insmod /fabtune/kmod/fabstat.ko
}

teardown_file() {
	rmmod fabstat
	dmsetup remove_all
	rmdir /sys/kernel/config/nullb/*/
}

setup() {
	load disks
	cd "$BATS_TEST_TMPDIR" || exit 1
}

long() {
	[ "${LENGTH:-short}" = full ] || skip "in the full run"
}

# held PATH... -- WORKLOAD RAMP RUNTIME SETTING...: log in over such a path, and hold a run against the tracepoints.
held() {
	local path=()
	while [ "$1" != -- ]; do
		path+=("$1")
		shift
	done
	shift
	python3 -m fabtune.lab.guest path "${path[@]}"
	disk=$(python3 -m fabtune.lab.guest login)
	run python3 /fabtune/tests/vm/latency_reference.py "$disk" "$@"
	echo "$output"
	python3 -m fabtune.lab.guest logout
	[ "$status" -eq 0 ]
}

@test "untouched over 100 ms: 32 reads of 256 KiB that take seconds each" {
	held --rtt 100ms -- xdd 4s 12s op=read
}

@test "reads and writes together: 70/30, 16 of 4 KiB, over 10 ms" {
	long
	held --rtt 10ms -- oltp 1s 3s
}

@test "untouched over 100 ms: writes" {
	long
	held --rtt 100ms -- xdd 4s 12s op=write
}

@test "one read of 4 KiB at a time over 20 ms" {
	long
	held --rtt 20ms -- xdd 1s 4s op=read block_bytes=4k queue_depth=1
}

@test "8 reads of 64 KiB over 20 ms" {
	long
	held --rtt 20ms -- xdd 1s 4s op=read block_bytes=64k queue_depth=8
}

@test "8 writes of 64 KiB over 20 ms" {
	long
	held --rtt 20ms -- xdd 1s 4s op=write block_bytes=64k queue_depth=8
}

@test "32 reads of 256 KiB without a round trip" {
	long
	held --rtt 0ms -- xdd 1s 3s op=read
}

@test "32 writes of 256 KiB without a round trip" {
	long
	held --rtt 0ms -- xdd 1s 3s op=write
}

@test "32 reads of 4 KiB over 10 ms that loses one packet in a thousand" {
	long
	held --rtt 10ms --loss 0.1% -- xdd 1s 4s op=read block_bytes=4k
}

@test "4 reads of 1 MiB over 50 ms" {
	long
	held --rtt 50ms -- xdd 3s 24s op=read block_bytes=1m queue_depth=4
}

@test "16 writes of 16 KiB over a slow path" {
	long
	held --rtt 5ms --rate 100mbit -- xdd 1s 4s op=write block_bytes=16k queue_depth=16
}

@test "random reads of 4 KiB, one at a time, over 5 ms" {
	long
	held --rtt 5ms -- latency 1s 4s
}

# stalled_while READS RUNTIME WORKLOAD WORD...: measure on a disk that answers nothing for a second, once READS are done; its
# least and longest length is in `stall`, in s.
stalled_while() {
	local reads=$1 runtime=$2 moment=() measure
	shift 2
	fabtune measure "$@" --on "/dev/$dm" --ramp 1s --runtime "$runtime" --json > said.json 3>&- &
	measure=$!
	until [ "$(awk '{print $1}' "/sys/block/$dm/stat")" -gt "$reads" ]; do
		kill -0 "$measure"
		sleep 0.05
	done
	moment+=("$(date +%s%N)")
	dmsetup suspend --nolockfs stalled
	moment+=("$(date +%s%N)")
	sleep 1
	moment+=("$(date +%s%N)")
	dmsetup resume stalled
	moment+=("$(date +%s%N)")
	wait "$measure"
	stall="$(((moment[2] - moment[1]) / 1000000)) $(((moment[3] - moment[0]) / 1000000))"
	echo "stalled for $stall ms"
	cat said.json
}

@test "a stall of a second hides from a closed loop and shows in an open one, in every request that was to leave in it" {
	disk=$(slow_disk stalled 5)
	modprobe dm_mod
	dmsetup create stalled --table "0 $(blockdev --getsz "/dev/$disk") linear /dev/$disk 0"
	dm=$(dmsetup info --columns --noheadings -o blkdevname stalled)

	stalled_while 300 3s latency
	python3 - <<- 'END'
		import json
		(step,) = json.load(open("said.json"))["steps"]
		# About 500 requests, one of which waited: a closed loop sends no others meanwhile.
		assert 5 < step["read_p99_ms"] < 7, step
	END
	stalled_while $((600 + 400 + 400)) 6s openloop --set requests_per_s=400
	python3 - $stall <<- 'END'
		import json, sys
		low, high = (int(word) / 1000 for word in sys.argv[1:])
		said = json.load(open("said.json"))
		(step,) = said["steps"]
		assert (step["offered_per_s"], step["latency"]) == (400, "from the instant"), step
		assert 5 < step["read_p50_ms"] < 6, step
		# 2400 instants in 6 s, by chance alike over the stall: what a share of all exceeds follows from its length.
		for key, share, chance in (("p90", 0.10, 160), ("p99", 0.01, 60)):
		    least, most = (1000 * (length - 6 * share) for length in (low, high))
		    assert least - chance < step[f"read_{key}_ms"] < most + chance, (key, least, most, step)
		assert not [one for one in said["checks"] if one["verdict"] == "fail"], said["checks"]
	END
	dmsetup remove stalled
}

@test "of more than the disk can do the rates are told, and no latency" {
	long
	disk=$(slow_disk narrow 20)
	echo 4 > "/sys/block/$disk/queue/nr_requests"
	run fabtune measure openloop --set requests_per_s=400 --on "/dev/$disk" --ramp 500ms --runtime 3s
	echo "$output"
	[ "$status" -eq 0 ]
	reached='open loop, 400\.0 requests/s offered, (19[0-9]|20[0-9])\.[0-9] reached: cannot tell the latency'
	[[ "${output//$'\n'/ }" =~ $reached ]]
}

# recorded NAME WORD...: keep what blktrace sees on $disk while the command runs as NAME.blktrace.*.
recorded() {
	local name=$1 tracer
	shift
	blktrace -d "/dev/$disk" -o "$name" > blktrace.out 2>&1 3>&- &
	tracer=$!
	until [ -e "/sys/kernel/debug/block/$disk/trace0" ]; do
		kill -0 "$tracer" || { cat blktrace.out; return 1; }
		sleep 0.05
	done
	"$@"
	kill -INT "$tracer"
	wait "$tracer" || true
}

@test "a trace of blktrace is replayed: the same requests, at the same instants" {
	[ "${LENGTH:-short}" = full ] || skip "in the full run"
	disk=$(slow_disk replayed 2)
	mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
	# Bursts of several, sizes and directions by chance, and pauses between them.
	recorded was fio --name=known --filename="/dev/$disk" --direct=1 --ioengine=libaio --iodepth=8 --rw=randrw \
		--bssplit=4k/50:16k/30:64k/20 --norandommap=1 --size=256m --number_ios=600 --thinktime=30ms --thinktime_blocks=12
	blkparse -i was -O -d was.bin > /dev/null

	run fabtune measure replay --trace was.bin --on "/dev/$disk"
	[ "$status" -eq 2 ]
	[[ "$output" == *"this workload overwrites"* ]]
	# blktrace keeps the disk open, and what is open is not written to: the replay goes through a device on top of it.
	dmsetup create replayed --table "0 $(blockdev --getsz "/dev/$disk") linear /dev/$disk 0"
	dm=$(dmsetup info --columns --noheadings -o blkdevname replayed)
	recorded again fabtune measure replay --trace was.bin --on "/dev/$dm" --confirm="$dm" --json > said.json
	blkparse -i again -O -d again.bin > /dev/null
	cat said.json
	python3 - <<- 'END'
		import json
		from pathlib import Path
		from fabtune.measure import blktrace
		was, again = (blktrace.load(Path(f"{name}.bin")) for name in ("was", "again"))
		assert len(was.requests) == 600, len(was.requests)
		requests = [[(one.offset, one.length, one.write) for one in trace.requests] for trace in (was, again)]
		assert requests[0] == requests[1]
		late_ms = sorted((b.at_ns - a.at_ns) / 1e6 for a, b in zip(was.requests, again.requests))
		print("instants apart, ms:", late_ms[0], late_ms[300], late_ms[594], late_ms[-1])
		said = json.load(open("said.json"))
		(step,) = said["steps"]
		assert not [one for one in said["checks"] if one["verdict"] == "fail" and one["voids"]], said["checks"]
		assert step["replayed"]["requests"] == 600 and not step["replayed"]["folded"], step
		# As faithful as it says, but for the first one's own delay and what reading the clock takes.
		assert abs(late_ms[594]) <= step["behind_p99_ms"] + 0.5 and late_ms[-1] <= step["behind_max_ms"] + 0.5, late_ms
		assert late_ms[300] < 0.5, late_ms
	END
	# The LUN of an initiator that is smaller: what lies beyond its end is folded.
	disk=$(slow_disk smaller 2 16)
	run fabtune measure replay --trace was.bin --on "/dev/$disk" --confirm="$disk"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "${output//$'\n'/ }" =~ 'Of the 600 requests of the trace'\ +[0-9]+' folded back' ]]
	[[ "$output" != *"fail "*"the disk moved the bytes"* ]]
}
