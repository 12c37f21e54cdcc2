# SPDX-License-Identifier: GPL-2.0-or-later
# What the tuning tests share.  `load common` also moves to the test's own directory.

cd "$BATS_TEST_TMPDIR" || exit 1

# Every value that profile wan may touch on either end, read without fabtune's help.
all_values() {
	iscsiadm -m node -o show
	grep -r . /sys/kernel/config/target/iscsi/*/tpgt_1/{param,attrib}/
	for netns in /proc/1/ns/net /run/netns/target; do
		nsenter --net=$netns sysctl -a 2>/dev/null | grep -E '^net\.(ipv4\.tcp_|core\.)' |
			grep -vE 'tcp_fastopen_key|tcp_mem|tcp_(allowed|available)'
		nsenter --net=$netns ip route
		nsenter --net=$netns tc qdisc | sort
	done
	grep -r . /sys/block/sd*/queue/{scheduler,nr_requests,max_sectors_kb,rq_affinity,add_random,read_ahead_kb,wbt_lat_usec}
}
