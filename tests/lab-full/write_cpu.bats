#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# What profile `wan` costs writes over a line that is slower than the host: no more CPU time than without it.

@test "a byte written with wan over a slow line takes no more CPU time than untouched" {
	cd "$BATS_TEST_DIRNAME/../.."
	cat > "$BATS_TEST_TMPDIR/writes.toml" <<-'EOT'
		seeds = 1
		[factors]
		profile = ["untouched", "wan"]
		[fixed]
		op = "write"
		rtt = "20ms"
		rate = "50mbit"
		ramp = "2s"
		runtime = "3s"
	EOT
	run env PYTHONPATH=userspace /usr/bin/python3 -m fabtune run "$BATS_TEST_TMPDIR/writes.toml" --out "$BATS_TEST_TMPDIR/out"
	echo "$output"
	[ "$status" -eq 0 ]
	# With iscsi.recv_from_iscsi_q the sender asked again without pause while the socket was full: all of the one CPU.
	/usr/bin/python3 - "$BATS_TEST_TMPDIR/out/summary.json" <<-'CHECK'
		import json, sys
		untouched, wan = sorted(json.load(open(sys.argv[1])), key=lambda point: point["profile"])
		print(untouched["cpu_s_per_gb"], wan["cpu_s_per_gb"])
		assert wan["cpu_s_per_gb"] <= 1.2 * untouched["cpu_s_per_gb"], (untouched, wan)
	CHECK
}
