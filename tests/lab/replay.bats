#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# A user's trace over an emulated path, by the lines of Documentation/measuring.md.
bats_require_minimum_version 1.5.0

setup() {
	cd "$BATS_TEST_DIRNAME/../.."
	TOP=$PWD
}

# What the test printed and the guest's console tell why it failed.
teardown() {
	[ -z "$BATS_TEST_COMPLETED" ] || return 0
	tail -n 40 "$BATS_TEST_TMPDIR"/replayed/console.log
}

@test "a trace is carried into a guest and replayed over its path: each request, and none quicker than the round trip" {
	sed -n '/^### Over an emulated path/,/^## /{/^```sh$/,/^```$/{/^```/d;p}}' Documentation/measuring.md > "$BATS_TEST_TMPDIR/lines"
	cd "$BATS_TEST_TMPDIR"
	# Ten reads of 4 KiB and ten writes of 16 KiB, 40 ms apart: the last beyond what a small LUN has.
	PYTHONPATH=$TOP/tests/unit:$TOP/userspace /usr/bin/python3 - <<- 'END'
		from pathlib import Path
		from test_replay import READ, WRITE, event
		reads = [event(100 + 80 * n, 8 * n, 4096, READ) for n in range(10)]
		writes = [event(140 + 80 * n, (1 << 26) + 32 * n, 16384, WRITE) for n in range(10)]
		Path("load.bin").write_bytes(b"".join(one for pair in zip(reads, writes) for one in pair))
	END
	export PATH="$TOP/userspace/bin:$PATH"
	run bash -e lines
	echo "$output"
	[ "$status" -eq 0 ]
	[ -s replayed/report.html ]
	PYTHONPATH=$TOP/userspace /usr/bin/python3 - <<- 'END'
		from pathlib import Path
		from fabtune.measure import measured, recordfile
		(file,) = Path("replayed").glob(f"*{recordfile.SUFFIX}")
		record = recordfile.read(file)
		(step,) = record.steps
		assert record.complete and record.path.rtt_s == 0.05, record.path
		assert (step.replayed.requests, step.replayed.folded, step.replayed.trace) == (20, 0, "load.bin"), step.replayed
		for op, size in (("read", 4096), ("write", 16384)):
		    assert step.document.moved_bytes(op) == 10 * size
		    least_ns = min(step.document.bins(op))
		    assert 0.98 * 50e6 < least_ns < 70e6, (op, least_ns)
	END
}
