#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite bookworm --clock real --accel uml
# `fabtune tune` brings a session under its load to the line of 100 Mb/s at 100 ms, told nothing, and takes back what it stops at.

bats_require_minimum_version 1.5.0

setup_file() {
	modprobe sch_fq || true
	python3 -m fabtune.lab.guest up --rtt 100ms --rate 100mbit
	python3 -m fabtune.lab.guest login
}

setup() {
	load common
	load climbing
	load until
	DISK=$(basename /sys/class/iscsi_session/session*/device/target*/*/block/*)
	SID=$(basename /sys/class/iscsi_session/session*)
}

teardown() {
	rest
	fabtune revert --reconnect >/dev/null 2>&1 || true
}

# rests: whether nothing has moved for a second.
rests() {
	local before
	before=$(moved)
	sleep 1
	[ "$(moved)" = "$before" ]
}

window() {
	iscsiadm -m node -o show | sed -n 's/^node.conn\[0\].tcp.window_size = //p'
}

@test "an idle session, bad words and no session's disk are said, and nothing is written" {
	# What looks at a new disk has read it.
	until_true rests
	run -1 fabtune tune --yes --for 3s
	[[ $output == *"put them under their load"* ]]
	run -2 fabtune tune --yes --for 1s
	[[ $output == *"--for 1s: expected 3s to 600s"* ]]
	run -2 fabtune tune --yes --on nosuch
	run -2 fabtune tune --yes --steps 0
	[[ "$(fabtune history)" == *"the journal is empty"* ]]
}

@test "reads held by the locked window reach the line in a step that stays, in the same session, and revert gives all back" {
	under_load randread 32
	fabtune tune --yes --for 8s --target-netns target --json > tune.json
	cat tune.json
	[ "$(of '["ended"]')" = "at the bound" ]
	[ "$(of '["steps"][0]["kept"]')" = True ]
	[ "$(of '["steps"][0]["limiters"][0]')" = receive-window ]
	[ "$(of '["steps"][0]["ratio_low"] > 1.2')" = True ]
	[ "$(of '["last_bytes_per_s"] > 11e6')" = True ]
	[ "$(window)" = 0 ]
	[ "$(basename /sys/class/iscsi_session/session*)" = "$SID" ]
	fabtune verify
	run -0 fabtune revert --reconnect
	[ "$(window)" = 524288 ]
	kill -0 "$LOAD"
}

@test "one request at a time is the load's own doing: nothing is written" {
	under_load randread 1
	run -0 fabtune tune --yes --for 4s --target-netns target
	echo "$output"
	[[ $output == *"nothing left that settings lift"*"the load itself"* ]]
	[ "$(window)" = 524288 ]
}

@test "ended by a service manager while it looks whether a step helped takes the step back" {
	[ "${LENGTH:-short}" = full ] || skip "in the full run"
	under_load randwrite 32
	setsid fabtune tune --yes --for 20s --target-netns target > told 2>&1 3>&- 4>&- &
	climber=$!
	# The first look is long, too.
	until_true '[ "$(window)" = 0 ]' || { cat told; false; }
	until_true 'fabtune history | grep -Eq "on trial|unconfirmed"'
	kill -TERM $climber
	status=0
	wait $climber || status=$?
	cat told
	[ "$status" -eq 130 ]
	[ "$(window)" = 524288 ]
	[[ "$(fabtune history)" == *"taken back"* ]]
}

@test "a load of its own that would write asks first, one that is none is refused; one that reads is tuned under, and ends" {
	run -2 fabtune tune --yes --with xdd --on "$DISK"
	[[ $output == *"has 2 steps, expected one; choose with --set, such as --set op=read"* ]]
	run -2 fabtune tune --yes --with xdd --set op=write --on "$DISK"
	[[ $output == *"overwrites"*"--confirm=$DISK"* ]]
	run -2 fabtune tune --yes --with xdd --set op=read
	[[ $output == *"needs one --on"* ]]
	[ "$(window)" = 524288 ]
	fabtune tune --yes --with xdd --set op=read --on "$DISK" --for 8s --target-netns target --json > tune.json
	cat tune.json
	[ "$(of '["steps"][0]["kept"]')" = True ]
	[ "$(of '["last_bytes_per_s"] > 11e6')" = True ]
	[ "$(window)" = 0 ]
	run ! pidof fio
	[ "$(of '["path"]["rtt_least_ms"] >= 100 and document["path"]["mss_bytes"]')" = 1448 ]
	# What it says takes back all that stayed.
	of '["take_back"]' | python3 -c 'print(*eval(input()), sep="\n")' > commands
	cat commands
	sh commands || [ $? -eq 4 ]
	[ "$(window)" = 524288 ]
	run ! grep -q "in force" <(fabtune history)
}

@test "a second tune is told of the first; what a killed one leaves unjudged is named until somebody decides, and no tune begins before" {
	# In the short run tests/unit/test_trial.py has each of these, on a copied host tree.
	[ "${LENGTH:-short}" = full ] || skip "in the full run"
	under_load randread 32
	fabtune tune --yes --for 20s --target-netns target > told 2>&1 3>&- 4>&- &
	climber=$!
	until_true '[ "$(window)" = 0 ]' || { cat told; false; }
	until_true '[ "$(fabtune history | grep -c "on trial")" -eq 2 ]'
	run -1 fabtune tune --yes --for 3s
	echo "$output"
	[[ $output == *"another \`fabtune tune\` (process $climber)"* ]]
	grep -q "no systemd runs here" told
	kill -KILL $climber
	wait $climber || true
	run -1 fabtune tune --yes --for 3s
	[[ $output == *"ended before it could judge it"* ]]
	run -4 fabtune verify --json
	echo "$output"
	echo "$output" | grep -o 'fabtune revert --transaction [^`]*' | sort -u > commands
	[ -s commands ]
	while read -r command; do
		$command --reconnect || [ $? -eq 4 ]
	done < commands
	[ "$(window)" = 524288 ]
	fabtune verify
}

# target_host: sshd on the target's address, with a state directory of its own: a host of its own but for the kernel.
target_host() {
	mkdir -p -m 700 /root/.ssh /run/sshd /run/target-state /var/lib/fabtune
	[ -e /root/.ssh/id_ed25519 ] || ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
	cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
	printf 'StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n' > /root/.ssh/config
	[ -e /run/sshd/host_key ] || ssh-keygen -q -t ed25519 -N '' -f /run/sshd/host_key
	ip netns exec target sh -c 'mount -t configfs configfs /sys/kernel/config && mount --bind /run/target-state /var/lib/fabtune &&
		exec /usr/sbin/sshd -h /run/sshd/host_key -o UseDNS=no -o UsePAM=no -o PermitRootLogin=yes'
}

@test "a target on a host of its own is tuned by ssh with a journal of its own; one that is not reached is said first" {
	run -1 fabtune tune --yes --for 3s --target-host 10.2.0.77
	[[ $output == *"10.2.0.77: not reached by ssh"* ]]
	run -2 fabtune tune --yes --target-host=-oProxyCommand=x
	target_host
	buffers=$(ip netns exec target sysctl -n net.ipv4.tcp_wmem)
	ip netns exec target sysctl -qw net.ipv4.tcp_wmem="4096 16384 262144"
	under_load randread 32
	fabtune tune --yes --for 8s --target-host 10.2.0.1 --json > tune.json
	cat tune.json
	[ "$(of '["steps"][0]["kept"]')" = True ]
	[ "$(of '["last_bytes_per_s"] > 8e6')" = True ]
	[ "$(of '["steps"]' | grep -c "target: tcp.wmem_max")" -eq 1 ]
	rest
	# Nothing of it waits there, and its own revert gives back what its own journal knows.
	ssh 10.2.0.1 fabtune history > there
	cat there
	grep -q "target.*in force" there
	run ! grep -q unconfirmed there
	ssh 10.2.0.1 fabtune revert || [ $? -eq 4 ]
	[ "$(ip netns exec target sysctl -n net.ipv4.tcp_wmem)" = "4096	16384	262144" ]
	ip netns exec target sysctl -qw net.ipv4.tcp_wmem="$buffers"
}
