# SPDX-License-Identifier: GPL-2.0-or-later
"""What `measure` prints below and in its table: no more digits than a bucket leaves."""

from typing import Any

import pytest
from run_records import make_record, with_fio

from fabtune.cli import measure
from fabtune.model.runrecord import RunRecord
from fabtune.report import suite


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
    runs = suite.render([record], [], [], ["fabtune", "report"]).partition('<h2 id="all-runs">')[2]
    assert ">69.2<" in runs and ">1230<" in runs and ">69.206<" not in runs
