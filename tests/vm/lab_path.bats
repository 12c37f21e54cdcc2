#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# together: path
# What the emulated path does to packets beside delaying and losing them: each factor is felt by ping or by TCP.

bats_require_minimum_version 1.5.0

setup_file() {
	load stands
	stands --rtt 20ms --rate 100mbit --cross cubic
	nsenter --net=/run/netns/target iperf3 --server --daemon --pidfile /run/iperf3.pid 3>&- 4>&-
}

teardown_file() {
	xargs -0 kill < /run/iperf3.pid
}

# path WORDS...: the path of 20 ms and 100 Mb/s, and what WORDS ask for.
path() {
	python3 -m fabtune.lab.guest path --rtt 20ms --rate 100mbit --cross cubic "$@"
}

# mbit WORDS...: what a TCP connection to the target carries.
mbit() {
	iperf3 --json --client 10.2.0.1 --time 1 --omit 1 "$@" \
		| python3 -c 'import json, sys; print(round(json.load(sys.stdin)["end"]["sum_received"]["bits_per_second"] / 1e6))'
}

# between LOW VALUE HIGH
between() {
	echo "$1 <= $2 <= $3"
	awk -v low="$1" -v value="$2" -v high="$3" 'BEGIN { exit !(low <= value && value <= high) }'
}

# drops: what the slowest link's queue has dropped.
drops() {
	tc -n shaper -s -j qdisc show dev s1 | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["drops"])'
}

# times PING: least and greatest round trip that ping's last line tells, in ms.
times() {
	sed -n 's|^rtt .* = \([0-9.]*\)/[0-9.]*/\([0-9.]*\)/.*|\1 \2|p' <<< "$1"
}

@test "round trips vary as far as jitter says, and packets stay in order" {
	path --jitter 8ms
	told=$(ping -c 200 -i 0.002 10.2.0.1)
	read -r least greatest <<< "$(times "$told")"
	between 12 "$least" 16
	between 24 "$greatest" 28.5
	sed -n 's/.*icmp_seq=\([0-9]*\) .*/\1/p' <<< "$told" | sort -nc
}

@test "packets overtake others, and arrive twice, where that is asked for" {
	[ "${LENGTH:-short}" = full ] || skip "in the full run"
	path --reorder 10%
	told=$(ping -c 200 -i 0.002 10.2.0.1)
	run ! sort -nc <(sed -n 's/.*icmp_seq=\([0-9]*\) .*/\1/p' <<< "$told")
	path --duplicate 10%
	told=$(ping -c 200 -i 0.002 10.2.0.1)
	between 10 "$(grep -c 'DUP!' <<< "$told")" 80
}

@test "the way back has a rate of its own" {
	path --rate-back 20mbit
	between 85 "$(mbit)" 97
	between 17 "$(mbit --reverse)" 20
}

@test "each end's NIC sends at its own rate, and one that is little faster than the path overflows its queue less" {
	[ "${LENGTH:-short}" = full ] || skip "in the full run"
	path --nic-rate 40mbit
	between 34 "$(mbit)" 40
	between 34 "$(mbit --reverse)" 40
	before=$(drops)
	path --buffer 0.25 --nic-rate 105mbit
	mbit > /dev/null
	near=$(($(drops) - before))
	path --buffer 0.25
	mbit > /dev/null
	far=$(($(drops) - before - near))
	echo "drops: $near where the NIC sends at 105 Mb/s, $far where it sends as fast as it can"
	[ "$near" -lt "$far" ]
	path --buffer 0
	between 85 "$(mbit)" 97
}

@test "a shallow buffer drops what a deep one keeps" {
	before=$(drops)
	path --buffer 0.25
	mbit > /dev/null
	shallow=$(drops)
	path --buffer 0
	mbit > /dev/null
	echo "drops: $before, $shallow, $(drops)"
	[ "$before" -lt "$shallow" ]
	[ "$shallow" -eq "$(drops)" ]
}

@test "other hosts' traffic takes its part of the line, either way" {
	path --buffer 1
	directions="read write"
	[ "$LENGTH" = full ] || directions=read
	for op in $directions; do
		read -r ours theirs <<< "$(python3 "$BATS_TEST_DIRNAME/beside_others.py" $op 3>&- 4>&-)"
		echo "$op: ours $ours, theirs $theirs"
		between 3 "$ours" 9
		between 3 "$theirs" 9
		between 10.5 "$(awk "BEGIN { print $ours + $theirs }")" 12.6
	done
}
