#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# guest-full: --suite sid --clock virtual
# together: session
# Connections of portals get socket options of their own, on both ends and over reconnects, and nothing else does.

bats_require_minimum_version 1.5.0

KEPT=/sys/fs/bpf/fabtune
RATE=20000000

setup_file() {
	load stands
	stands --rtt 10ms --rate 200mbit
	python3 -m fabtune.lab.guest login
}

teardown_file() {
	python3 -m fabtune.lab.guest logout
}

setup() {
	load common
	load until
}

teardown() {
	[ ! -e $KEPT ] || fabtune revert >/dev/null 2>&1 || [ $? -eq 4 ]
}

initiators() {
	ss -tnmi state established dport = 3260
}

served() {
	ip netns exec target ss -tnmi state established sport = 3260
}

paced() {
	[[ "$1" == *"bps/$((8 * RATE))bps "* ]]
}

@test "storage's connections alone get their options, live or with a new one, and all goes back to the last program" {
	cat > mine.toml <<-EOT
		summary = "what connections are made with, and a rate for those that live"
		[both."net.rmem_max"]
		at_least = 2097152
		why = "a test"
		[both."net.wmem_max"]
		at_least = 2097152
		why = "a test"
		[both."connection.receive_buffer"]
		value = 2097152
		why = "a test"
		[both."connection.send_buffer"]
		value = 2097152
		why = "a test"
		[both."connection.congestion_control"]
		value = "reno"
		why = "a test"
		[both."connection.pacing"]
		value = $RATE
		why = "a test"
	EOT
	run -4 fabtune apply ./mine.toml --role target --netns target --scope connection
	# The rate counts at once, the rest from the new connection of a new iscsid on.
	paced "$(served)"
	[[ "$(served)" == *" cubic "* ]]
	run -0 fabtune apply ./mine.toml --role initiator --scope connection --reconnect
	for end in initiators served; do
		paced "$($end)"
		[[ "$($end)" == *"rb4194304,"*"tb4194304,"*" reno "* ]]
	done
	# A connection to another port of the same address stays as it is.
	ip netns exec target python3 -m http.server --bind 10.2.0.1 8080 >/dev/null 2>&1 3>&- 4>&- &
	until_true 'ip netns exec target ss -tnl | grep -q :8080'
	exec 5<>/dev/tcp/10.2.0.1/8080
	other=$(ss -tnmi state established dport = 8080)
	exec 5>&-
	kill %1
	[[ "$other" == *cubic*pacing_rate* && "$other" != *tb4194304,* ]]
	run ! paced "$other"
	# Somebody gives iscsid's own socket another rate, by a handle of it: that is seen, and mended.
	python3 - <<-'EOT'
		import ctypes, os, socket, subprocess
		libc = ctypes.CDLL(None)
		for pid in map(int, subprocess.check_output(["pidof", "iscsid"], text=True).split()):
		    for fd in map(int, os.listdir(f"/proc/{pid}/fd")):
		        if os.path.exists(f"/proc/{pid}/fd/{fd}") and os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:"):
		            one = socket.socket(fileno=libc.syscall(438, libc.syscall(434, pid, 0), fd, 0))
		            if one.type == socket.SOCK_STREAM and one.family == socket.AF_INET:
		                one.setsockopt(socket.SOL_SOCKET, 47, 5000000)
	EOT
	[[ "$(initiators)" == */40000000bps* ]]
	run -3 fabtune verify
	[[ "$(echo "$output" | tr -s ' \n' ' ')" == *"1 of 1 connections"* ]]
	fabtune apply ./mine.toml --role initiator --scope connection
	paced "$(initiators)"
	# Somebody else's program stays beside ours, and goes on when ours goes.
	python3 - <<-'EOT'
		from pathlib import Path
		from fabtune.host import libbpf, portal_options
		Path("/sys/fs/bpf/foreign").mkdir()
		theirs = libbpf.Loaded(portal_options._object(), ("portal_options",), {})
		theirs.attach_to_root("portal_options", Path("/sys/fs/bpf/foreign/link"))
	EOT
	fabtune revert --reconnect
	[ "$(ls /sys/fs/bpf)" = foreign ]
	for end in initiators served; do
		run ! paced "$($end)"
		[[ "$($end)" == *" cubic "* && "$($end)" != *tb4194304,* ]]
	done
	python3 - <<-'EOT'
		from pathlib import Path
		from fabtune.host import libbpf
		assert libbpf.attached(Path("/sys/fs/bpf/foreign/link"))
	EOT
	rm -r /sys/fs/bpf/foreign
}

@test "killed between its steps it leaves nothing in force, detached by others neither, and what comes next clears up" {
	cat > give.py <<-'EOT'
		import os, signal, sys
		from pathlib import Path
		from fabtune.host import libbpf, portal_options
		def die(*_): os.kill(os.getpid(), signal.SIGKILL)
		one = portal_options.Portal("initiator", "10.2.0.1", 3260, "")
		if sys.argv[1] != "take":
		    setattr(Path if sys.argv[1] == "rename" else libbpf.Loaded, sys.argv[1], die)
		    portal_options.give(one, "pacing", 1000000)
		portal_options.give(one, "notsent_lowat", 65536)
		print(portal_options.given(one), portal_options.options_held(one))
		Path("/sys/fs/bpf/fabtune/portal_options").unlink()
		print("none" if portal_options.given(one) == portal_options.Options() else "some")
		portal_options.give(one, "notsent_lowat", 65536)
		portal_options.give(one, "notsent_lowat", 0)
	EOT
	for step in pin_map rename; do
		run -137 python3 give.py $step
		[ "$(ls /sys/fs/bpf)" = fabtune_draft ]
	done
	run -0 python3 give.py take
	[[ "$output" == *notsent_lowat=65536*notsent_lowat=65536*none* ]]
	[ -z "$(ls /sys/fs/bpf)" ]
}

@test "what keeps the kernel from it is named" {
	umount /sys/fs/bpf
	run python3 -c "from fabtune.host import portal_options; print(portal_options.no_means())"
	mount -t bpf bpf /sys/fs/bpf
	[[ "$output" == *"is not mounted: mount -t bpf"* ]]
}
