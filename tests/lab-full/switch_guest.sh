#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The dead-man's switch on a host with systemd that has a target and a session with it: an iscsid that was started by hand
# outlives who takes the values back, and a boot after a power cut does not wait for a target that comes later.
set -euo pipefail
export PYTHONPATH=/fabtune/userspace
cd /root

fabtune() {
	python3 -m fabtune "$@"
}

die() {
	echo "FAILED: $*"
	journalctl -b -u 'fabtune*' -u rtslib-fb-targetctl --no-pager | tail -30
	fabtune history
	exit 1
}

# is WANTED COMMAND...: waits until the command prints that.
is() {
	for _ in $(seq 120); do
		[ "$("${@:2}" 2>/dev/null | xargs)" = "$1" ] && return
		sleep 0.5
	done
	die "${*:2}: '$("${@:2}" 2>&1 | xargs)', expected '$1'"
}

burst() {
	python3 -c 'from fabtune.host.sessions import live_sessions as l; print(*(one.negotiated["MaxBurstLength"] for one in l()))'
}

window() {
	cat /sys/kernel/config/target/iscsi/iqn.*/tpgt_1/attrib/default_cmdsn_depth
}

watchers() {
	systemctl list-units --all --plain --no-legend 'fabtune-unconfirmed-*' | wc -l
}

files() {
	find /etc/systemd/system -name 'fabtune*' | wc -l
}

profile() {
	printf 'summary = "a test"\n[%s]\nvalue = %s\nwhy = "a test"\n' "$2" "$3" > "$1.toml"
}

if [ ! -e cut ]; then
	truncate -s 64M lun.img
	targetcli <<-'END' > /dev/null
		/backstores/fileio create lun /root/lun.img
		/iscsi create iqn.2026-01.lab.switch:target
		/iscsi/iqn.2026-01.lab.switch:target/tpg1/luns create /backstores/fileio/lun
		/iscsi/iqn.2026-01.lab.switch:target/tpg1 set attribute generate_node_acls=1 demo_mode_write_protect=0 authentication=0
		saveconfig
	END
	systemctl reenable rtslib-fb-targetctl
	systemctl stop iscsid.socket iscsid.service open-iscsi.service
	systemd-run --scope --quiet --collect iscsid
	iscsiadm -m discovery -t st -p 127.0.0.1 > /dev/null
	iscsiadm -m node --login > /dev/null
	is 262144 burst
	profile burst 'initiator."iscsi.max_burst"' 131072
	fabtune apply ./burst.toml --role initiator --reconnect --confirm-within 8s || die "apply: $?"
	is 131072 burst
	is 262144 burst
	is 0 watchers
	is LOGGED_IN cat /sys/class/iscsi_session/session1/state
	pgrep -x iscsid > /dev/null || die "iscsid ended with who took the values back"
	grep -q '[.]scope$' "/proc/$(pgrep -ox iscsid)/cgroup" || die "iscsid is in $(cat "/proc/$(pgrep -ox iscsid)/cgroup")"
	is 0 files
	echo "an iscsid started by hand goes on"
	iscsiadm -m node --logout > /dev/null
	window > before
	profile window 'target."lio.default_cmdsn_depth"' 77
	fabtune apply ./window.toml --role target --confirm-within 3600s || die "apply: $?"
	is 77 window
	is 2 files
	touch cut
	sync
	echo b > /proc/sysrq-trigger
	sleep 60
	exit 1
fi
is active systemctl is-active rtslib-fb-targetctl
is "$(cat before)" window
is 0 files
is 0 watchers
fabtune history | grep -q "taken back" || die "not taken back"
echo "a boot does not wait for the target"
