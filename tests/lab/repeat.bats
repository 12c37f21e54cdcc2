#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# The virtual clock's promise: same definition, same seed, same bytes, whatever else the computer does.
bats_require_minimum_version 1.5.0

setup() {
	cd "$BATS_TEST_DIRNAME/../.."
	export PYTHONPATH=userspace
	profile=untouched
	[ "${LENGTH:-short}" != full ] || profile=wan
	cat > "$BATS_TEST_TMPDIR/repeat.toml" <<-EOF
		seeds = 1
		[factors]
		profile = ["$profile"]
		[fixed]
		op = "read"
		rtt = "20ms"
		# Slow, for it takes instructions to repeat: lost packets and their times are the same at any rate.
		rate = "20mbit"
		ramp = "1s"
		# Of a shorter one the look that says what limits it may have too little.
		runtime = "3s"
		loss = "0.5%"
	EOF
}

teardown() { [ -z "${busy:-}" ] || kill "$busy"; }

# repeated NAME: the experiment once more, its results in a directory of that name.
repeated() {
	/usr/bin/python3 -m fabtune run "$BATS_TEST_TMPDIR/repeat.toml" --out "$BATS_TEST_TMPDIR/$1" > "$BATS_TEST_TMPDIR/$1.table"
}

@test "the same seed gives the same bytes of summary.json, with the cores busy elsewhere" {
	out=$BATS_TEST_TMPDIR
	# In the short run two guests keep each other from the cores.
	if [ "${LENGTH:-short}" = full ]; then
		repeated first
		nice -n 5 sh -c 'while :; do :; done' 3>&- &
		busy=$!
		repeated second
	else
		repeated first 3>&- &
		repeated second
		wait $!
	fi
	cmp "$out/first/summary.json" "$out/second/summary.json"
	[ "$(grep -c mb_per_s "$out/first/summary.json")" -ge 2 ]
	# The page of a real run says what limited it before it shows a figure.
	tr -d '\n' < "$out/first/figures.html" | sed 's/<svg.*//' |
		grep -q "Why was it slow?</dt><dd>[^<]*Reads of sda are limited to "
	[ "${LENGTH:-short}" = full ] || return 0
	# Not because it is constant: another seed loses other packets.
	sed 's/\[fixed\]/[fixed]\nseed = 2/' "$out/repeat.toml" > "$out/other.toml"
	/usr/bin/python3 -m fabtune run "$out/other.toml" --out "$out/third" > "$out/table"
	run ! cmp "$out/first/profile=wan/run-1/points.json" "$out/third/profile=wan/run-1/points.json"
}
