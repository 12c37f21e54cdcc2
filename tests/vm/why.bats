#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite trixie --clock virtual
# `fabtune why` on real sessions over an emulated path of 50 Mb/s and 100 ms, each held back by something that was put there.

bats_require_minimum_version 1.5.0

path="--rtt 100ms --rate 50mbit"

setup_file() {
	modprobe sch_fq || true
	python3 -m fabtune.lab.guest up $path --keeps-data
	# The other end by ssh, over the emulated path.
	mkdir -p /run/sshd /root/.ssh
	ssh-keygen -A >/dev/null
	ssh-keygen -q -t ed25519 -N "" -f /root/.ssh/id_ed25519
	cat /root/.ssh/id_ed25519.pub >> /root/.ssh/authorized_keys
	# As `ip netns exec` would, but with the host's own sysfs, where the target's configuration is.
	nsenter --net=/run/netns/target /usr/sbin/sshd -o UsePAM=no -o PermitRootLogin=yes
	ssh-keyscan -t ed25519 10.2.0.1 > /root/.ssh/known_hosts 2>/dev/null
}

setup() {
	load common
	load until
	DISK=$(ls /sys/class/iscsi_session/session*/device/target*/*/block 2>/dev/null) || true
}

teardown() {
	rest
	! mountpoint -q /mnt || umount /mnt
}

login() {
	DISK=$(python3 -m fabtune.lab.guest login)
}

logout() {
	python3 -m fabtune.lab.guest logout
}

# under_load KIND SIZE DEPTH [SECTORS]: returns when slow start is over, as 12 MB or so much has passed.
under_load() {
	fio --name=x --filename="/dev/$DISK" --direct=1 --ioengine=libaio --rw="$1" --bs="$2" --iodepth="$3" --size=900m \
		--time_based --runtime=3600 >/dev/null 2>&1 3>&- 4>&- &
	LOAD=$!
	local begun
	begun=$(moved)
	until_true "[ \$((\$(moved) - $begun)) -gt ${4:-24000} ]"
}

moved() {
	awk '{ print $3 + $7 }' "/sys/block/$DISK/stat"
}

rest() {
	[ -z "${LOAD:-}" ] || { kill "$LOAD" && wait "$LOAD"; } 2>/dev/null || true
	LOAD=""
}

# says BOTH ONE [MORE]: from both ends the first limiter is BOTH, from the initiator alone ONE (or one that may be it).
says() {
	fabtune why --for 3s --target-netns target --json "${@:3}" > why.json || [ $? -eq 5 ]
	python3 - "$1" "$2" <<-'PYTHON'
		import json, sys
		import attrs
		from fabtune.model import typed
		from fabtune.model.observation import Observation
		from fabtune.why.judging import judged
		(device,) = json.load(open("why.json"))["devices"]
		seen = typed.STRICT.read(Observation, device["observation"], "why.json")
		both, one = (judged(end)[0] for end in (seen, attrs.evolve(seen, target=None)))
		for judgement in (both, one):
		    print([(share.limiter, round(share.share, 3), share.among) for share in judgement.shares])
		    assert abs(sum(share.share for share in judgement.shares) - 1) < 1e-6
		print(json.dumps(device["ways"], indent=1), [row["tunable"] for row in device["plan"]])
		assert both.both_ends and not one.both_ends
		assert both.first.limiter == sys.argv[1], "both ends"
		assert sys.argv[2] in (one.first.limiter, *one.first.among), "one end"
	PYTHON
}

planned() {
	python3 -c "import json; print(*sorted(row['tunable'] for row in json.load(open('why.json'))['devices'][0]['plan']))"
}

@test "without a session, with a disk of another kind, with a disk that is idle, it says so" {
	run -2 fabtune why
	[[ $output == *"no iSCSI session is logged in"* ]]
	login
	run -2 fabtune why nosuch
	[[ $output == *"no such block device"*"$DISK"* ]]
	modprobe loop max_loop=1 || true
	run -2 fabtune why loop0
	[[ $output == *"not a disk of an iSCSI session"*"$DISK"* ]] || [[ $output == *"no such block device"* ]]
	run -2 fabtune why --target-netns nosuch
	run -2 fabtune why --target-netns shaper
	[[ $output == *"no other end of these sessions"* ]]
	run -5 fabtune why --for 1s
	[[ $output == *"$DISK: idle"* ]]
	run -1 fabtune why --for 1s --target-host 10.2.0.77
	[[ $output == *"the target's end: 10.2.0.77"* ]]
}

@test "locked: reads are held by the initiator's locked window, and the plan lifts that alone" {
	logout
	iscsiadm -m node -o update -n node.conn[0].tcp.window_size -v 131072
	login
	under_load randread 256k 32
	says receive-window receive-window --rate 50mbit
	[[ $(planned) == *iscsi.tcp_window* ]]
	[[ $(planned) != *max_burst* ]]
	run -0 --separate-stderr fabtune plan --from why --role initiator $path --json
	echo "$output" > plan.json
	[[ $stderr == *"by the initiator's locked receive window"* ]]
	[ "$(python3 -c "import json; print(*{row['tunable'].split('_')[0] for row in json.load(open('plan.json'))['rows']} - {'tcp.rmem', 'iscsi.tcp', 'net.rmem', 'tcp.window'})")" = "" ]
}

@test "locked: a run's record says it, and so does its report" {
	[ -e "/dev/$DISK" ]
	run -0 --separate-stderr fabtune measure xdd --on "/dev/$DISK" --set op=read --set block_bytes=256KiB --set queue_depth=32 \
		--runtime 15s --ramp 2s --rtt 100ms --rate 50mbit --out runs
	echo "$output"
	[[ $output == *"by the initiator's locked receive window"* ]]
	run -0 fabtune report runs
	grep -q "What limits?.*by the initiator's locked receive window" <(tr -d '\n' < runs/report.html | sed "s/&#39;/'/g")
}

@test "locked: a run that makes its file first is looked at when it is measured" {
	mkfs.ext4 -q -F -O ^has_journal -N 16 -E nodiscard,lazy_itable_init=0 "/dev/$DISK"
	mount "/dev/$DISK" /mnt
	# 8 MiB through this window take longer than ramp and measured part together.
	run -0 --separate-stderr fabtune measure xdd --on /mnt --set op=read --set block_bytes=256KiB --set queue_depth=32 \
		--set total_bytes=8MiB --runtime 3s --ramp 1s --rtt 100ms --rate 50mbit --out made
	umount /mnt
	[[ $output == *"by the initiator's locked receive window"* ]]
}

@test "locked: the same from the target's host by ssh" {
	under_load randread 256k 32
	run -0 fabtune why --for 3s --target-host 10.2.0.1
	echo "$output"
	[[ $output == *"by the initiator's locked receive window"* ]]
	[[ $output == *"seen from both ends"* ]]
	[[ $output == *"target: rwnd_limited"* ]]
	[[ $output == *"iscsi.tcp_window"* ]]
}

@test "locked: writes are held by the initiator's locked send buffer" {
	under_load randwrite 256k 32
	says send-buffer send-buffer
	grep -q "initiator's locked send buffer" why.json
}

@test "wan: reads fill the line, whose rate it knows from apply, and nothing is advised" {
	logout
	fabtune apply wan --role target --netns target $path --yes >/dev/null
	fabtune apply wan --role initiator $path --yes >/dev/null
	login
	under_load randread 256k 32
	until_true "carries 5600000"
	says line line
	[ -z "$(planned)" ]
	grep -q "fill the line" why.json
}

@test "wan: one request at a time is the load's own doing" {
	under_load randread 128k 1
	says load load
	[ -z "$(planned)" ]
}

@test "wan: a limit to the rate on the target itself" {
	tc -n target qdisc change dev t0 root handle fab: fq maxrate 10mbit
	under_load randread 256k 32
	says pacing pacing
	rest
	tc -n target qdisc change dev t0 root handle fab: fq maxrate 50mbit
}

@test "wan: packets lost on the path" {
	python3 -m fabtune.lab.guest path $path --loss 1%
	# With 1 % lost in 100 ms it is megabytes a minute, and lost packets end slow start.
	under_load randread 256k 32 2000
	says loss loss
}

@test "wan: the target's own send buffer" {
	python3 -m fabtune.lab.guest path $path
	logout
	ip netns exec target sysctl -qw net.ipv4.tcp_wmem="4096 131072 262144"
	login
	under_load randread 256k 32
	says send-buffer send-buffer
	grep -q "the target's send buffer" why.json
}

@test "a path that is cut: requests wait and nothing is acknowledged, and it says so from either end" {
	under_load randread 256k 8
	python3 -c 'from fabtune.lab import topology; topology.cut(0)'
	says blocked-session blocked-session
	python3 -c 'from fabtune.lab import topology; topology.mend(0)'
	until_true "[ \$(cat /sys/class/iscsi_session/session*/state) = LOGGED_IN ]"
}
