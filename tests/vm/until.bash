# SPDX-License-Identifier: GPL-2.0-or-later
# `load until`: wait for what happens in the background.

# until_true COMMAND: waits until it succeeds, 20 s at most.
until_true() {
	for _ in $(seq 200); do
		eval "$1" >/dev/null 2>&1 && return
		sleep 0.1
	done
	echo "still not: $1"
	return 1
}
