# SPDX-License-Identifier: GPL-2.0-or-later
"""What `measure` prints below and in its table: no more digits than a bucket leaves, and why a figure is missing."""

import html
from typing import Any

import attrs
import pytest
from run_records import make_record, with_fio, with_step

from fabtune.cli import measure
from fabtune.experiment import clients, combination
from fabtune.experiment.settings import parse_settings
from fabtune.model.results import Point
from fabtune.model.runrecord import RunRecord
from fabtune.report import demo, runs, suite


def latencies(*ms: float) -> RunRecord:
    """Requests of these times."""

    def lasting(job: Any) -> None:
        bins = {str(round(one * 1e6)): 50 for one in ms}
        job["read"] |= {"total_ios": 50 * len(bins), "clat_ns": {"bins": bins}}

    return with_fio(make_record(119.5, "wan", seconds=10), lasting)


def test_latencies_have_the_digits_that_a_bucket_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    """69.206 ms was printed of a bucket of 67.1 to 71.3 ms."""
    record = latencies(0.4567, 69.206, 1234.5)
    measure._show(record)
    printed = capsys.readouterr().out
    assert "69.2 " in printed and "1230 " in printed and "69.206" not in printed and "1234" not in printed
    page = suite.render([record], [], [], ["fabtune", "report"]).partition('<h2 id="all-runs">')[2]
    assert ">69.2<" in page and ">1230<" in page and ">69.206<" not in page


def test_why_a_figure_is_not_told_is_printed_and_in_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """A dash stood there, and nothing said that the p99 of 50 requests would be the slowest one."""
    record = latencies(69.206)
    for sample in record.steps[0].samples:
        sample["kernel.all.cpu.idle"] += sum(sample[key] for key in BUSY)
        sample |= dict.fromkeys(BUSY, 0.0)
    few, ticks = "50 requests are too few for it; measure longer", "it is less than ten of the kernel's ticks"
    measure._show(record)
    printed = capsys.readouterr().out
    assert "read latency p99" in printed and few in printed and "CPU" in printed and ticks in printed
    page = html.unescape(suite.render([record], [], [], ["fabtune", "report"]))
    assert "What runs do not tell" in page and few in page and ticks in page
    step: Any = runs.as_json(record)["steps"]
    assert step[0]["untold"]["read_p99_ms"] == few and ticks in step[0]["untold"]["cpu_s_per_gb"]
    # What is told needs no reason.
    measure._show(latencies(*(float(ms) for ms in range(50, 60))))
    assert "not told" not in capsys.readouterr().out


BUSY = [f"kernel.all.cpu.{kind}" for kind in ("user", "sys", "irq.hard", "irq.soft")]


def test_a_bound_is_one_number_on_every_page() -> None:
    """119.5509 MB/s was 119.55 in an experiment's points, and so 119.5 on their page and 119.6 in `measure`."""
    settings = parse_settings({"rtt": "20ms", "op": "read"}, "here")
    told = clients.path_told(settings, "read")
    record = attrs.evolve(make_record(119.4, "wan"), path=told)
    record = with_step(record, depth=32, parameters={"block_bytes": 262144})
    point = Point({"profile": "wan", "rtt_ms": 20.0, "op": "read", "mb_per_s": 119.4, "loss": 0.0})
    point = combination.with_bound(point, record, record.steps[0], "read")
    point = clients.with_what_bounds(settings, point, [point])
    shown = [
        row[[column.title for column in table.columns].index("bound")]
        for table in (demo._table("", [point], demo._MORE), runs.figures(record))
        for row in table.shown()
    ]
    assert shown == ["119.6", "119.6"] and point["line_mb_per_s"] == point["bound_mb_per_s"]
