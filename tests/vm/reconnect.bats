#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# guest-full: --suite sid --clock virtual
# A session that a mounted file system is being written through gets new values in place: none of them is logged out,
# no request fails, no byte is lost, whatever becomes of the target meanwhile.

SESSION=/sys/class/iscsi_session/session1

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 37ms --rate 622mbit --keeps-data --size-mib 256
	DISK=$(python3 -m fabtune.lab.guest login)
	export DISK
	mkfs.ext4 -q -F -E nodiscard "/dev/$DISK"
	mkdir -p /m
	mount "/dev/$DISK" /m
}

setup() {
	load common
	cd "$BATS_TEST_TMPDIR"
	python3 "$FABTUNE_TOP/tests/vm/fsync_writer.py" /m/file stop written.json 3>&- &
	WRITER=$!
	until_true '[ -s written.json.steps ]'
}

teardown() {
	ip -n shaper link set s1 up
	touch stop
	wait "$WRITER" || true
}

writer_ended_well() {
	touch stop
	wait "$WRITER"
	cat written.json
	[ "$(value written.json "told['errors']")" = "[]" ]
	[ "$(value written.json "told['bytes_wrong']")" = 0 ]
	[ "$(cat $SESSION/state)" = LOGGED_IN ]
	[ "$(ls /sys/class/iscsi_session)" = session1 ]
	grep -q "^/dev/$DISK /m " /proc/mounts
}

value() {
	python3 -c "import json, sys; told = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))" "$1" "$2"
}

read_mb_per_s() {
	fio --name=x --filename="/dev/$DISK" --readonly --direct=1 --ioengine=libaio --rw=read --bs=256k --iodepth=32 \
		--time_based --runtime=2 --ramp_time=3 --output-format=json > fio.json
	value fio.json "round(told['jobs'][0]['read']['bw_bytes'] / 1e6)"
}

path="--rtt 37ms --rate 622mbit"

@test "apply --reconnect brings the whole profile into force under a mounted, busy file system, and revert takes it back" {
	before=$(read_mb_per_s)
	fabtune apply wan --role target --netns target $path
	fabtune plan wan --role initiator $path --json > plan.json
	run -4 --separate-stderr fabtune apply wan --role initiator $path --reconnect --json
	echo "$output" > applied.json
	[ "$(value applied.json "len(told['reconnected'])")" = 1 ]
	# What only a new host brings is said, and nothing else is left.
	[ "$(value applied.json "[one['action'] for one in told['pending']]")" = "['relogin']" ]
	[ "$(cat $SESSION/max_outstanding_r2t)" = 16 ]
	after=$(read_mb_per_s)
	writer_ended_well
	echo "# before $before, after $after MB/s, of 74" >&3
	[ "$after" -ge 72 ]
	[ "$after" -ge $((5 * before)) ]
	# The pause is no longer than the plan says.
	[ "$(value written.json "told['pause_s'] <= 2.0")" = True ]
	[ "$(value plan.json "told['reconnect']['pause_s'] + 0.3 >= $(value written.json "told['pause_s']")")" = True ]

	rm stop written.json*
	python3 "$FABTUNE_TOP/tests/vm/fsync_writer.py" /m/file stop written.json 3>&- &
	WRITER=$!
	until_true '[ -s written.json.steps ]'
	run -4 fabtune revert --reconnect
	[ "$(cat $SESSION/max_outstanding_r2t)" = 1 ]
	[ "$(read_mb_per_s)" -le $((before + 2)) ]
	writer_ended_well
	[ "$(value written.json "told['pause_s'] <= 4.0")" = True ]
	# The module's parameter alone waits for a new login.
	run -4 fabtune verify
	[[ "$output" != *--reconnect* ]]
}

@test "a portal that does not answer now, or requests that fail too soon, keep every connection as it is" {
	started=$(since_iscsid)
	echo 3 > $SESSION/recovery_tmo
	run -4 fabtune apply wan --role initiator $path --reconnect
	[[ "$(echo "$output" | tr -s ' \n' ' ')" == *"fail after 3 s without a connection"* ]]
	echo 120 > $SESSION/recovery_tmo
	run -4 fabtune revert
	ip -n shaper link set s1 down
	run -4 fabtune apply wan --role initiator $path --reconnect
	ip -n shaper link set s1 up
	[[ "$(echo "$output" | tr -s ' \n' ' ')" == *"portal does not answer now"* ]]
	[ "$started" = "$(since_iscsid)" ]
	writer_ended_well
	fabtune revert || [ $? -eq 4 ]
}

since_iscsid() {
	python3 -c "from fabtune.host import iscsid; print(iscsid.since())"
}

@test "a target that goes away at that very moment: all is taken back, and the session is there once the target is" {
	while [ "$(cat $SESSION/state)" = LOGGED_IN ]; do sleep 0.02; done 3>&- && ip -n shaper link set s1 down &
	run -1 fabtune apply wan --role initiator $path --reconnect
	echo "$output"
	[[ "$(echo "$output" | tr -s ' \n' ' ')" == *"everything written was taken back"* ]]
	[ "$(cat $SESSION/state)" != LOGGED_IN ]
	ip -n shaper link set s1 up
	until_true "[ \$(cat $SESSION/state) = LOGGED_IN ]"
	writer_ended_well
	[ "$(cat $SESSION/max_outstanding_r2t)" = 1 ]
	[ "$(iscsiadm -m node -o show | grep -c 'tcp.window_size = 524288')" = 1 ]
}

@test "killed while iscsid is being started anew, fabtune leaves an iscsid and a session behind, and revert takes it back" {
	started=$(since_iscsid)
	fabtune apply wan --role initiator $path --reconnect >/dev/null 2>&1 3>&- &
	victim=$!
	until_true "[ \$(cat $SESSION/state) != LOGGED_IN ]"
	kill -9 $victim
	wait $victim || true
	until_true "[ \$(cat $SESSION/state) = LOGGED_IN ]"
	[ "$started" != "$(since_iscsid)" ]
	run -4 fabtune revert --reconnect
	[ "$(cat $SESSION/max_outstanding_r2t)" = 1 ]
	writer_ended_well
}
