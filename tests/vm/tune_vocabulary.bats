#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock real
# guest-full: --suite bookworm --clock real
# Every tunable of TCP, core network, routes, disks, open-iscsi, LIO and SRP: written, read back, taken back.

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 0ms
	# An ACL of its own, so that the values of ACLs are there too.
	tpg=/sys/kernel/config/target/iscsi/iqn.2026-01.lab.fabtune:target/tpgt_1
	mkdir "$tpg/acls/iqn.2026-01.lab.fabtune:initiator"
	mkdir "$tpg/acls/iqn.2026-01.lab.fabtune:initiator/lun_0"
	ln -s "$tpg/lun/lun_0" "$tpg/acls/iqn.2026-01.lab.fabtune:initiator/lun_0/disk"
	python3 -m fabtune.lab.guest login
	# A backstore that no LUN exports: some of its attributes are refused on one that is.
	mkdir -p /sys/kernel/config/target/core/rd_mcp_0/spare
	echo rd_pages=256,rd_nullio=1 > /sys/kernel/config/target/core/rd_mcp_0/spare/control
	echo 1 > /sys/kernel/config/target/core/rd_mcp_0/spare/enable
	modprobe tcp_bbr
	modprobe sch_fq
	ip link set i0 txqueuelen 1000
	tc qdisc replace dev i0 root fq_codel && tc qdisc del dev i0 root
}

setup() {
	cd "$BATS_TEST_TMPDIR"
}

@test "every tunable of the iSCSI path can be written, read back and taken back" {
	run python3 /fabtune/tests/vm/vocabulary.py tcp net route qdisc nic block iscsi lio
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c ^written: <<<"$output")" -ge 75 ]
}

@test "a qdisc that somebody configured by hand is left alone, and said" {
	tc qdisc replace dev i0 root handle 7: prio
	cat > fq.toml <<-'EOF'
		summary = "x"
		[both."qdisc.kind"]
		value = "fq"
		why = "x"
	EOF
	run fabtune apply "$PWD/fq.toml" --role initiator
	echo "$output"
	[[ "$output" == *"configured by hand"* ]]
	tc qdisc show dev i0 | grep -q 'qdisc prio 7: root'
	fabtune revert
	tc qdisc show dev i0 | grep -q 'qdisc prio 7: root'
	tc qdisc del dev i0 root
}

@test "every tunable of SRP can be written, read back and taken back" {
	srp_up || skip "no RDMA device could be made on this kernel"
	run python3 /fabtune/tests/vm/vocabulary.py srp srpt
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(grep -c ^written: <<<"$output")" -ge 15 ]
}

# A software RDMA device, LIO's SRP target on it, and a login from the same host.
srp_up() {
	modprobe rdma_rxe && rdma link add rxe0 type rxe netdev i0 || return 1
	modprobe ib_srpt rdma_cm_port=5555 && modprobe ib_srp || return 1
	guid=$(cut -d: -f5- < /sys/class/infiniband/rxe0/ports/1/gids/0)
	mkdir -p "/sys/kernel/config/target/srpt/$guid/$guid" || return 1
	touch /etc/srp_daemon.conf
}
