#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
# A thousand hosts before one real Prometheus: what it costs there, and what a day of a host takes.

@test "1,000 busy hosts at 60 s: a tenth of a core, 2 GB, panels of recorded series at once, 1.5 MB a host and day" {
	cd "$BATS_TEST_DIRNAME/../.."
	/usr/bin/python3 tests/ops/prometheus_fleet.py --hosts "${HOSTS:-1000}" --minutes "${MINUTES:-12}" \
		--out "${OPS_OUT:-$BATS_TEST_TMPDIR}/figures-scale.json"
}
