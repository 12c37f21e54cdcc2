#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite bookworm --clock real --accel uml
# guest-full: --suite trixie --clock virtual
# What stands between a command line and the host: the question, the saved plan, the reader that leaves.

bats_require_minimum_version 1.5.0

WAN=(wan --role initiator --rtt 50ms --rate 1gbit)

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 50ms
	python3 -m fabtune.lab.guest login
}

setup() {
	load common
}

teardown() {
	fabtune revert --force --allow-relogin >/dev/null 2>&1 || true
}

# answered ANSWER ARGUMENT...: fabtune on a terminal of 80 columns, its question answered.
answered() {
	/usr/bin/python3 /fabtune/tests/host/terminal.py 80 "$1" fabtune "${@:2}"
}

@test "on a terminal nothing is written and no session ended before yes is typed" {
	all_values > before
	session=$(ls /sys/class/iscsi_session)
	run -0 answered no apply "${WAN[@]}" --allow-relogin
	[[ "$output" == *"values and log sessions in again? [y/N]"*"nothing was changed"* ]]
	run -130 answered ^C apply "${WAN[@]}" --allow-relogin
	run -130 answered ^D apply "${WAN[@]}" --allow-relogin
	all_values > after
	diff before after
	[ "$(ls /sys/class/iscsi_session)" = "$session" ]
	run -0 answered yes apply "${WAN[@]}" --allow-relogin
	[ "$(cat /sys/class/iscsi_session/session*/first_burst_len)" -gt 0 ]
	run -0 fabtune verify --role initiator
}

@test "a saved plan is refused, and nothing written, when a value or a record is another one" {
	fabtune plan "${WAN[@]}" --out wan.plan
	record=(iscsiadm -m node -T iqn.2026-01.lab.fabtune:target)
	refused() {
		# Without a session there is no disk to read, and that is all right.
		all_values > before || true
		run -3 fabtune apply --plan wan.plan --allow-relogin
		[[ "$output" == *"$1"* ]] || { echo "$output"; return 1; }
		all_values > after || true
		diff before after
	}
	old=$(cat /proc/sys/net/ipv4/tcp_slow_start_after_idle)
	echo $((1 - old)) > /proc/sys/net/ipv4/tcp_slow_start_after_idle
	refused "tcp.slow_start_after_idle of host: was $old, is $((1 - old))"
	echo "$old" > /proc/sys/net/ipv4/tcp_slow_start_after_idle
	"${record[@]}" -o update -n node.session.cmds_max -v 64
	refused "iscsi.cmds_max of target at 10.2.0.1:3260: was 128, is 64"
	"${record[@]}" -o update -n node.session.cmds_max -v 128
	run -0 fabtune apply --plan wan.plan --allow-relogin
	[[ "$output" == *"values written"* ]]
	run -0 fabtune verify --role initiator
}

@test "a saved plan of records and host alone is refused once its session has logged out, or another has logged in" {
	cat > record.toml <<-'END'
		summary = "a record's value and the host's"
		[initiator."iscsi.cmds_max"]
		value = 256
		why = "a test"
		[both."tcp.slow_start_after_idle"]
		value = false
		why = "a test"
	END
	fabtune plan "$PWD/record.toml" --role initiator --out with.plan
	python3 -m fabtune.lab.guest logout
	run -3 fabtune apply --plan with.plan
	[[ "$output" == *"gone: session iqn.2026-01.lab.fabtune:target,10.2.0.1:3260,default"* ]]
	fabtune plan "$PWD/record.toml" --role initiator --out without.plan
	python3 -m fabtune.lab.guest login
	run -3 fabtune apply --plan without.plan
	[[ "$output" == *"new: session iqn.2026-01.lab.fabtune:target,10.2.0.1:3260,default"* ]]
	[ "$(iscsiadm -m node -o show | grep cmds_max)" = "node.session.cmds_max = 128" ]
	run -4 fabtune apply --plan with.plan
}

@test "lint and plan by a user who is not root say that they do not see all, and lint is not content" {
	nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups fabtune)
	# Nothing is too small for so slow a line.
	run -5 "${nobody[@]}" lint --rtt 50ms --rate 20mbit
	[[ "$output" == *"not root: node records"*"stay unseen"* ]]
	# Nor is what it finds all that there may be.
	run -3 "${nobody[@]}" lint --rtt 1ms --rate 1gbit
	[[ "$output" == *"path-longer-than-told"* ]]
	[[ "$output" == *"not root: node records"*"stay unseen"* ]]
	run -0 "${nobody[@]}" plan "${WAN[@]}" --all
	[[ "$output" == *"(no record seen)"* ]]
	[[ "$output" != *"(no record yet)"* ]]
}

@test "a plan for a target says which of its portals are in another network namespace, and in which" {
	touch /run/netns/stale
	run -0 fabtune plan wan --role target --rtt 50ms --rate 1gbit
	rm /run/netns/stale
	[[ "$output" == *"10.2.0.1 is at no address of this host, but in target"*"--netns target"* ]]
	run -4 --separate-stderr fabtune apply wan --role target --rtt 50ms --rate 1gbit
	[[ "$stderr" == *"portal 10.2.0.1"*"--netns target"* ]]
	run -0 fabtune plan wan --role target --rtt 50ms --rate 1gbit --netns target
	[[ "$output" != *"no address"* ]]
	run -0 fabtune plan wan --role initiator --rtt 50ms --rate 1gbit
	[[ "$output" != *"no address"* ]]
}

@test "a reader that leaves, and an error output that is full, neither stop an apply nor change its exit code" {
	run bash -c 'fabtune apply wan --role initiator --rtt 50ms --rate 1gbit 2>/dev/full | true; exit ${PIPESTATUS[0]}'
	[ "$status" -eq 4 ]
	run -4 fabtune verify --role initiator
	run bash -c 'fabtune revert 2>/dev/full | true; exit ${PIPESTATUS[0]}'
	[ "$status" -ne 120 ]
	run -0 fabtune history --json
	[[ "$output" != *'"in force"'* && "$output" != *'"interrupted"'* ]]
}
