# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs of one side that differ among themselves, and runs that ended without their figures: each is said."""

import json
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from run_records import make_record, with_fio, with_step

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.measure import recordfile
from fabtune.model.judgement import Verdict
from fabtune.model.runrecord import RunRecord
from fabtune.report import compare, verdict_table

Change = Callable[[RunRecord], RunRecord]


def sides(change: Change, of: int = 5) -> tuple[list[RunRecord], list[RunRecord]]:
    """Six runs a side, the last `of` of B changed, and 10 % faster."""
    a = [make_record(100 + number, "untouched", start=number) for number in range(6)]
    b = [make_record(110 + number, "wan", start=100.0 + number) for number in range(6)]
    return a, [*b[: 6 - of], *map(change, b[6 - of :])]


def of_part(part: str, **changes: object) -> Change:
    return lambda one: attrs.evolve(one, **{part: attrs.evolve(getattr(one, part), **changes)})


UNLIKE: dict[str, tuple[Change, str, str]] = {
    "kernel": (of_part("host", kernel="7.2.13"), "host.kernel", "7.2.13 (5 of 6), 6.12.107 (1 of 6)"),
    "CPUs": (of_part("host", cpus=64), "host.cpus", "64 (5 of 6), 2 (1 of 6)"),
    "fio": (of_part("versions", fio="fio-3.42"), "versions.fio", "fio-3.42 (5 of 6), fio-3.39 (1 of 6)"),
    "model": (of_part("target", model="VIRTUAL"), "target.model", "VIRTUAL (5 of 6),  (1 of 6)"),
    "run time": (lambda one: attrs.evolve(one, runtime_s=600.0), "runtime_s", "600.0 (5 of 6), 1 (1 of 6)"),
    "tunable": (lambda one: attrs.evolve(one, environment={"tcp.rmem_max of host": "9"}),
                "environment.tcp.rmem_max of host", "9 (5 of 6), absent (1 of 6)"),
    "job": (lambda one: with_step(one, job=one.steps[0].job.replace("direct=1", "direct=0")),
            "load of read", "direct=0 (5 of 6), direct=1 (1 of 6)"),
    "depth": (lambda one: with_step(one, depth=64), "load of read", "depth=64 (5 of 6), depth=1 (1 of 6)"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNLIKE)
def test_runs_of_one_side_that_are_not_alike_are_named(case: str) -> None:
    """Of each side the first run alone was looked at: "better, p = 0.003", on five runs of another kernel."""
    change, key, value = UNLIKE[case]
    a, b = sides(change)
    found = compare.compare(a, b)
    assert [row[2] for row in found.differences if row[0] == key] == [value]
    assert f"The runs of wan differ among themselves, in {key}" in " ".join(verdict_table.notes(found))
    # So it is of the other side, and of the last run alone.
    a, b = sides(change, of=1)
    found = compare.compare(b, a)
    assert key in {row[0] for row in found.differences} and found.unlike[0].startswith("The runs of wan differ")


def test_runs_of_several_points_may_differ_between_these() -> None:
    """What a profile writes follows from the round trip, which is no fault of a side that has two of them."""
    found = []
    for label, factor in (("untouched", 0), ("wan", 1)):
        side = []
        for number in range(6):
            rtt = 20 + 80 * (number % 2)
            around = {
                "block.read_ahead_kb": str(128 + factor * rtt),
                "settings": {"seed": number // 2, "profile": label},
            }
            made = make_record(
                100.0 + number, label, path={"rtt_ms": rtt}, environment=around, start=number + 9 * factor
            )
            side.append(attrs.evolve(made, host=attrs.evolve(made.host, boot_id=str(made.started_unix_s))))
        found.append(side)
    outcome = compare.compare(*found)
    assert not outcome.unlike
    rows = {name: values for name, *values in outcome.differences}
    assert rows == {
        "environment.block.read_ahead_kb": ["128", "148"], "environment.settings.profile": ["untouched", "wan"],
        "host.boot_id": ["0", "9"],
    }  # fmt: skip


UNDONE: dict[str, tuple[Change, str]] = {
    "no step": (lambda one: attrs.evolve(one, steps=()), "no step at all"),
    "no fio": (lambda one: with_step(one, fio=None), "nothing measured"),
    "a step's problem": (lambda one: with_step(one, problem="I/O error on half of it"), "I/O error on half of it"),
    "fio's error": (lambda one: with_fio(one, lambda job: job.update(error=5)), "fio ended with error 5"),
    "a problem": (lambda one: attrs.evolve(one, problem="no room"), "no room"),
}


@pytest.mark.parametrize("case", UNDONE)
def test_a_run_that_ended_without_its_figures_is_named_and_missed(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was left out without a word, or used as if nothing was: "better", of one run less."""
    change, why = UNDONE[case]
    a, b = sides(change, of=1)
    for number, one in enumerate((*a, *b)):
        recordfile.write(one, tmp_path / one.label / f"{number:02}{recordfile.SUFFIX}")
    found = compare.compare(a, b)
    assert [why in one for _, one in found.invalid] == [True]
    assert all(row.judgement.verdict is Verdict.CANNOT_TELL for row in found.primary)
    assert "1 of 6 runs of wan failed; the others are no fair sample" in found.primary[0].judgement.why
    assert main(["compare", *(str(tmp_path / name) for name in ("untouched", "wan")), "--json"]) == ExitCode.CANNOT_TELL
    told = json.loads(capsys.readouterr().out)["invalid"]
    assert [one["record"].endswith("wan/11.run.json.gz") and why in one["why"] for one in told] == [True]
    assert main(["report", str(tmp_path)]) == ExitCode.DONE
    assert why in (tmp_path / "report.html").read_text()


def test_a_step_that_was_left_out_or_had_to_fail_is_done() -> None:
    a, b = sides(lambda one: with_step(one, skipped="no room for it", fio=None, problem=None), of=1)
    assert not compare.compare(a, b).invalid
    failed = with_fio(make_record(100.0), lambda job: job.update(error=84))
    must = with_step(failed, must_fail="verify", failed_as_expected="verify: bad header")
    assert not compare.invalid_because(must) and compare.invalid_because(failed)
