#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# guest-full: --suite trixie --clock real --accel uml
# `fabtune tune` where connections are held to the pace of a rate that was told too low.

setup() {
	load common
	load climbing
	load until
	modprobe sch_fq || true
	python3 -m fabtune.lab.guest up --rtt 100ms --rate 50mbit
	python3 -m fabtune.lab.guest login
}

teardown() {
	rest
}

@test "a pace of a rate that was told too low is not the bound: what is faster without it stays so, and that is said" {
	told="--rtt 100ms --rate 20mbit"
	fabtune apply wan --role target --netns target $told || [ $? -eq 4 ]
	fabtune apply wan --role initiator --allow-relogin $told
	DISK=$(basename /sys/class/iscsi_session/session*/device/target*/*/block/*)
	under_load randread 32
	# As fast as the pace lets it.
	until_true "carries 2200000"
	fabtune tune --yes --for 8s --target-netns target --json > tune.json
	cat tune.json
	[ "$(of '["first_bytes_per_s"] < 2.6e6')" = True ]
	[ "$(of '["steps"][0]["limiters"][0]')" = told-pace ]
	[ "$(of '["steps"][0]["kept"]')" = True ]
	[ "$(of '["last_bytes_per_s"] > 5e6')" = True ]
	grep -q "held to a pace below what the line carries" tune.json
}
