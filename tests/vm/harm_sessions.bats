#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite bookworm --clock real --accel uml
# guest-full: --suite trixie --clock real
# Which sessions a re-login may end, and that they come back: several to a record, multipath, IPv6, a kill in between.

TARGET=iqn.2026-01.lab.fabtune:target
TPG=/sys/kernel/config/target/iscsi/$TARGET/tpgt_1
STORE=/sys/kernel/config/target/core/rd_mcp_0/disk0
PORTAL_A=10.2.0.1:3260 PORTAL_B=10.2.0.2:3260 PORTAL_C=10.2.0.3:3260 PORTAL_6=[fd00:2::1]:3260

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 0ms --keeps-data --size-mib 64
	ip -n target addr add 10.2.0.2/24 dev t0
	two_networks_of_ipv6
	for portal in $PORTAL_B "$PORTAL_6"; do
		nsenter --net=/run/netns/target mkdir "$TPG/np/$portal"
	done
	second_port_group
	iscsiadm -m discovery -t st -p $PORTAL_A >/dev/null
	modprobe dm_multipath dm_service_time 2>/dev/null || true
	/usr/lib/systemd/systemd-udevd --daemon >/dev/null 2>&1 3>&- 4>&- 5>&- 6>&- 7>&-
}

# A TPG of its own on PORTAL_C: the same disk in another ALUA port group.
second_port_group() {
	mkdir $STORE/alua/second
	echo 16 > $STORE/alua/second/tg_pt_gp_id
	mkdir -p ${TPG%1}2/lun/lun_0
	ln -s $STORE ${TPG%1}2/lun/lun_0/disk0
	echo second > ${TPG%1}2/lun/lun_0/alua_tg_pt_gp
	for attribute in generate_node_acls=1 cache_dynamic_acls=1 demo_mode_write_protect=0 authentication=0; do
		echo "${attribute#*=}" > "${TPG%1}2/attrib/${attribute%=*}"
	done
	ip -n target addr add 10.2.0.3/24 dev t0
	nsenter --net=/run/netns/target mkdir ${TPG%1}2/np/$PORTAL_C
	echo 1 > ${TPG%1}2/enable
}

two_networks_of_ipv6() {
	ip addr add fd00:1::1/64 dev i0 nodad
	ip -n shaper addr add fd00:1::fe/64 dev s0 nodad
	ip -n shaper addr add fd00:3::1/64 dev s1 nodad
	ip -n wan addr add fd00:3::2/64 dev w0 nodad
	ip -n wan addr add fd00:2::fe/64 dev w1 nodad
	ip -n target addr add fd00:2::1/64 dev t0 nodad
	for router in shaper wan; do
		ip netns exec $router sysctl -qw net.ipv6.conf.all.forwarding=1
	done
	ip route add fd00:2::/64 via fd00:1::fe
	ip -n shaper route add fd00:2::/64 via fd00:3::2
	ip -n wan route add fd00:1::/64 via fd00:3::1
	ip -n target route add fd00:1::/64 via fd00:2::fe
}

# bats waits for every process that holds one of its descriptors.
teardown_file() {
	load until
	udevadm control --exit || true
	until_true '! pidof systemd-udevd' 20 || kill -9 $(pidof systemd-udevd)
}

setup() {
	load common
	load until
	cat > relogin.toml <<-'EOT'
		summary = "one value that counts from the next login on"
		[initiator."iscsi.queue_depth"]
		value = 64
		why = "a test"
	EOT
	cat > disks.toml <<-'EOT'
		summary = "one value of each disk"
		[initiator."block.read_ahead_kb"]
		value = "1MiB"
		why = "a test"
	EOT
}

teardown() {
	exec 8<&- 9<&-
	[ -z "$stale" ] || rm -rf "$stale"
	dmsetup remove_all --force >/dev/null 2>&1 || true
	if [ -n "$(pidof multipathd)" ]; then
		kill "$(pidof multipathd)"
		until_true '! pidof multipathd'
		dmsetup remove_all --force >/dev/null 2>&1 || true
	fi
	# With these a later test's disks are paths to Debian 12's udev, which deletes the partitions of such.
	rm -rf /etc/multipath.conf /etc/multipath /var/lib/fabtune
	iscsiadm -m node --logoutall=all >/dev/null 2>&1 || true
	until_true '[ -z "$(ls /sys/class/iscsi_session)" ]'
	iscsiadm -m node -o update -n node.session.nr_sessions -v 1
	iscsiadm -m node -o update -n node.session.queue_depth -v 32
	iscsiadm -m node -o update -n node.startup -v manual
}

login() {
	iscsiadm -m node -p "$1" --login >/dev/null
}

sids() {
	iscsiadm -m session 2>/dev/null | sed 's/.*\[\([0-9]*\)\].*/\1/' | sort -n | xargs
}

# disk_of SID: the name of its disk, once it is there.
disk_of() {
	until_true "ls -d /sys/class/iscsi_session/session$1/device/target*/*/block/*"
	basename /sys/class/iscsi_session/session$1/device/target*/*/block/*
}

# A multipath device over PORTAL_A and another portal, kept by multipathd; $sid_a and $sid_b are its sessions.
multipath_up() {
	printf 'defaults {\n\tfind_multipaths no\n\tuser_friendly_names yes\n\tpolling_interval 1\n}\n' > /etc/multipath.conf
	login $PORTAL_A
	sid_a=$(sids)
	login ${1:-$PORTAL_B}
	sid_b=$(sids | sed "s/\b$sid_a\b//" | xargs)
	disk_a=$(disk_of "$sid_a") disk_b=$(disk_of "$sid_b")
	# What udev has not done with when multipathd starts is no path to it, and may stay none.
	udevadm settle --timeout=60 || true
	multipathd -d >"$BATS_TEST_TMPDIR/multipathd.log" 2>&1 8<&- 9<&- 3>&- &
	until_true two_paths 60 && return
	# It gives up asking udev about a disk; this makes it look at all of them anew.
	multipathd reconfigure
	until_true two_paths || { cat "$BATS_TEST_TMPDIR/multipathd.log"; return 1; }
}

two_paths() {
	[ "$(live_paths)" -eq 2 ] && [ -b /dev/mapper/mpatha ]
}

live_paths() {
	dmsetup status --target multipath | grep -o '8:[0-9]* A' | wc -l
}

apply() {
	fabtune apply "$PWD/relogin.toml" --role initiator --allow-relogin
}

@test "a session is logged out alone: another session of its record, whose disk is in use, stays" {
	iscsiadm -m node -p $PORTAL_A -o update -n node.session.nr_sessions -v 2
	login $PORTAL_A
	read -r first second <<< "$(sids)"
	exec 9<"/dev/$(disk_of "$first")"
	disk_of "$second"
	run apply
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"in use by process"* ]]
	[ -d /sys/class/iscsi_session/session$first ]
	[ ! -d /sys/class/iscsi_session/session$second ]
	[ "$(sids | wc -w)" -eq 2 ]
	dd if=/dev/fd/9 of=/dev/null bs=4096 count=1 status=none
	exec 9<&-
	run fabtune revert --allow-relogin
	echo "$output"
	[ "$status" -eq 0 ]
	# It never had the new value.
	[ -d /sys/class/iscsi_session/session$first ]
	[ "$(sids | wc -w)" -eq 2 ]
}

@test "each disk of two sessions to one record gets its value and loses it again, a login of one in between" {
	iscsiadm -m node -p $PORTAL_A -o update -n node.session.nr_sessions -v 2
	login $PORTAL_A
	read -r first second <<< "$(sids)"
	one=$(disk_of "$first") two=$(disk_of "$second")
	echo 128 > "/sys/block/$one/queue/read_ahead_kb"
	echo 256 > "/sys/block/$two/queue/read_ahead_kb"
	fabtune apply "$PWD/disks.toml" --role initiator
	[ "$(cat "/sys/block/$one/queue/read_ahead_kb")" -eq 1024 ]
	[ "$(cat "/sys/block/$two/queue/read_ahead_kb")" -eq 1024 ]
	iscsiadm -m session -r "$first" -u
	login $PORTAL_A
	third=$(sids | sed "s/\b$second\b//" | xargs)
	disk_of "$third"
	fabtune revert
	[ "$(cat "/sys/block/$(disk_of "$second")/queue/read_ahead_kb")" -eq 256 ]
	[ "$(cat "/sys/block/$(disk_of "$third")/queue/read_ahead_kb")" -eq 128 ]
}

@test "a record that asks for fewer sessions than there are keeps them all, for a login would not bring one back" {
	iscsiadm -m node -p $PORTAL_A -o update -n node.session.nr_sessions -v 2
	login $PORTAL_A
	iscsiadm -m node -p $PORTAL_A -o update -n node.session.nr_sessions -v 1
	before=$(sids)
	run apply
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"would not bring it back"* ]]
	[ "$(sids)" = "$before" ]
}

@test "the last live path of a multipath device stays when device-mapper has failed the other one" {
	multipath_up
	mkfs.ext4 -q /dev/mapper/mpatha
	mkdir -p mnt
	mount /dev/mapper/mpatha mnt
	# multipathd would find the path alive again, and a broken one it would not.
	kill -STOP "$(pidof multipathd)"
	dmsetup message mpatha 0 fail_path "$(cat "/sys/block/$disk_b/dev")"
	run apply
	kill -CONT "$(pidof multipathd)"
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"no other live path"* ]]
	[ -d /sys/class/iscsi_session/session$sid_a ]
	touch mnt/written
	sync mnt/written
	umount mnt
}

@test "the paths of a multipath device in use log in anew one after the other, and it never lacks one" {
	multipath_up
	mkfs.ext4 -q /dev/mapper/mpatha
	mkdir -p mnt
	mount /dev/mapper/mpatha mnt
	echo "fabtune: $BATS_TEST_NAME" > /dev/kmsg
	run apply
	echo "$output"
	[ "$status" -eq 0 ]
	[ ! -d /sys/class/iscsi_session/session$sid_a ]
	[ ! -d /sys/class/iscsi_session/session$sid_b ]
	[ "$(live_paths)" -eq 2 ]
	touch mnt/written
	sync mnt/written
	umount mnt
	# A path that goes while somebody reads it may fail that read; what the file system stands on may not.
	! dmesg | sed "1,/fabtune: $BATS_TEST_NAME/d" | grep -E 'I/O error.* dm-|JBD2.*abort|EXT4-fs error' || false
}

@test "a multipath device that carries what the re-login needs keeps all of its paths, be it below a volume" {
	multipath_up
	dmsetup create volume --table "0 100000 linear /dev/mapper/mpatha 0"
	until_true '[ -b /dev/mapper/volume ]'
	mkfs.ext4 -q /dev/mapper/volume
	mkdir -p /var/lib/fabtune
	mount /dev/mapper/volume /var/lib/fabtune
	before=$(sids)
	run apply
	umount /var/lib/fabtune
	[ "$status" -eq 4 ]
	[[ "$output" == *"carries the file system on /var/lib/fabtune"* ]]
	mkdir -p /srv/san
	mount /dev/mapper/volume /srv/san
	ln -s /srv/san/state state
	mkdir -m 700 /srv/san/state
	iscsiadm -m node -o update -n node.session.queue_depth -v 32
	FABTUNE_STATE_DIR=$PWD/state run apply
	umount /srv/san
	dmsetup remove volume
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"carries the file system of $PWD/state"* ]]
	[ "$(sids)" = "$before" ]
}

@test "a path stays when the other one no longer answers, whatever the kernel still says of it" {
	multipath_up
	ip -n target route add blackhole 10.1.0.1/32
	ip -n target addr del 10.2.0.2/24 dev t0
	kill -STOP "$(pidof multipathd)"
	before=$(sids)
	run apply
	ip -n target addr add 10.2.0.2/24 dev t0
	ip -n target route del blackhole 10.1.0.1/32
	kill -CONT "$(pidof multipathd)"
	echo "$output"
	[ "$status" -eq 4 ]
	[ "$(sids)" = "$before" ]
}

@test "a path stays when the target has put the other one's port on standby" {
	multipath_up $PORTAL_C
	kill -STOP "$(pidof multipathd)"
	echo 2 > $STORE/alua/second/alua_access_state
	before=$(sids)
	run apply
	echo 0 > $STORE/alua/second/alua_access_state
	kill -CONT "$(pidof multipathd)"
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"at $PORTAL_A needs a re-login"*"no other live path"* ]]
	[[ "$before" == "$sid_a "* ]]
	[ -d /sys/class/iscsi_session/session$sid_a ]
}

@test "a path stays when nobody would give it back to its multipath device" {
	login $PORTAL_A
	login $PORTAL_B
	read -r first second <<< "$(sids)"
	one=$(cat "/sys/block/$(disk_of "$first")/dev") two=$(cat "/sys/block/$(disk_of "$second")/dev")
	size=$(cat "/sys/dev/block/$one/size")
	dmsetup create bare --uuid mpath-bare \
		--table "0 $size multipath 0 0 1 1 service-time 0 2 1 $one 1 $two 1"
	before=$(sids)
	run apply
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"multipathd does not run"* ]]
	[ "$(sids)" = "$before" ]
	dmsetup remove bare
}

@test "a session is left alone that this host was booted from, or that no record would bring back" {
	login $PORTAL_A
	before=$(sids)
	iscsiadm -m node -p $PORTAL_A -o update -n node.startup -v onboot
	run apply
	[ "$status" -eq 4 ]
	[[ "$output" == *"booted from it"* ]]
	iscsiadm -m node -p $PORTAL_A -o update -n node.startup -v manual
	[ "$(sids)" = "$before" ]
	nodes=$(ls -d /var/lib/iscsi/nodes /etc/iscsi/nodes 2>/dev/null | head -1)
	mv "$nodes/$TARGET/${PORTAL_A%:*},3260,1" kept
	run apply
	mv kept "$nodes/$TARGET/${PORTAL_A%:*},3260,1"
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"no node record"* ]]
	[ "$(sids)" = "$before" ]
}

@test "a session is left alone whose next login would not be as its last: another CHAP secret, another initiator" {
	login $PORTAL_A
	before=$(sids)
	iscsiadm -m node -p $PORTAL_A -o update -n node.session.auth.password -v of-next-month
	run apply
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"node.session.auth.password is not what it logged in with"* && "$output" != *of-next-month* ]]
	iscsiadm -m node -p $PORTAL_A -o update -n node.session.auth.password -v ""
	cp /etc/iscsi/initiatorname.iscsi kept-name
	echo "InitiatorName=iqn.2026-01.lab.fabtune:renamed" > /etc/iscsi/initiatorname.iscsi
	run apply
	cp kept-name /etc/iscsi/initiatorname.iscsi
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"iqn.2026-01.lab.fabtune:renamed, which its target may refuse"* ]]
	[ "$(sids)" = "$before" ]
	# With both as they were it is logged in again.
	run apply
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(sids)" != "$before" ]
}

@test "a session whose record asks for no scan keeps the disks that somebody else scanned for" {
	iscsiadm -m node -p $PORTAL_A -o update -n node.session.scan -v manual
	login $PORTAL_A
	before=$(sids)
	echo "0 0 0" > "/sys/class/iscsi_session/session$before/device/../scsi_host/"host*/scan
	disk=$(disk_of "$before")
	run apply
	iscsiadm -m node -p $PORTAL_A -o update -n node.session.scan -v auto
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"asks for no scan"* ]]
	[ "$(sids)" = "$before" ]
	[ -e "/sys/block/$disk" ]
}

@test "a login that fails brings back that session and leaves the others of its record alone" {
	iscsiadm -m node -p $PORTAL_A -o update -n node.session.nr_sessions -v 2
	login $PORTAL_A
	read -r first second <<< "$(sids)"
	exec 9<"/dev/$(disk_of "$first")"
	disk_of "$second"
	mkdir -p bin
	real=$(command -v iscsiadm)
	cat > bin/iscsiadm <<-EOT
		#!/bin/bash
		case "\$*" in *--login*) [ -e $PWD/failed ] || { touch $PWD/failed; echo refused >&2; exit 8; };; esac
		exec $real "\$@"
	EOT
	chmod +x bin/iscsiadm
	PATH=$PWD/bin:$PATH run apply
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"logged in again with its old values"* ]]
	[ -d /sys/class/iscsi_session/session$first ]
	[ "$(sids | wc -w)" -eq 2 ]
	exec 9<&-
}

@test "a session over IPv6 is seen: its round trip, and the lint of its locked window" {
	login "$PORTAL_6"
	dd if=/dev/"$(disk_of "$(sids)")" of=/dev/null bs=1M count=8 iflag=direct status=none
	fabtune plan wan --role initiator --rate 1gbit --json > plan.json
	python3 -c "import json; rtt = json.load(open('plan.json'))['path']['rtt_ms']; assert 0 < rtt < 100, rtt"
	run fabtune show
	[[ "$output" == *" ms"*locked* ]]
	run apply
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "what was set by hand of a disk and its session outlives a re-login, and what the record says counts where it was not" {
	printf 'summary = "a test"\n[initiator."iscsi.cmds_max"]\nvalue = 256\nwhy = "a test"\n' > queue.toml
	login $PORTAL_A
	login $PORTAL_B
	read -r first second <<< "$(sids)"
	disk_of "$second"
	cd "/sys/block/$(disk_of "$first")"
	echo none > queue/scheduler
	echo 100 > queue/nr_requests
	echo 4096 > queue/read_ahead_kb
	echo 180 > device/timeout
	echo 16 > device/queue_depth
	blockdev --setro "/dev/$(basename "$PWD")"
	# udev hears of it, and gives the node its own group again.
	udevadm settle
	chown 1000:1001 "/dev/$(basename "$PWD")"
	chmod 600 "/dev/$(basename "$PWD")"
	cd - >/dev/null
	echo 7 > "/sys/class/iscsi_session/session$first/recovery_tmo"
	by_hand > before
	fabtune apply "$PWD/queue.toml" --role initiator --allow-relogin
	[ "$(sids | wc -w)" -eq 2 ] && [[ " $(sids) " != *" $first "* ]]
	by_hand > after
	diff before after
	run apply
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"device/queue_depth of"*"was set to 16 by hand, and is 64, as relogin has it"* ]]
	[[ "$output" == *"belongs to 1000:1001 0600 again"* ]]
	[ "$(cat /sys/block/sd?/device/queue_depth | xargs)" = "64 64" ]
	sed -i 's/^depth .*/depth 32/' before
	fabtune revert --allow-relogin
	by_hand > after
	diff before after
	[ "$(cat /sys/block/sd?/device/queue_depth | xargs)" = "32 32" ]
	[ "$(cat /sys/block/sd?/queue/nr_requests | sort -n | tail -1)" -ne 100 ]
}

# by_hand: the values of the disk behind PORTAL_A, and of its session.
by_hand() {
	local session queue
	session=$(grep -l "^${PORTAL_A%:*}$" /sys/class/iscsi_connection/*/persistent_address | sed 's/.*connection\([0-9]*\):.*/\1/')
	queue=/sys/block/$(disk_of "$session")
	stat -c '%u:%g %a' "/dev/$(basename "$queue")"
	cat $queue/ro $queue/queue/{scheduler,nr_requests,read_ahead_kb} $queue/device/timeout
	echo "depth $(cat $queue/device/queue_depth)"
	cat "/sys/class/iscsi_session/session$session/recovery_tmo"
}

@test "what was set by hand is given back after a kill behind the login, a partition's protection and more than a profile asks for as well" {
	printf 'summary = "a test"\n[initiator."iscsi.queue_depth"]\nat_least = 64\nwhy = "a test"\n' > relogin.toml
	iscsiadm -m node -o update -n node.session.cmds_max -v 256
	login $PORTAL_A
	hand=$(disk_of "$(sids)")
	one_partition "$hand"
	blockdev --setro "/dev/${hand}1"
	echo 180 > "/sys/block/$hand/device/timeout"
	echo 200 > "/sys/block/$hand/device/queue_depth"
	real=$(PATH=/usr/sbin:/sbin command -v iscsiadm)
	mkdir bin
	printf '#!/bin/sh\n%s "$@"\ncase "$*" in *--login*) kill -9 $PPID;; esac\n' "$real" > bin/iscsiadm
	chmod +x bin/iscsiadm
	PATH=$PWD/bin:$PATH run -137 apply
	disk_of "$(sids)"
	run -3 fabtune verify
	echo "$output"
	[[ "$output" == *"device/timeout"*"180"* && "$output" == *"ro of partition 1"* && "$output" == *"device/queue_depth"*"200"* ]]
	run fabtune revert
	echo "$output"
	hand=$(disk_of "$(sids)")
	[ "$(cat "/sys/block/$hand/device/timeout" "/sys/block/$hand/${hand}1/ro" "/sys/block/$hand/device/queue_depth" | xargs)" = "180 1 200" ]
	run fabtune verify
	echo "$output"
	[[ "$output" != *device/* ]]
	iscsiadm -m node -o update -n node.session.cmds_max -v 128
}

# one_partition DISK
one_partition() {
	python3 - "/dev/$1" <<-'EOT'
		import struct, sys
		table = bytearray(512)
		table[446:462] = struct.pack("<B3sB3sII", 0, bytes([0, 2, 0]), 0x83, bytes([0, 2, 0]), 2048, 20480)
		table[510:] = b"\x55\xaa"
		with open(sys.argv[1], "r+b") as disk:
		    disk.write(table)
	EOT
	blockdev --rereadpt "/dev/$1"
	udevadm settle
	until_true "[ -e /sys/block/$1/${1}1/ro ]"
}

@test "a target's value that ends its sessions is left alone without --end-sessions, also by revert" {
	acl=$TPG/acls/iqn.2026-01.lab.fabtune:initiator
	mkdir -p $acl/lun_0
	ln -s $TPG/lun/lun_0 $acl/lun_0/disk
	login $PORTAL_A
	cat > depth.toml <<-'EOT'
		summary = "a deeper window"
		[target."lio.cmdsn_depth"]
		value = 256
		why = "a test"
	EOT
	# Without a netns fabtune says that the portal is elsewhere, and writes the target's own values all the same.
	run fabtune apply "$PWD/depth.toml" --role target --allow-relogin
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"--end-sessions"* ]]
	[ "$(cat $acl/cmdsn_depth)" -eq 64 ]
	fabtune apply "$PWD/depth.toml" --role target --end-sessions
	[ "$(cat $acl/cmdsn_depth)" -eq 256 ]
	until_true 'grep -qx LOGGED_IN /sys/class/iscsi_session/session*/state'
	run fabtune revert --allow-relogin
	echo "$output"
	[ "$status" -eq 4 ]
	[ "$(cat $acl/cmdsn_depth)" -eq 256 ]
	fabtune revert --end-sessions
	[ "$(cat $acl/cmdsn_depth)" -eq 64 ]
	iscsiadm -m node --logoutall=all
	rm $acl/lun_0/disk
	rmdir $acl/lun_0 $acl
}

@test "a session with a stale record of another portal group beside its own is left alone, and that record is named" {
	login $PORTAL_A
	before=$(sids)
	nodes=$(ls -d /var/lib/iscsi/nodes /etc/iscsi/nodes 2>/dev/null | head -1)
	stale="$nodes/$TARGET/${PORTAL_A%:*},3260,2"
	cp -a "${stale%2}1" "$stale"
	sed -i 's/^node.tpgt = 1/node.tpgt = 2/' "$stale/default"
	run apply
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$(tr -s '\n ' '  ' <<< "$output")" == *"remove the stale one, $stale)"* ]]
	[ "$(sids)" = "$before" ]
	rm -r "$stale"
	run apply
	[ "$status" -eq 0 ]
	[ "$(sids)" != "$before" ]
}

@test "a path that multipathd would not take back stays, be it for its configuration or for udev's silence" {
	multipath_up
	exec 9</dev/mapper/mpatha
	before=$(sids)
	udevadm control --exit
	until_true '! pidof systemd-udevd'
	run apply
	/usr/lib/systemd/systemd-udevd --daemon >/dev/null 2>&1 3>&- 4>&- 5>&- 6>&- 7>&- 9<&-
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"udevd does not answer"* ]]
	printf 'blacklist {\n\tdevnode "^sd[a-z]"\n}\n' >> /etc/multipath.conf
	multipathd reconfigure
	until_true '! multipathd show paths raw format %d | grep -q sd'
	run apply
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"multipathd knows no "* ]]
	[ "$(sids)" = "$before" ]
	exec 9<&-
}

@test "a path that its multipath device lacks after the re-login is said and still to be done, and the other path stays" {
	multipath_up
	exec 9</dev/mapper/mpatha
	mkdir -p bin
	real=$(command -v iscsiadm)
	printf '#!/bin/bash\ncase "$*" in *--login*) kill $(pidof multipathd);; esac\nexec %s "$@"\n' "$real" > bin/iscsiadm
	chmod +x bin/iscsiadm
	PATH=$PWD/bin:$PATH run apply
	echo "$output"
	exec 9<&-
	[ "$status" -eq 4 ]
	[[ "$output" == *"lacks its multipath device"*"has not taken its path"* ]]
	[ ! -d /sys/class/iscsi_session/session$sid_a ]
	[ -d /sys/class/iscsi_session/session$sid_b ]
	dd if=/dev/mapper/mpatha of=/dev/null bs=4096 count=1 iflag=direct status=none
	run -3 fabtune verify
	echo "$output"
	[[ "$output" == *"lacks its path through it"* ]]
	multipathd -d >/tmp/multipathd.log 2>&1 3>&- &
	until_true '[ "$(live_paths)" -eq 2 ]'
	run fabtune verify
	echo "$output"
	[[ "$output" != *"lacks its path"* ]]
}
