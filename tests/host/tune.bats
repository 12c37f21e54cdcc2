#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# The tuning verbs on a copied host tree: exit codes, errors, JSON.  No root and no guest needed.

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
}

fabtune() {
	/usr/bin/python3 -m fabtune "$@"
}

# Prints the answer of a Python expression over the JSON in `output`.
ask() {
	/usr/bin/python3 -c "import json, sys; d = json.load(sys.stdin); print($1)" <<<"$output"
}

# fails STATUS TEXT COMMAND...: the command fails so, says so on stderr, and shows no traceback.
fails() {
	local wanted=$1 text=$2
	shift 2
	run fabtune "$@"
	[ "$status" -eq "$wanted" ] || { echo "exit $status: $output"; return 1; }
	[[ "$output" == *"$text"* ]] || { echo "$output"; return 1; }
	[[ "$output" != *Traceback* ]]
}

@test "mistakes on the command line exit 2 and say what is allowed" {
	fails 2 "unknown profile 'wann' (did you mean 'wan'?)" plan wann --rtt 50ms --rate 1gbit
	fails 2 "--rtt '-5ms': expected a number >= 0" plan wan --rtt -5ms --rate 1gbit
	fails 2 "--rate '0gbit': expected more than zero" plan wan --rtt 5ms --rate 0gbit
	fails 2 "--rtt '5 parsec'" plan wan --rtt "5 parsec" --rate 1gbit
	fails 2 "--rtt and --rate" plan wan
	fails 2 "unknown parameter 'io_siz' (did you mean 'io_size'?)" plan wan --rtt 5ms --rate 1gbit --set io_siz=5
	fails 2 "expected NAME=VALUE" plan wan --rtt 5ms --rate 1gbit --set io_size
	fails 2 "network namespace 'nowhere' not found" plan wan --rtt 5ms --rate 1gbit --netns nowhere
	fails 2 "invalid choice: 'server'" plan wan --role server
	fails 2 "no tunable and no workload 'iscsi.tcp_windw' (did you mean 'iscsi.tcp_window'?)" explain iscsi.tcp_windw
	fails 2 "'stress182' (did you mean 'stress128'?); see \`fabtune tunables\` and \`fabtune workloads\`" explain stress182
	# What is wrong with the words is said before anything of the host.
	run -2 --separate-stderr fabtune show wam
	[[ "$stderr" == *"unknown profile 'wam'"* && -z "$output" ]]
	fails 2 "not in the journal" revert --transaction 20200101T000000Z-000
	fails 2 "nothing.json: no such file" lint nothing.json
}

@test "verify and revert of a network namespace that was never there exit 2" {
	fails 2 "network namespace 'nowhere' not found" verify --netns nowhere
	fails 2 "network namespace 'nowhere' not found" revert --netns nowhere
	fabtune apply wan --rtt 50ms --rate 1gbit >/dev/null || [ $? -eq 4 ]
	fails 2 "network namespace 'nowhere' not found" verify --netns nowhere
	fails 2 "network namespace 'nowhere' not found" revert wan --netns /run/netns/nowhere
}

@test "with FABTUNE_ROOT no program of this host is run, and its journal is not written" {
	mkdir here
	for tool in iscsiadm ip tc udevadm setpriv dmsetup multipathd ethtool; do
		printf '#!/bin/sh\necho "$0 $*" >> %s/asked\necho "[]"\n' "$PWD" > here/$tool
	done
	chmod +x here/*
	unset FABTUNE_STATE_DIR
	PATH=$PWD/here:/usr/bin:/bin fabtune apply wan --rtt 50ms --rate 1gbit --allow-relogin --persist || [ $? -eq 4 ]
	PATH=$PWD/here:/usr/bin:/bin fabtune verify || [ $? -eq 4 ]
	PATH=$PWD/here:/usr/bin:/bin fabtune revert --allow-relogin || [ $? -eq 4 ]
	[ ! -e asked ] || { cat asked; return 1; }
	[ -e "$FABTUNE_ROOT/var/lib/fabtune/journal" ]
}

@test "a mistake in a profile names file, table and key, and nothing is written" {
	cat > profiles/mine.toml <<-'EOF'
		summary = "mine"
		include = ["wan"]
		[both."tcp.rmem_max"]
		at_lest = "4 * bdp"
		why = "x"
	EOF
	fails 2 "profiles/mine.toml: [both.\"tcp.rmem_max\"]: unknown key 'at_lest' (did you mean 'at_least'?)" \
		apply mine --rtt 50ms --rate 1gbit
	[ ! -e state/journal ] || [ -z "$(ls state/journal)" ]
}

@test "plan prints now, wanted, why and effect, and writes nothing" {
	cp -r host before
	run fabtune plan wan --rtt 50ms --rate 1gbit
	[ "$status" -eq 0 ]
	[[ "$output" == *"512 KiB"*"0 bytes"* ]]
	[[ "$output" == *"memory in the worst case"* ]]
	run fabtune plan wan --rtt 50ms --rate 1gbit --json
	[ "$(ask "[r['wanted'] for r in d['rows'] if r['tunable'] == 'tcp.rmem_max']")" = "['25000000']" ]
	[ "$(ask "sorted({k for r in d['rows'] for k in r})")" = \
		"['device', 'effect', 'identity', 'note', 'now', 'role', 'scope', 'state', 'touches', 'tunable', 'unit', 'wanted', 'why']" ]
	diff -r before host
	[ ! -e state ]
}

@test "apply, verify, revert and history agree" {
	cp -r host before
	run fabtune apply wan --rtt 50ms --rate 1gbit
	[ "$status" -eq 4 ]
	[[ "$output" == *"needs a re-login"* ]]
	fails 4 "does not run with all that was written" verify
	echo 1 > host/proc/sys/net/ipv4/tcp_slow_start_after_idle
	fails 3 tcp.slow_start_after_idle verify
	echo 0 > host/proc/sys/net/ipv4/tcp_slow_start_after_idle
	run --separate-stderr fabtune history --json
	[ "$(ask "[t['state'] for t in d]")" = "['in force']" ]
	run fabtune revert
	[ "$status" -eq 4 ]
	for file in records sys/kernel proc; do
		diff -r -w before/$file host/$file
	done
	run --separate-stderr fabtune history --json
	[ "$(ask "[t['state'] for t in d]")" = "['taken back']" ]
	run fabtune revert
	# The re-login that the first revert left due is still to be made.
	[ "$status" -eq 4 ]
	[[ "$output" == *"nothing to take back"* && "$output" == *"needs a re-login"* ]]
}

@test "--persist writes native files with a header, and revert removes them" {
	mkdir -p host/etc/iscsi
	printf '%s\n' 'node.startup = manual' 'node.session.auth.password = do-not-tell' > host/etc/iscsid.plain
	cp host/etc/iscsid.plain host/etc/iscsi/iscsid.conf
	run fabtune apply wan --rtt 50ms --rate 1gbit --persist
	[ "$status" -eq 4 ]
	grep -q 'Written by fabtune' host/etc/sysctl.d/90-fabtune.conf
	grep -qx 'net.ipv4.tcp_rmem = 4096 1048576 25000000' host/etc/sysctl.d/90-fabtune.conf
	grep -qx 'node.conn\[0\].tcp.window_size = 0' host/etc/iscsi/iscsid.conf
	run grep -r do-not-tell state
	[ "$status" -eq 1 ]
	run fabtune apply wan --rtt 50ms --rate 1gbit --persist
	[[ "$output" == *"nothing to change"* ]]
	fabtune revert || [ $? -eq 4 ]
	[ ! -e host/etc/sysctl.d/90-fabtune.conf ]
	diff host/etc/iscsid.plain host/etc/iscsi/iscsid.conf
}

@test "a damaged journal and a state directory that cannot be written are plain errors" {
	fabtune apply wan --rtt 50ms --rate 1gbit || [ $? -eq 4 ]
	for file in state/journal/*; do sed -i 's/"old": "/"odl": "/' "$file"; done
	fails 1 "is damaged: key 'old' is missing" revert
	run fabtune history
	[ "$status" -eq 0 ]
	[[ "$output" == *" damaged"* ]]
	touch notadirectory
	FABTUNE_STATE_DIR=$PWD/notadirectory fails 1 "state directory" apply wan --rtt 50ms --rate 1gbit
}

@test "explain, tunables, profiles, show, negotiate and lint speak plainly and in JSON" {
	run fabtune explain iscsi.tcp_window
	[ "$status" -eq 0 ]
	[[ "$output" == *"now:"*"512 KiB"* ]]
	run fabtune tunables --json
	[ "$(ask "len(d) >= 150")" = True ]
	run fabtune profiles
	[[ "$output" == *wan-satellite* ]]
	fabtune show --json > host.json
	run grep -c do-not-tell host.json
	[ "$output" = 0 ]
	run fabtune lint host.json --rtt 50ms --rate 1gbit
	[ "$status" -eq 3 ]
	[[ "$output" == *"window-locked"* ]]
	run fabtune lint host.json --rtt 50ms --rate 1gbit --json
	[ "$(ask "sorted(d['findings'][0])")" = "['consequence', 'device', 'evidence', 'fix', 'hazard', 'severity']" ]
	run fabtune negotiate --initiator host.json --target host.json --json
	[ "$(ask "[a['result'] for a in d[0]['agreed'] if a['name'] == 'FirstBurstLength']")" = "[65536]" ]
	run fabtune negotiate wan --initiator host.json --target host.json --rtt 50ms --rate 1gbit --json
	[ "$(ask "[a['result'] for a in d[0]['agreed'] if a['name'] == 'FirstBurstLength']")" = "[262144]" ]
}
