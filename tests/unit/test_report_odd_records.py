# SPDX-License-Identifier: GPL-2.0-or-later
"""Records that are whole and unusual: each has its page, with what there is to say."""

import base64
import html
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from run_records import make_record, with_fio

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.experiment import batch, definition
from fabtune.measure import recordfile, resulttree
from fabtune.model.judgement import Rules
from fabtune.model.results import Point
from fabtune.model.runrecord import RunRecord, SessionTurn
from fabtune.report import cells, latency, suite, throughput


def page(records: list[RunRecord]) -> str:
    text = suite.render(records, [], [], ["fabtune", "report", "out"])
    return html.unescape(re.sub("<[^>]+>", " ", text)).replace("\u00a0", " ")


@pytest.mark.parametrize("practical", [0.02, 1.0, 3.0])
def test_no_difference_that_counts_is_too_large_to_draw(practical: float) -> None:
    """`ab --practical 100%` made a session of which there was no page: the scale began at 0, or below it."""
    records = [
        attrs.evolve(
            make_record(rate + pair / 10, label, start=float(pair)),
            session=SessionTurn("s-pairs", pair, side, Rules(practical=practical)),
        )
        for pair in range(4)
        for side, label, rate in (("A", "untouched", 100.0), ("B", "wan", 150.0))
    ]
    text = page(records)
    assert "wan / untouched" in text and not re.search(r"-[\d.]+×", text)


@pytest.mark.parametrize("name", ["threads", "streams", "processes", "queue_depth"])
def test_only_numbers_are_on_an_axis(name: str) -> None:
    """A workload's own parameter may be a text, whatever it is called: it was read as a number."""
    made = [make_record(100, "a", parameters={name: text}) for text in ("few", "many")]
    assert "xdd: throughput" in page(made) and "few" in page(made)
    (section,) = throughput.sections(cells.cells(made), "xdd", {"a": 0})
    assert section.heading == "xdd: throughput" and section.figures == ()
    # One text among numbers has no place between them.
    values: tuple[int | str, ...] = (1, 2, "many")
    mixed = [make_record(100, "a", parameters={name: value}) for value in values]
    assert throughput.sections(cells.cells(mixed), "xdd", {"a": 0})[0].heading == "xdd: throughput"


def test_a_number_of_streams_in_words_has_no_rate_to_hold() -> None:
    made = [
        make_record(5, "a", op=op, parameters={"stream_bytes_per_s": 5_000_000, "streams": "few"})
        for op in ("read", "write")
    ]
    assert "xdd: throughput" in page(made) and throughput.balanced(cells.cells(made)) == []


def test_a_histogram_of_empty_bins_is_none() -> None:
    def emptied(job: Any) -> None:
        job["read"]["clat_ns"]["bins"] = {"100": 0}

    assert "xdd: throughput" in page([with_fio(make_record(100, "a"), emptied)])

    def with_empty_ends(job: Any) -> None:
        job["read"]["clat_ns"]["bins"] |= {"1": 0, "999999999": 0}

    record = make_record(100, "a")
    (whole,), (padded,) = (cells.cells([one]) for one in (record, with_fio(record, with_empty_ends)))
    assert latency._points(padded.latencies()) == latency._points(whole.latencies()) != ()


# A name of another encoding than UTF-8, as Python has it.
LATIN = "caf\udce9"


@pytest.mark.parametrize("asked", [LATIN, "."])
def test_a_directory_whose_name_is_no_utf8_has_its_page(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page, and the CSV of its tables, named it as no UTF-8 can: a traceback, and no page."""
    monkeypatch.chdir(tmp_path)
    for at in range(3):
        recordfile.write(make_record(100.0 + at, start=at), tmp_path / LATIN / f"{at}.run.json.gz")
    assert main(["report", asked, "--out", f"{LATIN}.html"]) == ExitCode.DONE
    text = Path(f"{LATIN}.html").read_text(encoding="utf-8")
    tables = [base64.b64decode(one).decode("utf-8") for one in re.findall(r"data:text/csv;base64,([\w+/=]+)", text)]
    assert r"caf\udce9" in (text if asked == LATIN else "".join(tables))


def test_an_experiment_s_tree_of_such_a_name_has_its_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(LATIN).mkdir()
    Path(LATIN, "exp.toml").write_text('summary = "s"\nseeds = 2\n[factors]\nprofile = ["untouched", "wan"]\n')
    wanted = definition.load(f"{LATIN}/exp.toml")
    for run in batch.runs_of(wanted, wanted.combinations(), Path(LATIN, "exp")):
        told: dict[str, Any] = {"profile": run.settings.profile, "op": "read", "rtt_ms": 0.0, "seed": run.settings.seed}
        run.keep([Point(told | {"mb_per_s": 100.0, "bound_mb_per_s": 119.5, "fraction_of_bound": 0.8})])
    asked = ["run", f"{LATIN}/exp.toml", "--only", "profile=wan", "--out", f"{LATIN}/exp", "--resume"]
    assert main(asked) == ExitCode.DONE
    for _ in ("once", "and over what that left"):
        assert main(["report", "--tree", LATIN]) == ExitCode.DONE
        assert capfd.readouterr().err.count("whole characters") == 0
    assert r"caf\udce9" in Path(LATIN, "index.html").read_text(encoding="utf-8")
    assert resulttree.read_experiment(Path(LATIN, "exp/index.json")).commands == (r"fabtune run 'caf\udce9/exp.toml'",)
