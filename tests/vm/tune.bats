#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# Plan, apply, verify and revert against a real LIO target and a real open-iscsi initiator.

CONFIGFS=/sys/kernel/config/target/iscsi/iqn.2026-01.lab.fabtune:target/tpgt_1

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

@test "after apply on both ends and revert every value reads as before" {
	all_values > before
	run fabtune apply wan --role target --netns target --rtt 50ms --rate 1gbit
	[ "$status" -eq 4 ]
	run fabtune apply wan --role initiator --rtt 50ms --rate 1gbit --allow-relogin
	[ "$status" -eq 0 ]
	all_values > during
	run diff before during
	[ "$status" -eq 1 ]
	grep -qx "$CONFIGFS/param/FirstBurstLength:262144" during
	grep -qx 'node.conn\[0\].tcp.window_size = 0' during
	run fabtune revert --allow-relogin
	[ "$status" -eq 4 ]
	all_values > after
	diff before after
}

@test "a session logs in again with what the plan asked for" {
	fabtune apply wan --role target --netns target --rtt 50ms --rate 1gbit || [ $? -eq 4 ]
	fabtune apply wan --role initiator --rtt 50ms --rate 1gbit --allow-relogin
	[ "$(cat /sys/class/iscsi_session/session*/first_burst_len)" -eq 262144 ]
	[ "$(cat /sys/class/iscsi_session/session*/initial_r2t)" -eq 0 ]
	[ "$(cat /sys/class/iscsi_session/session*/max_outstanding_r2t)" -eq 16 ]
	[ "$(cat /sys/block/sd*/device/queue_depth)" -eq 128 ]
}

@test "the path is measured from the live session" {
	fabtune plan wan --role initiator --rate 1gbit --json > plan.json
	python3 -c "import json; rtt = json.load(open('plan.json'))['path']['rtt_ms']; assert 50 <= rtt < 75, rtt"
}

@test "a second apply changes nothing" {
	fabtune apply wan --role initiator --rtt 50ms --rate 1gbit --allow-relogin
	session=$(ls /sys/class/iscsi_session)
	run fabtune apply wan --role initiator --rtt 50ms --rate 1gbit --allow-relogin --json
	[ "$status" -eq 0 ]
	[ "$(ls /sys/class/iscsi_session)" = "$session" ]
	[ "$(fabtune history --json | grep -c '"in force"')" -eq 1 ]
}

@test "without leave no session is logged out, and the list of those that should be is given until one is" {
	session=$(ls /sys/class/iscsi_session)
	run fabtune apply wan --role initiator --rtt 50ms --rate 1gbit
	[ "$status" -eq 4 ]
	[[ "$output" == *"needs a re-login"* ]]
	[ "$(ls /sys/class/iscsi_session)" = "$session" ]
	run fabtune apply wan --role initiator --rtt 50ms --rate 1gbit
	[ "$status" -eq 4 ]
	python3 -m fabtune.lab.guest logout
	python3 -m fabtune.lab.guest login
	run fabtune apply wan --role initiator --rtt 50ms --rate 1gbit
	[ "$status" -eq 0 ]
}

@test "a mounted LUN is never logged out" {
	disk=/dev/$(cd /sys/block && echo sd*)
	exec 9<"$disk"
	session=$(ls /sys/class/iscsi_session)
	run fabtune apply wan --role initiator --rtt 50ms --rate 1gbit --allow-relogin
	exec 9<&-
	[ "$status" -eq 4 ]
	[[ "$output" == *"in use by process"* ]]
	[ "$(ls /sys/class/iscsi_session)" = "$session" ]
}

@test "disks that a re-login makes anew have the values that the plan asked for" {
	run fabtune apply low-latency --role initiator --rtt 50ms --rate 1gbit --allow-relogin
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"logged in again"* ]]
	grep -q '\[none\]' /sys/block/sd*/queue/scheduler
	[ "$(cat /sys/block/sd*/queue/wbt_lat_usec)" -eq 0 ]
	fabtune verify
	run fabtune revert --allow-relogin
	[ "$status" -eq 0 ]
	grep -q '\[mq-deadline\]' /sys/block/sd*/queue/scheduler
}

@test "a session that cannot log in with its new values comes back with the old ones" {
	echo None > $CONFIGFS/param/HeaderDigest
	cat > digest.toml <<-'EOF'
		summary = "a digest that this target does not have"
		[parameters.trust_logins]
		default = 1
		summary = "the preview of the login would stop it"
		[initiator."iscsi.header_digest"]
		value = "CRC32C"
		why = "a test"
	EOF
	run fabtune apply "$PWD/digest.toml" --role initiator --allow-relogin
	echo 'CRC32C,None' > $CONFIGFS/param/HeaderDigest
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"logged in again with its old values"* ]]
	[ "$(cat /sys/class/iscsi_session/session*/state)" = LOGGED_IN ]
	iscsiadm -m node -o show | grep -qx 'node.conn\[0\].iscsi.HeaderDigest = None'
	python3 -c "from fabtune.lab import iscsi_initiator; iscsi_initiator.wait_for_disks(1)"
}

@test "show and lint see the locked window of a live session, and that it is gone after apply" {
	run fabtune show
	[[ "$output" == *"50."*" ms"*" locked"* ]]
	run fabtune lint --rate 1gbit
	[ "$status" -eq 3 ]
	[[ "$output" == *window-locked* ]]
	fabtune apply wan --role initiator --rtt 50ms --rate 1gbit --allow-relogin
	run fabtune lint --rate 1gbit
	[[ "$output" != *window-locked* ]]
}

@test "verify finds what somebody else changed, and revert leaves it alone" {
	fabtune apply wan --role target --netns target --rtt 50ms --rate 1gbit || [ $? -eq 4 ]
	fabtune verify
	echo 32 > $CONFIGFS/param/MaxOutstandingR2T
	run fabtune verify
	[ "$status" -eq 3 ]
	[[ "$output" == *lio.max_outstanding_r2t* ]]
	run fabtune revert
	[ "$status" -eq 3 ]
	[[ "$output" == *"changed by somebody else"* ]]
	[ "$(cat $CONFIGFS/param/MaxOutstandingR2T)" -eq 32 ]
	[ "$(cat $CONFIGFS/param/FirstBurstLength)" -eq 65536 ]
	run fabtune revert --force
	echo "$output"
	# The initiator that is logged in still has the number that it agreed on.
	[ "$status" -eq 4 ]
	[ "$(cat $CONFIGFS/param/MaxOutstandingR2T)" -eq 1 ]
}

@test "CHAP secrets reach neither output nor journal nor facts" {
	record="iscsiadm -m node -T iqn.2026-01.lab.fabtune:target -p 10.2.0.1:3260 -o update"
	$record -n node.session.auth.authmethod -v CHAP
	$record -n node.session.auth.username -v somebody-secret
	$record -n node.session.auth.password -v hunter2-secret
	fabtune plan wan --rtt 50ms --rate 1gbit --all --json > out 2>&1
	fabtune apply wan --role initiator --rtt 50ms --rate 1gbit > out2 2>&1 || [ $? -eq 4 ]
	fabtune show --json > out3 2>&1
	fabtune show > out4 2>&1
	$record -n node.session.auth.authmethod -v None
	iscsiadm -m node -S -o show | grep -q hunter2-secret
	run grep -r secret out out2 out3 out4 /var/lib/fabtune
	[ "$status" -eq 1 ]
}
