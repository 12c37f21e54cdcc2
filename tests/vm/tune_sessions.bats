#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest-full: --suite trixie --clock real
# A host with 64 sessions: what a plan of it says and costs.

setup_file() {
	python3 -m fabtune.lab.guest up --rtt 0ms
	python3 -m fabtune.lab.guest login
}

# cpu_s COMMAND...: the CPU time it takes, in hundredths of a second.
cpu_cs() {
	/usr/bin/python3 - "$@" <<-'EOF'
		import resource, subprocess, sys
		subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
		use = resource.getrusage(resource.RUSAGE_CHILDREN)
		print(round(100 * (use.ru_utime + use.ru_stime)))
	EOF
}

@test "a plan of 64 sessions speaks of each, and costs less than two and a half plans of one" {
	cd "$BATS_TEST_TMPDIR"
	fabtune plan wan --rtt 50ms --rate 1gbit >/dev/null
	one=$(cpu_cs fabtune plan wan --rtt 50ms --rate 1gbit --json)
	base=/sys/kernel/config/target
	for number in $(seq 2 64); do
		tpg=$base/iscsi/iqn.2026-01.lab.fabtune:target$number/tpgt_1
		mkdir -p "$tpg"
		nsenter --net=/run/netns/target mkdir "$tpg/np/10.2.0.1:3260"
		mkdir "$tpg/lun/lun_0"
		ln -s $base/core/rd_mcp_0/disk0 "$tpg/lun/lun_0/disk"
		for attribute in generate_node_acls=1 cache_dynamic_acls=1 demo_mode_write_protect=0 authentication=0; do
			echo "${attribute#*=}" > "$tpg/attrib/${attribute%=*}"
		done
		echo 1 > "$tpg/enable"
	done
	iscsiadm -m discovery -t st -p 10.2.0.1:3260 >/dev/null
	# 15: the first target's session is there already.
	iscsiadm -m node --login >/dev/null || [ $? -eq 15 ]
	[ "$(ls /sys/class/iscsi_session | wc -l)" -eq 64 ]
	fabtune plan wan --rtt 50ms --rate 1gbit --json > plan.json
	python3 -c "
import json
rows = json.load(open('plan.json'))['rows']
print(sum(row['tunable'] == 'iscsi.tcp_window' and row['state'] == 'change' for row in rows))" > windows
	[ "$(cat windows)" -eq 64 ]
	many=$(cpu_cs fabtune plan wan --rtt 50ms --rate 1gbit --json)
	echo "one session $one, 64 sessions $many hundredths of a CPU second"
	echo "# one session $one, 64 sessions $many hundredths of a CPU second" >&3
	[ "$((2 * many))" -lt "$((5 * one))" ]
}
