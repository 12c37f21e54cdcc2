#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite bookworm --clock real --accel uml
# What is applied with a time limit goes back by itself, whoever was killed, and stays once it is confirmed.

bats_require_minimum_version 1.5.0

setup() {
	load common
	load until
	cp "$BATS_TEST_DIRNAME/backlog.toml" .
	cat > record.toml <<-'EOT'
		summary = "a value that outlives a boot"
		[initiator."iscsi.queue_depth"]
		value = 64
		why = "a test"
	EOT
	[ "$(values)" = "1 1000" ]
}

teardown() {
	fabtune revert >/dev/null 2>&1 || true
}

values() {
	echo $(sysctl -n net.ipv4.tcp_slow_start_after_idle net.core.netdev_max_backlog)
}

nobody_waits() {
	until_true '! pgrep -f "revert --unconfirmed"'
}

@test "what nobody confirms goes back, and the journal says so; a second one beside it is refused" {
	run -0 fabtune apply ./backlog.toml --confirm-within 20s 3>&- 4>&-
	[[ "$output" == *"fabtune confirm"* ]]
	[ "$(values)" = "0 4321" ]
	[[ "$(fabtune history)" == *unconfirmed* ]]
	run -2 fabtune apply ./backlog.toml --set x=1 --confirm-within 20s
	run -2 fabtune apply ./backlog.toml
	until_true '[ "$(values)" = "1 1000" ]'
	nobody_waits
	run -1 fabtune confirm
	[[ "$output" == *"nothing waits to be confirmed"* ]]
	[[ "$(fabtune history)" == *"taken back"* ]]
}

@test "what is confirmed stays" {
	run -0 fabtune apply ./backlog.toml --confirm-within 120s 3>&- 4>&-
	run -0 fabtune confirm
	nobody_waits
	[ "$(values)" = "0 4321" ]
	[[ "$(fabtune history)" == *"in force"* ]]
	run -0 fabtune revert
	[ "$(values)" = "1 1000" ]
}

@test "what is applied right after a confirmation is watched too" {
	for _ in 1 2 3; do
		run -0 fabtune apply ./backlog.toml --confirm-within 60s 3>&- 4>&-
		run -0 fabtune confirm
		run -0 fabtune revert
	done
	run -0 fabtune apply ./backlog.toml --confirm-within 5s 3>&- 4>&-
	until_true '[ "$(values)" = "1 1000" ]'
	nobody_waits
}

@test "killed with its terminal in the middle of its writes, fabtune leaves nothing behind" {
	setsid -w fabtune apply ./backlog.toml --confirm-within 6s >/dev/null 2>&1 3>&- 4>&- &
	victim=$!
	until_true 'pgrep -f "revert --unconfirmed"'
	pkill -9 -f "apply ./backlog.toml"
	wait $victim || true
	until_true '[ "$(values)" = "1 1000" ]'
	nobody_waits
	[[ "$(fabtune history)" == *"taken back"* ]]
}

@test "who waits for the limit is not ended by a signal that is for everybody of that name" {
	run -0 fabtune apply ./backlog.toml --confirm-within 8s 3>&- 4>&-
	pkill -TERM -f "revert --unconfirmed"
	pkill -INT -f "revert --unconfirmed"
	pkill -HUP -f "revert --unconfirmed"
	[ "$(values)" = "0 4321" ]
	until_true '[ "$(values)" = "1 1000" ]'
	nobody_waits
}

@test "an apply that is stopped in its middle goes back at its limit all the same" {
	FABTUNE_FAULT=stop:8 setsid fabtune apply ./backlog.toml --confirm-within 5s >/dev/null 2>&1 3>&- 4>&- &
	victim=$!
	until_true 'pgrep -f "revert --unconfirmed"'
	until_true '[ "$(ps -o stat= -p $(pgrep -of "apply ./backlog.toml") | cut -c1)" = T ]'
	[ "$(values)" != "1 1000" ]
	wait $victim || [ "$?" = 130 ]
	[ "$(values)" = "1 1000" ]
	nobody_waits
	[[ "$(fabtune history)" == *"taken back"* ]]
}

@test "what a power cut would leave is refused where nothing would take it back" {
	python3 -m fabtune.lab.guest up --rtt 0ms
	python3 -m fabtune.lab.guest login
	run -1 fabtune apply ./record.toml --role initiator --confirm-within 60s
	[[ "$output" == *"no systemd runs here"* ]]
	[ "$(iscsiadm -m node -o show | grep -c 'queue_depth = 32')" = 1 ]
	! pgrep -f "revert --unconfirmed" || false
}
