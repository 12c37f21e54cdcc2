#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock virtual
# `fabtune tune --goal latency`: small reads and writes of one disk beside a stream of another, on a line of 50 Mb/s at 20 ms.

bats_require_minimum_version 1.5.0

setup_file() {
	modprobe sch_fq || true
	python3 -m fabtune.lab.guest up --rtt 20ms --rate 50mbit --buffer 4
	local tpg=/sys/kernel/config/target/iscsi/iqn.2026-01.lab.fabtune:target/tpgt_1
	local store=/sys/kernel/config/target/core/rd_mcp_0/beside
	mkdir -p $store
	echo rd_pages=65536,rd_nullio=1 > $store/control
	echo fabtune-lab-beside > $store/wwn/vpd_unit_serial
	echo 1 > $store/enable
	mkdir $tpg/lun/lun_1
	ln -s $store $tpg/lun/lun_1/beside
	python3 -m fabtune.lab.guest login
}

setup() {
	load common
	load until
	load fabstat
	until_true 'block 1'
	STREAM=$(block 0)
	SMALL=$(block 1)
}

teardown() {
	rest
	fabtune revert --reconnect >/dev/null 2>&1 || true
}

# block LUN: the name of its disk.
block() {
	basename "$(compgen -G "/sys/class/iscsi_session/session*/device/target*/*:$1/block/*")"
}

# stream KIND: 32 requests of 256 KiB on one disk, and returns when the line is full of them.
stream() {
	fio --name=stream --filename="/dev/$STREAM" --direct=1 --ioengine=libaio --rw="$1" --bs=256k --iodepth=32 --size=900m \
		--time_based --runtime=36000 >/dev/null 2>&1 3>&- 4>&- &
	LOADS=($!)
	local begun
	begun=$(moved)
	until_true "[ \$((\$(moved) - $begun)) -gt 24000 ]"
}

moved() {
	awk '{ print $3 + $7 }' "/sys/block/$STREAM/stat"
}

# small SECONDS: reads and writes of 4..64 KiB on the other disk, 4 at once; their figures go to small.json at the end.
small() {
	fio --name=small --filename="/dev/$SMALL" --direct=1 --ioengine=libaio --rw=randrw --bsrange=4k-64k --iodepth=4 \
		--size=200m --time_based --runtime="$1" --randseed=7 --output-format=json --output=small.json 3>&- 4>&-
}

# p99 OP: in ms, of small.json; its submission's wait included.
p99() {
	python3 -c 'import json, sys; print(json.load(open("small.json"))["jobs"][0][sys.argv[1]]["clat_ns"]["percentile"]["99.000000"] / 1e6)' "$1"
}

rest() {
	[ -z "${LOADS:-}" ] || { kill "${LOADS[@]}" && wait "${LOADS[@]}"; } 2>/dev/null || true
	LOADS=()
}

# of KEY: a value of the document that tune printed.
of() {
	python3 -c 'import json, sys; print(eval("document" + sys.argv[1], {"document": json.load(open("tune.json"))}))' "$1"
}

# expect_that EXPRESSION: of awk; fails and shows it unless it is true.
expect_that() {
	awk "BEGIN { exit !($1) }" || { echo "not: $1"; return 1; }
}

@test "without fabstat nobody knows how long requests take: said before anything is looked at, and nothing is written" {
	run -5 fabtune tune --goal latency --yes --for 3s
	[[ $output == *"cannot tell how long requests take without fabstat's histograms"* ]]
	[[ "$(fabtune history)" == *"the journal is empty"* ]]
}

@test "small requests beside a stream of reads: their p99 falls, the line stays full, and the steps say so" {
	load_fabstat
	stream read
	small 15
	untouched=("$(p99 read)" "$(p99 write)")
	cp small.json untouched.json
	small 3600 &
	LOADS+=($!)
	fabtune tune --goal latency --yes --for 40s --steps 1 --target-netns target --json > tune.json
	cat tune.json
	kill "${LOADS[1]}"
	wait "${LOADS[1]}" || true
	unset 'LOADS[1]'
	echo "# by the steps: p99 $(of '["first_p99_ms"]') -> $(of '["last_p99_ms"]') ms," \
		"$(of '["first_bytes_per_s"]') -> $(of '["last_bytes_per_s"]') bytes/s" >&3
	[ "$(of '["p99_of"]')" = "['$SMALL']" ]
	[ "$(of '["steps"][0]["kept"]')" = True ]
	[ "$(of '["steps"][0]["limiters"][0]')" = queued-requests ]
	[ "$(of '["steps"][0]["p99_ratio_high"] < 0.5')" = True ]
	[ "$(of '["steps"][0]["ratio_low"] >= 0.9')" = True ]
	[ "$(of '["last_bytes_per_s"] > 0.9 * document["first_bytes_per_s"]')" = True ]
	# By the load's own clock.
	small 15
	echo "# p99 of reads and writes in ms: ${untouched[*]} -> $(p99 read) $(p99 write)" >&3
	expect_that "$(p99 read) < 0.5 * ${untouched[0]}"
	expect_that "$(p99 write) < 0.5 * ${untouched[1]}"
	# The stream alone has fewer requests under way.
	[ "$(cat "/sys/block/$STREAM/device/queue_depth")" -lt 8 ]
	[ "$(cat "/sys/block/$SMALL/device/queue_depth")" -eq 32 ]
	run -0 fabtune revert --reconnect
	[ "$(cat "/sys/block/$STREAM/device/queue_depth")" -eq 32 ]
}
