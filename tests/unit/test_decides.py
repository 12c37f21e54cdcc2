# SPDX-License-Identifier: GPL-2.0-or-later
"""Experiments over workloads that something else decides than throughput: verdicts, statements, and what is shown."""

import json
from pathlib import Path
from typing import Any

import pytest

from fabtune.errors import InputError
from fabtune.experiment import batch, definition, derived, inventory, publish, results
from fabtune.model.results import Point

SLOW, QUICK = (100.0, 103.0, 97.0, 101.0, 99.0), (20.0, 20.5, 19.6, 20.2, 19.9)


def measured(
    tmp_path: Path, text: str, wan: tuple[float | None, ...] = QUICK, hosts: tuple[str, ...] = ()
) -> tuple[definition.Definition, list[batch.Run]]:
    """Return an experiment over `openloop`: what is offered comes back with either profile, p99 is a fifth."""
    path = tmp_path / "exp.toml"
    path.write_text(f'seeds = 5\nsummary = "given load"\n{text}')
    wanted = definition.load(str(path))
    runs = batch.runs_of(
        wanted, wanted.combinations(), tmp_path / "out", inventory.Inventory(path, hosts, ("t",)) if hosts else None
    )
    for run in runs:
        p99_ms = (SLOW if run.settings.profile == "untouched" else wan)[run.number - 1]
        place: dict[str, Any] = {"profile": run.settings.profile, "op": "read"}
        figures: dict[str, Any] = {"mb_per_s": 0.819, "p50_ms": 20.5, "p99_ms": p99_ms}
        if hosts:
            run.keep([Point({**place, "host": host, **figures}) for host in (*hosts, "all")])
            continue
        told: dict[str, Any] = {"fabric": "iscsi", "rtt_ms": run.settings.rtt_ms, "seed": run.settings.seed}
        run.keep([Point({**place, **told, **figures, "bound_mb_per_s": 119.5, "fraction_of_bound": 0.0069})])
    return wanted, runs


def shown(wanted: definition.Definition, runs: list[batch.Run], tmp_path: Path) -> publish.Published:
    found = batch.summary_of(runs)
    return publish.of_lab(wanted, found, batch.judge(wanted, runs), "", "fabtune run exp", tmp_path / "out")


BOTH = '[factors]\nprofile = ["untouched", "wan"]\n'
OPEN = '[fixed]\nworkload = "openloop"\nrtt = "20ms"\n'


@pytest.mark.parametrize(
    "text",
    [
        BOTH + OPEN,
        f'{BOTH}rtt = ["20ms", "50ms"]\n[fixed]\nworkload = "openloop"\n',
        f'{BOTH}{OPEN}[plot]\nx = "profile"\n',
    ],
)
def test_a_load_that_sends_what_it_is_told_is_judged_by_its_latency(text: str, tmp_path: Path) -> None:
    """Throughput is what was offered, whatever the profile: "No practical difference" of a fifth of the p99."""
    wanted, runs = measured(tmp_path, text)
    found = shown(wanted, runs, tmp_path)
    held = [point for point in found.points if point["profile"] == "wan"]
    assert {(one["verdict"], one["decided_by"]) for one in held} == {("better", "p99_ms")}
    assert all(one["gain_low"] < one["gain"] < one["gain_high"] < 0.25 for one in held)
    for said in (found.page.read_text(), *(["\n".join(found.texts)] if "[plot]" not in text else [])):
        told = said.replace("\u00a0", " ")
        assert "Yes. wan against untouched: better at" in told
        assert "What decides is p99 latency, of which less is better." in told
        # Nothing held the load back: it is no finding that 1 % of the bound was reached.
        assert "of the bound" not in told
    assert "p99 latency, ms" in found.page.read_text()
    assert "better" in [cell for one in found.tables for row in one.shown() for cell in row]
    results.keep_index(wanted, tmp_path / "out", "fabtune run exp")
    assert derived.remarks(tmp_path / "out") == [] and json.loads(found.kept.read_text())[0]["decided_by"] == "p99_ms"


def test_a_single_combination_of_it_has_a_page(tmp_path: Path) -> None:
    wanted, runs = measured(tmp_path, OPEN + 'profile = "wan"\n')
    assert "given load" in shown(wanted, runs, tmp_path).page.read_text()


def test_a_latency_that_some_runs_do_not_tell_is_no_verdict(tmp_path: Path) -> None:
    wanted, runs = measured(tmp_path, BOTH + OPEN, (*QUICK[:3], None, None))
    (point,) = [one for one in shown(wanted, runs, tmp_path).points if one["profile"] == "wan"]
    assert point["verdict"] == "cannot tell" and "2 of 5 runs of wan do not tell it" in point["why"]
    wanted, runs = measured(tmp_path, BOTH + OPEN, (None,) * 5)
    (point,) = [one for one in shown(wanted, runs, tmp_path).points if one["profile"] == "wan"]
    assert point["verdict"] == "cannot tell" and "no run of wan tells it" in point["why"]


@pytest.mark.parametrize(("figure", "holds"), [("", True), ('figure = "mb_per_s"\n', False)])
def test_a_statement_without_a_figure_is_about_the_one_that_decides(figure: str, holds: bool, tmp_path: Path) -> None:
    statement = f'[[expect]]\nsays = "shorter"\n{figure}of = {{profile = "wan"}}\nto = {{profile = "untouched"}}\n'
    wanted, runs = measured(tmp_path, f"{BOTH}{OPEN}{statement}at_most = 0.25\n")
    (judged,) = batch.judge(wanted, runs)
    assert judged.holds is holds, judged


def test_a_fleet_s_hosts_are_judged_by_it_too(tmp_path: Path) -> None:
    wanted, runs = measured(tmp_path, BOTH + OPEN, hosts=("a", "b"))
    rows = [row.published for row in batch.summary_of(runs) if row.point["profile"] == "wan"]
    assert {(one["host"], one["verdict"], one["decided_by"]) for one in rows} == {
        (host, "better", "p99_ms") for host in ("a", "b", "all")
    }


def test_throughput_decides_without_a_word(tmp_path: Path) -> None:
    wanted, runs = measured(tmp_path, BOTH)
    assert all("decided_by" not in row.published for row in batch.summary_of(runs))


def test_loads_that_different_figures_decide_are_no_one_experiment(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"factors.workload: found xdd \(mb_per_s\), openloop \(p99_ms\), allowed: wo"):
        measured(tmp_path, f'{BOTH}workload = ["xdd", "openloop"]\n')
