#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# guest-full: --suite sid --clock virtual
# guest-sanitizers: --suite trixie --clock real --smp 2
# What a LIO host has served, by initiator and LUN, beside what its initiator saw: both ends are in this guest.

bats_require_minimum_version 1.5.0

CONFIG=/sys/kernel/config/target
RTT_MS=10
TPG=$CONFIG/iscsi/iqn.2026-01.lab.fabtune:target/tpgt_1

setup() {
	load fabstat
}

# served EXPRESSION: what fabstat's file "target" says.  Names: module, luns, all their ops, read and write summed up,
# books, forgotten, unmatched and at_target of all.
served() {
	python3 - "$@" <<-'PYTHON'
		import sys
		from fabtune.stat import ServedOp, served_since_seen, target_snapshot
		snap = target_snapshot()
		module, luns = snap.module, snap.luns
		ops = [op for lun in luns for op in lun.ops.values()]
		books = all(sum(op.started - op.completed - op.forgotten for op in lun.ops.values()) == lun.at_target for lun in luns)
		books = books and all(op.histogram.count == op.completed for op in ops)
		def summed(name):
		    found = [lun.ops[name] for lun in luns if name in lun.ops]
		    return ServedOp(*(sum(getattr(op, key) for op in found) for key in ("started", "completed", "forgotten", "bytes", "target_ns")))
		read, write, other = summed("read"), summed("write"), summed("other")
		forgotten = sum(op.forgotten for op in ops)
		unmatched, at_target = sum(lun.unmatched for lun in luns), sum(lun.at_target for lun in luns)
		print(eval(sys.argv[1]))
	PYTHON
}

# expect_served EXPRESSION: fails, and shows the file, unless the expression is true.
expect_served() {
	local found
	found=$(served "$1")
	[ "$found" = True ] && return
	echo "'$1' is $found"
	cut -c -400 /sys/kernel/debug/fabstat/target
	return 1
}

# long: skips the test in the short run.
long() {
	[ "${LENGTH:-short}" = full ] || skip "in the full run"
}

no_lio() {
	[ ! -d /sys/module/target_core_mod ]
}

# disk: the name of the one session's disk.
disk() {
	basename /sys/class/iscsi_session/session*/device/target*/*/block/*
}

# stall, go_on: the target's disk takes requests and answers none, until it goes on.
stall() {
	dmsetup suspend --nolockfs --noflush lab-disk0
}

go_on() {
	dmsetup resume lab-disk0
}

# reads COUNT: so many reads at once, in the background.
reads() {
	fio --name=a "--filename=/dev/$(disk)" --direct=1 --rw=randread --bs=4k "--iodepth=$1" "--number_ios=$1" --size=64m \
		--ioengine=libaio --output=/tmp/fio.log 3>&- 4>&- &
}

# remove_target: takes the lab's target and LIO itself away, as targetcli clearconfig and rmmod would.
remove_target() {
	local module
	echo 0 > $TPG/enable
	find $TPG/lun/lun_0 -maxdepth 1 -type l -delete
	rmdir $TPG/lun/lun_0 $TPG/np/* $TPG ${TPG%/*} $CONFIG/iscsi
	rmdir $CONFIG/core/iblock_0/disk0 $CONFIG/core/iblock_0
	for module in iscsi_target_mod target_core_iblock target_core_file target_core_pscsi target_core_user target_core_mod; do
		[ ! -d /sys/module/$module ] || rmmod $module
	done
}

@test "without LIO the module loads, says so, and holds no memory for a target; what came before is told apart" {
	no_lio
	load_fabstat target=Y
	expect_served 'module["target"] == "0" and not luns'
	[[ "$(fabtune stat)" != *target_cmd_complete* ]]
	run -0 fabtune stat --target
	[[ "$output" == *"target_core_mod) is not loaded"*"no commands seen"* ]]
	# LIO comes, and is seen from its first command on.
	python3 -m fabtune.lab.guest up --rtt ${RTT_MS}ms --tail-delay-ms 1
	expect_served 'module["target"] == "1" and not luns'
	disk=$(python3 -m fabtune.lab.guest login)
	expect_served 'len(luns) == 1 and luns[0].ops["other"].completed > 3 and luns[0].unmatched == 0 and books'
	run -2 fabtune stat --target "$disk"
	[[ "$output" == *"sessions of initiators, not disks"* ]]
	# Nothing is counted while it is not wanted, which is what the module begins with.
	echo N > $PARAMETERS/target
	before=$(served other.started,read.started)
	dd if=/dev/$disk of=/dev/null bs=4k count=10 iflag=direct status=none
	[ "$(served other.started,read.started)" = "$before" ]
	expect_served 'module["wanted"] == "0" and module["target"] == "0" and module["enabled"] == "1" and books'
	run -0 fabtune stat --target
	[[ "$output" == *"not being counted: echo Y > $PARAMETERS/target"* ]]
	echo Y > $PARAMETERS/target
	dd if=/dev/$disk of=/dev/null bs=4k count=10 iflag=direct status=none
	expect_served 'module["target"] == "1" and read.completed >= 10 and luns[0].unmatched == 0 and books'
}

@test "by initiator and LUN: what was started was answered; a command's time at the target and the path make the disk's time" {
	disk=$(disk)
	fabtune stat --save /tmp/disk.before
	fabtune stat --target --save /tmp/target.before
	load_disk "$disk" --rw=randread --bs=4k --iodepth=4 --number_ios=200 --size=64m
	load_disk "$disk" --rw=randwrite --bs=4k --iodepth=4 --number_ios=100 --size=64m
	fabtune stat --save /tmp/disk.after
	fabtune stat --target --save /tmp/target.after
	expect_served 'books and luns[0].at_target == 0 and luns[0].untracked == 0 and module["crowded"] == "0"'
	expect_served 'luns[0].initiator.endswith(":initiator") and luns[0].target.endswith(":target") and luns[0].lun == 0'
	expect_served 'luns[0].tpg == "tpgt_1" and luns[0].fabric == "iSCSI" and len(luns[0].isid) == 8'
	fabtune stat --diff /tmp/disk.before /tmp/disk.after --json > /tmp/disk.json
	fabtune stat --target --diff /tmp/target.before /tmp/target.after --json > /tmp/target.json
	python3 - "$disk" "$RTT_MS" "$(at_most 0.05)" <<-'PYTHON'
		import json, sys
		disk = next(one for one in json.load(open("/tmp/disk.json"))["devices"] if one["disk"] == sys.argv[1])
		(lun,) = json.load(open("/tmp/target.json"))["luns"]
		rtt_ms = float(sys.argv[2])
		for name, count in (("read", 200), ("write", 100)):
		    ours, theirs = disk["ops"][name], lun["ops"][name]
		    print(name, theirs["target_ms"], ours["device_ms"]["mean"])
		    assert theirs["started"] == theirs["completed"] == ours["completed"] >= count, (ours, theirs)
		    assert theirs["bytes"] == ours["bytes"], (ours["bytes"], theirs["bytes"])
		    assert theirs["forgotten"] == 0
		    # Nobody has asked for the parts.
		    assert theirs["backstore_ms"] is None and theirs["r2t_wait_ms"] is None
		    # Writes of 4 KiB carry their data along: no R2T.
		    path_ms = ours["device_ms"]["mean"] - theirs["target_ms"]["mean"]
		    assert 0 < theirs["target_ms"]["mean"] < ours["device_ms"]["mean"]
		    assert -0.05 < path_ms / rtt_ms - 1 < float(sys.argv[3]), (name, path_ms)
		    assert theirs["target_ms"]["p50"] <= theirs["target_ms"]["p99"] <= theirs["target_ms"]["max"]
	PYTHON
}

@test "on demand the parts: what a write waited for its data, what the backstore took; and the window of its session" {
	disk=$(disk)
	echo Y > $PARAMETERS/target_parts
	expect_served 'module["parts"] == "1"'
	# Some of 256 KiB wait for R2Ts; reads of the disk's last MiB, which is slower, do not.
	fabtune stat --target --save /tmp/target.before
	load_disk "$disk" --rw=randwrite --bs=256k --iodepth=1 --number_ios=20 --size=64m
	load_disk "$disk" --rw=randread --bs=4k --iodepth=1 --number_ios=50 --offset=1023m --size=1m
	fabtune stat --target --save /tmp/target.after
	fabtune stat --target --diff /tmp/target.before /tmp/target.after
	fabtune stat --target --diff /tmp/target.before /tmp/target.after --json > /tmp/target.json
	expect_served 'books and all(lun.ops[name].ready == lun.ops[name].done for lun in luns for name in ("read", "write"))'
	python3 - "$RTT_MS" "$(cat $TPG/attrib/default_cmdsn_depth)" "$(at_most 0.2)" <<-'PYTHON'
		import json, sys
		rtt_ms, depth, most_ms = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
		(lun,) = [one for one in json.load(open("/tmp/target.json"))["luns"] if "write" in one["ops"]]
		read, write = lun["ops"]["read"], lun["ops"]["write"]
		print(read, write, lun["window_granted"], lun["window_used"])
		assert read["r2t_wait_ms"] is None and 1 <= read["backstore_ms"]
		# The disk splits them; some of the parts are short enough to come along with their command.
		assert 0.5 * rtt_ms <= write["r2t_wait_ms"] < 5 * max(rtt_ms, most_ms)
		assert 0 < write["backstore_ms"] < 5 * most_ms
		for op in (read, write):
		    rest_ms = op["target_ms"]["mean"] - op["backstore_ms"] - (op["r2t_wait_ms"] or 0)
		    assert 0 <= rest_ms < most_ms, op
		assert (lun["window_granted"], lun["window_used"]) == (depth, 0)
	PYTHON
	# A window that commands fill is seen to be used.
	stall
	reads 8
	wait_for at_the_target 8
	fabtune stat --target --json > /tmp/target.json
	python3 -c 'import json; assert [one["window_used"] for one in json.load(open("/tmp/target.json"))["luns"]] == [8]'
	go_on
	wait
	echo N > $PARAMETERS/target_parts
	expect_served 'module["parts"] == "0" and books'
	before=$(served 'sum(op.done for op in ops)')
	dd if=/dev/$disk of=/dev/null bs=4k count=10 iflag=direct status=none
	[ "$(served 'sum(op.done for op in ops)')" -eq "$before" ]
}

@test "request by request, reads and writes: the target's time and the round trip are the disk's time, within 2 and 5 %" {
	long
	exact
	# Half of what is drawn from is the disk's last MiB, which is slower.
	run python3 /fabtune/tests/vm/parts_of_time.py "$(disk)" $RTT_MS 1022
	printf '# %s\n' "${lines[@]}" >&3
	[ "$status" -eq 0 ]
}

@test "why: a read's time at the target, as counted there, is a part of its time, apart from the target's disk" {
	disk=$(disk)
	# The disk's last MiB is slower than the rest.
	fio --name=a "--filename=/dev/$disk" --direct=1 --rw=randread --bs=4k --iodepth=4 --offset=1023m --size=1m --time_based \
		--runtime=600 --ioengine=libaio --output=/dev/null 3>&- 4>&- &
	io=$!
	before=$(served read.completed)
	wait_for more_than $((before + 50))
	fabtune why "$disk" --for 2s --target-netns target --json > /tmp/why.json || [ $? -eq 5 ]
	kill -INT $io
	wait $io || true
	python3 - "$(at_most 1)" <<-'PYTHON'
		import json, os, sys
		# Times of parts add up on the virtual clock; by the real one the two ends' looks begin and end apart.
		loose = float(sys.argv[1])
		(device,) = json.load(open("/tmp/why.json"))["devices"]
		seen, (way,) = device["observation"], device["ways"]
		(served,) = seen["target"]["served"]
		parts = way["request_ms"]
		ours = seen["disk"]["ways"]["read"]
		print(served, parts, ours, seen["target"]["backstores"])
		# Those under way at either end of the look are in one count and not in the other.
		assert abs(served["completed"]["read"] - ours["completed"]) <= 8 * loose
		# The block layer counts a disk's time in ticks of the clock.
		assert 1 <= parts["backstore"] <= 1.2 * served["mean_ms"]["read"] < ours["device_ms"] * loose
		assert abs(parts["target"] + parts["backstore"] - served["mean_ms"]["read"]) < 0.02 * ours["device_ms"] * loose
		# Each part is rounded to a us.
		assert abs(sum(parts.values()) - (ours["block_ms"] or ours["total_ms"])) < 5e-4 * len(parts)
		assert parts["rest"] < 0.1 * ours["device_ms"] * loose
		missing = [one for one in seen["missing"] if "own iSCSI queue" in one]
		# It is traced function by function, which the small debug kernels cannot; that is said.
		traces = os.path.exists("/sys/kernel/tracing/available_filter_functions")
		assert bool(missing) != traces, seen["missing"]
		if not traces:
		    sys.exit()
		# It takes its types from the running kernel: it must load on each of them.
		queues = [seen[end]["queue"]["read"] for end in ("initiator", "target")]
		assert all(0 < one["sent_ms"] <= one["queued_ms"] < 0.1 * ours["device_ms"] * loose for one in queues), queues
		assert abs(parts["queue"] - sum(one["queued_ms"] for one in queues)) <= 1e-3, (parts, queues)
	PYTHON
}

@test "a write that waits for R2T waits at the target: one round trip longer there, and so at the disk" {
	long
	python3 -m fabtune.lab.guest logout
	iscsiadm -m node -o update -n node.session.iscsi.ImmediateData -v No
	iscsiadm -m node -o update -n node.session.iscsi.InitialR2T -v Yes
	disk=$(python3 -m fabtune.lab.guest login)
	fabtune stat --target --save /tmp/target.before
	load_disk "$disk" --rw=randwrite --bs=4k --iodepth=1 --number_ios=100 --size=64m
	fabtune stat --target --save /tmp/target.after
	fabtune stat --target --diff /tmp/target.before /tmp/target.after --json | python3 -c '
import json, sys
(write,) = [ops["write"] for ops in (lun["ops"] for lun in json.load(sys.stdin)["luns"]) if ops.get("write", {}).get("completed")]
assert write["completed"] == 100, write
assert 0.99 <= write["target_ms"]["mean"] / float(sys.argv[1]) < float(sys.argv[2]), write["target_ms"]' \
		$RTT_MS "$(at_most 1.1)"
	python3 -m fabtune.lab.guest logout
	iscsiadm -m node -o update -n node.session.iscsi.ImmediateData -v Yes
	iscsiadm -m node -o update -n node.session.iscsi.InitialR2T -v No
	python3 -m fabtune.lab.guest login
	expect_served 'books and len({(lun.initiator, lun.isid, lun.lun) for lun in luns}) == len(luns)'
}

@test "each initiator has rows of its own, and one that comes back its old one, though ACLs and memory are used again" {
	long
	python3 -m fabtune.lab.guest logout
	# Demo mode makes an ACL for each login, and forgets it.
	echo 0 > $TPG/attrib/cache_dynamic_acls
	iscsiadm -m iface -I other -o new
	iscsiadm -m iface -I other -o update -n iface.initiatorname -v iqn.2026-01.lab.fabtune:other
	iscsiadm -m iface -I other -o update -n iface.transport_name -v tcp
	iscsiadm -m discovery -t st -p 10.2.0.1:3260 -I default -I other
	for turn in 1 2 3; do
		for one in other default; do
			iscsiadm -m node -I $one --login
			wait_for disk_there
			dd "if=/dev/$(disk)" of=/dev/null bs=4k count=$((turn * 10)) iflag=direct status=none
			iscsiadm -m node -I $one --logout
		done
	done
	served '[(lun.id, lun.initiator, lun.isid, lun.ops["read"].completed) for lun in luns]'
	expect_served 'sorted({lun.initiator.split(":")[1] for lun in luns}) == ["initiator", "other"] and books'
	expect_served 'len({(lun.initiator, lun.isid, lun.lun) for lun in luns}) == len(luns)'
	expect_served 'sum(lun.ops["read"].completed for lun in luns if lun.initiator.endswith(":other")) >= 60'
	expect_served 'unmatched == 0 and at_target == 0 and forgotten == 0'
	iscsiadm -m node -I other -o delete
	echo 1 > $TPG/attrib/cache_dynamic_acls
	python3 -m fabtune.lab.guest login
}

# parts 0|1: whether the parts of a command's time are seen.
parts() {
	[ "$(served 'module["parts"]')" -eq "$1" ]
}

disk_there() {
	[ -b "/dev/$(disk)" ]
}

@test "loaded, switched off and on, unloaded in the middle: what is under way is unmatched or forgotten, to the last command" {
	long
	rmmod fabstat
	stall
	reads 16
	under_way() { [ "$(awk '{ print $1 }' "/sys/block/$(disk)/inflight")" -eq 16 ]; }
	wait_for under_way
	# Half a round trip later the last is at the target, where nothing counts them yet; later by the real clock.
	sleep 1
	load_fabstat target=Y
	expect_served 'not luns'
	go_on
	wait
	expect_served 'unmatched == 16 and books and forgotten == 0'
	stall
	reads 16
	wait_for at_the_target 16
	expect_served 'books and read.started - read.completed == 16 and luns[0].oldest_ns > 0'
	echo N > $PARAMETERS/enabled
	expect_served 'books and at_target == 0 and forgotten == 16 and module["enabled"] == "0"'
	echo Y > $PARAMETERS/enabled
	go_on
	wait
	expect_served 'books and at_target == 0 and forgotten == 16 and unmatched == 32'
	fio --name=a "--filename=/dev/$(disk)" --direct=1 --rw=randrw --bs=4k --iodepth=16 --rate_iops=200 --size=64m --time_based \
		--runtime=600 --ioengine=libaio --output=/dev/null 3>&- 4>&- &
	io=$!
	for turn in 1 2 3; do
		rmmod fabstat
		load_fabstat target=Y
		wait_for more_than 50
		expect_served '0 <= unmatched <= 16 and forgotten == 0'
	done
	kill -INT $io
	wait $io || true
	expect_served 'books and at_target == 0 and forgotten == 0'
}

at_the_target() {
	[ "$(served at_target)" -eq "$1" ]
}

more_than() {
	[ "$(served 'read.completed')" -gt "$1" ]
}

# aborting: whether the initiator has given one of its commands up.
aborting() {
	iscsiadm -m session -s | grep -q 'eh_abort_cnt: [1-9]'
}

@test "a command that was aborted and never answered is at the target until its memory is used again, then forgotten" {
	long
	read -r forgotten completed unmatched < <(served 'f"{forgotten} {read.completed} {unmatched}"')
	echo 2 > "/sys/block/$(disk)/device/timeout"
	stall
	reads 8
	wait_for at_the_target 8
	wait_for aborting
	go_on
	wait
	echo 30 > "/sys/block/$(disk)/device/timeout"
	expect_served "at_target > 0 and forgotten == $forgotten and books"
	unanswered=$(served at_target)
	load_disk "$(disk)" --rw=randread --bs=4k --iodepth=4 --number_ios=500 --size=64m
	expect_served "at_target == 0 and forgotten == $forgotten + $unanswered and books"
	expect_served "read.completed >= $completed + 507 and unmatched == $unmatched"
}

@test "a session that is cut off while its commands are at the target: none is counted twice, and it counts on when it is back" {
	long
	read -r before forgotten < <(served 'f"{read.completed} {forgotten}"')
	stall
	reads 8
	wait_for at_the_target 8
	# The initiator gives the connection up and logs in again, which the target lets it when the disk goes on.
	ip netns exec wan sysctl -q -w net.ipv4.ip_forward=0
	sleep 15
	ip netns exec wan sysctl -q -w net.ipv4.ip_forward=1
	sleep 5
	go_on
	wait
	served '(read, forgotten, at_target, unmatched, [lun.oldest_ns for lun in luns])'
	expect_served "read.completed >= $before + 8 and books and forgotten - $forgotten + at_target <= 8"
	expect_served 'read.started == read.completed + forgotten + at_target'
}

@test "LIO is unloaded, and comes back, while the module stays: its numbers begin anew, its initiators do not" {
	long
	python3 -m fabtune.lab.guest logout
	rows=$(served 'len(luns)')
	reads=$(served 'read.completed')
	echo Y > $PARAMETERS/target_parts
	remove_target
	no_lio
	expect_served 'module["target"] == "0" and books and all(lun.at_target == 0 for lun in luns)'
	wait_for parts 0
	modprobe iscsi_target_mod
	expect_served 'module["target"] == "1"'
	# Who looks for them does so once a second.
	wait_for parts 1
	mkdir -p $CONFIG/core/rd_mcp_0/disk
	echo rd_pages=4096,rd_nullio=1 > $CONFIG/core/rd_mcp_0/disk/control
	echo 1 > $CONFIG/core/rd_mcp_0/disk/enable
	mkdir -p $TPG/lun/lun_0
	ln -s $CONFIG/core/rd_mcp_0/disk $TPG/lun/lun_0/disk
	for value in generate_node_acls:1 demo_mode_write_protect:0 authentication:0; do echo "${value#*:}" > "$TPG/attrib/${value%:*}"; done
	nsenter --net=/run/netns/target mkdir "$TPG/np/10.2.0.1:3260"
	echo 1 > $TPG/enable
	disk=$(python3 -m fabtune.lab.guest login)
	dd if="/dev/$disk" of=/dev/null bs=4k count=50 iflag=direct status=none
	expect_served "len(luns) <= $rows + 1 and read.completed >= $reads + 50 and books"
	expect_served 'luns[0].ops["read"].completed > 0 and module["untracked"] == "0"'
	expect_served 'sum(lun.ops["read"].done for lun in luns) == sum(lun.ops["read"].ready for lun in luns) >= 50'
	python3 -m fabtune.lab.guest logout
	rmmod fabstat
}
