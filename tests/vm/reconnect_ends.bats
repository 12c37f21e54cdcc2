#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# guest-full: --suite sid --clock virtual
# New connections in place of a busy session's, and the target, its path or fabtune itself ends in the middle: none is
# logged out, no request fails, no byte is lost.

bats_require_minimum_version 1.5.0

BURSTS=$BATS_TEST_DIRNAME/bursts.toml
REFUSED=$BATS_TEST_DIRNAME/refused.toml
load reconnect

# So long that nobody misses the moment at which there is no connection.
path="--rtt 100ms --rate 100mbit"

setup_file() {
	mounted $path
}

setup() {
	load common
	load until
}

@test "a portal that does not answer now, or requests that fail too soon, keep every connection as it is" {
	# Nothing of a disk: the kernel would wait for its requests.
	writer_starts
	started=$(since_iscsid)
	echo 2 > $SESSION/recovery_tmo
	run -4 fabtune apply "$BURSTS" --role initiator --reconnect
	[[ "$(echo "$output" | tr -s ' \n' ' ')" == *"fail after 2 s without a connection"* ]]
	echo 120 > $SESSION/recovery_tmo
	cut_path
	run -4 fabtune apply "$BURSTS" --role initiator --reconnect
	mend_path
	[[ "$(echo "$output" | tr -s ' \n' ' ')" == *"portal does not answer now"* ]]
	[ "$started" = "$(since_iscsid)" ]
	run -0 fabtune apply "$BURSTS" --role initiator --reconnect
	[ "$(cat $SESSION/max_burst_len)" = 131072 ]
	writer_ended_well
}

cut_when_failed() {
	local state
	while read -r state < $SESSION/state && [ "$state" = LOGGED_IN ]; do sleep 0.1; done
	cut_path
}

since_iscsid() {
	python3 -c "from fabtune.host import iscsid; print(iscsid.since())"
}

@test "a target that goes away at that very moment: all is taken back, and the session is there once the target is" {
	writer_starts
	cut_when_failed 3>&- 4>&- &
	run -1 fabtune apply wan --role initiator $path --reconnect
	echo "$output"
	[[ "$(echo "$output" | tr -s ' \n' ' ')" == *"everything written was taken back"* ]]
	[ "$(cat $SESSION/state)" != LOGGED_IN ]
	mend_path
	until_true "[ \$(cat $SESSION/state) = LOGGED_IN ]"
	writer_ended_well
	[ "$(cat $SESSION/max_outstanding_r2t)" = 1 ]
	[ "$(iscsiadm -m node -o show | grep -c 'tcp.window_size = 524288')" = 1 ]
}

@test "killed while iscsid is being started anew, fabtune leaves an iscsid and a session behind, and revert takes it back" {
	writer_starts
	started=$(since_iscsid)
	fabtune apply wan --role initiator $path --reconnect >/dev/null 2>&1 3>&- 4>&- &
	victim=$!
	until_true "[ \$(cat $SESSION/state) != LOGGED_IN ]"
	kill -9 $victim
	wait $victim || true
	until_true "[ \$(cat $SESSION/state) = LOGGED_IN ]"
	[ "$started" != "$(since_iscsid)" ]
	run -0 fabtune revert --reconnect
	[ "$(cat $SESSION/max_outstanding_r2t)" = 1 ]
	writer_ended_well
}

header_digest() {
	cat /sys/class/iscsi_connection/connection1:0/header_digest
}

@test "killed while the target refuses the new values, fabtune's revert alone brings the session back, with the old ones" {
	# With the digest of $REFUSED it then takes no login.
	target_takes None
	writer_starts
	started=$(since_iscsid)
	refused=$(refused_logins)
	fabtune apply "$REFUSED" --role initiator --reconnect >/dev/null 2>&1 3>&- 4>&- &
	victim=$!
	until_true "[ \$(cat $SESSION/state) != LOGGED_IN ]"
	until_true '[ "$(since_iscsid)" != "$started" ] && [ -n "$(since_iscsid)" ]'
	until_true '[ "$(refused_logins)" -gt "$refused" ]'
	kill -9 $victim
	wait $victim || true
	[ "$(cat $SESSION/state)" != LOGGED_IN ]
	run -0 fabtune revert
	echo "$output"
	[[ "$(echo "$output" | tr -s ' \n' ' ')" == *"is back with the values of its record"* ]]
	[ "$(cat $SESSION/state)" = LOGGED_IN ]
	[ "$(header_digest)" = 0 ]
	writer_ended_well
	run -0 fabtune verify
}

@test "what a reconnect cannot bring is told when iscsid has read the old records, and the session is back" {
	target_takes None
	writer_starts
	run -1 fabtune apply "$REFUSED" --role initiator --reconnect
	[ "$(cat $SESSION/state)" = LOGGED_IN ]
	echo "$output"
	[[ "$(echo "$output" | tr -s ' \n' ' ')" == *"taken back; all sessions are back with their old values"* ]]
	writer_ended_well
}

@test "stopped after its reconnect, apply ends when the session is back with the old values, and says no more" {
	iscsiadm -m node -o update -n node.session.iscsi.DefaultTime2Wait -v 2
	writer_starts
	fabtune apply "$BURSTS" --role initiator --reconnect > told 2>&1 3>&- 4>&- &
	victim=$!
	until_true "[ \$(cat $SESSION/state) != LOGGED_IN ]"
	kill -TERM $victim
	status=0
	wait $victim || status=$?
	now="$(cat $SESSION/state) $(cat $SESSION/max_burst_len)"
	cat told
	[ "$status" = 130 ]
	[ "$now" = "LOGGED_IN 262144" ]
	[[ "$(tr -s ' \n' ' ' < told)" == *"taken back; all sessions are back with their old values"* ]]
	! grep -q "need a re-login" told || false
	writer_ended_well
}
