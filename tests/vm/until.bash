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

# carries BYTES_PER_S: whether more than that passes for a second, by the file's own `moved`, in sectors: after slow start it does
# in the end, even where chance ended that early.
carries() {
	local began_ns begun
	began_ns=$(date +%s%N)
	begun=$(moved)
	sleep 1
	[ $((512 * ($(moved) - begun) * 1000 / (($(date +%s%N) - began_ns) / 1000000))) -gt "$1" ]
}

# refused_logins: how many logins the LIO targets of this guest have refused.
refused_logins() {
	cat /sys/kernel/config/target/iscsi/iqn.*/fabric_statistics/iscsi_login_stats/*_fails | awk '{ sum += $1 } END { print sum + 0 }'
}
