# SPDX-License-Identifier: GPL-2.0-or-later
# A session that a mounted file system is being written through, for tests of --reconnect.

SESSION=/sys/class/iscsi_session/session1

# mounted PATH...: a session over such a path, and a file system on its disk, $DISK, at /m.
mounted() {
	python3 -m fabtune.lab.guest up "$@" --keeps-data --size-mib 256
	DISK=$(python3 -m fabtune.lab.guest login)
	export DISK
	mkfs.ext4 -q -F -E nodiscard "/dev/$DISK"
	mkdir -p /m
	mount "/dev/$DISK" /m
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
	target_takes CRC32C,None
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

# Not by a link that goes down, which takes its routes along.
cut_path() {
	ip netns exec shaper sysctl -qw net.ipv4.ip_forward=0
}

mend_path() {
	ip netns exec shaper sysctl -qw net.ipv4.ip_forward=1
}

# target_takes DIGESTS: of the header, from the next login on.
target_takes() {
	echo "$1" > "$(echo /sys/kernel/config/target/iscsi/iqn.*/tpgt_1/param/HeaderDigest)"
}
