# SPDX-License-Identifier: GPL-2.0-or-later
"""Why a point does not tell some of its figures."""

from fabtune.measure import metrics
from fabtune.model.results import UNTOLD_BECAUSE
from fabtune.model.runrecord import StepResult


def untold_of(step: StepResult, op: str) -> dict[str, str]:
    """Return what a point says of those of its figures that a step does not tell in direction `op`."""
    whys = metrics.why_untold(step)
    keys = {"cpu_s_per_gb": "cpu_s_per_gb", "p50_ms": f"{op}_p50_ms", "p99_ms": f"{op}_p99_ms"}
    return {f"{name}{UNTOLD_BECAUSE}": whys[key] for name, key in keys.items() if key in whys}
