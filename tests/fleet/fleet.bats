#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# A fleet for real: three guests as hosts (a target, two initiators), reached by ssh over loopback, driven by Ansible.
bats_require_minimum_version 1.5.0

setup_file() {
	cd "$BATS_TEST_DIRNAME/../.."
	export PYTHONPATH=userspace FLEET=$BATS_FILE_TMPDIR
	ssh-keygen -q -t ed25519 -N '' -f "$FLEET/key"
	ports=$(/usr/bin/python3 -c '
import socket
sockets = [socket.socket() for _ in range(5)]
for one in sockets: one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))')
	read -r ssh0 ssh1 ssh2 wire1 wire2 <<< "$ports"
	boot target 0 "$ssh0" "listen=127.0.0.1:$wire1" "listen=127.0.0.1:$wire2"
	# The wires are there once the target's QEMU listens.
	until ss -ltn | grep -q "127.0.0.1:$wire2 "; do sleep 0.2; done
	boot initiator 1 "$ssh1" "connect=127.0.0.1:$wire1"
	boot initiator 2 "$ssh2" "connect=127.0.0.1:$wire2"
	echo "$ssh2" > "$FLEET/two.port"
	cat > "$FLEET/inventory.ini" <<-EOF
		[targets]
		target ansible_port=$ssh0
		[initiators]
		one ansible_port=$ssh1
		two ansible_port=$ssh2
		[initiators:vars]
		fabtune_device=/dev/fleet-disk
		[all:vars]
		lead_s=60
		ansible_host=127.0.0.1
		ansible_user=root
		ansible_ssh_private_key_file=$FLEET/key
		ansible_ssh_common_args=-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR
		ansible_python_interpreter=/usr/bin/python3
	EOF
	cat > "$FLEET/fleet.toml" <<-EOF
		summary = "two initiators on one target"
		seeds = 1
		[factors]
		profile = ["wan"]
		[fixed]
		rtt = "1ms"
		rate = "1gbit"
		op = "read"
		ramp = "1s"
		runtime = "4s"
	EOF
	for name in target0 initiator1 initiator2; do wait_for $name "ready: $name"; done
}

# boot ROLE NUMBER SSH-PORT WIRE...: a guest in the background, its output in $FLEET/NAME.log
boot() {
	local name=$1$2 devices wire count=1
	devices=("--device=-netdev user,id=n0,restrict=on,hostfwd=tcp:127.0.0.1:$3-:22" "--device=-device virtio-net-pci,netdev=n0")
	for wire in "${@:4}"; do
		devices+=("--device=-netdev socket,id=n$count,$wire"
			"--device=-device virtio-net-pci,netdev=n$count,mac=52:54:00:03:0$2:0$count")
		count=$((count + 1))
	done
	/usr/bin/python3 -m fabtune lab run --clock real --smp 1 --memory-mib 1024 --timeout-s 1500 --out "$FLEET/$name" \
		"${devices[@]}" tests/fleet/host "$1" "$2" "$(cat "$FLEET/key.pub")" > "$FLEET/$name.log" 2>&1 3>&- &
	echo $! > "$FLEET/$name.pid"
}

wait_for() {
	local deadline=$((SECONDS + 400))
	until grep -q "$2" "$FLEET/$1.log"; do
		kill -0 "$(cat "$FLEET/$1.pid")" || { cat "$FLEET/$1.log" >&2; return 1; }
		[ $SECONDS -lt $deadline ] || { tail "$FLEET/$1.log" >&2; return 1; }
		sleep 1
	done
}

teardown_file() {
	for pid in "$FLEET"/*.pid; do kill "$(cat "$pid")" 2> /dev/null || true; done
	wait
}

setup() { cd "$BATS_TEST_DIRNAME/../.."; }

# Hosts answer in any order.
on() { set -o pipefail; ANSIBLE_COLLECTIONS_PATH=userspace/ansible ansible -i "$FLEET/inventory.ini" "$@" | sort; }
play() { ANSIBLE_COLLECTIONS_PATH=userspace/ansible ansible-playbook -i "$FLEET/inventory.ini" "$@"; }
fleet() { /usr/bin/python3 -m fabtune run "$FLEET/fleet.toml" --fleet "$FLEET/inventory.ini" --allow-relogin "$@"; }
changed() { grep -c 'changed=[1-9]' <<< "$output" || true; }

@test "check mode changes nothing, apply changes, a second apply is a no-op, verify holds, revert takes all back" {
	before=$(on initiators -m command -a 'sysctl net.ipv4.tcp_rmem net.core.default_qdisc')
	run -0 play fabtune.fleet.apply -e profile=wan -e rtt=50ms -e rate=1gbit --check
	[ "$(changed)" = 3 ]
	[ "$(on initiators -m command -a 'sysctl net.ipv4.tcp_rmem net.core.default_qdisc')" = "$before" ]
	# Without leave to log in again, what needs a login comes back as data.
	run -0 play fabtune.fleet.apply -e profile=wan -e rtt=50ms -e rate=1gbit
	[[ $output == *needs_relogin* ]]
	run -0 play fabtune.fleet.apply -e profile=wan -e rtt=50ms -e rate=1gbit -e allow_relogin=true
	[ "$(on initiators -m command -a 'sysctl net.ipv4.tcp_rmem net.core.default_qdisc')" != "$before" ]
	run -0 play fabtune.fleet.apply -e profile=wan -e rtt=50ms -e rate=1gbit -e allow_relogin=true
	[ "$(changed)" = 0 ]
	run -0 play fabtune.fleet.verify
	ours=$(on one -m command -a 'sysctl -n net.ipv4.tcp_rmem' | grep '^[0-9]')
	on one -m command -a 'sysctl -w net.ipv4.tcp_rmem="4096 131072 7000000"'
	run -2 play fabtune.fleet.verify
	[[ $output == *tcp.rmem_max* ]]
	on one -m command -a "sysctl -w net.ipv4.tcp_rmem='$ours'"
	run -0 play fabtune.fleet.revert -e allow_relogin=true
	[ "$(on initiators -m command -a 'sysctl net.ipv4.tcp_rmem net.core.default_qdisc')" = "$before" ]
}

@test "all initiators begin within 50 ms of one instant; records, tree and report are fetched; the profile is taken back" {
	before=$(on all -m command -a 'sysctl net.ipv4.tcp_rmem')
	run -0 fleet --out "$FLEET/out"
	echo "$output"
	for host in one two; do
		[ -s "$FLEET/out/profile=wan/run-1/$host/read.run.json.gz" ]
	done
	/usr/bin/python3 - "$FLEET/out/summary.json" <<-'EOF'
		import json, sys
		points = json.load(open(sys.argv[1]))
		assert [one["host"] for one in points] == ["one", "two", "all"], points
		for one in points[:2]:
		    assert one["mb_per_s"] > 0, one
		    assert abs(one["begun_late_ms"]) + one["clock_uncertainty_ms"] <= 50, one
	EOF
	[ -s "$FLEET/out/report.html" ] && [ -s "$FLEET/out/profile=wan/run-1/index.html" ]
	[ "$(on all -m command -a 'sysctl net.ipv4.tcp_rmem')" = "$before" ]
}

@test "a host whose clock is 2 s off is refused before anything is loaded" {
	on two -m shell -a 'pkill chronyd; sleep 1; sed -i "s/makestep.*/maxslewrate 1/" /run/chrony.conf; date -s "@$(($(date +%s) + 2))"; chronyd -f /run/chrony.conf -u root'
	on two -m shell -a 'for i in $(seq 120); do chronyc -c tracking | grep -qv "Not sync" && exit; sleep 0.5; done; exit 1'
	run -1 fleet --out "$FLEET/skewed"
	[[ $output == *"two: Check the clock: the clock is +"* ]]
	[ -z "$(find "$FLEET/skewed" -name '*.run.json.gz')" ]
	on two -m shell -a 'chronyc makestep'
}

@test "a host that dies in mid-run is named, the others' records stay, exit 1" {
	sed -i 's/runtime = "4s"/runtime = "25s"/' "$FLEET/fleet.toml"
	fleet --out "$FLEET/dying" > "$FLEET/dying.log" 2>&1 3>&- &
	run=$!
	# The load has begun on the second initiator: take its power away.
	timeout 300 ssh -i "$FLEET/key" -p "$(cat "$FLEET/two.port")" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
		root@127.0.0.1 'until pgrep -x fio; do sleep 0.2; done'
	kill -KILL "$(cat "$FLEET/initiator2.pid")"
	status=0; wait $run || status=$?
	cat "$FLEET/dying.log"
	[ "$status" = 1 ]
	grep -q 'two: Measure: .*Failed to connect to the host' "$FLEET/dying.log"
	[ -s "$FLEET/dying/profile=wan/run-1/one/read.run.json.gz" ]
	[ ! -e "$FLEET/dying/profile=wan/run-1/two/read.run.json.gz" ]
	grep -q '"failed"' "$FLEET/dying/index.json"
}
