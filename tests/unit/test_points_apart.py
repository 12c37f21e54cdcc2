# SPDX-License-Identifier: GPL-2.0-or-later
"""What tells runs apart within a side makes points of its own; what differs between the sides alone is compared."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from run_records import make_record, with_step

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.measure import recordfile
from fabtune.model.judgement import Rules, Verdict
from fabtune.model.offered import Replayed
from fabtune.model.runrecord import INTERRUPTED, RunRecord, SessionTurn
from fabtune.report import cells, compare, paired, suite, verdict_table


def on(record: RunRecord, disk: str, kernel: str = "6.12", **target: Any) -> RunRecord:
    """The record as one of a disk of its own."""
    changes = {"path": f"/dev/{disk}", "disk": disk, "wwid": f"naa.{disk}", **target}
    return attrs.evolve(
        record, target=attrs.evolve(record.target, **changes), host=attrs.evolve(record.host, kernel=kernel)
    )


def runs(rate: float, label: str, count: int = 5, *, start: float = 0.0, **told: Any) -> list[RunRecord]:
    return [make_record(rate * (1 + n / 1000), label, start=start + n, **told) for n in range(count)]


def page_of(records: Sequence[RunRecord]) -> str:
    text = re.sub(r"<[^>]+>", " ", suite.render(records, [], [], ["fabtune"])).replace("\xa0", " ")
    return re.sub(r"\s+", " ", text)


def verdicts(outcome: compare.Comparison) -> dict[str, Verdict]:
    return {row.step: row.judgement.verdict for row in outcome.primary}


def test_a_round_trip_told_otherwise_on_the_two_sides_is_compared_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ping said 20 ms, then 20.1 ms: "cannot tell: 0 runs of a side", of five runs a side."""
    for label, rtt_ms, rate in (("before", 20, 10), ("after", 20.1, 20)):
        for number, one in enumerate(runs(rate, label, path={"rtt_ms": rtt_ms}, start=rate)):
            recordfile.write(one, tmp_path / label / f"{number}{recordfile.SUFFIX}")
    assert main(["compare", str(tmp_path / "before"), str(tmp_path / "after")]) == ExitCode.DONE
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "better" in said and "RTT 20 ms and RTT 20.1 ms" in said and "runs of a side" not in said
    assert main(["report", str(tmp_path)]) == ExitCode.DONE
    page = re.sub(r"<[^>]+>", "", (tmp_path / "report.html").read_text()).replace("\xa0", " ")
    assert "No, it harmed. xdd, before against after: worse at read." in page
    assert "after and before differ in more than their names: RTT 20.1 ms and RTT 20 ms." in page


@pytest.mark.parametrize(
    ("of_a", "of_b", "said"),
    [
        ({"parameters": {"queue_depth": 1}}, {"parameters": {"queue_depth": 32}}, "queue_depth 1 and queue_depth 32"),
        (
            {"path": {"rate_bytes_per_s": 1e8}}, {"path": {"rate_bytes_per_s": 1e9}},
            "rate_bytes_per_s 100 MB/s and rate_bytes_per_s 1000 MB/s",
        ),
    ],
)  # fmt: skip
def test_a_parameter_that_only_the_sides_differ_in_is_what_is_compared(of_a: Any, of_b: Any, said: str) -> None:
    outcome = compare.compare(runs(10, "a", **of_a), runs(20, "b", **of_b))
    assert verdicts(outcome) == {"read": Verdict.BETTER}
    assert f"a and b differ in more than their names: {said}." in verdict_table.notes(outcome)


def test_sides_without_a_point_in_common_are_told_where_they_were_measured() -> None:
    a, b = (
        [one for rtt_ms in rtts_ms for one in runs(rate, label, path={"rtt_ms": rtt_ms})]
        for label, rate, rtts_ms in (("before", 10, (20, 100)), ("after", 20, (20.1, 100.1)))
    )
    outcome = compare.compare(a, b)
    assert set(verdicts(outcome).values()) == {Verdict.CANNOT_TELL} and len(verdicts(outcome)) == 4
    assert {row.judgement.why for row in outcome.rows} == {
        "before was not measured there, but at read, RTT 20 ms; read, RTT 100 ms",
        "after was not measured there, but at read, RTT 20.1 ms; read, RTT 100.1 ms",
    }
    assert "No point has runs on both sides that tell it." in page_of([*a, *b])


def test_a_run_that_failed_is_missed_at_its_own_point() -> None:
    """Where each side lost another round trip, what was left were two round trips held against each other."""
    a, b = (
        [
            attrs.evolve(one, complete=rtt_ms == good, problem=None if rtt_ms == good else "fio ended")
            for rtt_ms in (20, 100)
            for one in runs(10, label, path={"rtt_ms": rtt_ms})
        ]
        for label, good in (("untouched", 20), ("wan", 100))
    )
    outcome = compare.compare(a, b)
    assert verdicts(outcome) == {"read, RTT 20 ms": Verdict.CANNOT_TELL, "read, RTT 100 ms": Verdict.CANNOT_TELL}
    assert "5 of 5 runs of wan failed" in outcome.primary[0].judgement.why


@pytest.mark.parametrize("kind", ["device", "device without a WWID", "directory"])
def test_runs_of_different_disks_are_points_of_their_own(kind: str, tmp_path: Path) -> None:
    """Each disk lost a tenth, and "Yes, 1.51×": one was measured more often before, the other after."""
    other = {"wwid": ""} if "without" in kind else {"kind": "directory"} if kind == "directory" else {}
    records = [
        on(one, disk, **other)
        for label, disk, rate, count in (
            ("untouched", "sda", 100, 4), ("untouched", "sdb", 50, 8), ("wan", "sda", 90, 8), ("wan", "sdb", 45, 4),
        )
        for one in runs(rate, label, count, start=rate, seconds=4)
    ]  # fmt: skip
    ((_, outcome),) = paired.outcomes(records)
    name = {"device": "naa.{}", "device without a WWID": "{}", "directory": "/dev/{0} (naa.{0})"}[kind]
    steps = [f"read, on {name.format(disk)}" for disk in ("sda", "sdb")]
    assert verdicts(outcome) == dict.fromkeys(steps, Verdict.WORSE)
    # Curves and tables have the same points, under the same names.
    assert [(cell.label, len(cell.runs)) for cell in cells.cells(records)] == [
        ("untouched", 4), ("untouched", 8), ("wan", 8), ("wan", 4)
    ]  # fmt: skip
    page = page_of(records)
    assert "No, it harmed. xdd, wan against untouched: worse at all 2 points." in page
    for step in steps:
        assert f"{step}: all requests." in page
    assert f"read, untouched, on {name.format('sda')} (run 1)" in page
    for number, one in enumerate(records):
        recordfile.write(one, tmp_path / one.label / f"{number}{recordfile.SUFFIX}")
    assert main(["compare", str(tmp_path / "untouched"), str(tmp_path / "wan")]) == ExitCode.DRIFT


def test_a_disk_that_only_the_sides_differ_in_is_what_is_compared_and_stands_first() -> None:
    """Before and after a LUN was moved; that the disk, and the kernel, were others was not on the first screen."""
    a = [on(one, "sda") for one in runs(100, "untouched")]
    b = [on(one, "sdb", kernel="7.2") for one in runs(150, "wan")]
    assert verdicts(compare.compare(a, b)) == {"read": Verdict.BETTER}
    said = "untouched and wan differ in more than their names: on naa.sda and on naa.sdb; Linux 6.12 and Linux 7.2."
    assert f"all points judged together. {said}" in page_of([*a, *b])
    # The same disk under another name is no other.
    again = [on(one, "sdc", wwid="naa.sda") for one in runs(150, "wan")]
    assert not compare.compare(a, again).between
    assert len(cells.cells([a[0], attrs.evolve(again[0], label="untouched")])) == 1


def test_runs_of_a_side_that_are_not_alike_are_said_to_be_so_on_the_first_screen() -> None:
    b = runs(150, "wan", 6)
    b = [*b[:3], *(on(one, "sdb", kernel="7.2", wwid="naa.1") for one in b[3:])]
    assert "judged together. The runs of wan differ among themselves, in host.kernel" in page_of(
        [*runs(100, "untouched"), *b]
    )


def test_a_rate_or_a_trace_that_differs_within_a_label_makes_points_everywhere() -> None:
    """`compare` told them apart, and the curves had their runs as one point's."""
    records = [
        one
        for label, rate in (("untouched", 10), ("wan", 20))
        for line in (1e8, 1e9)
        for one in runs(rate, label, path={"rate_bytes_per_s": line})
    ]
    ((_, outcome),) = paired.outcomes(records)
    assert set(verdicts(outcome)) == {f"read, rate_bytes_per_s {said} MB/s" for said in ("100", "1000")}
    assert [len(cell.runs) for cell in cells.cells(records)] == [5] * 4
    traces = [Replayed("trace.0", digest * 64, "sdb", 1000, 0, 0, 0) for digest in "ab"]
    replays = [with_step(one, replayed=trace) for trace in traces for one in runs(10, "wan")]
    assert [(len(cell.runs), cell.parameters["SHA-256"]) for cell in cells.cells(replays)] == [
        (5, digest * 12) for digest in "ab"
    ]


def session(name: str, gain: float, same: float | None, rtt_ms: float) -> list[RunRecord]:
    """An interleaved session at one round trip, with A against A where that differs by `same`."""
    parts = [("-pairs", "wan", gain), *([("-calibration", "untouched", same)] if same else [])]
    return [
        attrs.evolve(
            make_record(
                100 * (factor if side == "B" else 1) * (1 + (3 * pair + ord(side)) % 5 / 1e3),
                label,
                path={"rtt_ms": rtt_ms},
            ),
            session=SessionTurn(name + part, pair, side, Rules()),
        )
        for part, other, factor in parts
        for pair in range(10)
        for side, label in (("A", "untouched"), ("B", other))
    ]


def of_sets(records: Sequence[RunRecord]) -> compare.Comparison:
    sides = [[one for one in records if one.session and one.session.side == side] for side in "AB"]
    return compare.compare_sets(*sides)


def test_a_bias_limits_its_point_however_that_is_called() -> None:
    """Beside a session at another round trip the same runs were "better": A against A was looked up as "read"."""
    biased = session("first", 1.05, 1.06, 10)
    assert of_sets(biased).primary[0].judgement.verdict is Verdict.CANNOT_TELL
    outcome = of_sets([*biased, *session("second", 1.05, None, 20)])
    assert verdicts(outcome) == {"read, RTT 10 ms": Verdict.CANNOT_TELL, "read, RTT 20 ms": Verdict.BETTER}
    assert "the set-up itself favours one side" in outcome.primary[0].judgement.why
    assert any(one.startswith("A against A, read, RTT 10 ms: ") for one in verdict_table.notes(outcome))


def test_a_bias_that_no_point_is_called_by_limits_all() -> None:
    first, second = session("first", 1.05, 1.06, 10), session("second", 1.05, 1.001, 20)
    # Each side's pairs are of one round trip, and what A against A found of either.
    a = [one for one in first if one.session and (one.session.calibration or one.session.side == "A")]
    b = [one for one in second if one.session and (one.session.calibration or one.session.side == "B")]
    outcome = compare.compare_sets(a, b)
    assert verdicts(outcome) == {"read": Verdict.CANNOT_TELL}
    assert "the set-up itself favours one side" in outcome.primary[0].judgement.why


def test_the_bias_of_a_session_whose_runs_take_no_part_is_none_of_the_others() -> None:
    gone = [
        one if one.session and one.session.calibration else attrs.evolve(one, complete=False, problem=INTERRUPTED)
        for one in session("first", 1.05, 1.06, 10)
    ]  # fmt: skip
    assert set(verdicts(of_sets([*gone, *session("second", 1.05, None, 10)])).values()) == {Verdict.BETTER}
