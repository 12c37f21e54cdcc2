#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock virtual
# What decides which packets the emulated path loses: the seed it was given, not what happened before.

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 2ms
	ping -c 3 10.2.0.1
	# Whatever else goes over the path takes a place in the pattern: neighbours are not asked for again, nor routers.
	for namespace in shaper wan target init; do
		enter=(ip netns exec $namespace)
		[ $namespace != init ] || enter=(env)
		"${enter[@]}" sysctl -qw net.ipv6.conf.all.disable_ipv6=1
		"${enter[@]}" ip -4 neigh show | while read -r address _ device _ mac _; do
			"${enter[@]}" ip neigh replace "$address" dev "$device" lladdr "$mac" nud permanent
		done
	done
}

# lost SEED: the packets that are lost of 400, counted from the beginning of the path's pattern.
lost() {
	python3 - "$1" <<-'EOF'
		import sys
		from fabtune.lab import topology
		topology.lose_anew(topology.EmulatedPath(rtt_ms=2, loss=0.05, seed=int(sys.argv[1])))
	EOF
	ping -c 400 -i 0.005 10.2.0.1 | sed -n 's/.*icmp_seq=\([0-9]*\) .*/\1/p' | sort > "$BATS_TEST_TMPDIR/came"
	seq 400 | sort | comm -13 "$BATS_TEST_TMPDIR/came" -
}

@test "the same seed loses the same packets, another seed others" {
	first=$(lost 7) again=$(lost 7) other=$(lost 8)
	echo "first: $first"
	echo "again: $again"
	echo "other: $other"
	[ "$(wc -l <<< "$first")" -ge 10 ]
	[ "$first" = "$again" ]
	[ "$first" != "$other" ]
	ip netns exec wan tc -d qdisc show dev w0 | grep -q 'seed 16'
}
