#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite bookworm --clock real --accel uml
# Revert gives back what is ours, waits for what is away, and leaves alone what others want or wrote.

bats_require_minimum_version 1.5.0

TARGET=iqn.2026-01.lab.fabtune:target
RECORD=(iscsiadm -m node -T "$TARGET" -p 10.2.0.1:3260 -I default)

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 0ms
	python3 -m fabtune.lab.guest login
}

setup() {
	load common
	nodes=/etc/iscsi/nodes
	[ -d "$nodes" ] || nodes=/var/lib/iscsi/nodes
}

teardown() {
	[ -z "$unused" ] || rm -rf "$unused"
	rm -rf "$nodes/iqn.2026-01.other:t"
	[ -d "$nodes/$TARGET" ] || [ ! -d "$BATS_TEST_TMPDIR/kept" ] || mv "$BATS_TEST_TMPDIR/kept" "$nodes/$TARGET"
	mountpoint -q /var/lib/fabtune && mount -o remount,rw /var/lib/fabtune
	fabtune revert --force --allow-relogin >/dev/null 2>&1 || true
	[ -e /sys/class/iscsi_session ] && ls /sys/class/iscsi_session/* >/dev/null 2>&1 || "${RECORD[@]}" --login >/dev/null 2>&1 || true
}

# profile NAME TUNABLE VALUE ...: writes NAME.toml
profile() {
	echo 'summary = "a test"' > "$1.toml"
	local file=$1.toml
	shift
	while [ $# -gt 0 ]; do
		printf '[initiator."%s"]\nvalue = %s\nwhy = "a test"\n' "$1" "$2" >> "$file"
		shift 2
	done
}

setting() {
	sed -n "s/^$1 = //p" "$(find "$nodes/$TARGET" "$BATS_TEST_TMPDIR/kept" -type f -name default 2>/dev/null | head -1)"
}

# Makes the record of another target such that iscsiadm can show none at all.
damage_another_record() {
	cp -a "$nodes/$TARGET" "$nodes/iqn.2026-01.other:t"
	mv "$nodes/iqn.2026-01.other:t"/* "$nodes/iqn.2026-01.other:t/10.9.9.9,3260,1"
	sed -i 's/^node.name = .*/node.name = iqn.2026-01.other:t/; s/10\.2\.0\.1/10.9.9.9/; 2i node.unknown = 4' \
		"$nodes/iqn.2026-01.other:t/10.9.9.9,3260,1/default"
	run -7 iscsiadm -m node -o show
}

@test "a damaged record of an unrelated target keeps no value from going back" {
	profile mine iscsi.cmds_max 256
	old=$(setting node.session.cmds_max)
	run fabtune apply "$PWD/mine.toml" --role initiator
	[ "$status" -eq 4 ]
	damage_another_record
	run fabtune verify --role initiator
	[ "$status" -eq 4 ]
	# The session is still the one from before, and never had the new value.
	run fabtune revert
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(setting node.session.cmds_max)" = "$old" ]
}

@test "a record whose own file is unreadable is neither settled nor called gone" {
	profile mine iscsi.cmds_max 256
	fabtune apply "$PWD/mine.toml" --role initiator || [ $? -eq 4 ]
	file=$(find "$nodes/$TARGET" -type f -name default)
	cp "$file" saved
	: > "$file"
	run -1 fabtune revert
	echo "$output"
	[[ "$output" == *"1 failed"* ]]
	cp saved "$file"
	run fabtune revert
	[[ "$output" == *"1 restored"* ]]
	[ "$(setting node.session.cmds_max)" = 128 ]
}

@test "what is away is waited for: verify and history say so, and the value goes back when it returns" {
	profile mine iscsi.cmds_max 256 net.netdev_max_backlog 4321
	backlog=$(sysctl -n net.core.netdev_max_backlog)
	fabtune apply "$PWD/mine.toml" --role initiator || [ $? -eq 4 ]
	mv "$nodes/$TARGET" "$BATS_TEST_TMPDIR/kept"
	run -4 fabtune revert
	[[ "$output" == *"1 restored, 1 waiting"* ]]
	[ "$(sysctl -n net.core.netdev_max_backlog)" = "$backlog" ]
	run -3 fabtune verify
	[[ "$output" == *"was away"* ]]
	[[ "$(fabtune history)" == *waiting* ]]
	mv "$BATS_TEST_TMPDIR/kept" "$nodes/$TARGET"
	run -3 fabtune verify
	[[ "$output" == *"there again"* ]]
	run fabtune revert
	[[ "$output" == *"1 restored"* ]]
	[ "$(setting node.session.cmds_max)" = 128 ]
	run -0 fabtune verify
	[[ "$output" == *"0 differ"* ]]
}

@test "a disk that logged in anew needs nothing back, and nobody is blamed for its own value" {
	profile mine block.rq_affinity 2 block.nomerges 1
	run fabtune apply "$PWD/mine.toml" --role initiator
	echo "$output"
	[ "$status" -eq 0 ]
	python3 -m fabtune.lab.guest logout
	python3 -m fabtune.lab.guest login
	run -3 fabtune verify
	[[ "$output" == *"created again"* ]]
	run -0 fabtune revert
	echo "$output"
	[[ "$output" == *already* ]]
}

@test "a journal of a namespace that is gone gives back what was outside it, and waits for the rest" {
	ip netns add away
	cat > away.toml <<-'EOF'
		summary = "a test"
		[target."net.netdev_max_backlog"]
		value = 4321
		why = "host-wide"
		[target."tcp.slow_start_after_idle"]
		value = false
		why = "in the namespace"
		[target."lio.max_outstanding_r2t"]
		value = 32
		why = "of the target"
	EOF
	r2t=$(cat /sys/kernel/config/target/iscsi/$TARGET/tpgt_1/param/MaxOutstandingR2T)
	run fabtune apply "$PWD/away.toml" --role target --netns away
	echo "$output"
	ip netns del away
	run -4 fabtune revert
	echo "$output"
	[[ "$output" == *"1 waiting"* ]]
	[ "$(cat /sys/kernel/config/target/iscsi/$TARGET/tpgt_1/param/MaxOutstandingR2T)" = "$r2t" ]
	run -0 fabtune revert --force
}

@test "taking lan back leaves wan's values in place, and taking wan back gives the first ones back" {
	all_values > before
	lan=(lan --role initiator --rtt 1ms --rate 1gbit)
	wan=(wan --role initiator --rtt 50ms --rate 1gbit)
	fabtune apply "${lan[@]}" || [ $? -eq 4 ]
	fabtune apply "${wan[@]}" || [ $? -eq 4 ]
	all_values > both
	run fabtune revert lan
	echo "$output"
	[ "$status" -eq 0 ] || [ "$status" -eq 4 ]
	all_values > wan_alone
	run -4 fabtune verify
	# What both wanted is still there.
	[ "$(setting node.session.cmds_max)" = "$(sed -n 's/^node.session.cmds_max = //p' both | head -1)" ]
	[ "$(setting node.session.queue_depth)" = "$(sed -n 's/^node.session.queue_depth = //p' both | head -1)" ]
	run fabtune revert wan
	echo "$output"
	all_values > after
	diff before after
}

# states FILE: what `fabtune revert --json` says in FILE of each value, one a line.
states() {
	python3 -c 'if True:
		import json, sys
		for one in json.load(open(sys.argv[1]))["steps"]:
			print(one["tunable"], one["identity"], one["old"], one["wrote"], one["found"], one["state"])' "$1"
}

@test "a dry run says what the revert after it makes of each value, and leaves host and journal as they are" {
	profile mine iscsi.cmds_max 256 net.netdev_max_backlog 4321 block.rq_affinity 2
	all_values > first
	backlog=$(sysctl -n net.core.netdev_max_backlog)
	fabtune apply "$PWD/mine.toml" --role initiator || [ $? -eq 4 ]
	sysctl -w net.core.netdev_max_backlog=777
	all_values > before
	(cd /var/lib/fabtune && find . -type f -exec sha256sum {} + | sort) > journal_before
	run -0 fabtune revert --dry-run
	echo "$output"
	[[ "$output" == *"1 left alone"*"to go back; nothing was written"* ]]
	[[ "$output" == *"would end with exit code 3"* ]]
	run -0 fabtune revert --dry-run --force
	echo "$output"
	[[ "$output" != *"left alone"* ]]
	fabtune revert --dry-run --json > said
	all_values > after
	diff before after
	(cd /var/lib/fabtune && find . -type f -exec sha256sum {} + | sort) > journal_after
	diff journal_before journal_after
	[ "$(fabtune history --json | grep -c '"state": "in force"')" -eq 1 ]
	fabtune revert --json > really || [ $? -eq 3 ]
	states said > foretold
	states really > found
	diff foretold found
	[ "$(sysctl -n net.core.netdev_max_backlog)" -eq 777 ]
	fabtune revert --force || [ $? -eq 4 ]
	[ "$(sysctl -n net.core.netdev_max_backlog)" = "$backlog" ]
	all_values > last
	diff first last
}

# killed_at_login HOW: re-logs in and dies at the login, before it or (HOW = after) when it is done.
killed_at_login() {
	profile mine iscsi.cmds_max 256
	fabtune apply "$PWD/mine.toml" --role initiator || [ $? -eq 4 ]
	local real
	real=$(PATH=/usr/sbin:/sbin command -v iscsiadm)
	mkdir -p bin
	cat > bin/iscsiadm <<-EOF
		#!/bin/sh
		case "\$*" in *--login*) [ "$1" = after ] && $real "\$@"; kill -9 "\$PPID"; exit 1;; esac
		exec $real "\$@"
	EOF
	chmod +x bin/iscsiadm
	PATH=$PWD/bin:$PATH run -137 fabtune apply "$PWD/mine.toml" --role initiator --allow-relogin
}

@test "a session killed between its logout and its login is drift, and the next revert or apply brings it back" {
	for verb in revert apply; do
		killed_at_login before
		run ! ls /sys/class/iscsi_session/session*
		run -3 fabtune verify
		[[ "$output" == *"logged out"* ]]
		[ "$verb" = apply ] && run fabtune apply "$PWD/mine.toml" --role initiator || run fabtune revert
		echo "$output"
		[[ "$output" == *"logged in again"* ]]
		[ "$(cat /sys/class/iscsi_session/session*/state)" = LOGGED_IN ]
		fabtune revert || [ $? -eq 4 ]
	done
}

@test "a target's MaxOutstandingR2T with which its live initiators could not log in again stays, and is said, until they ask for less" {
	r2t=/sys/kernel/config/target/iscsi/$TARGET/tpgt_1/param/MaxOutstandingR2T
	first=$(cat "$r2t")
	echo 6 > "$r2t"
	printf 'summary = "a test"\n[target."lio.max_outstanding_r2t"]\nvalue = 16\nwhy = "a test"\n' > target.toml
	fabtune apply "$PWD/target.toml" --role target || [ $? -eq 4 ]
	# The initiator, which may be another host, is told by its own administrator.
	"${RECORD[@]}" -o update -n node.session.iscsi.MaxOutstandingR2T -v 16
	python3 -m fabtune.lab.guest logout
	python3 -m fabtune.lab.guest login
	run -4 fabtune revert --allow-relogin
	echo "$output"
	[[ "$output" == *"could not log in again"* ]]
	[ "$(cat "$r2t")" = 16 ]
	"${RECORD[@]}" -o update -n node.session.iscsi.MaxOutstandingR2T -v 1
	python3 -m fabtune.lab.guest logout
	python3 -m fabtune.lab.guest login
	run fabtune revert
	echo "$output"
	[ "$(cat "$r2t")" = 6 ]
	[ "$(cat /sys/class/iscsi_session/*/state)" = LOGGED_IN ]
	echo "$first" > "$r2t"
}

@test "a session seen back once is nobody's debt: an administrator who logs it out later finds it logged out" {
	killed_at_login after
	run -0 fabtune verify
	"${RECORD[@]}" --logout
	run fabtune verify
	echo "$output"
	[ "$status" -eq 0 ]
	run fabtune revert
	echo "$output"
	run ! ls /sys/class/iscsi_session/session*
}

@test "a damaged record of an unrelated target keeps no session from coming back" {
	killed_at_login before
	damage_another_record
	run ! ls /sys/class/iscsi_session/session*
	run fabtune revert
	echo "$output"
	[[ "$output" == *"logged in again"* ]]
	[ "$(cat /sys/class/iscsi_session/session*/state)" = LOGGED_IN ]
	run fabtune verify
	echo "$output"
	[[ "$output" != *"logged out"* ]]
}

@test "a revert whose login is refused shows what went back, says that the session is down, and what is left to do" {
	profile mine iscsi.cmds_max 256
	tpg=/sys/kernel/config/target/iscsi/$TARGET/tpgt_1
	for json in "" --json; do
		fabtune apply "$PWD/mine.toml" --role initiator --allow-relogin
		echo 1 > $tpg/attrib/authentication
		echo 0 > $tpg/attrib/generate_node_acls
		run --separate-stderr fabtune revert --allow-relogin $json
		echo 0 > $tpg/attrib/authentication
		echo 1 > $tpg/attrib/generate_node_acls
		echo "$output"
		[ "$status" -eq 1 ]
		[[ "$output" == *"is DOWN, its LUNs are away"* ]]
		if [ -n "$json" ]; then
			python3 -c 'if True:
				import json, sys
				found = json.load(sys.stdin)
				assert [one["state"] for one in found["steps"]] == ["restored"], found
				assert [one["action"] for one in found["pending"]] == ["login"], found' <<< "$output"
		else
			[[ "$output" == *"1 restored"*"was logged out for a re-login and is not back"* ]]
		fi
		[ "$(setting node.session.cmds_max)" = 128 ]
		run -3 fabtune verify
		[[ "$output" == *"its login failed"* ]]
		run -0 fabtune revert
		[[ "$output" == *"logged in again"* ]]
	done
}

@test "a copy of the records in the place that this open-iscsi does not use counts for nothing" {
	unused=/etc/iscsi/nodes
	[ "$nodes" != $unused ] || unused=/var/lib/iscsi/nodes
	profile mine iscsi.cmds_max 256
	fabtune apply "$PWD/mine.toml" --role initiator || [ $? -eq 4 ]
	mkdir -p $unused
	cp -a "$nodes/$TARGET" $unused
	mv "$nodes/$TARGET" "$BATS_TEST_TMPDIR/kept"
	run fabtune revert
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"1 waiting"* ]]
	mv "$nodes" "$BATS_TEST_TMPDIR/place"
	run fabtune revert
	echo "$output"
	mv "$BATS_TEST_TMPDIR/place" "$nodes"
	[ "$status" -eq 4 ]
	[[ "$output" == *"1 waiting"* ]]
	mv "$BATS_TEST_TMPDIR/kept" "$nodes/$TARGET"
	sed -i 's/^node.session.cmds_max = .*/node.session.cmds_max = 512/' $unused/$TARGET/*/default
	damage_another_record
	run fabtune revert
	echo "$output"
	[[ "$output" == *"1 restored"* ]]
	[ "$(setting node.session.cmds_max)" = 128 ]
}
