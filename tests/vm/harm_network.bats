#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie --clock real --accel uml
# guest-full: --suite bookworm --clock real --accel uml
# guest-full: --suite trixie --clock virtual
# What fabtune does to NICs, qdiscs and routes that are not storage's alone, or not as simple as one NIC and one route.

bats_require_minimum_version 1.5.0

TARGETS=/sys/kernel/config/target/iscsi

setup_file() {
	for module in ifb bonding vrf dummy macvlan vxlan 8021q sch_fq sch_fq_codel sch_cake sch_htb tcp_bbr; do modprobe $module; done
	sysctl -q net.core.default_qdisc=fq_codel
	python3 -m fabtune.lab.guest up --rtt 2ms
	python3 -m fabtune.lab.guest login
}

setup() {
	load common
	load until
	cat > fq.toml <<-'END'
		summary = "fq and its maxrate"
		[parameters.share_nic]
		default = "0"
		summary = "1 to pace all the same"
		[both."qdisc.kind"]
		value = "fq"
		why = "a test"
		[both."qdisc.maxrate"]
		value = 125000000
		why = "a test"
	END
	cat > jumbo.toml <<-'END'
		summary = "large packets"
		[both."nic.mtu"]
		at_least = 9000
		why = "a test"
	END
	cat > congctl.toml <<-'END'
		summary = "a route's congestion control"
		[both."route.congctl"]
		value = "bbr"
		why = "a test"
	END
}

teardown() {
	fabtune revert --force >/dev/null 2>&1 || true
	# What a failed test leaves behind must not fail the next.
	tc qdisc del dev i0 root 2>/dev/null || true
	for device in mq0 own0 san0.5 san0 e0 e1 br0 p0 vx0 m0 vrf0; do ip link del $device 2>/dev/null || true; done
	rmdir "$TARGETS"/iqn.2026-01.lab.fabtune:own/tpgt_1/np/* 2>/dev/null || true
	ip link set i0 nomaster
	iscsiadm -m iface -I bound -o delete >/dev/null 2>&1 || true
	ip route replace 10.2.0.0/24 via 10.1.0.254
	ip rule del lookup 101 2>/dev/null || true
	ip nexthop flush >/dev/null 2>&1 || true
	ip netns del box 2>/dev/null || true
	sysctl -q net.core.default_qdisc=fq_codel
	umount -q /proc/sys/kernel/random/boot_id || true
	[ -d /sys/class/iscsi_session ] && ls /sys/class/iscsi_session | grep -q . || {
		iscsiadm -m discovery -t st -p 10.2.0.1:3260 >/dev/null
		python3 -m fabtune.lab.guest login
	}
}

# try VERB ...: fabtune, which must not fail; what it says goes to ./said and to the log.
try() {
	local status=0
	fabtune "$@" > said 2>&1 || status=$?
	[ $status -eq 0 ] || [ $status -eq 4 ]
}

# tree DEVICE: all that is attached to it, with every option, as tc prints it.  Other kinds than htb list their flows as classes.
tree() {
	tc -d qdisc show dev "$1" | sed 's/ refcnt [0-9]*//' | sort
	tc class show dev "$1" | grep htb | sort
	tc filter show dev "$1"
}

# portal ADDRESS: a portal of this host's own at it, so that the device which holds it is storage's.
portal() {
	mkdir -p "$TARGETS/iqn.2026-01.lab.fabtune:own/tpgt_1/np/$1:3260"
}

no_portal() {
	rmdir "$TARGETS/iqn.2026-01.lab.fabtune:own/tpgt_1/np/$1:3260"
}

paced() {
	tc -d qdisc show dev "$1" | grep -q 'qdisc fq .*maxrate 1Gbit'
}

unpaced() {
	tc -d qdisc show dev "$1" | grep 'qdisc fq ' | grep -vq maxrate
}

@test "a NIC that carries storage alone is paced; one with another peer, address or default route only on request" {
	try apply "$PWD/fq.toml" --role initiator
	paced i0
	try revert

	ip netns exec wan python3 -c '
import socket, time
server = socket.create_server(("10.3.0.2", 5001))
held = server.accept()
time.sleep(1e6)' &
	server=$!
	ip route add 10.3.0.0/24 via 10.1.0.254
	python3 -c '
import socket, time
for _ in range(100):
    try:
        held = socket.create_connection(("10.3.0.2", 5001), 5)
        break
    except OSError:
        time.sleep(0.1)
open("connected", "w").close()
time.sleep(1e6)' &
	client=$!
	until_true '[ -e connected ]'
	try apply "$PWD/fq.toml" --role initiator
	kill $client $server
	ip route del 10.3.0.0/24
	grep -q 'connections to 10.3.0.2' said
	unpaced i0
	try revert

	ip route add default via 10.1.0.254
	try apply "$PWD/fq.toml" --role initiator
	grep -q 'default route' said
	unpaced i0
	try apply "$PWD/fq.toml" --role initiator --set share_nic=1
	paced i0
	try revert
	try plan wan --role initiator --rtt 50ms --rate 1gbit --json
	grep -q 'share_nic=1' said
	ip route del default

	ip addr add 10.1.0.77/24 dev i0
	try plan wan --role initiator --rtt 50ms --rate 1gbit --json
	ip addr del 10.1.0.77/24 dev i0
	grep -q 'address 10.1.0.77' said
}

@test "a NIC with a container's device on it, a UDP peer, a tunnel or a VPN's routes is not paced unasked" {
	# shared WORDS: maxrate is refused, and they say for whom.
	shared() {
		try plan "$PWD/fq.toml" --role initiator --json
		grep -q "more than storage: .*$1" said || { echo "not said: $1"; cat said; return 1; }
	}
	ip netns add box
	ip link add mv0 link i0 type macvlan mode bridge
	ip link set mv0 netns box
	shared 'mv0 on top of it, in another network namespace'
	ip -n box link del mv0
	ip link add link i0 name v7 type vlan id 7
	ip link set v7 netns box
	shared 'v7 on top of it, in another network namespace'
	ip netns del box

	python3 -c '
import socket, time
peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
peer.connect(("10.1.0.254", 51820))
open("connected", "w").close()
time.sleep(1e6)' &
	until_true '[ -e connected ]'
	shared 'UDP with 10.1.0.254'
	kill $!

	ip link add vx0 type vxlan id 5 remote 10.1.0.254 dstport 4789 local 10.1.0.1
	ip link set vx0 up
	shared 'the tunnel vx0'
	ip link del vx0

	ip route add 0.0.0.0/1 via 10.1.0.254
	shared 'default route'
	ip route del 0.0.0.0/1
	ip route add default via 10.1.0.254 table 100
	shared 'default route'
	ip route del default table 100
	try apply "$PWD/fq.toml" --role initiator
	paced i0
}

@test "the kernel's own qdisc is taken back although the MTU that it was made for has changed since" {
	ip link add own0 type ifb
	ip addr add 192.0.2.1/24 dev own0
	ip link set own0 up
	portal 192.0.2.1
	try apply "$PWD/fq.toml" --role target
	ip link set own0 mtu 9000
	fabtune revert
	tc qdisc show dev own0 | grep -q 'qdisc fq_codel 0: root'
	no_portal 192.0.2.1
	ip link del own0
}

@test "what one profile made of fq for another MTU is taken back after a reboot, and then what the other one made" {
	ip link add own0 type ifb
	ip addr add 192.0.2.1/24 dev own0
	ip link set own0 up mtu 9000
	portal 192.0.2.1
	sed s/125000000/62500000/ fq.toml > slower.toml
	try apply "$PWD/fq.toml" --role target
	try apply "$PWD/slower.toml" --role target
	# What a reboot does to both.
	tc qdisc del dev own0 root
	ip link set own0 mtu 1500
	cat /proc/sys/kernel/random/uuid > boot_id
	mount --bind boot_id /proc/sys/kernel/random/boot_id
	run fabtune revert
	umount /proc/sys/kernel/random/boot_id
	echo "$output"
	tc -d qdisc show dev own0
	[ "$status" -eq 0 ]
	tc qdisc show dev own0 | grep -q 'qdisc fq_codel 0: root'
	no_portal 192.0.2.1
	ip link del own0
}

@test "a NIC that was renamed keeps nothing of ours, although another one has taken its name and been tuned too" {
	ip link add own0 type ifb
	ip addr add 192.0.2.1/24 dev own0
	ip link set own0 up
	portal 192.0.2.1
	try apply "$PWD/fq.toml" --role target
	first=$(ls /var/lib/fabtune/journal | tail -1)
	ip link set own0 down
	ip link set own0 name san0
	ip link set san0 up
	ip link add own0 type ifb
	ip addr add 192.0.2.2/24 dev own0
	ip link set own0 up
	fabtune verify
	portal 192.0.2.2
	try apply "$PWD/fq.toml" --role target
	paced san0
	paced own0
	run -0 fabtune verify
	tc qdisc change dev san0 root fq maxrate 2gbit
	run -3 fabtune verify
	tc qdisc change dev san0 root fq maxrate 1gbit
	# The first transaction alone: the second one has other NICs.
	fabtune revert --transaction "${first%.jsonl}"
	paced own0
	tc qdisc show dev san0 | grep -q 'qdisc fq_codel 0: root'
	fabtune revert
	tc qdisc show dev own0 | grep -q 'qdisc fq_codel 0: root'
	no_portal 192.0.2.1
	no_portal 192.0.2.2
	ip link del san0
	ip link del own0
}

@test "a NIC that was moved to another namespace is waited for, although another one has taken its name" {
	cat > mtu.toml <<-'END'
		summary = "one MTU"
		[both."nic.mtu"]
		value = 4000
		why = "a test"
	END
	ip link add own0 type dummy
	ip addr add 192.0.2.1/24 dev own0
	ip link set own0 up
	portal 192.0.2.1
	try apply "$PWD/mtu.toml" --role target
	ip netns add box
	ip link set own0 netns box
	ip link add own0 type dummy
	run -4 fabtune revert
	[[ "$output" == *"waiting: nic.mtu of own0"* ]]
	ip link del own0
	ip -n box link set own0 netns 1
	fabtune revert
	[ "$(cat /sys/class/net/own0/mtu)" -eq 1500 ]
	no_portal 192.0.2.1
	ip link del own0
}

@test "a qdisc made by hand stays, with its options, classes and filters, and so does what was made of ours" {
	local made
	for made in "cake bandwidth 500mbit" "pfifo limit 50" "fq limit 50" "fq"; do
		tc qdisc replace dev i0 root $made
		tree i0 > before
		try apply "$PWD/fq.toml" --role initiator
		grep -q 'by hand' said
		tree i0 > during
		try revert
		tree i0 > after
		tc qdisc del dev i0 root
		diff before during
		diff before after
	done
	tc qdisc replace dev i0 root handle 1: htb default 10
	tc class add dev i0 parent 1: classid 1:10 htb rate 800mbit
	tc filter add dev i0 parent 1: protocol ip matchall classid 1:10
	tree i0 > before
	try apply "$PWD/fq.toml" --role initiator
	try revert
	tree i0 > after
	tc qdisc del dev i0 root
	diff before after
	# Ours, but with an option that somebody else gave it.
	try apply "$PWD/fq.toml" --role initiator
	tc qdisc change dev i0 root fq limit 5000
	run fabtune revert
	echo "$output"
	[ "$status" -eq 3 ]
	tc -d qdisc show dev i0 | grep -q 'limit 5000p'
	tc qdisc del dev i0 root
	# Somebody else's in the place of ours.
	fabtune revert --force
	try apply "$PWD/fq.toml" --role initiator
	tc qdisc replace dev i0 root pfifo limit 33
	run fabtune revert
	echo "$output"
	[ "$status" -eq 3 ]
	[[ "$output" != *failed* ]]
	tc qdisc show dev i0 | grep -q 'pfifo .* limit 33p'
	tc qdisc del dev i0 root
}

@test "a NIC whose IPv6 address a small MTU would take away for good keeps its MTU, and that is said" {
	ip link add own0 type dummy
	ip addr add 192.0.2.1/24 dev own0
	ip addr add 2001:db8::1/64 dev own0
	ip link set own0 up
	portal 192.0.2.1
	printf 'summary = "small"\n[both."nic.mtu"]\nvalue = 1000\nwhy = "a test"\n' > small.toml
	run fabtune apply "$PWD/small.toml" --role target
	echo "$output"
	[[ "$output" == *"would take 2001:db8::1 away"* ]]
	[ "$(cat /sys/class/net/own0/mtu)" -eq 1500 ]
	ip -6 addr show dev own0 | grep -q 2001:db8::1/64
	ip addr del 2001:db8::1/64 dev own0
	try apply "$PWD/small.toml" --role target
	[ "$(cat /sys/class/net/own0/mtu)" -eq 1000 ]
	try revert
	[ "$(cat /sys/class/net/own0/mtu)" -eq 1500 ]
	no_portal 192.0.2.1
}

@test "a multiqueue NIC gets its own mq and leaves back, to the letter, and what comes in keeps its filters" {
	ip link add mq0 numtxqueues 4 numrxqueues 4 type ifb
	ip addr add 192.0.2.1/24 dev mq0
	ip link set mq0 up
	portal 192.0.2.1
	tc qdisc add dev mq0 clsact
	tc filter add dev mq0 egress protocol ip matchall action pass
	tree mq0 > before
	tc filter show dev mq0 egress > filters
	[ "$(grep -c 'qdisc fq_codel 0: parent :' before)" -eq 4 ]
	cat >> fq.toml <<-'END'
		[both."nic.mtu"]
		value = 4000
		why = "a test"
	END
	try apply "$PWD/fq.toml" --role target
	tc -d qdisc show dev mq0
	[ "$(tc -d qdisc show dev mq0 | grep -c 'qdisc fq .*maxrate 1Gbit')" -eq 4 ]
	tc qdisc show dev mq0 | grep -q 'qdisc mq .* root'
	fabtune verify
	fabtune apply "$PWD/fq.toml" --role target | grep -q 'nothing to change'
	# The link is down: what the kernel attaches by itself is not there to be read back.
	ip link set mq0 down
	run fabtune revert
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"is down"* ]]
	ip link set mq0 up
	try revert
	tree mq0 > after
	diff before after
	tc filter show dev mq0 egress | diff filters -
	# The kernel's own would not come back: it is not taken away.
	sysctl -q net.core.default_qdisc=pfifo_fast
	try apply "$PWD/fq.toml" --role target
	sysctl -q net.core.default_qdisc=fq_codel
	grep -q 'could not bring back fq_codel' said
	tc qdisc show dev mq0 | grep -q 'qdisc fq_codel 0: parent :1'
	try revert
	no_portal 192.0.2.1
	ip link del mq0
}

@test "the kernel's own fq takes a maxrate, and is the kernel's own again after revert" {
	sysctl -q net.core.default_qdisc=fq
	ip link add own0 type ifb
	ip addr add 192.0.2.1/24 dev own0
	ip link set own0 up
	portal 192.0.2.1
	tree own0 > before
	grep -q 'qdisc fq 0: root' before
	try apply "$PWD/fq.toml" --role target
	tc -d qdisc show dev own0 | grep -q 'maxrate 1Gbit'
	try revert
	tree own0 > after
	sysctl -q net.core.default_qdisc=fq_codel
	no_portal 192.0.2.1
	ip link del own0
	diff before after
}

@test "a rate above what fq can count is no limit, and one just below it is set once" {
	cat > pace.toml <<-'END'
		summary = "pacing at the rate"
		include = ["wan"]
	END
	for entry in $(grep -o '^\[[a-z]*\."[^"]*"' /fabtune/profiles/{lan,wan}.toml | sed 's/.*\[//' | grep -v qdisc); do
		printf '[%s]\ndrop = true\n' "$entry" >> pace.toml
	done
	for rate in 40gbit 34gbit; do
		try apply "$PWD/pace.toml" --role initiator --rtt 1ms --rate $rate
		tc -d qdisc show dev i0
		run fabtune plan "$PWD/pace.toml" --role initiator --rtt 1ms --rate $rate --json
		python3 -c '
import json, sys
rows = [row for row in json.loads(sys.argv[1])["rows"] if row["tunable"].startswith("qdisc")]
assert rows and all(row["state"] in ("same", "not-needed") for row in rows), rows' "$output"
		try revert
	done
}

@test "on a VLAN over a bond the MTU goes to every layer in order, fq to the slaves alone, and all comes back" {
	ip link add san0 type bond mode active-backup
	for slave in e0 e1; do
		ip link add $slave type ifb
		ip link set $slave master san0
		ip link set $slave up
	done
	ip link set san0 up
	ip link add link san0 name san0.5 type vlan id 5
	ip addr add 192.0.2.1/24 dev san0.5
	ip link set san0.5 up
	portal 192.0.2.1
	for device in e0 e1 san0 san0.5; do tree $device; ip -o link show $device | grep -o 'mtu [0-9]*'; done > before
	try apply "$PWD/jumbo.toml" --role target
	for device in e0 e1 san0 san0.5; do [ "$(cat /sys/class/net/$device/mtu)" -eq 9000 ]; done
	fabtune verify
	try revert
	for device in e0 e1 san0 san0.5; do [ "$(cat /sys/class/net/$device/mtu)" -eq 1500 ]; done
	try apply "$PWD/fq.toml" --role target
	for device in e0 e1; do tc -d qdisc show dev $device | grep -q 'qdisc fq .*maxrate 1Gbit'; done
	for device in san0 san0.5; do tc qdisc show dev $device | grep -q 'qdisc noqueue'; done
	grep -q 'queue below it, in e0, e1' said
	try revert
	# Another VLAN on the bond: it is not storage's alone.
	ip link add link san0 name san0.6 type vlan id 6
	try plan "$PWD/fq.toml" --role target
	grep -q 'san0.6' said
	ip link del san0.6
	for device in e0 e1 san0 san0.5; do tree $device; ip -o link show $device | grep -o 'mtu [0-9]*'; done > after
	diff before after
	no_portal 192.0.2.1
	ip link del san0
	ip link del e0
	ip link del e1
}

@test "a bridge's ports keep MTU and qdisc: they carry what is not storage's" {
	ip link add br0 type bridge
	ip link add p0 type ifb
	ip link set p0 master br0
	ip link set p0 up
	ip link set br0 up
	ip addr add 192.0.2.1/24 dev br0
	portal 192.0.2.1
	try apply "$PWD/jumbo.toml" --role target
	[ "$(cat /sys/class/net/p0/mtu)" -eq 1500 ]
	try revert
	tree p0 > before
	try apply "$PWD/fq.toml" --role target
	grep -q 'port of a bridge' said
	tree p0 > after
	try revert
	no_portal 192.0.2.1
	ip link del br0
	ip link del p0
	diff before after
}

@test "routes with several hops or nexthop objects take a metric and come back to the letter" {
	local main="10.2.0.0/24 via 10.1.0.254"
	ip nexthop add id 30 via 10.1.0.254 dev i0
	ip nexthop add id 31 via 10.1.0.254 dev i0
	ip nexthop add id 40 group 30/31
	for way in "nhid 30 initcwnd 20" "nhid 40 initcwnd 20" "proto static mtu lock 1400 rto_min 300ms nexthop via 10.1.0.254 dev i0 weight 1 nexthop via 10.1.0.253 dev i0 weight 2"; do
		ip route replace 10.2.0.0/24 $way
		ip -o route > before
		try apply "$PWD/congctl.toml" --role initiator
		ip -o route | grep '^10.2.0.0/24' | grep -q 'congctl bbr'
		fabtune verify
		try revert
		ip -o route > after
		diff before after
	done
	# The kernel does not take the last metric of such a route away again.
	ip route replace 10.2.0.0/24 nhid 30
	ip -o route > before
	try apply "$PWD/congctl.toml" --role initiator
	grep -q 'nexthop object' said
	ip -o route | diff before -
	ip route replace $main
	ip nexthop flush
}

@test "with policy routing the metric goes to the route that the packets take, and nowhere else" {
	ip route add 10.2.0.0/24 via 10.1.0.254 dev i0 table 101
	ip rule add from 10.1.0.1 lookup 101
	ip route > before
	ip route show table 101 > before101
	try apply "$PWD/congctl.toml" --role initiator
	ip route | diff before -
	ip route show table 101 | grep -q 'congctl bbr'
	fabtune verify
	ip rule del from 10.1.0.1 lookup 101
	# Nobody takes that route now; it still is ours to give back.
	try revert
	ip route show table 101 | diff before101 -
	ip route flush table 101
}

@test "a session bound to a NIC in a VRF has the VRF's route, and the management's default route is left alone" {
	python3 -m fabtune.lab.guest logout
	iscsiadm -m node -o delete
	ip link add vrf0 type vrf table 10
	ip link set vrf0 up
	ip link set i0 master vrf0
	ip route add 10.2.0.0/24 via 10.1.0.254 vrf vrf0
	ip link add m0 type dummy
	ip addr add 192.0.2.2/24 dev m0
	ip link set m0 up
	ip route add default via 192.0.2.1
	iscsiadm -m iface -I bound -o new
	iscsiadm -m iface -I bound -o update -n iface.net_ifacename -v i0
	iscsiadm -m discovery -t st -p 10.2.0.1:3260 -I bound
	for state in out in; do
		[ $state = out ] || iscsiadm -m node --login
		ip route > before
		try apply "$PWD/congctl.toml" --role initiator
		ip route | diff before -
		ip route show vrf vrf0 | grep '^10.2.0.0/24' | grep -q 'congctl bbr'
		try plan "$PWD/fq.toml" --role initiator --all
		! grep -q m0 said || false
		try revert
		! ip route show vrf vrf0 | grep -q bbr || false
	done
	iscsiadm -m node --logout
	iscsiadm -m node -o delete
	iscsiadm -m iface -I bound -o delete
	ip link del m0
	ip link set i0 nomaster
	ip link del vrf0
	ip route replace 10.2.0.0/24 via 10.1.0.254
}

@test "after logout, with the record gone, what was written to NIC and route is found, told and taken back" {
	tree i0 > before
	ip route >> before
	{ cat fq.toml; sed 1d congctl.toml; } > both.toml
	try apply "$PWD/both.toml" --role initiator
	python3 -m fabtune.lab.guest logout
	iscsiadm -m node -o show > record
	iscsiadm -m node -o delete
	run fabtune verify
	echo "$output"
	[[ "$output" == "3 values checked, 0 differ" ]]
	tc qdisc change dev i0 root fq maxrate 2gbit
	run fabtune verify
	[ "$status" -eq 3 ]
	tc qdisc change dev i0 root fq maxrate 1gbit
	try revert
	tree i0 > after
	ip route >> after
	diff before after
}

@test "an IPv6 route that expires is left alone, and one with metric and preference comes back to the letter" {
	python3 -m fabtune.lab.guest logout
	iscsiadm -m node -o delete
	ip -6 addr add fd00:1::1/64 dev i0 nodad
	ip -6 neigh add fd00:1::7 lladdr 02:00:00:00:00:01 dev i0
	iscsiadm -m node -o new -T iqn.2026-01.lab.fabtune:six -p '[fd00:2::1]:3260' >/dev/null
	iscsiadm -m node -o new -T iqn.2026-01.lab.fabtune:six -p '[fd00:3::1]:3260' >/dev/null
	ip -6 route add fd00:2::/64 via fd00:1::7 dev i0 expires 1800
	ip -6 route add fd00:3::/64 via fd00:1::7 dev i0 proto ra metric 100 pref high
	ip -6 -o route | sed 's/expires [0-9]*sec/expires/' > before
	try apply "$PWD/congctl.toml" --role initiator
	grep -q 'expires' said
	ip -6 route show fd00:3::/64 | grep -q 'congctl bbr'
	try revert
	ip -6 -o route | sed 's/expires [0-9]*sec/expires/' > after
	ip -6 addr del fd00:1::1/64 dev i0
	iscsiadm -m node -o delete
	diff before after
}

@test "what was written in a network namespace that is gone is not called taken back, and can be given up" {
	ip netns add gone
	ip -n gone link add g0 type ifb
	ip -n gone addr add 192.0.2.1/24 dev g0
	ip -n gone link set g0 up
	nsenter --net=/run/netns/gone mkdir -p "$TARGETS/iqn.2026-01.lab.fabtune:own/tpgt_1/np/192.0.2.1:3260"
	try apply "$PWD/fq.toml" --role target --netns gone
	ip netns exec gone tc -d qdisc show dev g0 | grep -q 'maxrate 1Gbit'
	no_portal 192.0.2.1
	ip netns del gone
	run fabtune verify
	echo "$output"
	[ "$status" -eq 3 ]
	run fabtune revert
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == *"waiting: qdisc.maxrate of g0"* ]]
	fabtune revert --force
	run fabtune revert
	echo "$output"
	[[ "$output" == *"nothing to take back"* ]]
}
