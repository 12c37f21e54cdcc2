#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# The collection on many local hosts, each a tree that the real fabtune tunes: canary batches, dead hosts, going on, checks.

setup_file() {
	cd "$BATS_TEST_DIRNAME/../.."
	export HOSTS=${HOSTS:-30} FLEET=$BATS_FILE_TMPDIR ANSIBLE_CONFIG=$PWD/userspace/ansible/ansible.cfg
	cat > "$FLEET/two.toml" <<-'END'
		summary = "a sysctl and a disk"
		[initiator."tcp.slow_start_after_idle"]
		value = false
		why = "a test"
		[initiator."block.rq_affinity"]
		value = 2
		why = "a test"
	END
}

setup() {
	cd "$BATS_TEST_DIRNAME/../.."
}

hosts() {
	/usr/bin/python3 tests/ops/fleet_hosts.py "$FLEET" "$HOSTS" "$@"
}

play() {
	local name=$1
	shift
	run ansible-playbook -i "$FLEET/inventory.ini" "fabtune.fleet.$name" -e "profile=$FLEET/two.toml" -e rtt=1ms -e rate=1gbit "$@"
}

# tuned: how many hosts have the profile's values.
tuned() {
	grep -lx 2 "$FLEET"/h*/sys/block/sd1/queue/rq_affinity | wc -l
}

@test "check mode with --diff says what would change on each host, and changes nothing" {
	hosts
	play apply --check --diff --limit h0000
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"-block.rq_affinity sd1: 1"*"+block.rq_affinity sd1: 2"* ]]
	[ "$(tuned)" -eq 0 ]
}

@test "a roll-out stops after the first bad batch, with everything there taken back and nothing after it touched" {
	# Batches of 1, of 5 % and of 25 %: the first two stay.
	first_two=$((1 + HOSTS / 20))
	host() { printf h%04d "$1"; }
	hosts --bad "$(host $((first_two + 1)))" --away "$(host $((first_two + 3)))"
	play rollout
	echo "$output" | grep -v skipping
	[ "$status" -ne 0 ]
	[[ "$output" == *"this host refuses"* ]]
	[ "$(tuned)" -eq $first_two ]
	[ -z "$(grep -L '"begin"' "$FLEET/$(host $((first_two + 2)))"/state/journal/*)" ]
	[ ! -e "$FLEET/$(host $((HOSTS - 1)))/state/journal" ]
}

@test "run again after mending it goes on: who has the profile is passed over, who is out of reach is named" {
	hosts --away h0005 h0007
	before=$(cat "$FLEET/h0000/state/journal/"* | wc -c)
	play rollout
	echo "$output" | grep -v skipping
	[ "$status" -eq 0 ]
	[[ "$output" == *"out of reach: h0005, h0007"* ]]
	[ "$(tuned)" -eq $((HOSTS - 2)) ]
	[ "$(cat "$FLEET/h0000/state/journal/"* | wc -c)" -eq "$before" ]
	hosts
	play rollout
	[ "$(tuned)" -eq "$HOSTS" ]
}

@test "verify names the hosts that are out of reach or have drifted, and does the others" {
	hosts
	# Where this test was asked for alone: every host has something to compare.
	grep -Lx 2 "$FLEET"/h*/sys/block/sd1/queue/rq_affinity | sed 's,/sys/.*,/fabtune,' |
		xargs -rP 2 -I{} env {} apply "$FLEET/two.toml" --yes --role initiator --rtt 1ms --rate 1gbit > /dev/null
	[ "$(tuned)" -eq "$HOSTS" ]
	hosts --away h0001 h0002 h0008
	echo 1 > "$FLEET/h0004/sys/block/sd1/queue/rq_affinity"
	run /usr/bin/python3 tests/ops/cpu.py "$FLEET/cpu" ansible-playbook -i "$FLEET/inventory.ini" fabtune.fleet.verify
	[ "$status" -ne 0 ]
	[ "$(grep 'unreachable=1' <<< "$output" | cut -d ' ' -f 1 | xargs)" = "h0001 h0002 h0008" ]
	[ "$(grep -c 'failed=1' <<< "$output")" -eq 1 ]
	[ "$(grep -c 'failed=0 ' <<< "$output")" -eq $((HOSTS - 1)) ]
	cpu=$(cat "$FLEET/cpu")
	echo "$HOSTS hosts: $cpu CPU s"
	[ -z "$OPS_OUT" ] || echo "{\"hosts\": $HOSTS, \"verify_cpu_s_per_host\": $(/usr/bin/python3 -c "print(round($cpu / $HOSTS, 3))")}" > "$OPS_OUT/figures-fleet.json"
}

@test "the info module answers where verify fails" {
	hosts
	run ansible -i "$FLEET/inventory.ini" h0004 -m fabtune.fleet.profile_info -a "executable=$FLEET/h0004/fabtune"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *'"tunable": "block.rq_affinity"'* ]]
	[[ "$output" == *two* ]]
}

@test "the collection builds, and installs from what was built" {
	cd userspace/ansible/ansible_collections/fabtune/fleet
	ansible-galaxy collection build --output-path "$FLEET" --force
	ansible-galaxy collection install --collections-path "$FLEET/installed" --force "$FLEET"/fabtune-fleet-*.tar.gz
	ANSIBLE_COLLECTIONS_PATH=$FLEET/installed ANSIBLE_CONFIG='' ansible-doc fabtune.fleet.profile_info | grep -q "in force"
}
