#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock virtual
# guest-full: --suite sid --clock virtual
# SRP over soft RoCE, through the emulated path: login, verified data, credits, and the profile's tunables.

setup_file() {
	load fabric
	bring_up srp --tail-delay-ms 6000
}

setup() {
	bats_require_minimum_version 1.5.0
	load fabric
	load until
	cd "$BATS_TEST_TMPDIR"
}

teardown() {
	lab logout || true
	echo "# empty" > /etc/srp_daemon.conf
}

# slower_by MS: how much longer the target's disk takes for its last MiB.
slower_by() {
	dmsetup table lab-disk0 | sed "s/\( delay .* \)[0-9]*$/\1$1/" > table
	dmsetup reload lab-disk0 table
	dmsetup resume --noudevsync lab-disk0
	dmsetup table lab-disk0 | grep -q " delay .* $1$"
}

# host ATTRIBUTE: the SCSI host of the one SRP login.
host() {
	cat /sys/class/scsi_host/host*/"$1"
}

@test "what is written through the routers is read back, and a changed byte is noticed" {
	disk=$(lab login)
	crossed 8 verified "$disk" 16
	flip_is_noticed "$disk"
	run fabtune stat "$disk" --json
	echo "$output"
	[ "$status" -eq 0 ]
	expect "$disk" 'books and d.in_flight == 0 and write.errors == 0 and d.driver == "ib_srp"'
}

@test "throughput is measured" {
	disk=$(lab login)
	crossed 8 measures "$disk"
}

@test "request by request, reads and writes: the target's time and the round trip are the disk's time, within 2 and 5 %" {
	lab path --rtt 10ms
	echo Y > "$PARAMETERS/target"
	disk=$(lab login)
	slower_by 10
	# Half of what is drawn from is the disk's last MiB.
	run python3 /fabtune/tests/vm/parts_of_time.py "$disk" 10 62
	printf '# %s\n' "${lines[@]}" >&3
	slower_by 6000
	[ "$status" -eq 0 ]
	echo N > "$PARAMETERS/target"
	lab path --rtt 2ms
}

@test "an abort at full depth takes the last credit: fabstat counts each command refused for it, and zero_req_lim agrees" {
	# ib_srp cuts its queue to the target's credits less one, which task management may use.  One read that is slower
	# than its timeout is aborted while 126 others keep the rest of the credits busy.
	echo "a queue_size=200,max_cmd_per_lun=200" > /etc/srp_daemon.conf
	disk=$(lab login)
	[ "$(host can_queue)" -eq 127 ]
	[ "$(host zero_req_lim)" -eq 0 ]
	[ "$(host req_lim)" -le 128 ]
	before=$(seen "$disk" 'events["host_busy"]' || echo 0)
	echo 2 > "/sys/block/$disk/device/timeout"
	load_disk "$disk" --rw=randread --bs=4k --iodepth=126 --size=60m --time_based --runtime=8 &
	dd if="/dev/$disk" of=/dev/null bs=4k skip=$((63 * 256 + 10)) count=1 iflag=direct status=none || true
	wait $!
	counted=$(host zero_req_lim)
	echo "zero_req_lim $counted"
	dmesg | grep -i 'srp' | tail -3
	fabtune stat "$disk"
	expect "$disk" "events[\"host_busy\"] - $before == $counted and $counted > 0"
	expect "$disk" 'd.in_flight == 0'
	run fabtune lint
	echo "$output"
	[[ "$output" == *srp-credits-exhausted* ]]
}

@test "why: with no connection to see it names what the login's queue may be kept by; rate and target tell which" {
	disk=$(lab login)
	queue=$(host can_queue)
	load_disk "$disk" --rw=randread --bs=4k --iodepth=120 --size=60m --time_based --runtime=3600 &
	until_true "[ \$(awk '{ print \$9 }' /sys/block/$disk/stat) -ge $queue ]"
	fabtune why "$disk" --for 3s || [ $? -eq 5 ]
	run --separate-stderr fabtune why "$disk" --for 3s --json
	[ "$status" -eq 5 ]
	python3 - "$queue" <<-PYTHON
		import json, sys
		(one,) = json.loads("""$output""")["devices"]
		first = one["ways"][0]["shares"][0]
		print(first)
		assert first["limiter"] == "cannot-tell-credits" and first["share"] > 0.95
		assert {"counter": "can_queue of the session", "end": "initiator", "value": sys.argv[1]} in first["evidence"]
		assert any("srp has no TCP connection" in text for text in one["missing"])
	PYTHON
	# The target's end is this kernel's, as it would be another host's by ssh: its disk answers at once.
	run --separate-stderr fabtune why "$disk" --for 3s --rate 10gbit --target-netns shaper --json
	[ "$status" -eq 0 ]
	python3 - <<-PYTHON
		import json
		(one,) = json.loads("""$output""")["devices"]
		first = one["ways"][0]["shares"][0]
		print(first)
		assert first["limiter"] in ("srp-credits", "srp-queue") and first["share"] > 0.95
	PYTHON
	kill %1
	wait || true
}

@test "profile srp: in effect after the next login, and no credit is missed" {
	disk=$(lab login)
	[ "$(host can_queue)" -lt 100 ]
	fabtune apply srp --role target
	run fabtune apply srp --role initiator
	echo "$output"
	[ "$status" -eq 0 ] || [ "$status" -eq 4 ]
	lab logout
	disk=$(lab login)
	# What belongs to the disk went with it.
	fabtune apply srp --role initiator
	[ "$(host can_queue)" -eq 127 ]
	[ "$(host cmd_sg_entries)" -ge 64 ]
	[ "$(cat "/sys/block/$disk/device/queue_depth")" -eq 127 ]
	[ "$(cat "/sys/block/$disk/queue/max_hw_sectors_kb")" -ge 1024 ]
	grep -q '\[none\]' "/sys/block/$disk/queue/scheduler"
	load_disk "$disk" --rw=randread --bs=4k --iodepth=127 --number_ios=4000 --size=60m
	[ "$(host zero_req_lim)" -eq 0 ]
	# ib_srp takes a send buffer back when the next request asks for one, so a reply may be ahead of its buffer once in a while.
	expect "$disk" 'i.queue_full < 20 and d.highest > 100'
	crossed 4 verified "$disk" 8
	run fabtune verify
	echo "$output"
	[ "$status" -eq 0 ]
	fabtune revert || [ $? -eq 4 ]
	[ ! -s /etc/srp_daemon.conf ] || ! grep -q queue_size /etc/srp_daemon.conf
}
