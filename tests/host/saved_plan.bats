#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# apply's question on a terminal, and plans that are saved, on a copied host tree.  No root and no guest needed.

bats_require_minimum_version 1.5.0

setup() {
	TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
	export PYTHONPATH=$TOP/userspace:$TOP/tests/unit
	export FABTUNE_ROOT=$BATS_TEST_TMPDIR/host FABTUNE_STATE_DIR=$BATS_TEST_TMPDIR/state
	export FABTUNE_PROFILES=$BATS_TEST_TMPDIR/profiles
	mkdir "$FABTUNE_PROFILES"
	/usr/bin/python3 -c "import sys, pathlib, hosttree; hosttree.make(pathlib.Path(sys.argv[1]), 1, 1)" "$FABTUNE_ROOT"
	export PATH=$FABTUNE_ROOT/bin:$PATH
	cd "$BATS_TEST_TMPDIR"
	WAN=(wan --rtt 50ms --rate 1gbit)
}

fabtune() {
	/usr/bin/python3 -m fabtune "$@"
}

# answered ANSWER ARGUMENT...: fabtune on a terminal of 80 columns, its question answered.
answered() {
	/usr/bin/python3 "$TOP/tests/host/terminal.py" 80 "$1" /usr/bin/python3 -m fabtune "${@:2}"
}

untouched() {
	diff -r before host
	[ ! -e state ]
}

@test "on a terminal apply shows the plan and asks; anything but yes changes nothing" {
	cp -r host before
	for answer in n "" no Yess "yes please" Q; do
		run -0 answered "$answer" apply "${WAN[@]}"
		[[ "$output" == *"tcp.rmem_max "*"Write these 15 values? [y/N]"*"nothing was changed"* ]]
		untouched
	done
	for answer in ^C ^D; do
		run -130 answered "$answer" apply "${WAN[@]}"
		[[ "$output" == *"nothing was changed"* && "$output" != *Traceback* ]]
		untouched
	done
	run -4 answered yes apply "${WAN[@]}"
	[[ "$output" == *"15 values written"* ]]
	run -4 answered n apply "${WAN[@]}"
	[[ "$output" == *"nothing to change"* && "$output" != *"[y/N]"* ]]
}

@test "--yes, -y and a caller without a terminal are not asked" {
	for yes in --yes -y; do
		run -4 answered n apply "${WAN[@]}" $yes
		[[ "$output" != *"[y/N]"* && "$output" == *"15 values written"* ]]
		run -4 answered n revert
	done
	run -4 fabtune apply "${WAN[@]}" </dev/null
	[[ "$output" != *"[y/N]"* && "$output" == *"15 values written"* ]]
}

@test "a host that changes while somebody reads the plan is left alone" {
	run -3 answered '!echo 5 > host/proc/sys/net/ipv4/tcp_no_metrics_save yes' apply "${WAN[@]}"
	[[ "$output" == *"tcp.no_metrics_save of host: was 0, is 5"* ]]
	[ "$(cat host/proc/sys/net/ipv4/tcp_no_metrics_save)" = 5 ]
	[ -z "$(ls state/journal)" ]
}

@test "plan --exit-code tells changes from none" {
	run -3 fabtune plan "${WAN[@]}" --exit-code
	# A reader that leaves early does not change the answer.
	run -3 bash -c "/usr/bin/python3 -m fabtune plan ${WAN[*]} --exit-code | true; exit \${PIPESTATUS[0]}"
	[ -z "$output" ]
	run -0 fabtune plan "${WAN[@]}"
	fabtune apply "${WAN[@]}" || [ $? -eq 4 ]
	run -0 fabtune plan "${WAN[@]}" --exit-code
}

@test "a saved plan is applied as it was shown, once" {
	run -0 fabtune plan "${WAN[@]}" --json
	grep -v '"memory"' <<<"$output" | head -60 > shown
	run -3 fabtune plan "${WAN[@]}" --out wan.plan --exit-code
	[[ "$output" == *"fabtune apply --plan wan.plan"* ]]
	run grep -c do-not-tell wan.plan
	[ "$output" = 0 ]
	run -4 fabtune apply --plan wan.plan
	[[ "$output" == *"15 values written"* ]]
	run -4 fabtune verify wan --rtt 50ms --rate 1gbit
	run --separate-stderr -0 fabtune history --json
	[[ "$output" == *'"profile": "wan"'*'"rtt_ms": 50.0'* ]]
	run -3 fabtune apply --plan wan.plan
	[[ "$output" == *"tcp.rmem_max of host: was 6291456, is 25000000"* ]]
	fabtune revert || [ $? -eq 4 ]
	run -0 answered n apply --plan wan.plan
	[[ "$output" == *"Write these 15 values? [y/N]"*"nothing was changed"* ]]
}

@test "a saved plan is refused when the host has changed since, with what changed" {
	fabtune plan "${WAN[@]}" --out wan.plan
	refused() {
		run -3 fabtune apply --plan "${2:-wan.plan}"
		[[ "$output" == *"$1"* && "$output" == *"make a new plan"* ]] || { echo "$output"; return 1; }
	}
	echo 1 > host/proc/sys/net/ipv4/tcp_no_metrics_save
	refused "tcp.no_metrics_save of host: was 0, is 1"
	echo 0 > host/proc/sys/net/ipv4/tcp_no_metrics_save
	mv host kept
	/usr/bin/python3 -c "import pathlib, hosttree; hosttree.make(pathlib.Path('host'), 2, 1)"
	refused "new: record disk2 at 10.2.0.2:3260"
	rm -r host
	cp -r kept host
	rm -r host/sys/kernel/config/target/iscsi/*
	refused "gone: tpg disk1 tpgt_1"
	rm -r host
	cp -r kept host
	sed 's/"host": ".*"/"host": "elsewhere"/' wan.plan > other.plan
	refused "host: was elsewhere, is $(uname -n)" other.plan
	sed 's/"kernel": ".*"/"kernel": "5.10"/' wan.plan > other.plan
	refused "kernel: was 5.10, is $(uname -r)" other.plan
	sed 's/"vocabulary": ".*"/"vocabulary": "abc"/' wan.plan > other.plan
	refused "another vocabulary" other.plan
	diff -r kept host
	[ -z "$(ls state/journal)" ]
	# And as it was, it is taken.
	run -4 fabtune apply --plan wan.plan
}

@test "what no saved plan may hold is refused by file and key" {
	fabtune plan "${WAN[@]}" --out wan.plan
	refused() {
		sed "$1" wan.plan > bad.plan
		! cmp -s wan.plan bad.plan || false
		run -2 fabtune apply --plan bad.plan
		[[ "$output" == *"bad.plan"*"$2"* && "$output" != *Traceback* ]] || { echo "$output"; return 1; }
	}
	refused '0,/"tcp.rmem_max"/s//"..\/..\/etc\/passwd"/' "unknown tunable '../../etc/passwd'"
	refused '0,/"tunable": "tcp.rmem_max"/s//&, "key": "x"/' "unknown key 'key'"
	refused 's/"netns": ""/"netns": "..\/x"/' "key 'netns'"
	refused 's/"wanted": "25000000"/"wanted": "99999999999"/' "tcp.rmem_max: found 99999999999, allowed"
	refused 's/"wanted": "25000000"/"wanted": "25 1"/' "tcp.rmem_max: found '25 1'"
	refused 's/"wanted": "25000000"/"wanted": 25000000/' "key 'wanted': found 25000000 (integer), allowed: text"
	refused 's/"state": "same"/"state": "change"/; s/"why": "/&\\u001b[2J/' "allowed: one line of printable text"
	refused 's/"rtt_ms": 50.0/"rtt_ms": NaN/' "NaN is not a number"
	refused 's/"rtt_ms": 50.0/"rtt_ms": 1e999/' "key 'rtt_ms'"
	refused 's/"fabtune_plan": 1/"fabtune_plan": 2/' "no saved plan of version 1"
	refused '$d' "not JSON"
	refused 's/"role": "target"/"role": "both"/' "key 'role': found 'both'"
	head -c 9000000 /dev/zero | tr '\0' '[' > huge.plan
	run -2 fabtune apply --plan huge.plan
	[[ "$output" == *"huge.plan: larger than"* ]]
	head -c 100000 huge.plan > deep.plan
	run -2 fabtune apply --plan deep.plan
	[[ "$output" == *"deep.plan: not JSON"* ]]
	mkfifo pipe.plan
	for file in pipe.plan /dev/zero . nosuch.plan; do
		run -2 timeout 10 /usr/bin/python3 -m fabtune apply --plan $file
		[[ "$output" == *"$file: "* && "$output" != *Traceback* ]]
	done
	run -2 fabtune apply --plan wan.plan --rtt 50ms
	run -2 fabtune apply wan --plan wan.plan
	run -2 fabtune apply wan.plan
	[[ "$output" == *"--plan wan.plan"* ]]
	run -2 fabtune apply
	[ -z "$(ls state/journal 2>&-)" ]
}

@test "plan --out replaces a saved plan, and nothing else" {
	echo precious > mine
	run -2 fabtune plan "${WAN[@]}" --out mine
	[ "$(cat mine)" = precious ]
	run -2 fabtune plan "${WAN[@]}" --out nowhere/wan.plan
	run -2 fabtune plan "${WAN[@]}" --out .
	fabtune plan "${WAN[@]}" --out wan.plan
	fabtune plan lan --rtt 1ms --rate 10gbit --out wan.plan
	grep -q '"profile": "lan"' wan.plan
	[ -z "$(ls -A | grep '^\.wan')" ]
}
