#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie+tgt --clock real --accel uml
# tgt, the target of user space, in LIO's place: what fabtune sees of it, sets, takes back and cannot keep.

IQN=iqn.2026-01.lab.fabtune:target
LAB="python3 -m fabtune.lab.guest"
PATH_WORDS="--rtt 50ms --rate 1gbit"

setup_file() {
	$LAB up --rtt 50ms --target tgt
	$LAB login --target tgt
}

setup() {
	load common
}

teardown() {
	fabtune revert --force --allow-relogin >/dev/null 2>&1 || true
}

# tgtd's own word for what it gives the next login.
parameter() {
	parameters | sed -n "s/^$1=//p"
}

parameters() {
	tgtadm --lld iscsi --op show --mode target --tid 1
}

tell() {
	tgtadm --lld iscsi --op update --mode target --tid 1 --name "$1" --value "$2"
}

end_tgtd() {
	local pid=$(pidof tgtd)
	kill -9 $pid
	while [ -d /proc/$pid ]; do sleep 0.1; done
}

start_tgtd() {
	python3 -c "
from fabtune.host.targets import named
from fabtune.lab.shell import nsenter
named('tgt').add_target('$IQN', ('10.2.0.1:3260',), ('',), nsenter('target'))"
}

# A tgtadm that ends tgtd in the place of the third value that it is to set.
deadly_tgtadm() {
	mkdir bin
	cat > bin/tgtadm <<-'SCRIPT'
		#!/bin/bash
		case "$*" in *"--op update"*) echo >> told;; esac
		[ "$(wc -l < told)" -lt 3 ] || { rm told; : > told; pkill -9 -x tgtd; sleep 0.2; }
		exec /usr/sbin/tgtadm "$@"
	SCRIPT
	chmod +x bin/tgtadm
	: > told
}

@test "show tells the target, its portal, its LUN and who is logged in" {
	run fabtune show --netns target
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"$IQN,tgt"*"enabled"*"10.2.0.1:3260"* ]]
	[[ "$output" == *"null:/dev/null"*"iqn.2026-01.lab.fabtune:initiator"* ]]
	[[ "$output" != *"no target"* ]]
}

@test "a plan for the target speaks of tgt and of no other kind" {
	fabtune plan wan --role target --netns target $PATH_WORDS --json > plan.json
	python3 - <<-'PYTHON'
		import json
		rows = {row["tunable"]: row for row in json.load(open("plan.json"))["rows"]}
		wanted = {name: row["wanted"] for name, row in rows.items() if name.startswith("tgt.") and row["state"] == "change"}
		assert wanted["tgt.first_burst"] == wanted["tgt.max_recv_segment"] == "262144", wanted
		assert wanted["tgt.initial_r2t"] == "No" and wanted["tgt.max_burst"] == "1048576", wanted
		assert all(row["effect"] == "reconnect" for name, row in rows.items() if name.startswith("tgt.")), rows
		assert not [name for name in rows if name.startswith("lio.") and rows[name]["device"]], rows
	PYTHON
}

@test "a new connection in place has the target's new offer, and after a revert its old one" {
	session=$(ls /sys/class/iscsi_session)
	cat > bursts.toml <<-'TOML'
		summary = "bursts on both ends"
		[target."tgt.first_burst"]
		value = 131072
		why = "a test"
		[initiator."iscsi.first_burst"]
		value = 262144
		why = "a test"
		[initiator."iscsi.time2wait"]
		value = 0
		why = "a test"
	TOML
	fabtune apply ./bursts.toml --role target --netns target || [ $? -eq 4 ]
	fabtune apply ./bursts.toml --role initiator --reconnect
	[ "$(cat /sys/class/iscsi_session/$session/first_burst_len)" -eq 131072 ]
	fabtune revert --reconnect || [ $? -eq 4 ]
	[ "$(cat /sys/class/iscsi_session/$session/first_burst_len)" -eq 65536 ]
	[ "$(ls /sys/class/iscsi_session)" = "$session" ]
}

@test "apply changes the offer and leaves the live session alone; the next login has it; revert takes it back" {
	parameters > before
	session=$(ls /sys/class/iscsi_session)
	run fabtune apply wan --role target --netns target $PATH_WORDS
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"iqn.2026-01.lab.fabtune:initiator"* ]]
	[ "$(parameter FirstBurstLength)" = 262144 ]
	[ "$(parameter MaxQueueCmd)" -ge 128 ]
	[ "$(ls /sys/class/iscsi_session)" = "$session" ]
	[ "$(cat /sys/class/iscsi_session/$session/first_burst_len)" -eq 65536 ]
	run fabtune verify --role target --netns target
	echo "$output"
	[ "$status" -eq 0 ] || [ "$status" -eq 4 ]
	fabtune apply wan --role initiator $PATH_WORDS --allow-relogin
	[ "$(cat /sys/class/iscsi_session/*/first_burst_len)" -eq 262144 ]
	[ "$(cat /sys/class/iscsi_session/*/initial_r2t)" -eq 0 ]
	[ "$(cat /sys/class/iscsi_connection/*/max_xmit_dlength)" -eq 262144 ]
	run fabtune revert --allow-relogin
	echo "$output"
	[ "$status" -eq 0 ] || [ "$status" -eq 4 ]
	parameters > after
	diff before after
}

@test "every tunable of tgt is written, read back and taken back" {
	[ "$LENGTH" = full ] || skip "profile wan stands for them"
	run python3 /fabtune/tests/vm/vocabulary.py tgt
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "${lines[-1]}" == "12 tried, 0 refused, 0 failures" ]]
}

@test "verify finds what somebody else told tgtd" {
	fabtune apply wan --role target --netns target $PATH_WORDS || [ $? -eq 4 ]
	tell MaxBurstLength 65536
	run fabtune verify --role target --netns target
	[ "$status" -eq 3 ]
	[[ "$output" == *"tgt.max_burst"* ]]
	run fabtune revert --role target
	[[ "$output" == *"tgt.max_burst"* ]]
	[ "$(parameter MaxBurstLength)" = 65536 ]
	tell MaxBurstLength 262144
}

@test "--persist says that nothing keeps tgt's parameters, and lint that they go with tgtd" {
	run fabtune apply wan --role target --netns target $PATH_WORDS --persist
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"tgt.first_burst"*"nothing native keeps it"* ]]
	run fabtune lint --netns target
	[[ "$output" == *"target-forgets"* ]]
}

@test "negotiate previews what a login to tgt agrees on" {
	compare() {
		fabtune negotiate --json > preview.json
		$LAB logout --target tgt
		$LAB login --target tgt
		python3 - <<-'PYTHON'
			import glob, json
			agreed = {one["name"]: one["result"] for one in json.load(open("preview.json"))[0]["agreed"]}
			kernel = lambda place, name: open(glob.glob(f"/sys/class/iscsi_{place}/*/{name}")[0]).read().strip()
			names = {"FirstBurstLength": "first_burst_len", "MaxBurstLength": "max_burst_len", "InitialR2T": "initial_r2t",
			         "ImmediateData": "immediate_data", "MaxOutstandingR2T": "max_outstanding_r2t"}
			seen = {key: int(kernel("session", name)) for key, name in names.items()}
			assert {key: int(agreed[key]) for key in names} == seen, (agreed, seen)
			assert agreed["MaxXmitDataSegmentLength"] == int(kernel("connection", "max_xmit_dlength")), agreed
			assert {"None": "0", "CRC32C": "1"}[agreed["DataDigest"]] == kernel("connection", "data_digest"), agreed
		PYTHON
	}
	compare
	fabtune apply wan --role target --netns target $PATH_WORDS || [ $? -eq 4 ]
	compare
	# Alone it is the same to tgtd as with None: who asks for no digest logs in all the same.
	tell DataDigest CRC32C
	compare
	[ "$(cat /sys/class/iscsi_connection/*/data_digest)" -eq 0 ]
	iscsiadm -m node -o update -n node.conn[0].iscsi.DataDigest -v CRC32C,None
	compare
	[ "$(cat /sys/class/iscsi_connection/*/data_digest)" -eq 1 ]
	iscsiadm -m node -o update -n node.conn[0].iscsi.DataDigest -v None
	tell DataDigest None
}

@test "a digest that tgtd does not take is seen before the login that fails" {
	iscsiadm -m node -o update -n node.conn[0].iscsi.DataDigest -v CRC32C
	run fabtune negotiate
	[ "$status" -eq 1 ]
	[[ "$output" == *"no common digest"* ]]
	$LAB logout --target tgt
	run $LAB login --target tgt
	[ "$status" -ne 0 ]
	iscsiadm -m node -o update -n node.conn[0].iscsi.DataDigest -v None
	$LAB login --target tgt
}

@test "what is written to tgt is read back, and the module counts it" {
	disk=$(ls /sys/class/iscsi_session/*/device/target*/*/block | tail -1)
	dd if=/dev/zero of=/dev/$disk bs=256k count=8 oflag=direct
	dd if=/dev/$disk of=/dev/null bs=256k count=8 iflag=direct
}

@test "what a redirecting target holds, or a tgtd out of sight, is owed until it can be taken back" {
	parameters > before
	fabtune apply wan --role target --netns target $PATH_WORDS || [ $? -eq 4 ]
	tell RedirectAddress 10.9.9.9
	run fabtune revert --role target
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"redirects its initiators; revert again once it can be read"* ]]
	tell RedirectAddress ""
	mv /run/tgtd/socket.0 /run/tgtd/away
	run fabtune revert --role target
	mv /run/tgtd/away /run/tgtd/socket.0
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"the tgtd that was told is not seen at /run/tgtd/socket.0; revert again once it is back"* ]]
	[ "$(parameter FirstBurstLength)" = 262144 ]
	fabtune revert --role target || [ $? -eq 4 ]
	parameters > after
	diff before after
	[[ "$(fabtune history | tail -1)" == *"taken back"* ]]
}

@test "tgtd ends in the middle of an apply: all else goes back, and nothing is owed to the next one" {
	deadly_tgtadm
	rmem=$(nsenter --net=/run/netns/target cat /proc/sys/net/ipv4/tcp_rmem)
	PATH=$PWD/bin:$PATH run fabtune apply wan --role target --netns target $PATH_WORDS
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"everything written was taken back"* ]]
	[ "$(nsenter --net=/run/netns/target cat /proc/sys/net/ipv4/tcp_rmem)" = "$rmem" ]
	start_tgtd
	run fabtune revert --role target
	[ "$status" -eq 0 ]
	[ "$(parameter FirstBurstLength)" = 65536 ]
}

@test "tgtd ends in the middle of a revert: the next revert finds its successor with values of its own" {
	[ "$LENGTH" = full ] || skip "an apply's middle stands for it"
	fabtune apply wan --role target --netns target $PATH_WORDS || [ $? -eq 4 ]
	deadly_tgtadm
	PATH=$PWD/bin:$PATH run fabtune revert --role target
	echo "$output"
	[ "$status" -eq 1 ]
	start_tgtd
	run fabtune revert --role target
	echo "$output"
	# 4: whether the initiator came back to the new one, the target's end cannot tell.
	[ "$status" -eq 0 ] || [ "$status" -eq 4 ]
	[ "$(parameter FirstBurstLength)" = 65536 ]
	[[ "$(fabtune history | tail -1)" == *"taken back"* ]]
}

@test "a tgtd that was started anew has lost what it was told, and revert says so" {
	fabtune apply wan --role target --netns target $PATH_WORDS || [ $? -eq 4 ]
	$LAB logout --target tgt
	end_tgtd
	run fabtune show
	[[ "$output" != *",tgt"* ]]
	start_tgtd
	[ "$(parameter FirstBurstLength)" = 65536 ]
	run fabtune verify --role target --netns target
	echo "$output"
	[ "$status" -eq 3 ]
	run fabtune revert --role target
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(parameter FirstBurstLength)" = 65536 ]
	$LAB login --target tgt
}
