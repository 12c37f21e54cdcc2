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
	load_words=(xdd --on "/dev/$disk" --confirm="$disk" --rtt 50ms --rate 1gbit
		--set op=read --settle 100ms --runtime 2s --ramp 1s)
	words=(ab untouched wan "${load_words[@]}" --target-netns target)
}

# verdict_of: the verdict and the number of pairs of the row that decides, from --json in $output.
verdict_of() {
	python3 -c 'import json, sys; row = json.load(sys.stdin)["rows"][0]; print(row["verdict"], row["n"])' <<< "$output"
}

of_records() {
	python3 - "$1" <<- 'END'
		import sys
		from pathlib import Path
		from fabtune.measure import recordfile
		runs = [recordfile.read(path) for path in recordfile.find(Path("runs"))]
		steps = [one.steps[0] for one in runs]
		side = lambda letter: [one for one in runs if one.session.side == letter and "pairs" in one.session.id]
		negotiated = lambda one: next(iter(one.steps[0].before.negotiated.values()))
		print(eval(sys.argv[1]))
	END
}

# of_sides PART: the records of both sides of a part of the session, each side in a directory of its own.
of_sides() {
	mkdir -p "$1-A" "$1-B"
	cp runs/"$1"/*-A-* "$1-A"
	cp runs/"$1"/*-B-* "$1-B"
}

@test "wan against untouched: six pairs, calibrated, a verdict, and every value back" {
	all_values > before
	run --separate-stderr fabtune "${words[@]}" --pairs 6 --calibrate 6 --json
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(verdict_of)" = "better 6" ]
	[[ "$output" == *"A against A, read: "*"equivalent within 2 %"* ]]
	[[ "$stderr" == *"untouched against wan: pair 1, run of "* ]]
	# Each run had a session of its own, with the values of its side.
	[ "$(of_records 'len({next(iter(step.before.negotiated)) for step in steps})')" -eq 24 ]
	[ "$(of_records '{negotiated(one)["MaxOutstandingR2T"] for one in side("A")}, len(side("A"))')" = "({'1'}, 6)" ]
	[ "$(of_records '{negotiated(one)["MaxOutstandingR2T"] for one in side("B")}, len(side("B"))')" = "({'16'}, 6)" ]
	all_values > after
	diff before after
	fabtune report runs
	grep -q "xdd: wan against untouched, session" runs/report.html
	run fabtune compare runs --json
	[ "$status" -eq 0 ]
	[ "$(verdict_of)" = "better 6" ]
	# What was better is worse the other way round, and A is no different from itself.
	of_sides pairs
	run fabtune compare pairs-B pairs-A --json
	[ "$status" -eq 3 ]
	[ "$(verdict_of)" = "worse 6" ]
	of_sides calibration
	run fabtune compare calibration-A calibration-B --json
	[ "$status" -eq 0 ]
	[ "$(verdict_of)" = "no practical difference 6" ]
}

@test "Ctrl-C in mid-session leaves nothing applied and keeps the records" {
	all_values > before
	# A shell starts what runs in the background deaf to Ctrl-C.
	env --default-signal=INT fabtune "${words[@]}" --pairs 2 --calibrate 0 --runtime 30s 2> err &
	session=$!
	# In the second run the disk is a new one, that has read nothing yet.
	until grep -q "pair 1, run of B ..." err && [ -r "/sys/block/$disk/stat" ] &&
		[ "$(awk '{print $1}' "/sys/block/$disk/stat")" -gt 500 ] && pgrep -x fio > /dev/null; do sleep 0.2; done
	kill -INT $session
	status=0
	wait $session || status=$?
	cat err
	[ "$status" -eq 130 ]
	grep -q "back to untouched" err
	run ! grep Traceback err
	run ! pgrep -x fio
	[ "$(of_records 'runs[-1].complete, runs[-1].problem')" = "(False, 'interrupted by the user')" ]
	all_values > after
	diff before after
}

@test "a LUN that somebody took into use is not logged out, and the session ends with the reason" {
	exec 9< "/dev/$disk"
	run fabtune "${words[@]}" --pairs 2 --calibrate 0
	exec 9<&-
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"cannot log in again"*"in use by process"* ]]
	[ ! -e runs ]
}

# target_host: sshd on the target's address, in the target's network and with a state directory of its own: a host of
# its own but for the kernel.  ssh reaches it over the path under test.
target_host() {
	mkdir -p -m 700 /root/.ssh /run/sshd /run/target-state
	ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
	cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
	printf 'StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n' > /root/.ssh/config
	ssh-keygen -q -t ed25519 -N '' -f /run/sshd/host_key
	mkdir -p /var/lib/fabtune
	ip netns exec target sh -c 'mount -t configfs configfs /sys/kernel/config && mount --bind /run/target-state /var/lib/fabtune &&
		exec /usr/sbin/sshd -h /run/sshd/host_key -o UseDNS=no -o UsePAM=no -o PermitRootLogin=yes'
}

# of_target DIR: how many transactions of the target's end are in a state directory.
of_target() {
	cat "$1"/journal/*.jsonl 2> /dev/null | grep -c '"roles": \["target"\]' || true
}

@test "the target's end on a host of its own, reached by ssh" {
	target_host
	words=(ab untouched wan "${load_words[@]}" --pairs 2 --calibrate 0 --json)
	all_values > before
	here=$(of_target /var/lib/fabtune)
	# Who may not log in there changes nothing here.
	run fabtune "${words[@]}" --target-host nobody@10.2.0.1
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"nobody@10.2.0.1 fabtune revert"*"Permission denied"* ]]
	[ ! -e runs ]
	run --separate-stderr fabtune "${words[@]}" --target-host 10.2.0.1
	echo "$output$stderr"
	# Two pairs cannot tell.
	[ "$status" -eq 5 ]
	[ "$(of_records '{negotiated(one)["MaxOutstandingR2T"] for one in side("A")}, len(side("A"))')" = "({'1'}, 2)" ]
	[ "$(of_records '{negotiated(one)["MaxOutstandingR2T"] for one in side("B")}, len(side("B"))')" = "({'16'}, 2)" ]
	[ "$(of_records 'all(any(key.startswith("target: ") for key in one.environment) for one in runs)')" = True ]
	# Each end kept a journal of its own.
	[ "$(of_target /var/lib/fabtune)" -eq "$here" ]
	[ "$(of_target /run/target-state)" -eq 2 ]
	all_values > after
	diff before after
}
