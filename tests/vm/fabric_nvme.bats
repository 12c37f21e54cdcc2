#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# NVMe/TCP, the line of reference, through the emulated path.

setup_file() {
	load fabric
	bring_up nvme-tcp
}

setup() {
	load fabric
	cd "$BATS_TEST_TMPDIR"
}

teardown() {
	lab logout || true
}

@test "what is written through the routers is read back, and a changed byte is noticed" {
	disk=$(lab login)
	crossed 8 verified "$disk" 16
	flip_is_noticed "$disk"
	expect "$disk" 'books and d.in_flight == 0 and write.errors == 0'
}

@test "throughput is measured" {
	[ "${LENGTH:-short}" = full ] || skip "in the full run"
	disk=$(lab login)
	crossed 8 measures "$disk"
}

@test "whose CPU time it is, is told: of a load most of it, of work of nobody's nothing" {
	disk=$(lab login)
	python3 - "$disk" <<- 'END'
		import subprocess, sys, time
		from fabtune.lab.cpu_time import CpuTime
		from fabtune.measure import counters
		meter = CpuTime()
		def spent(act):
		    before = counters.sample(None) | meter.sample()
		    act()
		    after = counters.sample(None) | meter.sample()
		    grown = {key: (after[key] - before[key]) / 1e9 for key in after}
		    busy = grown["time.monotonic"] * 1e9 - grown["exact.cpu.idle"]
		    return busy, {end: grown[f"exact.cpu.{end}"] / busy for end in ("initiator", "target", "path")}
		def load():
		    words = f"fio --name=x --filename=/dev/{sys.argv[1]} --direct=1 --rw=read --bs=256k --size=24m --output=/dev/null"
		    subprocess.run(words.split(), check=True)
		def nobody():
		    until = time.monotonic() + 0.3
		    while time.monotonic() < until:
		        pass
		busy, shares = spent(load)
		print("load", busy, shares)
		assert 0.8 < sum(shares.values()) < 1 and min(shares.values()) > 0.03, shares
		busy, shares = spent(nobody)
		print("nobody", busy, shares)
		assert busy > 0.25 and sum(shares.values()) < 0.02, shares
	END
}
