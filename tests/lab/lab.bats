#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# The lab itself, on the host: what a guest hands back, how it fails, and that nothing stays behind.
bats_require_minimum_version 1.5.0

setup() {
	cd "$BATS_TEST_DIRNAME/../.."
	export PYTHONPATH=userspace
	TMP=$BATS_TEST_TMPDIR
	load ../vm/until
}

# What the test printed and the guest's console tell why it failed.
teardown() {
	[ -z "$BATS_TEST_COMPLETED" ] || return 0
	echo "${stderr:-}"
	tail -n 40 "$TMP"/out/console.log
}

fabtune() { /usr/bin/python3 -m fabtune "$@"; }

script() { printf '#!/bin/bash\n%s\n' "$1" > "$TMP/script"; }

no_guest_left() { ! pgrep -f "qemu-system.*$TMP" > /dev/null; }

# What Python compiles though it should find it compiled, and what it found.
COMPILED='export PYTHONPATH=/fabtune/userspace
	python3 -v -c "import fabtune.cli.main" 2>&1 | grep -c "^# code object from .*[.]py$\|^# wrote "
	cd /fabtune/userspace && find . -name "*.pyc" | sort | xargs cat | sha256sum'

# Most of a guest's time is its start, so that one answers several questions.
setup_file() {
	cd "$BATS_TEST_DIRNAME/../.." || return
	TMP=$BATS_FILE_TMPDIR
	local status=0
	script 'cut -d. -f1 /proc/uptime; echo "argument $1"; echo figure > /results/figure; echo >&2 complaint
		'"$COMPILED; exit 7"
	PYTHONPATH=userspace fabtune lab run --out "$TMP/out" "$TMP/script" 'two words' > "$TMP/said" 2> "$TMP/errors" || status=$?
	echo $status > "$TMP/status"
}

@test "a guest's output, results and exit status come back" {
	first=$BATS_FILE_TMPDIR
	cat "$first/said" "$first/errors"
	[ "$(cat "$first/status")" -eq 7 ]
	grep -qx 'argument two words' "$first/said"
	grep -qx complaint "$first/said" "$first/errors"
	[ "$(cat "$first/out/figure")" = figure ]
	[ ! -e "$first/out/results.tar.gz" ]
}

@test "a guest is ready within 10 s of its own clock" {
	[ "$(sed -n 1p "$BATS_FILE_TMPDIR/said")" -le 10 ]
}

@test "a guest finds the package and Python's library compiled, the package to the same bytes by whoever did it first" {
	once=$(tail -n 1 "$BATS_FILE_TMPDIR/said")
	[ "$(tail -n 2 "$BATS_FILE_TMPDIR/said" | head -n 1)" -eq 0 ]
	python3 - <<-'END'
		from fabtune.lab.cache import delete_tree, locked
		from fabtune.lab.image import find_image
		# Guests of other files start meanwhile: they hold this lock while they make their version or copy it.
		with locked("package-trixie"):
		    for version in (find_image("trixie").directory / "packages").iterdir():
		        delete_tree(version)
	END
	script "$COMPILED"
	run -0 --separate-stderr fabtune lab run --out "$TMP/out" "$TMP/script"
	[ "${lines[1]}" = "$once" ]
}

@test "two vCPUs on the real clock, and another suite's kernel with its own modules" {
	# Nothing else needs that suite's image in the short run, and it takes longer to build than all tests here.
	other=bookworm release=6.1.
	[ "${LENGTH:-short}" = full ] || other=trixie release=6.12.
	script 'nproc; modprobe scsi_debug && uname -r && . /etc/os-release && echo $VERSION_CODENAME'
	run -0 --separate-stderr fabtune lab run --clock real --smp 2 --kernel-suite $other --out "$TMP/out" "$TMP/script"
	[[ "${lines[0]}" == 2 && "${lines[1]}" == "$release"* && "${lines[2]}" == trixie ]]
}

@test "a guest that crashes is an error with the console's end, not a result" {
	script 'echo before; echo c > /proc/sysrq-trigger'
	run -1 fabtune lab run --out "$TMP/out" "$TMP/script"
	[[ "$output" == *'without handing over its results'* && "$output" == *sysrq* ]]
	no_guest_left
}

@test "a guest that stalls is ended after its time, with its last output" {
	script 'echo so far; sleep infinity'
	run -1 fabtune lab run --clock real --timeout-s 60 --out "$TMP/out" "$TMP/script"
	[[ "$output" == *'not done after 60 s'* && "$output" == *'so far'* ]]
	no_guest_left
}

@test "Ctrl-C and a service manager's stop end the guest, exit 130 and leave no file in /tmp" {
	script 'echo started; sleep infinity'
	mkdir "$TMP/tmp"
	# In the middle of the job, and while the guest starts.
	for signal in INT TERM; do
		TMPDIR=$TMP/tmp setsid env --default-signal=INT,TERM /usr/bin/python3 -m fabtune lab run --clock real \
			--out "$TMP/out" "$TMP/script" > "$TMP/log" 2>&1 3>&- &
		pid=$!
		[ $signal = TERM ] || until_true 'grep -q started "$TMP/log"'
		until_true '! no_guest_left'
		kill -$signal "$pid"
		status=0
		wait "$pid" || status=$?
		[ "$status" -eq 130 ]
		no_guest_left
		[ -z "$(ls -A "$TMP/tmp")" ]
	done
}

@test "killing fabtune takes its guest along" {
	script 'echo started; sleep infinity'
	setsid env --default-signal=INT /usr/bin/python3 -m fabtune lab run --clock real --out "$TMP/out" "$TMP/script" > "$TMP/log" 2>&1 3>&- &
	pid=$!
	until_true 'grep -q started "$TMP/log"'
	kill -KILL "$pid"
	wait "$pid" || true
	until_true no_guest_left
}

@test "an image build without an archive says so and leaves nothing" {
	mkdir -p "$TMP/apt" "$TMP/cache"
	cp -r /etc/apt/. "$TMP/apt/"
	printf 'Acquire::http::Proxy "http://127.0.0.1:9";\nAcquire::https::Proxy "http://127.0.0.1:9";\n' > "$TMP/apt.conf"
	APT_CONFIG=$TMP/apt.conf XDG_CACHE_HOME=$TMP/cache run -1 fabtune lab build --suite bookworm
	[[ "$output" == *'apt-get update'* && "$output" != *Traceback* ]]
	[ -z "$(find "$TMP/cache" -mindepth 3 -not -name '*.lock')" ]
	! grep -q "$TMP" /proc/mounts || false
}

@test "an image build on a full disk says what it needs and leaves nothing" {
	mkdir "$TMP/cache"
	run -1 unshare --mount bash -c "mount -t tmpfs -o size=64m tmpfs $TMP/cache &&
		XDG_CACHE_HOME=$TMP/cache /usr/bin/python3 -m fabtune lab build; status=\$?; ls -A $TMP/cache/fabtune/lab; exit \$status"
	[[ "$output" == *'GiB'* && "$output" != *Traceback* && "$output" != *bookworm-* ]]
}

@test "Ctrl-C while an image is built leaves neither files nor processes" {
	mkdir "$TMP/cache"
	XDG_CACHE_HOME=$TMP/cache setsid env --default-signal=INT /usr/bin/python3 -m fabtune lab build --suite bookworm > "$TMP/log" 2>&1 3>&- &
	pid=$!
	until_true 'compgen -G "$TMP/cache/fabtune/lab/.bookworm-*/root/*"'
	kill -INT -- "-$pid"
	status=0
	wait "$pid" || status=$?
	[ "$status" -eq 130 ]
	! grep -q "$TMP" /proc/mounts || false
	! pgrep -f "mmdebstrap.*$TMP" > /dev/null || false
	[ -z "$(find "$TMP/cache" -mindepth 3 -not -name '*.lock')" ]
}
