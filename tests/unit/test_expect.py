# SPDX-License-Identifier: GPL-2.0-or-later
"""What an experiment expects of its figures: each kind of statement can hold, fail, and be beyond telling."""

import sys
from pathlib import Path
from typing import Any

import pytest

from fabtune.errors import InputError
from fabtune.experiment import batch, definition, expect
from fabtune.lab import fabrics

FACTORS = {"targets": ("1", "2", "4"), "fabric": ("iscsi", "srp")}


def rows(*rates: float, fabric: str = "iscsi", **more: Any) -> list[dict[str, Any]]:
    return [
        {"targets": targets, "fabric": fabric, "op": "read", "mb_per_s": rate, **more}
        for targets, rate in zip(FACTORS["targets"], rates, strict=False)
    ]


def parsed(**table: Any) -> expect.Expectation:
    for side in {"of", "to", "where"} & table.keys():
        table[side] = {name: expect.Text(value) for name, value in table[side].items()}
    return expect.Expectation(says="so", **table)


def written(directory: Path, text: str) -> definition.Definition:
    """Return the definition that a file of `text` is."""
    path = directory / "exp.toml"
    path.write_text(text)
    return definition.load(str(path))


RATIO = {"of": {"targets": 4}, "to": {"targets": 1}, "at_least": 3.6}


@pytest.mark.parametrize(
    ("table", "rates", "holds"),
    [
        (RATIO, (26, 52, 104), True),
        (RATIO, (26, 52, 90), False),
        (RATIO, (26, 52), None),
        (RATIO, (0, 52, 90), True),
        ({"where": {"targets": "2"}, "at_most": 60}, (26, 52, 104), True),
        ({"where": {"targets": "2"}, "at_most": 50}, (26, 52, 104), False),
        ({"where": {"targets": "1,2"}, "at_least": 26}, (26, 27, 1), True),
        ({"along": "targets", "shape": "rises"}, (26, 52, 104), True),
        ({"along": "targets", "shape": "rises"}, (26, 52, 40), False),
        ({"along": "targets", "shape": "rises"}, (26, 26.1, 26.2), False),
        ({"along": "targets", "shape": "falls"}, (104, 52, 26), True),
        ({"along": "targets", "shape": "falls"}, (26, 52, 104), False),
        ({"along": "targets", "shape": "level"}, (100, 103, 99), True),
        ({"along": "targets", "shape": "level"}, (100, 120, 99), False),
        ({"along": "targets", "shape": "rises"}, (26,), None),
        ({"figure": "queue_full", "at_most": 0}, (26, 52, 104), None),
    ],
)
def test_each_statement_is_judged(table: dict[str, Any], rates: tuple[float, ...], holds: bool | None) -> None:
    assert expect.judge(parsed(**table), rows(*rates), FACTORS).holds is holds


@pytest.mark.parametrize("table", [RATIO, {"along": "targets", "shape": "rises"}])
def test_nothing_of_nothing_is_no_ratio(table: dict[str, Any]) -> None:
    """Where every client hangs, one target moves as little as four: that was "as expected (inf)"."""
    hung = [row for seed in (1, 2, 3) for row in rows(0, 0, 0, seed=seed)]
    verdict = expect.judge(parsed(**table), hung, FACTORS)
    assert verdict.holds is None and verdict.measured and "0 of 0 is no ratio" in verdict.found
    one = [*rows(26, 52, 104, seed=1), *rows(26, 52, 104, seed=2), *rows(0, 0, 0, seed=3)]
    assert expect.judge(parsed(**table), one, FACTORS).holds is None


@pytest.mark.parametrize(
    ("table", "rates", "holds", "found"),
    [
        ({"along": "targets", "shape": "falls"}, (100, 0), True, "beyond any ratio, to 0"),
        ({"along": "targets", "shape": "falls"}, (100, 50, 0), True, "beyond any ratio, to 0"),
        ({"along": "targets", "shape": "falls"}, (100, 0, 0), True, "1; beyond any ratio, to 0"),
        ({"along": "targets", "shape": "rises"}, (0, 0, 26), True, "1"),
        ({"along": "targets", "shape": "falls"}, (0, 0, 26), False, "0"),
        ({"along": "targets", "shape": "level"}, (0, 0, 0), None, "0 of 0 is no ratio"),
        (RATIO | {"at_most": 5}, (0, 0, 26), False, "beyond any ratio, to 0"),
        (RATIO, (0, 0, 26), True, "beyond any ratio, to 0"),
        ({"of": {"targets": 4}, "to": {"targets": 1}, "at_most": 0.5}, (26, 0, 0), True, "0"),
    ],
)
@pytest.mark.parametrize("seeds", [1, 3])
def test_a_fall_to_nothing_is_seen(
    table: dict[str, Any], rates: tuple[float, ...], holds: bool | None, found: str, seeds: int
) -> None:
    """With three seeds its interval was "nan to nan", and nothing could be told of it."""
    every = [row for seed in range(seeds) for row in rows(*rates, seed=seed)]
    verdict = expect.judge(parsed(**table), every, FACTORS)
    assert verdict.holds is holds and found in verdict.found and "nan" not in verdict.found, verdict


@pytest.mark.parametrize("figure", ["mb_per_s", "p99_ms"])
def test_a_ratio_to_nothing_has_no_upper_end(figure: str) -> None:
    every = [row | {"p99_ms": row["mb_per_s"]} for seed, first in enumerate((0, 25, 26))
             for row in rows(first, 52, 104, seed=seed)]  # fmt: skip
    verdict = expect.judge(parsed(**RATIO, figure=figure), every, FACTORS)
    assert verdict.holds and verdict.found.endswith(", no upper end)") and "nan" not in verdict.found


def test_one_fabric_that_differs_fails_the_statement_and_is_shown() -> None:
    both = rows(26, 52, 104) + rows(26, 30, 31, fabric="srp")
    verdict = expect.judge(parsed(**RATIO), both, FACTORS)
    assert verdict.holds is False and verdict.found == "1.19"


def test_seeds_are_judged_by_their_interval_and_missing_rows_are_no_zero() -> None:
    twice = [*rows(20, 52, 90, seed=1), *rows(30, 52, 110, seed=2), {"fabric": "srp", "op": "read", "missing": "no"}]
    assert expect.judge(parsed(**RATIO), twice, FACTORS).found == "at 2 of 4 combinations: 4.08 (1.11 to 14.9)"


def test_a_step_of_one_bucket_is_no_step() -> None:
    """Three seeds of 4.588 ms against three of 4.85: beside one another, and that many times as surely."""
    times: list[dict[str, Any]] = [
        {"targets": targets, "op": "read", "p99_ms": ms, "seed": seed}
        for targets, ms in (("1", 4.85), ("4", 4.588))
        for seed in (1, 2, 3)
    ]
    less = parsed(figure="p99_ms", of={"targets": 4}, to={"targets": 1}, at_most=0.97)
    assert expect.judge(less, times, FACTORS).holds is None
    far = [{**row, "p99_ms": row["p99_ms"] / (2 if row["targets"] == "4" else 1)} for row in times]
    assert expect.judge(less, far, FACTORS).holds is True


def test_seeds_that_all_gave_the_limit_itself_are_within_it() -> None:
    exactly = parsed(figure="queue_full", where={"targets": "1"}, at_least=100, at_most=100)
    same = [row for seed in (1, 2, 3) for row in rows(20, queue_full=100, seed=seed)]
    assert expect.judge(exactly, same, FACTORS).holds is True
    assert expect.judge(exactly, [*same, *rows(20, queue_full=101, seed=4)], FACTORS).holds is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("at_least = 1", "says"),
        ('says = "x"\nat_leest = 1', "at_leest"),
        ('says = "x"', "at_least or at_most"),
        ('says = "x"\nalong = "rtt"', "shape"),
        ('says = "x"\nalong = "rtt"\nshape = "up"', "rises, falls, level"),
        ('says = "x"\nalong = "loss"\nshape = "rises"', "along.*'loss'.*rtt"),
        ('says = "x"\nat_least = "much"', "at_least"),
        ('says = "x"\nof = 3\nat_least = 1', "of"),
    ],
)
def test_a_bad_expectation_names_the_file_and_the_key(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InputError, match=f"exp.toml: .*expect\\[0\\].*{named}"):
        written(tmp_path, f'[factors]\nrtt = ["0ms"]\n[[expect]]\n{text}\n')


@pytest.mark.parametrize(
    ("fixed", "named"),
    [
        ("clients = 2\nsessions = 2", "clients and sessions"),
        ('fabric = "srp"\nclients = 2', "clients with fabric = srp"),
        ('fabric = "srp"\nsecurity = "chap"', "security with fabric = srp"),
        ('cut = "1s"', "cut with sessions = 1"),
        ('cpu = "ends"\nclients = 2', "cpu = ends with clients"),
        ("task_set_full = 3", "task_set_full with fabric = iscsi: it is only for scsi_debug"),
        ('fabric = "srp"\ncmds_max = 64', "cmds_max with fabric = srp: it is only for iscsi, iser"),
        ('fabric = "iser"\nsessions = 2', "sessions with fabric = iser: it is only for iscsi"),
        ('fabric = "iser"\nsecurity = "ipsec"', "fabric = iser: expected security = none or chap"),
        ('fabric = "nvme-tcp"\nstall = "1s"', "stall with fabric = nvme-tcp: it is only for"),
        ("target_rate = 12", "target_rate = .12.*13"),
        ('fabric = "carrier-pigeon"', "fabric"),
    ],
)
def test_an_impossible_combination_is_refused_before_anything_starts(tmp_path: Path, fixed: str, named: str) -> None:
    with pytest.raises(InputError, match=f"exp.toml.*{named}"):
        written(tmp_path, f'[factors]\nrtt = ["0ms"]\n[fixed]\n{fixed}\n').combinations()


@pytest.mark.parametrize("knob", ["cmds_max = 64", "cmdsn_depth = 32", 'unsolicited = "all"', 'security = "chap"'])
def test_iser_takes_the_knobs_of_iscsi(tmp_path: Path, knob: str) -> None:
    (cell,) = written(tmp_path, f'[fixed]\nfabric = "iser"\n{knob}\n').combinations()
    assert cell.settings.fabric == "iser"


def test_a_fabric_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pigeon.py").write_text(
        "from fabtune.lab.fabrics import Fabric\n\n\n"
        "class Pigeon(Fabric):\n"
        '    NAME = "pigeon"\n    FACTORS = frozenset({"sessions"})\n\n\n'
        "FABRIC = Pigeon\n"
    )
    monkeypatch.setattr(fabrics, "__path__", [*fabrics.__path__, str(tmp_path)])
    fabrics.known.cache_clear()
    try:
        (cell,) = written(tmp_path, '[fixed]\nfabric = "pigeon"\nsessions = 2\n').combinations()
        assert fabrics.find(cell.settings.fabric).NAME == "pigeon"
        with pytest.raises(InputError, match="targets with fabric = pigeon: it is only for iscsi"):
            written(tmp_path, '[fixed]\nfabric = "pigeon"\ntargets = 2\n').combinations()
    finally:
        fabrics.known.cache_clear()
        sys.modules.pop("fabtune.lab.fabrics.pigeon", None)


def test_a_fabric_that_needs_hardware_is_said_to_be_missing_and_starts_no_guest(tmp_path: Path) -> None:
    wanted = written(tmp_path, 'seeds = 1\n[factors]\nfabric = ["fc", "infiniband"]\n[fixed]\nop = "read"\n')
    runs = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    from fabtune.progress import Progress

    points = batch.run_all(wanted, runs, resume=False, progress=Progress(quiet=True))
    assert [str(point["missing"])[:18] for point in points] == ["not available here"] * 2
    assert all("mb_per_s" not in point for point in points)


@pytest.mark.parametrize("name", definition.names())
def test_every_shipped_experiment_says_what_it_expects(name: str) -> None:
    wanted = definition.load(name)
    assert wanted.expect or name == "demo"
    named = {key for one in wanted.expect for side in (one.where, one.of, one.to) for key in side}
    assert named <= {*wanted.factors, "op"}
    for one in wanted.expect:
        for side in (one.where, one.of, one.to):
            for key, values in side.items():
                assert set(values.split(",")) <= {*wanted.factors.get(key, ()), "read", "write"}, (name, key, values)


def test_what_holds_at_some_combinations_alone_is_said_to() -> None:
    """By --only one of three targets, or where the figure of the others is not there, "rises" held as if of all."""
    rises = parsed(along="targets", shape="rises")
    untold = {"targets": "4", "fabric": "iscsi", "op": "read", "mb_per_s": None}
    for some in (rows(26, 52), [*rows(26, 52), untold]):
        judged = expect.judge(rises, some, FACTORS)
        assert judged.holds and judged.found.startswith("at 2 of 6 combinations: 2")
    whole = [*rows(26, 52, 104), *rows(26, 52, 104, fabric="srp")]
    assert "combinations" not in expect.judge(rises, whole, FACTORS).found
    # What a statement leaves out itself is not missing.
    ratio = parsed(**RATIO, where={"fabric": "iscsi", "op": "read"})
    assert "combinations" not in expect.judge(ratio, rows(26, 52, 104)[::2], FACTORS).found


def test_a_figure_that_some_seeds_do_not_tell_is_not_judged_by_the_others() -> None:
    """Of five seeds two told no p99: those whose requests waited too long for it to be known."""
    known: list[dict[str, Any]] = [
        {"targets": "1", "fabric": "iscsi", "op": "read", "seed": seed, "p99_ms": 5.0} for seed in range(1, 6)
    ]
    limit = parsed(figure="p99_ms", where={"targets": "1"}, at_most=6)
    assert expect.judge(limit, known, FACTORS).holds is True
    some = [row | ({"p99_ms": None} if row["seed"] > 3 else {}) for row in known]
    judged = expect.judge(limit, some, FACTORS)
    assert judged.holds is None and judged.measured
    assert judged.found == "2 of 5 runs of a point do not tell p99_ms; the others are no fair sample"


def test_of_a_fleet_a_statement_is_about_the_sum_or_about_the_host_that_it_names() -> None:
    of = {"fabric": "iscsi", "targets": "1", "op": "read", "seed": 1}
    found = [of | {"host": host, "mb_per_s": rate} for host, rate in (("a", 100.0), ("b", 50.0), ("all", 150.0))]
    judged = [expect.judge(parsed(where=where, at_least=120.0), found, FACTORS) for where in ({}, {"host": "a"})]
    assert [(one.holds, one.found) for one in judged] == [
        (True, "at 1 of 6 combinations: 150"),
        (False, "at 1 of 6 combinations: 100"),
    ]
