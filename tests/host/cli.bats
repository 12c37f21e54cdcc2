#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# The command line as a user meets it: help, typos, bad values.  Needs neither root nor a guest.

bats_require_minimum_version 1.5.0

setup() {
	cd "$BATS_TEST_DIRNAME/../.."
	export PYTHONPATH=userspace
}

fabtune() { /usr/bin/python3 -m fabtune "$@"; }

no_traceback() { [[ "$output" != *Traceback* ]]; }

@test "--version prints the package's version" {
	run -0 fabtune --version
	[[ "$output" =~ ^fabtune\ [0-9]+\.[0-9]+ ]]
}

@test "--help lists every verb, and every verb has its own help" {
	run -0 fabtune --help
	verbs=$(/usr/bin/python3 -c 'from fabtune.cli.main import VERBS; print(*VERBS)')
	[ -n "$verbs" ]
	for verb in $verbs; do
		[[ "$output" == *"$verb"* ]]
	done
	for verb in $verbs; do
		run -0 fabtune "$verb" --help
		no_traceback
	done
}

@test "TAB in bash completes verbs, options, their values, tunables and files" {
	run -0 /usr/bin/python3 tests/host/completion.py bash 'fabtune expl^tcp.wmem_m^' 'fabtune apply wan --confirm-w^60s --scope=con^' \
		'fabtune lab ru^--clock rea^/etc/hostna^'
	[ "${lines[0]}" = "explain tcp.wmem_max" ]
	[ "${lines[1]}" = "apply wan --confirm-within 60s --scope=connection" ]
	[ "${lines[2]}" = "lab run --clock real /etc/hostname" ]
}

@test "an unknown verb is a usage error" {
	run -2 fabtune plann
	no_traceback
}

@test "a mistyped verb, option or choice brings the near one" {
	run -2 fabtune plann
	[[ "$output" == *"did you mean 'plan'?"* ]]
	run -2 fabtune apply wan --alow-relogin
	[[ "$output" == *"unknown option '--alow-relogin' (did you mean '--allow-relogin'?)"* ]]
	run -2 fabtune --jsn plan wan
	[[ "$output" == *"did you mean '--json'?"* ]]
	run -2 fabtune plan wan --role initator
	[[ "$output" == *"did you mean 'initiator'?"* ]]
	run -2 fabtune lab run --suit trixie x
	no_traceback
}

@test "every example of every --help is a command line that parses" {
	/usr/bin/python3 - <<-'EOF'
		import shlex
		from fabtune.cli.examples import EXAMPLES, epilog
		from fabtune.cli.main import VERBS, parse, verb_first
		assert set(EXAMPLES) == {"", *VERBS}
		for verb, examples in EXAMPLES.items():
		    assert len(examples) <= 4 and (len(examples) >= 2 or verb in ("revert",)), verb
		    for command, says in examples:
		        words = shlex.split(command)
		        assert says and verb in ("", words[0])
		        parse(verb_first(words))
		    assert max(map(len, epilog(examples).splitlines())) <= 80
	EOF
}

@test "options may stand before the verb, values and all" {
	run -0 fabtune --rtt 50ms --rate 1gbit --json plan wan
	[[ "$output" == *'"profile": "wan"'* ]]
	run -2 fabtune --netns nowhere plan wan
	[[ "$output" == *"network namespace 'nowhere' not found"* ]]
	run -0 fabtune --version plan
	[[ "$output" == "fabtune "* ]]
}

@test "with --json an error is JSON on stdout, with the exit code it has without" {
	for words in "plan nosuch" "plan --rat 5" "stat sdz" "compare a b" "report nosuch" "explain nosuch" "run nosuch" \
		"lint nosuch" "negotiate --initiator nosuch" "measure xdd" "verify nosuch" "workloads nosuch"; do
		run fabtune $words
		wanted=$status
		[ "$wanted" -ne 0 ]
		run --separate-stderr fabtune $words --json
		[ "$status" -eq "$wanted" ]
		[ -n "$stderr" ]
		/usr/bin/python3 -c "
import json, sys
(error,) = json.load(sys.stdin).values()
assert list(error) == ['kind', 'exit_code', 'verb', 'message'], error
assert error['exit_code'] == $wanted and error['verb'] == '${words%% *}' and error['message'], error
" <<<"$output"
	done
}

@test "a reader that leaves early, a closed stdout and a full stderr end quietly" {
	for words in "--help" "tunables" "plan wan --rtt 50ms --rate 1gbit" "tunables --json" "explain tcp.rmem_max" "run"; do
		run bash -c "/usr/bin/python3 -m fabtune $words | true; exit \${PIPESTATUS[0]}"
		[ "$status" -eq 0 ]
		[ -z "$output" ]
		run -0 fabtune $words 2>/dev/full
		run -0 bash -c "exec /usr/bin/python3 -m fabtune $words >&- 2>&-"
		[ -z "$output" ]
	done
	run -1 bash -c "/usr/bin/python3 -m fabtune profiles >/dev/full"
	[[ "$output" == *"No space left on device"* ]]
	no_traceback
	run -2 bash -c "/usr/bin/python3 -m fabtune plann >/dev/full 2>/dev/full"
}

@test "an unknown profile is named, with what there is" {
	run -2 fabtune plan nosuch --rtt 50ms --rate 1gbit
	[[ "$output" == *nosuch* && "$output" == *wan* ]]
	no_traceback
}

@test "a negative RTT is refused" {
	run -2 fabtune plan wan --rtt=-5ms --rate 1gbit
	[[ "$output" == *-5ms* && "$output" == *50ms* ]]
	no_traceback
}

@test "an RTT without a unit and a rate of zero are refused" {
	run -2 fabtune plan wan --rtt 50 --rate 1gbit
	no_traceback
	run -2 fabtune plan wan --rtt 50ms --rate 0gbit
	no_traceback
}

@test "experiments: an unknown name, factor, value and impossible size are refused before anything starts" {
	run -2 fabtune run nosuch
	[[ "$output" == *demo* ]]
	for bad in '[factors]\nrrt = ["0ms"]' '[factors]\nrtt = ["fast"]' '[fixed]\nruntime = "0s"' \
		'[factors]\nrtt = ["0ms"]\n[fixed]\nrtt = "1ms"' 'seeds = 0' 'factors = 3' 'oops' \
		'[fixed]\nsize = "100"' '[factors]\nrtt = []' '[factors]\nrtt = ["1ms", "1ms"]'; do
		printf "$bad\n" > "$BATS_TEST_TMPDIR/bad.toml"
		run -2 fabtune run "$BATS_TEST_TMPDIR/bad.toml" --out "$BATS_TEST_TMPDIR/out"
		[[ "$output" == *bad.toml* ]]
		no_traceback
		[ ! -e "$BATS_TEST_TMPDIR/out" ]
	done
}

@test "a matrix that no machine could finish is refused" {
	{
		echo '[factors]'
		echo "seed = [$(seq -s, 1 1000)]"
		echo "depth = [$(seq -s, 1 1000)]"
	} > "$BATS_TEST_TMPDIR/huge.toml"
	run -2 fabtune run "$BATS_TEST_TMPDIR/huge.toml" --dry-run
	[[ "$output" == *1000000* ]]
	no_traceback
}

@test "--dry-run prints the combinations and runs none" {
	run -0 --separate-stderr fabtune run demo --dry-run --only rtt=100ms --out "$BATS_TEST_TMPDIR/out"
	[ "${#lines[@]}" -eq 6 ]
	[[ "${lines[1]}" == "profile=wan,rtt=100ms run 1" ]]
	[[ "${lines[5]}" == "profile=wan,rtt=100ms run 3" ]]
	[ ! -e "$BATS_TEST_TMPDIR/out" ]
	run -2 fabtune run demo --dry-run --only rtt=51ms
	run -2 fabtune run demo --dry-run --only speed=1
}

@test "lab: a missing script, two vCPUs on the virtual clock and an unknown suite are usage errors" {
	run -2 fabtune lab run --suite nosuch /bin/true
	no_traceback
	run -2 fabtune lab run --smp 2 /bin/true
	[[ "$output" == *"--clock real"* ]]
	run -2 fabtune lab run --memory-mib 3 /bin/true
	no_traceback
	# Said before an image is made, which takes minutes.
	run -2 env XDG_CACHE_HOME="$BATS_TEST_TMPDIR/cache" /usr/bin/python3 -m fabtune lab run "$BATS_TEST_TMPDIR/nosuch"
	[[ "$output" == *nosuch* && "$output" != *installing* ]]
	[ ! -e "$BATS_TEST_TMPDIR/cache" ]
	no_traceback
}

@test "show on a bare host says what is missing, and what to do" {
	mkdir -p "$BATS_TEST_TMPDIR/bare"
	run -0 env FABTUNE_ROOT="$BATS_TEST_TMPDIR/bare" PATH="$BATS_TEST_TMPDIR" /usr/bin/python3 -m fabtune show
	[[ "$output" == *"no target"*"modprobe iscsi_target_mod"*"fabstat is not loaded"*"modprobe fabstat"* ]]
	[[ "$output" == *"open-iscsi"* || "$output" == *"no iSCSI session"*"iscsiadm -m"* ]]
	mkdir -p "$BATS_TEST_TMPDIR/bare/bin"
	printf '#!/bin/sh\nexit 21\n' > "$BATS_TEST_TMPDIR/bare/bin/iscsiadm"
	chmod +x "$BATS_TEST_TMPDIR/bare/bin/iscsiadm"
	run -0 env FABTUNE_ROOT="$BATS_TEST_TMPDIR/bare" PATH="$BATS_TEST_TMPDIR/bare/bin:$PATH" /usr/bin/python3 -m fabtune show
	[[ "$output" == *"no iSCSI session and no record of a target"*"iscsiadm -m discovery"* ]]
}

@test "an unknown path leads the message, with the profile that was named" {
	mkdir -p "$BATS_TEST_TMPDIR/bare"
	run -2 env FABTUNE_ROOT="$BATS_TEST_TMPDIR/bare" PATH="$BATS_TEST_TMPDIR" /usr/bin/python3 -m fabtune plan wan-lossy
	[[ "$output" == "fabtune: round trip"*"unknown: "*"--rtt"*"profile 'wan-lossy'"* ]]
	[[ "$output" != *.toml* ]]
}
