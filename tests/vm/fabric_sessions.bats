#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock virtual
# Several sessions under one device, and a profile whose re-login takes them one after another: the testbed's own
# dm-multipath or stripe device is not there meanwhile, and a session that it uses is never logged out.
bats_require_minimum_version 1.5.0

setup() {
	load common
}

# What a test leaves: a device over its sessions, the sessions, the target, the path, the module.
teardown() {
	dmsetup remove --retry lab-paths || true
	mdadm --stop /dev/md0 || true
	iscsiadm -m node --logout || true
	iscsiadm -m node -o delete || true
	pidof iscsid | xargs -r kill
	# rtslib takes each backstore's HBA for its own: with two in one it stops at the first.
	targetctl clear || targetctl clear
	for netns in shaper wan target; do ip netns del $netns || true; done
	rmmod fabstat || true
	# A combination has a guest of its own elsewhere, and its records their names.
	rm -rf /var/lib/fabtune /run/fabtune /results/*
}

# combination FACTOR=VALUE...: what the lab does with it: brings it up, puts its profile in force, measures.
combination() {
	python3 -m fabtune.experiment.combination "$(python3 -c '
import attrs, json, sys
from fabtune.experiment.settings import parse_settings
print(json.dumps(attrs.asdict(parse_settings(dict(word.split("=", 1) for word in sys.argv[1:]), "test"))))' \
		rtt=20ms depth=8 size=64KiB ramp=1s runtime=3s "$@")"
}

sessions() {
	ls /sys/class/iscsi_session | wc -l
}

@test "four sessions joined: each has the profile after a re-login of its own, all carry the load, and revert gives all back" {
	combination sessions=4 profile=wan op=read
	cat /results/points.json
	[ "$(sessions)" -eq 4 ]
	grep -q '"paths_failed": 0' /results/points.json
	fabtune verify
	# The testbed's device uses all of them: nothing is logged out.
	before=$(ls /sys/class/iscsi_session)
	run -4 fabtune revert --allow-relogin
	echo "$output"
	[ "$(ls /sys/class/iscsi_session)" = "$before" ]
	dmsetup remove --retry lab-paths
	run -0 fabtune revert --allow-relogin
	echo "$output"
	[ "$(sessions)" -eq 4 ]
}

@test "two striped targets: both have the profile, and the stripe set is built over them again" {
	combination targets=2 profile=wan op=read
	cat /results/points.json
	[ "$(sessions)" -eq 2 ]
	grep -q '^md0 : active raid0' /proc/mdstat
	fabtune verify
	mdadm --stop /dev/md0
	# 4: the target's end has no word of whether its initiator has logged in since.
	run -4 fabtune revert --allow-relogin
	echo "$output"
	[[ "$output" == *"must log in again from its own host"* ]]
	run -0 fabtune revert --allow-relogin
	echo "$output"
	[ "$(sessions)" -eq 2 ]
}
