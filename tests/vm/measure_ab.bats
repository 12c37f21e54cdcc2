#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock virtual
# Two profiles over both ends of a real session: applied, logged in anew, measured in turn, judged, taken back.

bats_require_minimum_version 1.5.0

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 50ms
	python3 -m fabtune.lab.guest login
}

setup() {
	load common
	disk=$(basename /sys/class/iscsi_session/session*/device/target*/*/block/*)
	words=(ab default wan xdd --on "/dev/$disk" --confirm="$disk" --target-netns target --rtt 50ms --rate 1gbit
		--set op=read --settle 100ms --runtime 2s --ramp 1s)
}

of_records() {
	python3 - "$1" <<- 'END'
		import sys
		from pathlib import Path
		from fabtune.measure import record
		runs = [record.read(path) for path in record.find(Path("runs"))]
		steps = [one["steps"][0] for one in runs]
		side = lambda letter: [one for one in runs if one["session"]["side"] == letter and "pairs" in one["session"]["id"]]
		negotiated = lambda one: next(iter(one["steps"][0]["before"]["negotiated"].values()))
		print(eval(sys.argv[1]))
	END
}

@test "wan against default: six pairs, calibrated, a verdict, and every value back" {
	all_values > before
	run --separate-stderr fabtune "${words[@]}" --pairs 6 --calibrate 2 --json
	echo "$output"
	[ "$status" -eq 0 ]
	verdict=$(python3 -c 'import json, sys; row = json.load(sys.stdin)["rows"][0]; print(row["verdict"], row["n"])' <<< "$output")
	[ "$verdict" = "better 6" ]
	[[ "$output" == *"A against A, read: "*"the interval holds 1"* ]]
	[[ "$stderr" == *"default against wan: pair 1, run of "* ]]
	# Each run had a session of its own, with the values of its side.
	[ "$(of_records 'len({next(iter(step["before"]["negotiated"])) for step in steps})')" -eq 16 ]
	[ "$(of_records '{negotiated(one)["MaxOutstandingR2T"] for one in side("A")}, len(side("A"))')" = "({'1'}, 6)" ]
	[ "$(of_records '{negotiated(one)["MaxOutstandingR2T"] for one in side("B")}, len(side("B"))')" = "({'16'}, 6)" ]
	all_values > after
	diff before after
	fabtune report runs
	grep -q "xdd: wan against default, session" runs/report.html
}

@test "Ctrl-C in mid-session leaves nothing applied and keeps the records" {
	all_values > before
	# A shell starts what runs in the background deaf to Ctrl-C.
	env --default-signal=INT fabtune "${words[@]}" --pairs 2 --calibrate 0 --runtime 30s 2> err &
	session=$!
	until pgrep -x fio > /dev/null && grep -q "pair 1, run of B ..." err; do sleep 0.2; done
	kill -INT $session
	status=0
	wait $session || status=$?
	cat err
	[ "$status" -eq 130 ]
	grep -q "back to default" err
	run ! grep Traceback err
	run ! pgrep -x fio
	[ "$(of_records 'runs[-1]["complete"], runs[-1]["problem"]')" = "(False, 'interrupted by the user')" ]
	all_values > after
	diff before after
}

@test "a LUN that somebody took into use is not logged out, and the session ends with the reason" {
	exec 9< "/dev/$disk"
	run fabtune "${words[@]}" --pairs 2 --calibrate 0
	exec 9<&-
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"cannot log in anew"*"in use by process"* ]]
	[ ! -e runs ]
}
