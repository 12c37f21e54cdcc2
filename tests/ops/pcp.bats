#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --suite trixie+ops --clock real --accel uml
# PCP's openmetrics agent reads the exporter, set up as Documentation/monitoring.md says.

setup() {
	load ../vm/fabstat
}

@test "a real pmcd shows the exporter's metrics" {
	. /etc/pcp.env
	mkdir -p "$PCP_LOG_DIR/pmcd" "$PCP_RUN_DIR" "$PCP_TMP_DIR"
	python3 -m fabtune export > /tmp/export.log 2>&1 3>&- 4>&- &
	(cd "$PCP_VAR_DIR/pmns" && ./Rebuild -du)
	"$PCP_BINADM_DIR/pmcd" -f -U root -l /tmp/pmcd.log > /dev/null 2>&1 3>&- 4>&- &
	wait_for pminfo pmcd.version
	cp /fabtune/monitoring/fabtune.url "$PCP_PMDAS_DIR/openmetrics/config.d/"
	(cd "$PCP_PMDAS_DIR/openmetrics" && ./Install < /dev/null)
	up() { pminfo -f openmetrics.fabtune.fabtune_up 2>&1 | grep -q 'value 1'; }
	wait_for up || { cat /tmp/pmcd.log /tmp/export.log; return 1; }
	pminfo openmetrics.fabtune | grep fabtune_source_up
}
