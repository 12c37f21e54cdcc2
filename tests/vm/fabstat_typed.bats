#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --smp 2
# guest-full: --suite bookworm --clock real --smp 2
# guest-full: --suite sid --clock real --smp 2
# The typed file beside the text: the same of everything, in pieces of any size, and in a kernel that is locked down.

STATS=/sys/kernel/debug/fabstat

setup() {
	load fabstat
}

# agree [FILE]: the typed file, or FILE, which was read from it, says what the text says.
agree() {
	python3 - "$@" <<-'PYTHON'
		import sys
		from dataclasses import fields, replace
		from pathlib import Path
		from fabtune.stat import parse_typed, snapshot, text_snapshot

		typed = parse_typed(Path(sys.argv[1]).read_bytes()) if sys.argv[1:] else snapshot()
		text = text_snapshot()
		assert not typed.text and text.text, "the typed file was not read"
		heads = [{key: value for key, value in one.module.items() if key != "time_ns"} for one in (typed, text)]
		assert heads[0] == heads[1], heads
		assert typed.event_names == text.event_names and typed.depth_modulus_ns == text.depth_modulus_ns
		assert len(typed.devices) == len(text.devices) > 0, (typed.devices, text.devices)
		for one, other in zip(typed.devices, text.devices):
		    if other.state == "live":
		        # Two readings cannot be of one time.
		        one = replace(one, time_ns=other.time_ns)
		    for name in (field.name for field in fields(other)):
		        assert getattr(one, name) == getattr(other, name), (name, getattr(one, name), getattr(other, name))
	PYTHON
}

@test "typed and text agree: refusals, errors, hardware queues, details, a disk that is gone" {
	disk=$(load_fabstat detail=Y && scsi_debug_disk delay=0 max_queue=4)
	modprobe null_blk nr_devices=1 submit_queues=2 hw_queue_depth=8 irqmode=2 completion_nsec=100000
	if [ -d /sys/kernel/debug/scsi_debug ]; then
		inject "$disk" "2 -3 0x28 0 0 0x28 0 0 0"
		load_disk "$disk" --rw=read --size=1M --bs=64k
		inject "$disk" "2 -1 0x28 0 0 2 3 0x11 0"
		! dd if="/dev/$disk" of=/dev/null bs=64k count=1 iflag=direct 2>/dev/null || false
	fi
	load_disk "$disk" --rw=randrw --size=4M --bsrange=4k-512k --iodepth=16 --fsync=4
	load_disk nullb0 --rw=randrw --size=8M --bs=4k --iodepth=32 --numjobs=2
	wait_for agree
	expect nullb0 'd.limit_of == "queue"' 'len(d.queues) == 2' 'set(read.details) == {"wait", "4KiB"}'
	# Whoever reads in small pieces, and not at multiples of 8, reads the same.
	dd if=$STATS/stats.bin of=/tmp/pieces bs=509 status=none
	agree /tmp/pieces
	echo 1 > "/sys/block/$disk/device/delete"
	gone() { python3 -c 'from fabtune.stat import snapshot; exit("gone" not in [one.state for one in snapshot().devices])'; }
	wait_for gone
	wait_for agree
	[ "$(stat -c %a $STATS/stats.bin)" = 400 ]
}

@test "a reading ends with a record that says so, and whoever does not know that passes it over" {
	[ "$(tail -n 1 $STATS/stats)" = "end devices=$(grep -c '^device ' $STATS/stats)" ]
	grep -q "^module .* ends=1 " $STATS/stats
	python3 - <<-'PYTHON'
		import struct
		from pathlib import Path
		from fabtune.stat import parse_typed

		for pieces in (509, 1 << 20):
		    with Path("/sys/kernel/debug/fabstat/stats.bin").open("rb", buffering=0) as file:
		        data = b"".join(iter(lambda: file.read(pieces), b""))
		    kind, length, devices = struct.unpack("=IIQ", data[-16:])
		    assert (kind, length, devices) == (7, 16, len(parse_typed(data).devices)), (kind, length, devices)
	PYTHON
	# Where no device has been seen there is nothing behind the header, as ever.
	[ "$(grep -c '^end' $STATS/target)" -eq 0 ]
	grep -q '^module .* ends=0 ' $STATS/target
}

@test "a disk that gets more hardware queues has limits by queue from then on, and its books go on" {
	modprobe -r null_blk
	modprobe null_blk nr_devices=0
	dir=/sys/kernel/config/nullb/nullb0
	mkdir $dir
	for word in queue_mode=2 irqmode=2 completion_nsec=20000000 hw_queue_depth=8 submit_queues=1 poll_queues=0 size=64 power=1; do
		echo "${word#*=}" > "$dir/${word%=*}"
	done
	wait_for test -b /dev/nullb0
	echo none > /sys/block/nullb0/queue/scheduler
	pinned() { load_disk nullb0 --rw=randread --bs=4k --size=32m --numjobs=2 "--cpus_allowed=0,$(($(nproc) - 1))" --cpus_allowed_policy=split "$@"; }
	pinned --iodepth=3 --number_ios=50
	expect nullb0 'd.limit_of == "device" and d.limit == 8 and d.highest <= 6 and i.at_limit_ns == 0 and not d.queues'
	pinned --iodepth=6 --number_ios=500 &
	sleep 0.5
	echo 2 > $dir/submit_queues
	wait
	[ "$(ls /sys/block/nullb0/mq | wc -l)" -eq 2 ]
	before=$(seen nullb0 'i.at_limit_ns')
	# Together they are above what was the limit of both, and neither is at its own.
	pinned --iodepth=6 --number_ios=300
	expect nullb0 'd.limit_of == "queue" and d.limit == 8 and d.highest <= 8 and len(d.queues) == 2' \
		"i.at_limit_ns == $before and d.in_flight == 0 and books" 'all(not queue.in_flight for queue in d.queues)'
	pinned --iodepth=16 --number_ios=300
	expect nullb0 'all(queue.highest == queue.limit == 8 and queue.at_limit_ns > 0 for queue in d.queues)' 'books'
}

@test "what is saved is text, and fabtune reads the text of a module that has no typed file" {
	fabtune stat --save /tmp/saved
	grep -q '^# fabstat 1$' /tmp/saved
	fabtune stat --diff /tmp/saved /tmp/saved --json >/dev/null
	mkdir /tmp/older
	cp $STATS/stats /tmp/older
	python3 - <<-'PYTHON'
		from pathlib import Path
		from fabtune.stat import snapshot

		older = snapshot(Path("/tmp/older"))
		assert older.text and older.devices
	PYTHON
}

@test "a kernel that is locked down for integrity lets both be read" {
	[ -w /sys/kernel/security/lockdown ] || mount -t securityfs securityfs /sys/kernel/security || true
	[ -w /sys/kernel/security/lockdown ] || skip "this kernel has no lockdown"
	echo integrity > /sys/kernel/security/lockdown
	grep -F '[integrity]' /sys/kernel/security/lockdown
	# It is in force: modules without a signature are refused.
	! insmod /fabtune/kmod/fabstat.ko 2>/tmp/refused || false
	cat /tmp/refused
	grep -q 'not permitted' /tmp/refused
	agree
	fabtune stat nullb0
}
