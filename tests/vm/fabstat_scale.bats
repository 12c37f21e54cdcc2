#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --smp 2 --memory-mib 3072
# 1,000 LUNs on two CPUs: memory, time of a reading, and right figures.

setup() {
	load fabstat
	# A kernel that checks its locks has no room for the locks of more disks, and would check none of them any more.
	luns=1000
	[ ! -e /proc/lockdep_stats ] || luns=300
}

@test "1,000 LUNs on 2 CPUs: under 128 MiB, every figure right" {
	modprobe sd_mod
	load_fabstat
	modprobe scsi_debug delay=0 dev_size_mb=8 max_luns=$((luns / 4)) num_tgts=4 max_queue=64
	all_there() { [ "$(ls /sys/block | grep -c ^sd)" -eq $luns ]; }
	for _ in $(seq 10); do wait_for all_there && break; done
	python3 - $luns <<-'PYTHON'
		import json, mmap, os, sys, time
		from pathlib import Path
		from fabtune.stat import diff, snapshot, text_snapshot

		disks = sorted(path.name for path in Path("/sys/block").glob("sd*"))
		assert len(disks) == int(sys.argv[1]), len(disks)

		def load() -> None:
		    buffer = mmap.mmap(-1, 4096)
		    for cpu in (0, 1):
		        os.sched_setaffinity(0, {cpu})
		        for number, disk in enumerate(disks):
		            handle = os.open(f"/dev/{disk}", os.O_RDWR | os.O_DIRECT)
		            for turn in range(1 + number % 3):
		                os.preadv(handle, [buffer], 4096 * turn)
		            os.pwritev(handle, [buffer], 0)
		            os.close(handle)

		load()
		before = snapshot()
		load()
		start = time.process_time()
		after = snapshot()
		spent_s = time.process_time() - start
		found = {one.device.disk: one for one in diff(before, after).devices if one.device.disk in set(disks)}
		for number, disk in enumerate(disks):
		    device = found[disk]
		    assert device.ops["write"].completed == 2, (disk, device.ops)
		    assert device.ops["read"].completed >= 2 * (1 + number % 3), (disk, device.ops)
		    assert device.device.in_flight == 0 and device.device.hctl.count(":") == 3, device.device
		used = int(after.module["memory_bytes"])
		assert after.module["memory_refused"] == after.module["untracked"] == "0", after.module
		text = text_snapshot()
		assert not after.text and text.text
		assert [one.ops for one in after.devices] == [one.ops for one in text.devices]
		print(f"{used / 2**20:.1f} MiB for {len(disks)} LUNs on 2 CPUs, a typed reading: {spent_s:.3f} s of CPU; {len(text.text) / 1e6:.1f} MB of text")
		Path("/results/scale.json").write_text(json.dumps({"memory_bytes": used, "snapshot_cpu_s": spent_s, "text_bytes": len(text.text)}))
		assert used < 128 << 20, used
	PYTHON
	cat /results/scale.json
}

@test "a ceiling of 2 MiB over 1,000 LUNs is kept, counted and said; nothing breaks" {
	rmmod fabstat
	load_fabstat memory_limit_mib=2
	python3 - <<-'PYTHON'
		import mmap, os
		from pathlib import Path
		from fabtune.stat import snapshot

		buffer = mmap.mmap(-1, 4096)
		for path in Path("/sys/block").glob("sd*"):
		    handle = os.open(f"/dev/{path.name}", os.O_RDONLY | os.O_DIRECT)
		    os.preadv(handle, [buffer], 0)
		    os.close(handle)
		module = snapshot().module
		print(module)
		assert int(module["memory_bytes"]) <= 2 << 20
		assert int(module["memory_refused"]) > 0 and int(module["untracked"]) > 0
	PYTHON
	rmmod fabstat
}

@test "a request that ends where there is no memory to count it is forgotten: neither stuck, nor in flight for ever" {
	# Known on CPU 1 alone: what is read of it while it is made comes before the module.
	taskset -c 1 modprobe null_blk queue_mode=2 irqmode=2 completion_nsec=3000000000 submit_queues=1 nr_devices=1 gb=1
	load_fabstat memory_limit_mib=2
	echo 100 > "$PARAMETERS/stuck_ms"
	python3 - <<-'PYTHON'
		import mmap, os, subprocess, sys, time
		from pathlib import Path
		from fabtune.stat import snapshot, stuck

		DISK, CPU1 = "nullb0", Path("/sys/devices/system/cpu/cpu1/online")
		READ = "import mmap, os; os.sched_setaffinity(0, {1}); os.preadv(os.open('/dev/nullb0', os.O_RDONLY | os.O_DIRECT), [mmap.mmap(-1, 4096)], 0)"

		def in_flight() -> int:
		    return sum(map(int, Path(f"/sys/block/{DISK}/inflight").read_text().split()))

		def read_from_cpu_1() -> subprocess.Popen:
		    reader = subprocess.Popen([sys.executable, "-c", READ])
		    while not in_flight():
		        assert reader.poll() is None, "it ended before it was seen"
		        time.sleep(0.01)
		    return reader

		def of_disk():
		    (one,) = [one for one in snapshot().devices if one.disk == DISK]
		    print(one.in_flight, one.forgotten, one.ops["read"].completed, one.depth_ns, one.time_ns)
		    return one

		assert read_from_cpu_1().wait() == 0
		first = of_disk()
		assert (first.in_flight, first.forgotten) == (0, 0) and first.ops["read"].completed == 1
		buffer = mmap.mmap(-1, 4096)
		for path in Path("/sys/block").glob("sd*"):
		    handle = os.open(f"/dev/{path.name}", os.O_RDONLY | os.O_DIRECT)
		    os.preadv(handle, [buffer], 0)
		    os.close(handle)
		assert int(snapshot().module["untracked"]) > 0

		# Its CPU goes while the disk has it: it ends on the other one.
		reader = read_from_cpu_1()
		CPU1.write_text("0")
		assert reader.wait() == 0
		CPU1.write_text("1")
		second = of_disk()
		assert (second.in_flight, second.forgotten) == (0, 1) and second.ops["read"].completed == 1
		assert DISK not in [one.disk for one in stuck().requests]

		# Forgotten by the other CPU, as the module is switched off.
		reader = read_from_cpu_1()
		os.sched_setaffinity(0, {0})
		switch = Path("/sys/module/fabstat/parameters/enabled")
		switch.write_text("N")
		switch.write_text("Y")
		third = of_disk()
		assert (third.in_flight, third.forgotten) == (0, 2)
		# Three reads of a few seconds, not of all of the uptime.
		for earlier, later in ((first, second), (second, third)):
		    assert 0 < later.depth_ns - earlier.depth_ns <= 1.05 * (later.time_ns - earlier.time_ns)
		assert reader.wait() == 0
	PYTHON
	rmmod fabstat
	rmmod null_blk
}
