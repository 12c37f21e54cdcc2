#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock real
# The tunables of a live SRP login and of the target it is logged in to.

setup_file() {
	python3 -m fabtune.lab.guest up --fabric srp
	python3 -m fabtune.lab.guest login --fabric srp
	touch /etc/srp_daemon.conf
}

@test "show tells the login's credits, and every tunable of a live login can be written, read back and taken back" {
	cd "$BATS_TEST_TMPDIR"
	fabtune show | grep -A3 'SRP logins'
	run python3 /fabtune/tests/vm/vocabulary.py srp srpt
	echo "$output"
	[ "$status" -eq 0 ]
	for name in reconnect_delay fast_io_fail_tmo dev_loss_tmo queue_size; do
		[[ "$output" == *"written: srp.$name: "* ]]
	done
	[[ "$output" == *"written: srpt.use_srq: "* ]]
	[ "$(grep -c ^written: <<<"$output")" -ge 18 ]
}

@test "a live target's receive queue is not rebuilt without leave" {
	cd "$BATS_TEST_TMPDIR"
	cat > srq.toml <<-'EOT'
		summary = "one receive queue for all"
		[target."srpt.use_srq"]
		value = true
		why = "a test"
	EOT
	run fabtune apply "$PWD/srq.toml" --role target
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"would end live sessions, used or not; give --end-sessions"* ]]
	grep -qx 0 /sys/kernel/config/target/srpt/*/*/attrib/use_srq
}
