# SPDX-License-Identifier: GPL-2.0-or-later
# `load until`: wait for what happens in the background.

# until_true COMMAND [SECONDS]: waits until it succeeds; so long that on a loaded computer, too, only what never comes is late.
until_true() {
	local deadline=$((SECONDS + ${2:-300}))
	until eval "$1" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$deadline" ] || { echo "still not: $1"; return 1; }
		sleep 0.1
	done
}
