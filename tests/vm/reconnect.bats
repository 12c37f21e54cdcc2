#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# guest-full: --suite sid --clock virtual
# A session that a mounted file system is being written through gets new values in place: none of them is logged out,
# no request fails, no byte is lost, whatever becomes of the target meanwhile.

bats_require_minimum_version 1.5.0

SESSION=/sys/class/iscsi_session/session1

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 37ms --rate 200mbit --keeps-data --size-mib 256
	DISK=$(python3 -m fabtune.lab.guest login)
	export DISK
	mkfs.ext4 -q -F -E nodiscard "/dev/$DISK"
	mkdir -p /m
	mount "/dev/$DISK" /m
}

setup() {
	load common
	load until
}

# Other load would make it wait as well.
writer_starts() {
	rm -f stop written.json*
	python3 "$BATS_TEST_DIRNAME/fsync_writer.py" /m/file stop written.json 3>&- 4>&- &
	WRITER=$!
	until_true '[ -s written.json.steps ]'
}

teardown() {
	kill %cut_when_failed 2>/dev/null || true
	mend_path
	until_true "[ \$(cat $SESSION/state) = LOGGED_IN ]"
	fabtune revert --reconnect >/dev/null 2>&1 || [ $? -eq 4 ]
	touch stop
	[ -z "${WRITER:-}" ] || wait "$WRITER" || true
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
		--time_based --runtime=2 --ramp_time=2 --output-format=json > fio.json
	value fio.json "round(told['jobs'][0]['read']['bw_bytes'] / 1e6)"
}

path="--rtt 37ms --rate 200mbit"

@test "apply --reconnect brings the whole profile into force under a mounted, busy file system, and revert takes it back" {
	before=$(read_mb_per_s)
	writer_starts
	run -4 fabtune apply wan --role target --netns target $path
	fabtune plan wan --role initiator $path --json > plan.json
	run -4 --separate-stderr fabtune apply wan --role initiator $path --reconnect --json
	echo "$output" > applied.json
	[ "$(value applied.json "len(told['reconnected'])")" = 1 ]
	# What only a new host brings is said, and nothing else is left.
	[ "$(value applied.json "[one['action'] for one in told['pending']]")" = "['relogin']" ]
	[ "$(cat $SESSION/max_outstanding_r2t)" = 16 ]
	writer_ended_well
	after=$(read_mb_per_s)
	echo "# before $before, after $after MB/s, of 24" >&3
	[ "$after" -ge 23 ]
	[ "$after" -ge $((3 * before)) ]
	# The pause is no longer than the plan says.
	[ "$(value written.json "told['pause_s'] <= 2.0")" = True ]
	[ "$(value plan.json "told['reconnect']['pause_s'] + 0.3 >= $(value written.json "told['pause_s']")")" = True ]

	writer_starts
	run -4 fabtune revert --reconnect
	[ "$(cat $SESSION/max_outstanding_r2t)" = 1 ]
	writer_ended_well
	[ "$(read_mb_per_s)" -le $((before + 2)) ]
	[ "$(value written.json "told['pause_s'] <= 4.0")" = True ]
	# The module's parameter alone waits for a new login.
	run -4 fabtune verify
	[[ "$output" != *--reconnect* ]]
}

@test "a portal that does not answer now, or requests that fail too soon, keep every connection as it is" {
	# Nothing of a disk: the kernel would wait for its requests.
	cat > bursts.toml <<-'EOT'
		summary = "one value that counts from the next connection on"
		[initiator."iscsi.max_burst"]
		value = 131072
		why = "a test"
	EOT
	writer_starts
	started=$(since_iscsid)
	echo 2 > $SESSION/recovery_tmo
	run -4 fabtune apply ./bursts.toml --role initiator --reconnect
	[[ "$(echo "$output" | tr -s ' \n' ' ')" == *"fail after 2 s without a connection"* ]]
	echo 120 > $SESSION/recovery_tmo
	cut_path
	run -4 fabtune apply ./bursts.toml --role initiator --reconnect
	mend_path
	[[ "$(echo "$output" | tr -s ' \n' ' ')" == *"portal does not answer now"* ]]
	[ "$started" = "$(since_iscsid)" ]
	# The module's parameter of the test before waits for a new login.
	run -4 fabtune apply ./bursts.toml --role initiator --reconnect
	[ "$(cat $SESSION/max_burst_len)" = 131072 ]
	writer_ended_well
}

# Not by a link that goes down, which takes its routes along.
cut_path() {
	ip netns exec shaper sysctl -qw net.ipv4.ip_forward=0
}

mend_path() {
	ip netns exec shaper sysctl -qw net.ipv4.ip_forward=1
}

cut_when_failed() {
	while [ "$(cat $SESSION/state)" = LOGGED_IN ]; do sleep 0.1; done
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
	run -4 fabtune revert --reconnect
	[ "$(cat $SESSION/max_outstanding_r2t)" = 1 ]
	writer_ended_well
}
