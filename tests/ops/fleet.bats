#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# The collection on many local hosts, each a tree that the real fabtune tunes: canary batches, dead hosts, going on, checks.

setup_file() {
	cd "$BATS_TEST_DIRNAME/../.."
	export HOSTS=${HOSTS:-30} FLEET=$BATS_FILE_TMPDIR ANSIBLE_CONFIG=$PWD/userspace/ansible/ansible.cfg
	export ANSIBLE_CONNECTION_PLUGINS=$PWD/tests/ops/connection
	profile 2
}

# profile VALUE: the profile that is rolled out.
profile() {
	cat > "$FLEET/two.toml" <<-END
		summary = "a sysctl and a disk"
		[initiator."tcp.slow_start_after_idle"]
		value = false
		why = "a test"
		[initiator."block.rq_affinity"]
		value = $1
		why = "a test"
	END
}

# few NAME: a fleet of its own with eight hosts.
few() {
	FLEET=$FLEET/$1 HOSTS=8
	mkdir "$FLEET"
	profile 2
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

# first NAME LINE: what that host's fabtune does first.
first() {
	awk -v line="$2" '/^exec/ {print line} {print}' "$FLEET/$1/fabtune" > "$FLEET/new"
	cat "$FLEET/new" > "$FLEET/$1/fabtune"
}

# host NUMBER: its name.
host() {
	printf h%04d "$1"
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
	# Batches of 1, of 5 % and of 25 % of those who answer: the first two stay.
	first_two=$((1 + (HOSTS - 1) / 20))
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
	away=("$(host $((HOSTS - 3)))" "$(host $((HOSTS - 2)))")
	hosts --away "${away[@]}"
	before=$(cat "$FLEET/h0000/state/journal/"* | wc -c)
	play rollout
	echo "$output" | grep -v skipping
	[ "$status" -eq 0 ]
	[[ "$output" == *"out of reach: ${away[0]}, ${away[1]}"* ]]
	[ "$(tuned)" -eq $((HOSTS - 2)) ]
	[ "$(cat "$FLEET/h0000/state/journal/"* | wc -c)" -eq "$before" ]
	hosts
	play rollout
	[ "$(tuned)" -eq "$HOSTS" ]
}

@test "a host that the profile cuts off is a bad one: its batch is taken back, it is named, and nothing after it is touched" {
	few cut
	hosts --cut h0002
	play rollout -e '{"batches": [1, 3, 4]}'
	echo "$output" | grep -v skipping
	[ "$status" -ne 0 ]
	[[ "$output" == *"h0002"*"lost while the profile was applied"* ]]
	# The canary keeps it, and the lost one may have it.
	[ "$(tuned)" -eq 2 ]
	grep -qx 2 "$FLEET"/h0000/sys/block/sd1/queue/rq_affinity
	[ ! -e "$FLEET/h0004/state/journal" ]
}

@test "a host that cuts itself off comes back by itself, with a limit to be confirmed" {
	few limit
	hosts --cut h0001
	play rollout -e '{"batches": [1, 1, 6]}' -e confirm_within=20s
	echo "$output" | grep -v skipping
	[ "$status" -ne 0 ]
	[ "$(tuned)" -le 2 ]
	[ "$("$FLEET/h0000/fabtune" history --json | jq -r '.[].state')" = "in force" ]
	timeout 300 sh -c "until grep -qx 1 '$FLEET/h0001/sys/block/sd1/queue/rq_affinity'; do sleep 0.5; done"
	[ "$(tuned)" -eq 1 ]
}

@test "a host that is lost only when it is to confirm makes its batch a bad one, and none is left with half" {
	few confirm
	hosts
	sed -i '/^h0001/s/=local/=mortal/' "$FLEET/inventory.ini"
	first h0001 '[ "$1" != confirm ] || { : > $FABTUNE_ROOT/cut; exit 0; }'
	play rollout -e '{"batches": [1, 2, 5]}' -e confirm_within=100s
	echo "$output" | grep -v skipping
	[ "$status" -ne 0 ]
	[[ "$output" == *"lost while it was to be confirmed"* ]]
	# Its own values go back at their time.
	! grep -qx 2 "$FLEET/h0002/sys/block/sd1/queue/rq_affinity" || false
	[ ! -e "$FLEET/h0003/state/journal" ]
}

@test "a host whose time to be confirmed is up before it is compared makes its batch a bad one" {
	few late
	hosts
	first h0001 '[ "$1" != apply ] || { /usr/bin/python3 -m fabtune "$@"; until grep -qx 1 $FABTUNE_ROOT/sys/block/sd1/queue/rq_affinity; do sleep 0.2; done; exit 0; }'
	play rollout -e '{"batches": [2, 6]}' -e confirm_within=10s
	echo "$output" | grep -v skipping
	[ "$status" -ne 0 ]
	[[ "$output" == *"taken back"* ]]
	[ "$(tuned)" -eq 0 ]
	[ ! -e "$FLEET/h0002/state/journal" ]
}

@test "what one host cannot give back keeps the last word from no other" {
	few foreign
	hosts --cut h0002
	first h0001 '[ "$1" != verify ] || echo 0 > $FABTUNE_ROOT/sys/block/sd1/queue/rq_affinity'
	play rollout -e '{"batches": [3, 5]}'
	echo "$output" | grep -v skipping
	[ "$status" -ne 0 ]
	[[ "$output" == *"not all was taken back: somebody else changed values"* ]]
	[[ "$output" == *"lost while the profile was applied"* ]]
	[ "$(grep -c 'failed=1' <<< "$output")" -eq 3 ]
}

@test "a roll-out that reaches nobody fails" {
	few nobody
	hosts --away h000{0..7}
	play rollout
	echo "$output"
	[ "$status" -eq 2 ]
	[[ "$output" == *"no host answers"* ]]
}

@test "confirming twice is no failure, but what went back cannot be confirmed" {
	few twice
	hosts
	state() {
		run ansible -i "$FLEET/inventory.ini" h0000 -m fabtune.fleet.profile -a "executable=$FLEET/h0000/fabtune $*"
		echo "$output"
	}
	state "name=$FLEET/two.toml role=initiator rtt=1ms rate=1gbit confirm_within=300s"
	transaction=$("$FLEET/h0000/fabtune" history --json | jq -r '.[0].transaction')
	state "state=confirmed transaction=$transaction"
	[[ "$output" == *CHANGED* ]]
	for how in "state=confirmed transaction=$transaction" state=confirmed; do
		state "$how"
		[ "$status" -eq 0 ]
		[[ "$output" == *SUCCESS* ]]
	done
	state "state=reverted"
	state "state=confirmed transaction=$transaction"
	[ "$status" -ne 0 ]
	[[ "$output" == *"taken back"* ]]
}

@test "the canary is the first host that answers, not the first of the list" {
	few canary
	hosts --away h0000 --bad h0001
	play rollout -e '{"batches": [1, 7]}'
	echo "$output" | grep -v skipping
	[ "$status" -ne 0 ]
	[[ "$output" == *"out of reach: h0000; passed over"* ]]
	[ "$(tuned)" -eq 0 ]
	[ ! -e "$FLEET/h0002/state/journal" ]
}

@test "a profile that was edited is rolled out again, whatever its name says" {
	few edited
	hosts
	play rollout -e '{"batches": [1, 7]}'
	[ "$(tuned)" -eq 8 ]
	profile 0
	play rollout -e '{"batches": [1, 7]}'
	echo "$output" | grep -v skipping
	[ "$status" -eq 0 ]
	[ "$(tuned)" -eq 0 ]
}

@test "a session that waits for its login fails no roll-out, nor does one for another path find it done" {
	few login
	hosts
	run ansible-playbook -i "$FLEET/inventory.ini" fabtune.fleet.rollout -e profile=wan -e rtt=50ms -e rate=1gbit
	echo "$output" | grep -v skipping
	[ "$status" -eq 0 ]
	run "$FLEET/h0007/fabtune" verify
	echo "$output"
	[ "$status" -eq 4 ]
	# Of the same name, for another path: it is not passed over.
	ansible-playbook -i "$FLEET/inventory.ini" fabtune.fleet.rollout -e profile=wan -e rtt=100ms -e rate=1gbit
	run "$FLEET/h0007/fabtune" plan wan --role initiator --rtt 100ms --rate 1gbit --exit-code
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "a hung host holds up neither verify nor a roll-out for longer than it is told" {
	few hung
	hosts
	play rollout
	hosts --hung h0003
	echo 1 > "$FLEET/h0004/sys/block/sd1/queue/rq_affinity"
	run timeout 300 ansible-playbook -i "$FLEET/inventory.ini" fabtune.fleet.verify -e timeout_s=10
	echo "$output"
	[ "$status" -eq 2 ]
	[ "$(grep 'failed=1' <<< "$output" | cut -d ' ' -f 1 | xargs)" = "h0003 h0004" ]
	# Nothing of it stays behind on the host.
	! pgrep -f "$FLEET/h0003/fabtune" || false
	play rollout -e timeout_s=10 -e '{"batches": [1, 7]}'
	echo "$output" | grep -v skipping
	[ "$status" -eq 2 ]
	[ "$(grep -lx 1 "$FLEET"/h*/sys/block/sd1/queue/rq_affinity)" = "$FLEET/h0004/sys/block/sd1/queue/rq_affinity" ]
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
