#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# What a user sees of a long path: `cp` from a filesystem on the session's disk, after wan.

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 37ms --rate 622mbit --size-mib 256 --keeps-data
	python3 -m fabtune.lab.guest login
}

setup() {
	load common
}

teardown() {
	umount /mnt 2>/dev/null || true
	fabtune revert --force --allow-relogin >/dev/null 2>&1 || true
}

# copied RTT RATE: at least 85 % of what the path allows.
copied() {
	fabtune apply wan --role target --netns target --rtt "$1" --rate "$2" || [ $? -eq 4 ]
	fabtune apply wan --role initiator --rtt "$1" --rate "$2" --allow-relogin
	run python3 /fabtune/tests/vm/copy_speed.py "$1" "$2" $([ "$LENGTH" = full ] && echo 192 || echo 128)
	echo "$output"
	[ "$status" -eq 0 ]
	echo "# ${lines[-1]}" >&3
}

@test "a file is copied at 85 % of what 37 ms and 622 Mb/s allow, after wan" {
	copied 37ms 622mbit
}

@test "a file is copied at 85 % of what 50 ms and 1 Gb/s allow, after wan" {
	[ "$LENGTH" = full ] || skip "37 ms and 622 Mb/s stand for it"
	fabtune revert --netns target || [ $? -eq 4 ]
	python3 -m fabtune.lab.guest path --rtt 50ms --rate 1gbit
	copied 50ms 1gbit
}
