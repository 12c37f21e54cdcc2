#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# On a host with systemd: a power cut before a confirmation leaves nothing, a limit that ends neither, a confirmation all.
set -euo pipefail
export PYTHONPATH=/fabtune/userspace
cd /root

fabtune() {
	python3 -m fabtune "$@"
}

state() {
	{
		sysctl -n net.ipv4.tcp_slow_start_after_idle net.core.netdev_max_backlog
		find /etc/sysctl.d /etc/systemd/system -maxdepth 1 -name '*fabtune*' -printf '%f\n' | sort
	} | xargs
}

# is WANTED: waits until the state is that.
is() {
	for _ in $(seq 100); do
		[ "$(state)" = "$1" ] && return
		sleep 0.5
	done
	echo "found '$(state)', expected '$1'"
	exit 1
}

cp /fabtune/tests/vm/backlog.toml .
applied="0 4321 90-fabtune.conf fabtune-unconfirmed-at-boot.service"
if [ ! -e cut ]; then
	is "1 1000"
	fabtune apply ./backlog.toml --persist --confirm-within 3600s
	is "$applied"
	touch cut
	sync
	echo b > /proc/sysrq-trigger
	sleep 60
	exit 1
fi
is "1 1000"
fabtune history | grep -q "taken back"
fabtune apply ./backlog.toml --persist --confirm-within 8s
is "$applied"
# systemd has it, and nobody else.
systemctl list-units --state=running --plain --no-legend | grep '^fabtune-unconfirmed-[0-9]*[.]service'
is "1 1000"
fabtune apply ./backlog.toml --persist --confirm-within 3600s
fabtune confirm
is "0 4321 90-fabtune.conf"
fabtune revert
is "1 1000"
echo "all as it should be"
