# SPDX-License-Identifier: GPL-2.0-or-later
"""A direction of a mixed load that stood still in a run's measured part counts in what is said of it."""

from typing import Any

import attrs
from run_records import make_record, said, with_step

from fabtune.measure import checks, measured, metrics
from fabtune.model import typed
from fabtune.model.judgement import Verdict
from fabtune.model.outputs import FioOutput
from fabtune.model.runrecord import PathTold, RunRecord
from fabtune.report import paired, suite

_NOTHING = {"total_ios": 0, "io_bytes": 0, "runtime": 0, "clat_ns": {}, "lat_ns": {"mean": 0, "N": 0}}


def _mixed(write_mb_per_s: float, label: str, *, stalled: bool = False, start: float = 0.0) -> RunRecord:
    """Reads and writes at once; of one that `stalled` all writes came back after the measured part."""
    made, other = (
        make_record(rate, label, workload="oltp", op=op, start=start)
        for rate, op in ((100.0, "read"), (write_mb_per_s, "write"))
    )
    both: Any = typed.STRICT.write(made.steps[0].fio)
    theirs: Any = typed.STRICT.write(other.steps[0].fio)
    both["jobs"][0]["write"] = theirs["jobs"][0]["write"]
    whole = said(FioOutput, both)
    both["jobs"][0] |= {"write": _NOTHING} if stalled else {}
    return with_step(made, fio=whole, before_drain=said(FioOutput, both), name="70/30", depth=2)


def test_what_came_back_after_the_part_was_no_throughput_in_it() -> None:
    (step,) = _mixed(50, "wan", stalled=True).steps
    rate = measured.throughput_of(step, "write")
    assert rate and rate.bytes_per_s == 0
    told = {one.key: one.value for one in metrics.of_step(step)}
    assert (told["write_mb_per_s"], told["write_iops"]) == (0, 0) and told["read_mb_per_s"] == 100
    assert "write_p50_ms" not in told


def test_the_other_direction_is_held_against_its_bound_all_the_same() -> None:
    """It was "RTT or rate of the path not given", of both."""
    record = _mixed(50, "wan", stalled=True)
    told = attrs.evolve(record, path=PathTold(0.02, 1.25e8, 1500))
    (check,) = [one for one in checks.of_record(told) if "faster than its bound" in one.law]
    assert (check.verdict, check.found) == (checks.FAIL, "read 100.0 MB/s")


def test_a_direction_that_nobody_asked_for_is_none() -> None:
    """A load may move data one way alone."""
    (step,) = make_record(100).steps
    assert measured.throughput_of(step, "write") is None


def test_runs_in_which_a_direction_stood_still_are_not_left_out_of_the_verdict() -> None:
    """Writes of a setting under which they hang in every third run were "better": the others are faster."""
    a = [_mixed(40 + 0.1 * at, "untouched", start=at) for at in range(9)]
    b = [_mixed(50 + 0.1 * at, "wan", stalled=at % 3 == 0, start=100 + at) for at in range(9)]
    ((_, outcome),) = paired.outcomes([*a, *b])
    writes = {row.metric.key: row for row in outcome.rows if row.metric.key.startswith("write")}
    rate = writes["write_mb_per_s"]
    assert (rate.judgement.verdict, rate.judgement.why) == (Verdict.CANNOT_TELL, "a value of 0 has no ratio")
    assert (len(rate.sides.a), len(rate.sides.b)) == (9, 9)
    for name in ("write_p50_ms", "write_p99_ms"):
        assert writes[name].judgement.verdict is Verdict.CANNOT_TELL
        assert writes[name].judgement.why == "3 of 9 runs of wan do not tell it; the others are no fair sample"
    # The page of such runs, charts and laws included.
    records = [attrs.evolve(one, file=f"{at}.run.json.gz") for at, one in enumerate([*a, *b])]
    html = suite.render(records, [], [], ["fabtune", "report"])
    assert "a value of 0 has no ratio" in html
