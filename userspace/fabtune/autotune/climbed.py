# SPDX-License-Identifier: GPL-2.0-or-later
"""A step that was tried: what came of it, and whether it stays."""

import attrs

from fabtune.autotune.disturbed import Disturbance
from fabtune.autotune.goal import JudgedStep
from fabtune.autotune.learnt import Changes
from fabtune.autotune.made import Made
from fabtune.model.document import Json
from fabtune.model.judgement import Judgement


@attrs.frozen
class Climbed:
    """One step: what limited before it, what was written to lift that, and what came of it."""

    limiters: tuple[str, ...]
    written: tuple[str, ...]
    before_bytes_per_s: float
    after_bytes_per_s: float
    before_p99_ms: float | None
    after_p99_ms: float | None
    outcome: JudgedStep
    pause_s: float
    kept: bool
    # Whether it would have left others that use the line less than half of what it brought.
    unfair: bool = False
    # What else changed meanwhile, so that it could not be judged.
    disturbance: Disturbance | None = None
    # What it wrote, by transaction, in the order of writing.
    made: tuple[Made, ...] = ()
    # How many looks it is judged by, before and after.
    looks: tuple[int, int] = (1, 1)
    # What was to be written, as it was planned.
    changes: Changes = frozenset()

    def as_json(self) -> dict[str, Json]:
        """Return it with stable keys."""
        found = self.outcome
        return {
            "limiters": list(self.limiters), "written": list(self.written),
            "before_bytes_per_s": round(self.before_bytes_per_s), "after_bytes_per_s": round(self.after_bytes_per_s),
            **_judged_json("", found.throughput),
            **({"before_p99_ms": self.before_p99_ms, "after_p99_ms": self.after_p99_ms} if found.p99 else {}),
            **_judged_json("p99_", found.p99), **_judged_json("p50_", found.p50), **_judged_json("sent_", found.sent),
            "pause_s": round(self.pause_s, 3), "kept": self.kept, "unfair": self.unfair,
            "disturbed_by": self.disturbance.why if self.disturbance else None, "looks": list(self.looks),
            "transactions": [one.transaction_json() for one in self.made],
            "values": [value for one in self.made for value in one.values_json()],
        }  # fmt: skip


def _judged_json(name: str, found: Judgement | None) -> dict[str, Json]:
    """Return a judgement under keys that begin with `name`, nothing for what was not judged."""
    if found is None:
        return {}
    return {
        f"{name}ratio": found.ratio, f"{name}ratio_low": found.low, f"{name}ratio_high": found.high,
        f"{name}verdict": found.verdict.value,
    }  # fmt: skip
