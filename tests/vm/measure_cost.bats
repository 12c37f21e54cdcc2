#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock virtual
# What watching a load costs the load.  One CPU, kept busy by the load, and a clock that counts
# instructions: whatever measure uses while the load runs is missing in the load's own figure.

setup_file() {
	modprobe null_blk queue_mode=2 irqmode=0 hw_queue_depth=64 gb=1
	insmod /fabtune/kmod/fabstat.ko
}

@test "measure takes at most 1 % from a load that leaves no CPU idle" {
	cd "$BATS_TEST_TMPDIR"
	watch="fabtune measure oltp --on /dev/nullb0 --confirm=nullb0 --runtime 8s --ramp 1s --out runs"
	# On a terminal, where a bar is drawn: the most that watching does.
	TERM=linux script -qec "$watch" shown > /dev/null
	grep -q "about 0:0" shown
	python3 - <<- 'END'
		import json, subprocess
		from fabtune.measure import recordfile
		from fabtune.model import typed
		from fabtune.model.outputs import FioOutput
		from pathlib import Path
		(path,) = recordfile.find(Path("runs"))
		step = recordfile.read(path).steps[0]
		Path("job.fio").write_text(step.job)
		said = subprocess.run(["fio", "--output-format=json+", "job.fio"], capture_output=True, check=True).stdout
		alone = typed.STRICT.read(FioOutput, json.loads(said), "fio").requests()
		watched = step.fio.requests()
		change = 1 - watched / alone
		print(f"alone {alone}, watched {watched} requests: {change:.2%} less")
		print(f"{len(step.samples)} samples, fabstat in {sum('fabstat.p99_ms' in s for s in step.samples)}")
		assert len(step.samples) >= 9 and alone > 10000
		assert change <= 0.01
	END
}
