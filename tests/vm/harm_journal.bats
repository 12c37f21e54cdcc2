#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite bookworm --clock real --accel uml
# Faults of output, disk and journal: the host is tuned or it is not, and never written to by strangers.

bats_require_minimum_version 1.5.0

WAN=(wan --role initiator --rtt 50ms --rate 1gbit)

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 0ms
	python3 -m fabtune.lab.guest login
}

setup() {
	load common
	fabtune history >/dev/null
	rm -rf /var/lib/fabtune/journal
	all_values > before
}

teardown() {
	umount /var/lib/fabtune 2>/dev/null || true
	fabtune revert --force --allow-relogin >/dev/null 2>&1 || true
}

# tuned_or_not STATUS: the host is as before, or has all of the plan, and the status says which.
tuned_or_not() {
	all_values > now
	if [ "$1" -eq 0 ] || [ "$1" -eq 4 ]; then
		run "-$1" fabtune verify
		run -0 fabtune plan "${WAN[@]}" --json
		[[ "$output" != *'"state": "change"'* ]]
		fabtune revert >/dev/null || [ $? -eq 4 ]
		all_values > now
	fi
	diff before now
}

@test "a reader that leaves, a full stderr and a full stdout leave no host half tuned" {
	status=0
	fabtune apply "${WAN[@]}" 2>&1 | head -1 || true
	status=${PIPESTATUS[0]}
	tuned_or_not "$status"
	run -4 bash -c "fabtune apply ${WAN[*]} 2>/dev/full"
	tuned_or_not 4
	run bash -c "fabtune apply ${WAN[*]} 2>&1 >/dev/full"
	[ "$status" -ne 120 ]
	[[ "$output" == *"could not be printed"* || "$output" == *"No space left"* ]]
	fabtune revert >/dev/full 2>&1 || [ $? -ne 120 ]
	all_values > now
	diff before now
}

@test "a hang-up, a signal to end and a failing program in the middle take everything back" {
	for signal in HUP TERM INT; do
		# Started so that it ignores none of them.
		/usr/bin/python3 - "$signal" <<-'EOF'
			import signal, subprocess, sys
			child = subprocess.Popen(
			    ["fabtune", "apply", "wan", "--role", "initiator", "--rtt", "50ms", "--rate", "1gbit"],
			    stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
			    preexec_fn=lambda: [signal.signal(n, signal.SIG_DFL) for n in (1, 2, 15)],
			)
			child.stderr.readline()
			child.send_signal(getattr(signal, "SIG" + sys.argv[1]))
			rest = child.stderr.read()
			status = child.wait()
			print(sys.argv[1], status, rest[-300:])
			assert status == 130, status
		EOF
		all_values > now
		diff before now
	done
	# The terminal is gone and takes no more words; nohup's wish is heard.
	run -4 bash -c "trap '' HUP; fabtune apply ${WAN[*]} 2>/dev/null & child=\$!; sleep 0.7; kill -HUP \$child; wait \$child"
	fabtune revert || [ $? -eq 4 ]
}

@test "one damaged line sets its own transaction apart, and the others are verified and taken back" {
	cat > one.toml <<-'EOF'
		summary = "a test"
		[initiator."net.netdev_max_backlog"]
		value = 4321
		why = "a test"
	EOF
	backlog=$(sysctl -n net.core.netdev_max_backlog)
	fabtune apply "$PWD/one.toml" --role initiator
	fabtune apply "${WAN[@]}" || [ $? -eq 4 ]
	file=$(ls /var/lib/fabtune/journal/*.jsonl | tail -1)
	sed -i '4s/.*/{"kind": "wri/' "$file"
	run -3 fabtune verify
	echo "$output"
	[[ "$output" == *"line 4 is damaged"* ]]
	run -1 fabtune revert
	[[ "$output" == *"line 4 is damaged"* ]]
	[ "$(sysctl -n net.core.netdev_max_backlog)" = "$backlog" ]
	[[ "$(fabtune history)" == *"taken back"*damaged* ]]
	sed -i 4,4d "$file"
	rm "$file"
	iscsiadm -m node -o update -n node.conn[0].tcp.window_size -v 524288
	python3 - <<-'EOF'
		# What stood after the damage goes back by hand, as the message says.
		import subprocess
		before = dict(line.rstrip().split(" = ", 1) for line in open("before") if " = " in line and line.startswith("node."))
		text = subprocess.run(["iscsiadm", "-m", "node", "-o", "show"], capture_output=True, text=True).stdout
		for line in text.splitlines():
		    key, _, value = line.partition(" = ")
		    if key in before and before[key] != value:
		        subprocess.run(["iscsiadm", "-m", "node", "-o", "update", "-n", key, "-v", before[key]])
	EOF
	for key in net.ipv4.tcp_rmem net.ipv4.tcp_wmem net.ipv4.tcp_slow_start_after_idle net.ipv4.tcp_no_metrics_save net.ipv4.tcp_mtu_probing; do
		value=$(sed -n "s/^$key = //p" before | head -1)
		[ -z "$value" ] || sysctl -qw "$key=$value"
	done
}

@test "values go back although the state directory is read-only or full, and that is said" {
	mkdir -p /var/lib/fabtune
	mount -t tmpfs -o size=256k tmpfs /var/lib/fabtune
	chmod 755 /var/lib/fabtune
	fabtune apply "${WAN[@]}" || [ $? -eq 4 ]
	mount -o remount,ro /var/lib/fabtune
	run -1 fabtune revert
	echo "$output"
	[[ "$output" == *"values go back all the same"* ]]
	all_values > now
	diff before now
	mount -o remount,rw /var/lib/fabtune
	run fabtune revert
	[ "$status" -eq 0 ] || [ "$status" -eq 4 ]
	fabtune apply "${WAN[@]}" || [ $? -eq 4 ]
	cat /dev/zero > /var/lib/fabtune/filler 2>/dev/null || true
	run fabtune revert
	echo "$output"
	all_values > now
	diff before now
	rm /var/lib/fabtune/filler
	run fabtune revert
	[ "$status" -eq 0 ] || [ "$status" -eq 4 ]
}

@test "root never follows another user's links, directories or journals" {
	useradd -m stranger 2>/dev/null || echo 'stranger:x:4321:4321::/tmp:/bin/sh' >> /etc/passwd
	mkdir -p theirs/journal
	echo precious > victim
	ln -s "$PWD/victim" theirs/lock
	chown -R 4321 theirs
	FABTUNE_STATE_DIR=$PWD/theirs run -1 fabtune apply "${WAN[@]}"
	[[ "$output" == *"belongs to user"* ]]
	chown 0 theirs theirs/journal
	FABTUNE_STATE_DIR=$PWD/theirs run -1 fabtune apply "${WAN[@]}"
	[[ "$output" == *"is a link"* ]]
	[ "$(cat victim)" = precious ]
	all_values > now
	diff before now
}

@test "a forged journal writes to no file that the vocabulary does not know" {
	echo 1 > victim
	fabtune apply "${WAN[@]}" || [ $? -eq 4 ]
	file=$(ls /var/lib/fabtune/journal/*.jsonl)
	cp "$file" whole
	disk=$(python3 -c "from fabtune.facts import devices; from fabtune.facts.host_snapshot import HostSnapshot as S; print(devices.blocks(S())[0].identity)")
	cat >> "$file" <<-EOF
		{"kind": "write", "step": $(($(grep -c '"kind": "write"' "$file") + 1)), "boot_id": "x", "tunable": "x", "backend": "attribute", "key": "../../../..$PWD/victim", "device": {"scope": "block", "identity": "$disk", "label": "x"}, "old": "2", "wrote": "1", "effect": "live", "rounds": false}
	EOF
	run -1 fabtune revert
	echo "$output"
	[[ "$output" == *"left alone"* ]]
	[ "$(cat victim)" = 1 ]
	all_values > now
	diff before now
}
