#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie+ops --clock real --memory-mib 3072 --append=no_timer_check
# A real Prometheus scrapes a real exporter of a host with a real session; every query of rules and dashboard is asked.

TPG=/sys/kernel/config/target/iscsi/iqn.2026-01.lab.fabtune:target/tpgt_1
ACL=$TPG/acls/iqn.2026-01.lab.fabtune:initiator

setup_file() {
	load ../vm/fabstat
	python3 -m fabtune.lab.guest up --rtt 2ms
	mkdir $ACL $ACL/lun_0
	ln -s $TPG/lun/lun_0 $ACL/lun_0/disk
	echo 2 > $ACL/cmdsn_depth
	load_fabstat
	mkdir -p /run/fabtune /run/prometheus
	# No test waits for minutes.
	sed '/^ *interval: [0-9]*m$/d' /fabtune/monitoring/fabtune.rules.yml > /run/prometheus/fabtune.rules.yml
	cat > /run/prometheus/prometheus.yml <<-'END'
		global: {scrape_interval: 2s, evaluation_interval: 2s}
		rule_files: [fabtune.rules.yml]
		scrape_configs:
		  - job_name: fabtune
		    static_configs: [{targets: ["127.0.0.1:13260"]}]
	END
	disk=$(python3 -m fabtune.lab.guest login)
	export disk
	start_reader
	# Nothing but the network and the reader's socket is left to it.
	setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --bounding-set -all \
		env FABTUNE_RUNTIME_DIR=/run/fabtune python3 -m fabtune export --only server > /tmp/server.log 2>&1 3>&- 4>&- &
	prometheus --config.file /run/prometheus/prometheus.yml --storage.tsdb.path /run/prometheus/data \
		--web.listen-address 127.0.0.1:9090 > /tmp/prometheus.log 2>&1 3>&- 4>&- &
	fabtune verify --publish
	# Until the end: bursts of 16 reads and writes through a window of two commands.  One by one they would seldom meet it
	# closed on a quiet host; without pauses they would leave Prometheus no CPU.
	fio --name=load "--filename=/dev/$disk" --direct=1 --ioengine=libaio --rw=randrw --bs=16k --iodepth=16 --size=64m \
		--thinktime=200ms --thinktime_blocks=16 --time_based --runtime=1200 --output=/tmp/fio.log > /dev/null 2>&1 3>&- 4>&- &
	echo $! > /tmp/fio.pid
}

start_reader() {
	FABTUNE_RUNTIME_DIR=/run/fabtune python3 -m fabtune export --only reader > /tmp/reader.log 2>&1 3>&- 4>&- &
	echo $! > /tmp/reader.pid
}

setup() {
	load ../vm/fabstat
}

metrics() {
	python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:13260/metrics").read().decode(), end="")'
}

has() {
	metrics | grep -E "$1"
}

# asks QUERY: the number of series that Prometheus returns.
asks() {
	python3 /fabtune/tests/ops/queries.py --count "$1"
}

some() {
	[ "$(asks "$1")" -gt 0 ]
}

@test "the metrics of a host under load are as promtool wants them, and true" {
	wait_for has '^fabtune_up 1'
	wait_for has "fabtune_refusals_total\{device=\"$disk\".*target_busy\"\} [1-9]"
	metrics > /results/metrics.txt
	promtool check metrics < /results/metrics.txt
	grep -F "fabtune_session_state{target=\"iqn.2026-01.lab.fabtune:target\",portal=\"10.2.0.1:3260\",interface=\"default\",session=\"1\",state=\"LOGGED_IN\"} 1" /results/metrics.txt
	grep -E '^fabtune_tcp_sent_bytes_total\{.*\} [1-9]' /results/metrics.txt
	grep -E '^fabtune_tcp_busy_seconds_total\{.*\} [0-9.]*[1-9]' /results/metrics.txt
	grep -F 'fabtune_source_up{source="verify"} 1' /results/metrics.txt
	# The counters are the module's.
	fabtune stat "$disk" --json > /tmp/stat.json
	metrics > /tmp/later.txt
	python3 - "$disk" <<-'PYTHON'
		import json, re, sys
		counted = json.load(open("/tmp/stat.json"))["devices"][0]["ops"]["read"]["completed"]
		def count(path):
		    text = open(path).read()
		    return int(re.search(rf'fabtune_device_latency_seconds_count{{device="{sys.argv[1]}".*op="read"}} (\d+)', text)[1])
		assert 0 < count("/results/metrics.txt") <= counted <= count("/tmp/later.txt"), (counted, count("/tmp/later.txt"))
	PYTHON
}

@test "every query of the dashboard and of the rules is answered by a real Prometheus, and those of a busy host with figures" {
	wait_for some 'fabtune_up == 1'
	wait_for some 'fabtune:device_latency_seconds:p99'
	wait_for some 'fabtune:refusals:rate5m{kind="target_busy"} > 1'
	python3 /fabtune/tests/ops/queries.py --dashboard /fabtune/monitoring/fabtune.dashboard.json \
		--rules /fabtune/monitoring/fabtune.rules.yml --out /results/figures-queries.json
	python3 /fabtune/tests/ops/queries.py --dashboard /fabtune/monitoring/fabtune.dashboard.json --ranges /results/panels.json
}

@test "without module, session or reader the scrape goes on and says what is missing" {
	kill "$(cat /tmp/fio.pid)"
	gone() { ! kill -0 "$(cat /tmp/fio.pid)" 2>/dev/null; }
	wait_for gone
	python3 -m fabtune.lab.guest logout
	# The module keeps what it saw of a removed disk; no series does, as soon as the kernel has let go of it.
	nothing_left() { metrics > /tmp/now && grep -q '^fabtune_up 1' /tmp/now && ! grep -qE "fabtune_session_state\\{|device=\"$disk\"" /tmp/now; }
	wait_for nothing_left
	unload_fabstat
	wait_for has 'fabtune_source_up\{source="fabstat"\} 0'
	load_fabstat
	wait_for has 'fabtune_source_up\{source="fabstat"\} 1'
	kill -9 "$(cat /tmp/reader.pid)"
	wait_for has '^fabtune_up 0'
	start_reader
	wait_for has '^fabtune_up 1'
	! grep -i traceback /tmp/reader.log /tmp/server.log || false
}

@test "a scrape of 64 and of 1,000 LUNs is within its bars" {
	modprobe sd_mod
	modprobe scsi_debug delay=0 dev_size_mb=8 max_luns=64 num_tgts=1 max_queue=64
	for luns in 64 1000; do
		export luns
		if [ $luns -eq 1000 ]; then
			rmmod scsi_debug
			unload_fabstat
			load_fabstat
			modprobe scsi_debug delay=0 dev_size_mb=8 max_luns=250 num_tgts=4 max_queue=64
		fi
		there() { [ "$(ls /sys/block | grep -c ^sd)" -eq $luns ]; }
		for _ in $(seq 10); do wait_for there && break; done
		python3 /fabtune/tests/ops/scrape_cost.py "$(cat /tmp/reader.pid)" $luns > /results/figures-scrape-$luns.json
		cat /results/figures-scrape-$luns.json
	done
}
