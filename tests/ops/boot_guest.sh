#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# One boot of a host with systemd: the first makes target, record, mount and units and applies a profile; each later one
# finds all of it in force at the moment before the mount, every second one after a power cut in fabtune-apply.service.
#   boot_guest.sh BOOTS
set -euo pipefail
export PYTHONPATH=/fabtune/userspace
boots=$1
cd /root

die() {
	echo "FAILED: $*"
	journalctl -b -u 'fabtune*' -u open-iscsi -u lab-net -u rtslib-fb-targetctl -u '*lun.mount' -u lab-probe --no-pager | tail -60
	exit 1
}

# What the profile sets: a sysctl of another namespace, a qdisc, a route's metric, a disk's queue, a sysctl of the host.
values() {
	local disk
	disk=$(basename "$(readlink -f /dev/disk/by-path/*iscsi*lun-0)")
	ip netns exec target sysctl -n net.ipv4.tcp_slow_start_after_idle
	tc qdisc show dev st0 | grep -o 'qdisc [a-z_]*'
	ip route show 10.9.0.0/24 | grep -o 'initcwnd [0-9]*' || echo 'no initcwnd'
	cat "/sys/block/$disk/queue/read_ahead_kb"
	sysctl -n net.ipv4.tcp_slow_start_after_idle
}

if [ "${2:-}" = probe ]; then
	values > /root/probed
	exit
fi

install_units() {
	local unit
	for unit in /fabtune/systemd/*.service /fabtune/systemd/*.timer /fabtune/systemd/*.socket; do
		sed "s#@PREFIX@#/usr#" "$unit" > "/etc/systemd/system/$(basename "$unit")"
	done
	cp /fabtune/systemd/*.rules /etc/udev/rules.d/
	printf '#!/bin/sh\nPYTHONPATH=/fabtune/userspace exec /usr/bin/python3 -m fabtune "$@"\n' > /usr/bin/fabtune
	chmod 755 /usr/bin/fabtune
	# The target's half of this host: there before any of it is used, and on a disk of its own.
	cat > /etc/systemd/system/lab-net.service <<-'END'
		[Unit]
		DefaultDependencies=no
		After=local-fs.target systemd-modules-load.service
		Before=network.target network-online.target rtslib-fb-targetctl.service fabtune-apply.service
		[Service]
		Type=oneshot
		RemainAfterExit=yes
		ExecStart=/bin/sh -c "modprobe veth; ip netns add target; ip link add st0 type veth peer name tt0 netns target; ip addr add 10.9.0.1/24 dev st0; ip link set st0 up; ip -n target addr add 10.9.0.2/24 dev tt0; ip -n target link set tt0 up; ip -n target link set lo up"
		[Install]
		WantedBy=sysinit.target
	END
	# A real host's comes with the others; here it must be up before this host's own initiator.
	mkdir -p /etc/systemd/system/rtslib-fb-targetctl.service.d
	cat > /etc/systemd/system/rtslib-fb-targetctl.service.d/lab.conf <<-'END'
		[Unit]
		DefaultDependencies=no
		After=lab-net.service
		Before=open-iscsi.service
		[Service]
		ExecStart=
		ExecStart=/usr/sbin/ip netns exec target /usr/bin/targetctl restore
		[Install]
		WantedBy=sysinit.target
	END
	cat > /etc/systemd/system/lab-probe.service <<-'END'
		[Unit]
		DefaultDependencies=no
		After=remote-fs-pre.target dev-disk-by\x2dlabel-lun.device
		Before=mnt-lun.mount
		[Service]
		Type=oneshot
		ExecStart=/root/probe 0 probe
		[Install]
		RequiredBy=mnt-lun.mount
	END
	cp /job/run /root/probe
	# While /root/cut is there, the power goes at a random moment of the unit, which takes some seconds here, once.
	cat > /etc/systemd/system/lab-cut.service <<-'END'
		[Unit]
		DefaultDependencies=no
		ConditionPathExists=/root/cut
		After=lab-net.service
		Before=fabtune-apply.service
		[Service]
		Type=simple
		ExecStart=/bin/sh -c "rm /root/cut; sync /root; S=$(shuf -i 1-7 -n 1).$(shuf -i 0-9 -n 1); sleep $S; echo $S > /root/was-cut; sync /root/was-cut; sync /root; echo b > /proc/sysrq-trigger"
		[Install]
		WantedBy=sysinit.target
	END
	sed -i 's/\$/$$/g' /etc/systemd/system/lab-cut.service
}

first_boot() {
	# Other programs that tune have values of their own (TuneD raises read-ahead to 4 MiB); `fabtune lint` names them.
	systemctl mask --now tuned bpftune 2>/dev/null
	install_units
	modprobe veth
	systemctl daemon-reload
	systemctl start lab-net
	truncate -s 64M /root/lun.img
	ip netns exec target targetcli <<-'END' > /dev/null
		/backstores/fileio create lun /root/lun.img
		/iscsi create iqn.2026-01.lab.boot:target
		/iscsi/iqn.2026-01.lab.boot:target/tpg1/luns create /backstores/fileio/lun
		/iscsi/iqn.2026-01.lab.boot:target/tpg1 set attribute generate_node_acls=1 demo_mode_write_protect=0 authentication=0
		saveconfig
	END
	systemctl reenable lab-net rtslib-fb-targetctl lab-probe lab-cut iscsid open-iscsi
	systemctl enable fabtune-apply fabtune-apply-sessions fabtune-verify.timer fabtune-reader.socket fabtune-exporter
	systemctl start iscsid
	iscsiadm -m discovery -t st -p 10.9.0.2
	iscsiadm -m node -o update -n node.startup -v automatic
	iscsiadm -m node --loginall=automatic
	udevadm settle
	mkfs.ext4 -q -L lun "$(readlink -f /dev/disk/by-path/*iscsi*lun-0)"
	mkdir /mnt/lun
	echo 'LABEL=lun /mnt/lun ext4 _netdev 0 2' >> /etc/fstab
	cat > host.toml <<-'END'
		summary = "what no native file keeps"
		[initiator."qdisc.kind"]
		value = "fq"
		why = "a test"
		[initiator."route.initcwnd"]
		value = 40
		why = "a test"
		[initiator."block.read_ahead_kb"]
		value = 777
		why = "a test"
		[initiator."tcp.slow_start_after_idle"]
		value = false
		why = "a test"
	END
	cat > target.toml <<-'END'
		summary = "another namespace"
		[target."tcp.slow_start_after_idle"]
		value = false
		why = "a test"
	END
	values > untouched
	fabtune apply ./host.toml --role initiator || [ $? -eq 4 ]
	fabtune apply ./target.toml --role target --netns target || [ $? -eq 4 ]
	values > wanted
	echo "untouched: $(xargs < untouched); wanted: $(xargs < wanted)"
	! cmp -s untouched wanted || die "nothing was applied"
	echo 0 > right
}

later_boot() {
	systemctl is-active mnt-lun.mount > /dev/null || die "not mounted"
	[ -s probed ] || die "nothing was probed before the mount"
	cmp probed wanted || die "before the mount: $(xargs < probed), expected: $(xargs < wanted)"
	values | cmp - wanted || die "after the boot: $(values | xargs)"
	fabtune verify || die "verify: $?"
	# The module is not there in this guest; the rest of the exporter is.
	systemctl start fabtune-verify
	fabtune_metrics=$(python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:13260/metrics").read().decode())')
	grep -q '^fabtune_drift_values 0$' <<< "$fabtune_metrics" || die "metrics: $(grep -E '_up|drift' <<< "$fabtune_metrics")"
	grep -q '^fabtune_session_state{.*LOGGED_IN"} 1$' <<< "$fabtune_metrics" || die "metrics without the session"
	rm probed
	echo "boot $(($(cat right) + 1)): right$([ -e was-cut ] && echo ", after a power cut $(cat was-cut) s into the unit")"
	rm -f was-cut
	echo $(($(cat right) + 1)) > right
}

if [ ! -e right ]; then
	first_boot
else
	later_boot
fi
if [ "$(cat right)" -lt "$boots" ]; then
	[ $(($(cat right) % 2)) -eq 0 ] || touch cut
	sync
	if [ $(($(cat right) % 4)) -eq 0 ]; then
		echo b > /proc/sysrq-trigger
	else
		systemctl reboot
	fi
	sleep 300
	die "no reboot"
fi
fabtune revert > /tmp/reverted || die "revert: $(cat /tmp/reverted)"
values | cmp - untouched || die "after revert: $(values | xargs)"
systemd-analyze security --no-pager fabtune-exporter.service | tail -1
systemd-analyze security --no-pager fabtune-reader.service | tail -1
echo "boots right: $(cat right) of $boots"
