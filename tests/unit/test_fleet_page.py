# SPDX-License-Identifier: GPL-2.0-or-later
"""What `run --fleet` says of its runs, in its table and `summary.json`, is what their page and `compare` say."""

import json
from pathlib import Path

import attrs
import pytest
from run_records import make_record

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.experiment import batch, definition, fleet, inventory, publish
from fabtune.experiment.publish import Published
from fabtune.measure import recordfile
from fabtune.report import paired, suite

_AT_ONCE = {"wanted_unix_s": 0, "begun_unix_s": 0, "clock_offset_ms": 0, "clock_uncertainty_ms": 0}
# What hosts and targets do beside moves both profiles of a block alike.
_BLOCKS, _GAINS = (100.0, 130.0, 85.0, 112.0, 95.0), (1.10, 1.09, 1.11, 1.10, 1.10)


def _measured(directory: Path, start: float = 0.0) -> Published:
    """Two hosts read with `untouched` and `wan` in turn, in each block at another pace."""
    directory.mkdir()
    path = directory / "exp.toml"
    path.write_text(f'seeds = {len(_BLOCKS)}\n[factors]\nprofile = ["untouched", "wan"]\n[fixed]\nop = "read"\n')
    wanted, hosts = definition.load(str(path)), inventory.Inventory(path, ("a", "b"), ("t",))
    runs = batch.runs_of(wanted, wanted.combinations(), directory / "out", hosts)
    for at, run in enumerate(runs):
        for host, share, uneven in (("a", 1.0, 0.0), ("b", 0.5, 0.01)):
            gain = _GAINS[run.number - 1] + uneven * (run.number % 2) if run.settings.profile == "wan" else 1
            made = make_record(_BLOCKS[run.number - 1] * share * gain, run.settings.profile, start=start + at)
            made = attrs.evolve(made, host=attrs.evolve(made.host, name=host))
            recordfile.write(made, run.directory / host / f"read{recordfile.SUFFIX}")
            (run.directory / host / "read.start.json").write_text(json.dumps(_AT_ONCE))
        run.keep(fleet._points(run, hosts, "read"))
    return publish.of_fleet(batch.summary_of(runs), "", directory / "out")


def test_the_page_of_a_fleet_judges_each_host_as_the_table_does(tmp_path: Path) -> None:
    """The table paired what was measured together and said "better"; the page did not, and could not tell."""
    shown = _measured(tmp_path / "e")
    told = {str(one["host"]): one for one in shown.points if one["profile"] == "wan"}
    ((_, outcome),) = paired.outcomes(suite.load(tmp_path / "e/out")[0])
    rows = {row.step.rpartition(" ")[2]: row for row in outcome.primary}
    assert rows.keys() == {"a", "b"}
    for host, row in rows.items():
        assert (row.judgement.verdict.value, row.paired) == ("better", "seed") == (told[host]["verdict"], "seed")
        # Beside the sum, which the page has not, no host is less certain.
        low, high = row.judgement.low, row.judgement.high
        assert (told[host]["gain_low"], told[host]["gain_high"]) == pytest.approx((low, high), rel=1e-4)
    assert told["all"]["verdict"] == "better"
    assert "Yes. xdd, wan against untouched: better at all 2 points" in shown.page.read_text()


def test_compare_pairs_the_runs_of_a_fleet_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _measured(tmp_path / "e")
    sides = [str(tmp_path / f"e/out/profile={profile}") for profile in ("untouched", "wan")]
    assert main(["compare", *sides]) == ExitCode.DONE
    assert "Runs with the same seed are paired." in capsys.readouterr().out


def test_runs_of_one_number_of_two_experiments_on_fleets_have_nothing_in_common(tmp_path: Path) -> None:
    """They were measured at other times: only what was in one block saw the same."""
    for at, name in enumerate(("one", "two")):
        _measured(tmp_path / name, start=100.0 * at)
    ((_, outcome),) = paired.outcomes(suite.load(tmp_path)[0])
    assert [len(row.pairs) for row in outcome.primary] == [2 * len(_BLOCKS)] * 2
    assert not any(row.remark for row in outcome.primary)


def test_a_fleet_s_table_says_how_much_better(tmp_path: Path) -> None:
    (table,) = _measured(tmp_path / "e").tables
    keys = [column.key for column in table.columns]
    gains = {row[: keys.index("gain")][:3]: row[keys.index("gain")] for row in table.rows}
    for host in ("a", "b", "all"):
        assert gains["untouched", "read", host] is None
        assert gains["wan", "read", host] == pytest.approx(1.1, rel=1e-2)


def test_a_fleet_s_table_has_the_digits_that_a_bucket_leaves() -> None:
    """The p50 of a bucket 6 % wide was 1234.57 ms."""
    shown = {column.key: column.show(1234.567) for column in publish._FLEET if column.show}
    assert shown["p50_ms"] == shown["p99_ms"] == "1230"
