#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml '--append=vec0:transport=tap,ifname=none0,mac=52:54:00:00:00:01'
# guest-full: --suite bookworm --clock real --accel uml '--append=vec0:transport=tap,ifname=none0,mac=52:54:00:00:00:01'
# What `apply --persist` writes, on a host with its administrator's own files.  Boots stand in tests/harm/boots.py.

LINK=/etc/systemd/network/70-san0.link

setup_file() {
	# User Mode Linux's own NIC; under emulation there is none.
	[ -e /sys/class/net/vec0 ] || skip "this guest has no NIC"
	mkdir -p /etc/systemd/network /etc/sysctl.d /etc/udev/rules.d
	printf '[Match]\nMACAddress=52:54:00:00:00:01\n[Link]\nName=san0\nTransmitQueueLength=3000\n' > $LINK
	# It reads .link files when it starts; bats would wait for whoever keeps its output open.
	/usr/lib/systemd/systemd-udevd --daemon < /dev/null > /dev/null 2>&1 3>&- 4>&-
	# Not `trigger --settle`: before systemd 257 that waits for ever for a NIC which gets another name.
	udevadm trigger --action=add /sys/class/net/vec0
	udevadm settle
	ip address add 192.0.2.1/24 dev san0
	python3 -m fabtune.lab.guest up
	python3 -m fabtune.lab.guest login
	# A target on the NIC that the administrator named.
	mkdir -p /sys/kernel/config/target/iscsi/iqn.2026-01.lab.fabtune:san/tpgt_1
	mkdir /sys/kernel/config/target/iscsi/iqn.2026-01.lab.fabtune:san/tpgt_1/np/192.0.2.1:3260
}

setup() {
	load common
}

teardown() {
	umount /etc/sysctl.d 2>/dev/null || true
	fabtune revert --force >/dev/null 2>&1 || true
	rm -f /etc/sysctl.d/*-admin.conf /etc/udev/rules.d/60-admin.rules
}

# persist ROLE NAME=VALUE...: apply a profile of these values for good; a re-login may be left to do.
persist() {
	profile "$@"
	run fabtune apply "$PWD/p.toml" --role "$1" --persist
	echo "$output"
	[ "$status" -eq 0 ] || [ "$status" -eq 4 ]
}

# given_back WORD...: revert, which leaves no more than a new connection or login to do; an earlier test's may be due.
given_back() {
	run fabtune revert "$@"
	echo "$output"
	[ "$status" -eq 0 ] || [ "$status" -eq 4 ]
}

# profile ROLE NAME=VALUE...: write p.toml.
profile() {
	local role=$1 wish
	shift
	echo 'summary = "a test"' > p.toml
	for wish in "$@"; do
		printf '[%s."%s"]\nvalue = %s\nwhy = "a test"\n' "$role" "${wish%%=*}" "${wish#*=}" >> p.toml
	done
}

@test "a NIC that the administrator's .link file names is called the same at its next start, with the values kept" {
	persist target nic.mtu=1400
	ip link set san0 mtu 1500
	ip link set san0 name eth9
	udevadm control --reload
	udevadm trigger --action=add /sys/class/net/eth9
	udevadm settle
	ip link show san0
	[ "$(cat /sys/class/net/san0/mtu)" -eq 1400 ]
	[ "$(cat /sys/class/net/san0/tx_queue_len)" -eq 3000 ]
	fabtune revert
	[ -z "$(ls -d $LINK.d /etc/systemd/network/*fabtune* 2>/dev/null)" ]
}

@test "a value that the administrator's .link file sets is left to it, and said" {
	persist target nic.txqueuelen=5000
	[[ "$output" == *"nic.txqueuelen of san0: $LINK sets TransmitQueueLength=3000"* ]]
	[ ! -e $LINK.d ]
}

@test "the settings of a profile in a .link drop-in go with it, and another profile's stay" {
	profile target nic.mtu=1400
	mv p.toml q.toml
	fabtune apply "$PWD/q.toml" --role target --persist
	persist target nic.gro=false
	cat $LINK.d/50-fabtune.conf
	fabtune revert q
	cat $LINK.d/50-fabtune.conf
	[ -z "$(grep MTUBytes $LINK.d/50-fabtune.conf)" ]
	grep -qx GenericReceiveOffload=no $LINK.d/50-fabtune.conf
	fabtune revert p
	[ ! -e $LINK.d ]
}

@test "asking udev which .link file wins changes nothing on the NIC" {
	ip link set san0 txqueuelen 777
	persist target nic.mtu=1400
	[ "$(cat /sys/class/net/san0/tx_queue_len)" -eq 777 ]
	ip link set san0 txqueuelen 3000
}

@test "a sysctl that the administrator's files set, before ours or after, stays his at the next boot, and is said" {
	echo 'net.core.wmem_max = 300000' > /etc/sysctl.d/99-admin.conf
	echo '-net/core/netdev_max_backlog=3000' > /etc/sysctl.d/10-admin.conf
	persist initiator net.wmem_max=4000000 net.netdev_max_backlog=5000 tcp.rmem_max=7000000
	[[ "$output" == *"/etc/sysctl.d/99-admin.conf sets 300000 at boot"* ]]
	[[ "$output" == *"/etc/sysctl.d/10-admin.conf sets 3000 at boot"* ]]
	sysctl -w net.ipv4.tcp_rmem='4096 131072 6000000'
	/usr/lib/systemd/systemd-sysctl || /lib/systemd/systemd-sysctl
	[ "$(sysctl -n net.core.wmem_max)" -eq 300000 ]
	[ "$(sysctl -n net.core.netdev_max_backlog)" -eq 3000 ]
	[ "$(sysctl -n net.ipv4.tcp_rmem | cut -f3)" -eq 7000000 ]
}

@test "udev gives a disk its scheduler before the values that a scheduler resets" {
	persist initiator 'block.nr_requests=48' 'block.scheduler="none"'
	disk=$(cd /sys/block && echo sd*)
	echo mq-deadline > "/sys/block/$disk/queue/scheduler"
	udevadm control --reload
	udevadm trigger --action=add "/sys/block/$disk"
	udevadm settle
	grep -q '\[none\]' "/sys/block/$disk/queue/scheduler"
	[ "$(cat "/sys/block/$disk/queue/nr_requests")" -eq 48 ]
}

@test "a queue value that the administrator's udev rule sets is left to it, and said" {
	echo 'ACTION=="add|change", KERNEL=="sd*", ATTR{queue/read_ahead_kb}="512"' > /etc/udev/rules.d/60-admin.rules
	persist initiator block.read_ahead_kb=2048
	[[ "$output" == *"/etc/udev/rules.d/60-admin.rules sets 512 at boot"* ]]
	[ ! -e /etc/udev/rules.d/99-fabtune.rules ]
}

@test "a configuration file behind a link stays there, with its owner and mode, is read by iscsiadm, and goes back to the byte" {
	mkdir -p /etc/san
	mv /etc/iscsi/iscsid.conf /etc/san/iscsid.conf
	ln -s ../san/iscsid.conf /etc/iscsi/iscsid.conf
	# open-iscsi passes over the first line, for want of a space, and over the last, for want of a newline.
	printf 'node.session.cmds_max=64\nnode.session.queue_depth = 16\nnode.session.queue_depth = 8' >> /etc/san/iscsid.conf
	chmod 640 /etc/san/iscsid.conf
	chgrp mail /etc/san/iscsid.conf
	cp -a /etc/san/iscsid.conf before.conf
	persist initiator iscsi.cmds_max=256
	[ -L /etc/iscsi/iscsid.conf ]
	[ "$(stat -c '%a %U:%G' /etc/san/iscsid.conf)" = "640 root:mail" ]
	iscsiadm -m node -o new -T iqn.2026-01.lab.fabtune:next -p 192.0.2.9
	iscsiadm -m node -T iqn.2026-01.lab.fabtune:next -p 192.0.2.9 > next.record
	iscsiadm -m node -o delete -T iqn.2026-01.lab.fabtune:next -p 192.0.2.9
	grep -qx 'node.session.cmds_max = 256' next.record
	grep -qx 'node.session.queue_depth = 16' next.record
	given_back
	[ -L /etc/iscsi/iscsid.conf ]
	[ "$(stat -c '%a %U:%G' /etc/san/iscsid.conf)" = "640 root:mail" ]
	cmp before.conf /etc/san/iscsid.conf
}

@test "a value with which another target could not be logged in to stays out of iscsid.conf, and that is said" {
	local tpg=/sys/kernel/config/target/iscsi/iqn.2026-01.lab.fabtune:target/tpgt_1 target=iqn.2026-01.lab.fabtune:target
	cp /etc/iscsi/iscsid.conf before.conf
	persist initiator iscsi.max_outstanding_r2t=4 iscsi.cmds_max=256
	[[ "$output" == *"MaxOutstandingR2T = 4: not in iscsid.conf"*"the present records keep it until a discovery"* ]]
	diff before.conf /etc/iscsi/iscsid.conf > changed || true
	[ "$(grep "^>" changed)" = "> node.session.cmds_max = 256" ]
	# The target that is set up anew with another number can be logged in to after the next discovery.
	echo 3 > $tpg/param/MaxOutstandingR2T
	iscsiadm -m discovery -t sendtargets -p 10.2.0.1:3260
	python3 -m fabtune.lab.guest logout
	timeout 300 iscsiadm -m node -T $target -p 10.2.0.1:3260 --login
	echo 1 > $tpg/param/MaxOutstandingR2T
}

@test "a mask of our udev rules and a missing iscsid.conf keep no value from being written, and are said" {
	ln -s /dev/null /etc/udev/rules.d/99-fabtune.rules
	mv /etc/iscsi/iscsid.conf /etc/iscsi/kept.conf
	ln -s /nowhere/iscsid.conf /etc/iscsi/iscsid.conf
	persist initiator block.read_ahead_kb=2048 tcp.rmem_max=7000000 iscsi.cmds_max=256 || failed=1
	value=$(cut -f3 /proc/sys/net/ipv4/tcp_rmem) mask=$(readlink /etc/udev/rules.d/99-fabtune.rules)
	given_back || failed=1
	rm -f /etc/udev/rules.d/99-fabtune.rules /etc/iscsi/iscsid.conf
	mv /etc/iscsi/kept.conf /etc/iscsi/iscsid.conf
	[ -z "${failed-}" ]
	[ "$value" -eq 7000000 ]
	[ "$mask" = /dev/null ]
}

@test "a file that the administrator made in our name is left alone, under --force too" {
	echo 'net.ipv4.tcp_sack = 1' > /etc/sysctl.d/90-fabtune.conf
	persist initiator tcp.rmem_max=7000000
	[[ "$output" == *"/etc/sysctl.d/90-fabtune.conf was written or edited by somebody else"* ]]
	given_back --force
	[ "$(cat /etc/sysctl.d/90-fabtune.conf)" = 'net.ipv4.tcp_sack = 1' ]
	rm /etc/sysctl.d/90-fabtune.conf
}

# refused WORDS: apply --persist fails with WORDS, and nothing of it is left.
refused() {
	local before
	before=$(sysctl -n net.ipv4.tcp_rmem)
	profile initiator tcp.rmem_max=7000000
	run fabtune apply "$PWD/p.toml" --role initiator --persist
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"$1"* && "$output" == *"everything written was taken back"* ]]
	[[ "$output" != *Traceback* ]]
	[ "$(sysctl -n net.ipv4.tcp_rmem)" = "$before" ]
	[ -z "$(ls -A /etc/sysctl.d | grep fabtune)" ]
}

@test "a read-only or full /etc ends in a clear error with everything taken back" {
	mount -t tmpfs -o ro tmpfs /etc/sysctl.d
	refused "Read-only file system"
	umount /etc/sysctl.d
	mount -t tmpfs -o size=4k tmpfs /etc/sysctl.d
	head -c 4096 /dev/zero > /etc/sysctl.d/filler
	refused "No space left on device"
}

@test "an immutable directory below /etc ends in a clear error with everything taken back" {
	mount -t tmpfs tmpfs /etc/sysctl.d
	chattr +i /etc/sysctl.d || skip "no directory of this guest can be made immutable"
	refused "not permitted even to root"
}
