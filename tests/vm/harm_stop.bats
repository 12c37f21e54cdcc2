#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite bookworm --clock real --accel uml
# Stopped, started twice, or on top of another one: no session runs with values that nobody answers for.

bats_require_minimum_version 1.5.0

SESSION=/sys/class/iscsi_session

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 0ms
	python3 -m fabtune.lab.guest login
}

setup() {
	load common
	load until
	rm -rf /var/lib/fabtune
	cat > relogin.toml <<-'EOT'
		summary = "a value that a login agrees upon, and one of its disk"
		[initiator."iscsi.first_burst"]
		value = 32768
		why = "a test"
		[initiator."block.read_ahead_kb"]
		value = "1MiB"
		why = "a test"
	EOT
	cat > two.toml <<-'EOT'
		summary = "two values of this host"
		[initiator."net.netdev_max_backlog"]
		value = 4321
		why = "a test"
		[initiator."tcp.slow_start_after_idle"]
		value = false
		why = "a test"
	EOT
	settled
	all_values > before
	first_burst=$(cat $SESSION/session*/first_burst_len)
}

teardown() {
	fabtune revert --force --allow-relogin >/dev/null 2>&1 || true
}

# Waits until the session and its disk are there.
settled() {
	# One that fabtune was killed between logout and login of comes back by hand.
	compgen -G "$SESSION/session*" >/dev/null || iscsiadm -m node --login
	until_true '[ "$(cat $SESSION/session*/state)" = LOGGED_IN ] && ls -d $SESSION/session*/device/target*/*/block/*'
}

sid() {
	basename $SESSION/session*
}

as_before() {
	all_values > now
	diff before now
}

# interrupted_after_the_login: stops an apply that has logged the session in anew; where it did once, it looks there again.
interrupted_after_the_login() {
	local old=$(sid)
	for step in $(seq "${found:-4}" 60); do
		FABTUNE_FAULT=interrupt:$step run fabtune apply "$PWD/relogin.toml" --role initiator --allow-relogin
		if [ "$status" -eq 130 ] && [ "$(sid)" != "$old" ]; then
			echo "$output"
			found=$((step - 1))
			return
		fi
		if [ "$status" -ne 130 ]; then
			fabtune revert --allow-relogin
			old=$(sid)
		fi
	done
	echo "no interruption came after the login"
	return 1
}

@test "a session that logged in with values that an interrupted apply took back is owed a login: verify, revert and apply know it" {
	for verb in revert apply; do
		interrupted_after_the_login
		[[ "$output" == *"need a re-login"* ]]
		[ "$(cat $SESSION/session*/first_burst_len)" != "$first_burst" ]
		run -4 fabtune verify
		echo "$output"
		[[ "$output" == *"taken back"* ]]
		run -4 fabtune revert
		if [ "$verb" = revert ]; then
			run -0 fabtune revert --allow-relogin
		else
			run -0 fabtune apply "$PWD/two.toml" --role initiator --allow-relogin
		fi
		[[ "$output" == *"logged in again"* ]]
		[ "$(cat $SESSION/session*/first_burst_len)" = "$first_burst" ]
		run -0 fabtune revert
		run -0 fabtune verify
		[[ "$output" != *"taken back"* ]]
		as_before
		fabtune revert --allow-relogin
		rm -rf /var/lib/fabtune
	done
}

@test "a revert that is killed at any step leaves the login that it owes on record" {
	steps=$([ "$LENGTH" = full ] && seq 1 40 || seq 1 2 40)
	for step in $steps; do
		fabtune apply "$PWD/relogin.toml" --role initiator --allow-relogin
		FABTUNE_FAULT=kill:$step run fabtune revert
		[ "$status" -eq 137 ] || break
		run -0 fabtune revert --allow-relogin
		[ "$(cat $SESSION/session*/first_burst_len)" = "$first_burst" ]
	done
	[ "$step" -gt 3 ]
	fabtune revert --allow-relogin
	[ "$(cat $SESSION/session*/first_burst_len)" = "$first_burst" ]
	as_before
}

@test "an iscsid that a login starts can be hung up, stopped and interrupted like any other" {
	cp /etc/iscsi/iscsid.conf kept
	sed -i '/^iscsid.startup/d' /etc/iscsi/iscsid.conf
	echo "iscsid.startup = $(command -v iscsid)" >> /etc/iscsi/iscsid.conf
	kill -9 $(pidof iscsid)
	fabtune apply "$PWD/relogin.toml" --role initiator --allow-relogin || [ $? -eq 4 ]
	settled
	for pid in $(pidof iscsid); do
		grep -E 'Sig(Ign|Blk)' /proc/$pid/status
		ignored=0x$(sed -n 's/^SigIgn:\s*//p' /proc/$pid/status)
		blocked=0x$(sed -n 's/^SigBlk:\s*//p' /proc/$pid/status)
		# SIGHUP 1, SIGINT 2, SIGTERM 15
		[ $(((ignored | blocked) & 0x4003)) -eq 0 ]
	done
	[ -n "$(pidof iscsid)" ]
	cp kept /etc/iscsi/iscsid.conf
}

@test "of two applies at once one waits or is refused, and what it wrote goes back whole" {
	mkfifo hold
	# Holds the lock as long as the other end of the pipe is open.
	mkdir -m 700 /var/lib/fabtune
	flock /var/lib/fabtune/lock cat hold 3>&- &
	exec 7>hold
	run -1 fabtune apply "$PWD/two.toml" --role initiator
	echo "$output"
	[[ "$output" == *"another fabtune"* ]]
	as_before
	exec 7>&-
	wait
	fabtune apply "$PWD/two.toml" --role initiator 2>one.err 3>&- & one=$!
	fabtune apply wan --role initiator --rtt 50ms --rate 1gbit 2>two.err 3>&- & two=$!
	# On a busy machine the other one takes longer than anybody waits.
	wait $one || [ $? -eq 4 ] || grep "another fabtune" one.err
	wait $two || [ $? -eq 4 ] || grep "another fabtune" two.err
	cat one.err two.err
	ls /var/lib/fabtune/journal/*.jsonl
	fabtune verify || [ $? -eq 4 ]
	fabtune revert || [ $? -eq 4 ]
	as_before
}

@test "Ctrl-C three times, at any moment, leaves nothing half done and no session away" {
	/usr/bin/python3 - "$PWD/relogin.toml" <<-'EOF'
		import os, signal, subprocess, sys, time
		for delay in (0.05, 0.2, 0.4, 0.6, 0.9, 1.3):
		    child = subprocess.Popen(
		        ["fabtune", "apply", sys.argv[1], "--role", "initiator", "--allow-relogin"],
		        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True,
		        preexec_fn=lambda: [signal.signal(n, signal.SIG_DFL) for n in (1, 2, 15)],
		    )
		    child.stderr.readline()
		    time.sleep(delay)
		    for _ in range(3):
		        # To the whole process group, as a terminal does.
		        try:
		            os.killpg(child.pid, signal.SIGINT)
		        except ProcessLookupError:
		            pass
		        time.sleep(0.15)
		    said = child.stderr.read()
		    status = child.wait()
		    print(delay, status, said[-200:])
		    # Dead of the signal itself once all is back is 130 to a shell too.
		    assert status in (0, 130, -2), status
		    assert "Traceback" not in said
		    subprocess.run(["fabtune", "revert", "--allow-relogin"], check=True)
	EOF
	settled
	[ "$(cat $SESSION/session*/first_burst_len)" = "$first_burst" ]
	as_before
}
