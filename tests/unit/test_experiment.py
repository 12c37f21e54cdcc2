# SPDX-License-Identifier: GPL-2.0-or-later
"""Definitions, combinations, and which runs are there already."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from fabtune.cli.main import main
from fabtune.errors import InputError
from fabtune.experiment import batch, definition, present
from fabtune.experiment.clients import path_told
from fabtune.experiment.settings import check_settings, parse_settings
from fabtune.lab import topology
from fabtune.lab.image import find_image
from fabtune.lab.topology import emulated_path
from fabtune.measure import keptrun
from fabtune.model.results import Point
from fabtune.progress import Progress


def _write(tmp_path: Path, text: str) -> definition.Definition:
    path = tmp_path / "exp.toml"
    path.write_text(text)
    return definition.load(str(path))


def test_combinations_vary_the_last_factor_first_and_fix_the_rest(tmp_path: Path) -> None:
    wanted = _write(
        tmp_path, '[factors]\nprofile = ["untouched", "wan"]\nrtt = ["0ms", "50ms"]\n[fixed]\ndepth = 128\n'
    )
    cells = wanted.combinations()
    assert [cell.name for cell in cells] == [
        "profile=untouched,rtt=0ms", "profile=untouched,rtt=50ms", "profile=wan,rtt=0ms", "profile=wan,rtt=50ms",
    ]  # fmt: skip
    assert cells[3].settings.rtt_ms == 50 and cells[3].settings.queue_depth == 128
    assert cells[0].settings.size_bytes == 262144
    assert [cell.name for cell in wanted.combinations(["rtt=50ms", "profile=wan"])] == ["profile=wan,rtt=50ms"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[factors]\nspeed = ["1"]', "speed"),
        ('[fixed]\nspeed = "1"', "speed"),
        ("colour = 1", "colour"),
        ('[factors]\nrtt = ["1ms", "1ms"]', "twice"),
        ('[factors]\nrtt = ["1ms", "2ms", "1000us"]', "'1000us' is the value of '1ms' once more"),
        ('[factors]\nloss = ["0%", "0.00%"]', "factors.loss: '0.00%' is the value of '0%' once more"),
        ("seeds = true", "seeds"),
        ("[factors]\nrtt = [true]", "rtt"),
        ('clock = "sun"', "clock"),
        ("summary = 3", "summary"),
        (f"seeds = 11\n[factors]\ndepth = {list(range(1, 1000))}", "999 combinations x 11 seeds"),
        # One draw was measured, and counted, several times: of three seeds each 1, 2, 3, 2, 3, 4, 3, 4, 5.
        ("seeds = 3\n[factors]\nseed = [1, 2, 3]", r"key 'seeds': found 3 .integer., allowed: 1 beside .*'seed'"),
    ],
)
def test_a_bad_definition_names_the_file_and_the_key(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InputError, match=f"exp.toml.*({named})"):
        _write(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        '[factors]\nprofile = ["default", "wan"]\n',
        '[fixed]\nprofile = "default"\n',
        '[factors]\nprofile = ["untouched", "wan"]\n'
        '[[expect]]\nsays = "x"\nat_least = 1\nof = { profile = "wan" }\nto = { profile = "default" }\n',
    ],
)
def test_a_definition_that_calls_nothing_applied_default_is_told_the_new_word(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"exp.toml: .*profile = 'default': .*; nothing applied is 'untouched' now"):
        _write(tmp_path, text).combinations()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[fixed]\nworkload = "xdb"', "no workload 'xdb': known are net, daq, "),
        # In the lab it ended in an error of our own, on a fleet without a point and without a word.
        ('[factors]\nworkload = ["xdd", "metabench"]', "workload = metabench: found files that are made and removed"),
        ('[fixed]\ntarget = "scst"', "target = 'scst': expected one of lio, tgt"),
        (
            '[factors]\nprofile = ["untouched", "wam"]',
            "unknown profile 'wam' .*'wan'.*, or a tuner: .*sandia",
        ),
    ],
)
def test_what_a_guest_would_not_have_is_refused_by_its_file_before_any_boots(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(InputError, match=f"exp.toml: {said}"):
        batch.check_profiles(wanted := _write(tmp_path, text), wanted.combinations())


@pytest.mark.parametrize("name", definition.names())
def test_every_shipped_experiment_can_be_run(name: str) -> None:
    wanted = definition.load(name)
    batch.check_profiles(wanted, wanted.combinations())
    assert wanted.summary and wanted.combinations()


@pytest.mark.parametrize("seeds", ["", "seeds = 1\n"])
def test_seeds_that_are_listed_are_measured_once_each(tmp_path: Path, seeds: str) -> None:
    wanted = _write(tmp_path, f"{seeds}[factors]\nseed = [1, 2, 5]\n")
    runs = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    assert [run.settings.seed for run in runs] == [1, 2, 5]


def test_a_replicate_is_a_seed_of_its_own_and_only_whole_runs_count(tmp_path: Path) -> None:
    wanted = _write(tmp_path, 'seeds = 2\n[factors]\nrtt = ["0ms"]\n')
    runs = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    assert [run.settings.seed for run in runs] == [1, 2]
    assert len({run.directory for run in runs}) == 2
    assert runs[0].state().status == "not run"
    runs[0].directory.mkdir(parents=True)
    (runs[0].directory / "console.log").write_text("Kernel panic")
    assert runs[0].state().status == "failed"
    runs[0].keep([Point({"op": "read"})])
    assert [dict(one) for one in runs[0].points()] == [{"op": "read"}]
    (runs[0].directory / "points.json").write_text('[{"op": "re')
    assert runs[0].state().status == "refused" and runs[0].points() == ()


def test_a_run_says_what_its_guest_was_given_whatever_is_edited_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "package"
    code.mkdir()
    (code / "model.py").write_text("first")

    def guest(_machine: object, _job: Path, draft: Path, **_others: object) -> SimpleNamespace:
        draft.mkdir()
        (draft / "points.json").write_text(keptrun.as_text([Point({"op": "read"})]))
        (code / "model.py").write_text("edited while a guest ran")
        return SimpleNamespace(exit_status=0)

    monkeypatch.setattr(present, "PACKAGE", code)
    monkeypatch.setattr(batch, "build_module", lambda _image: None)
    monkeypatch.setattr(batch, "write_job", lambda *_words, **_others: None)
    monkeypatch.setattr(batch, "run_guest", guest)
    wanted = _write(tmp_path, 'seeds = 2\n[factors]\nrtt = ["0ms"]\n')
    runs = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    monkeypatch.setattr(batch, "build_image", lambda name, _progress: find_image(name))
    batch.run_all(wanted, runs, resume=False, progress=Progress(quiet=True), jobs=1)
    first, second = (keptrun.read(run.directory)[0].origin.code for run in runs)
    assert first != second
    assert [run.state().status for run in runs] == ["refused", "measured"]


def test_a_workloads_own_value_is_the_default() -> None:
    latency = parse_settings({"workload": "latency"}, "test")
    assert (latency.size_bytes, latency.op) == (4096, "read")
    daq = parse_settings({"workload": "daq"}, "test")
    assert (daq.streams, daq.op) == (8, "mixed")
    assert parse_settings({"workload": "daq", "streams": "4"}, "test").streams == 4
    assert parse_settings({"workload": "stress128"}, "test").size_bytes == 1 << 20
    assert parse_settings({"workload": "oltp"}, "test").size_bytes == 4096


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('buffer = "half"', "buffer = 'half'.*0 for a queue that never drops"),
        ('buffer = "-1"', "buffer"),
        ('buffer = "1e9"', "buffer"),
        ('jitter = "soon"', "jitter"),
        ('reorder = "2"', "reorder"),
        ('duplicate = "101%"', "duplicate"),
        ('rate_back = "fast"', "rate_back"),
        ('nic_rate = "fast"', "nic_rate"),
        ('cross = "vegas"', "cross.*none, cubic, bbr, short"),
        ('cross = "bbr"\nworkload = "net"', "cross with workload = net"),
        ('buffer = "0.25"', "buffer = 0.25 with rtt = 0ms: .*more than 0ms.*path without delay holds nothing"),
        ('reorder = "1%"', "reorder = 1% with rtt = 0ms: .*more than 0ms.*overtakes only what waits"),
        ('jitter = "20ms"\nrtt = "10ms"', "jitter = 20ms with rtt = 10ms: expected no more than the round trip"),
    ],
)
def test_a_path_that_cannot_be_says_what_can(tmp_path: Path, line: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        _write(tmp_path, f"[fixed]\n{line}\n").combinations()


def test_a_path_of_its_own_each_way_has_a_bound_of_its_own_each_way() -> None:
    settings = parse_settings({"rate": "100mbit", "rate_back": "20mbit"}, "here")
    rates = {op: path_told(settings, op).rate_bytes_per_s for op in ("read", "write", "mixed")}
    assert rates == {"read": 2.5e6, "write": 12.5e6, "mixed": 12.5e6}
    same = parse_settings({"rate": "100mbit"}, "here")
    assert {path_told(same, op).rate_bytes_per_s for op in ("read", "write", "mixed")} == {12.5e6}


def test_a_buffer_is_a_share_of_what_the_path_holds() -> None:
    wanted = {"rtt": "40ms", "rate": "100mbit", "buffer": "0.25"}
    path = emulated_path(parse_settings(wanted, "here"))
    assert path.buffer_bytes == 125_000 and path.packets_alone
    assert emulated_path(parse_settings(wanted | {"buffer": "0"}, "here")).buffer_bytes is None


def test_a_round_trip_may_vary_by_all_of_it() -> None:
    check_settings(parse_settings({"jitter": "10ms", "rtt": "10ms", "reorder": "1%", "buffer": "1"}, "here"), "here")


@pytest.mark.parametrize(
    ("texts", "forward", "back"),
    [
        ({"rate": "1gbit", "rate_back": "10mbit"}, 4129, 42),
        ({"rate": "10mbit", "rate_back": "1gbit"}, 42, 4129),
        ({"rate": "1gbit"}, 4129, 4129),
        ({"rate": "1gbit", "rate_back": "10mbit", "buffer": "0"}, 100_000, 100_000),
    ],
)
def test_each_directions_queue_is_a_share_of_what_that_direction_holds(
    texts: dict[str, str], forward: int, back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue towards the initiator had the forward rate's size: 100 BDP where the way back has 1 % of the rate."""
    lines: list[str] = []
    monkeypatch.setattr(topology, "tc_batch", lambda namespace, batch: lines.extend(batch))
    monkeypatch.setattr(topology, "run", lambda *words, **more: "")
    monkeypatch.setattr(topology, "_limit_nics", lambda path: None)
    topology.shape(emulated_path(parse_settings({"rtt": "50ms", "buffer": "1"} | texts, "here")))
    limits = {line.split()[3]: int(line.split()[-1]) for line in lines if "rate" in line}
    assert limits == {"s0": back, "s1": forward}


def test_the_list_of_experiments_is_json_where_json_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["experiments"]
    assert [one["experiment"] for one in listed] == definition.names() and all(one["summary"] for one in listed)


@pytest.mark.parametrize(
    ("only", "says"),
    [
        (["rtt=20ms,100"], "--only rtt=20ms,100: not '100': demo has rtt = 20ms, 100ms"),
        (["rtt=20ms", "rtt=100ms"], "--only rtt=100ms: nothing is left of rtt beside the other --only rtt"),
    ],
)
def test_a_value_that_an_experiment_has_not_is_not_passed_over(only: list[str], says: str) -> None:
    """Of --only rtt=20ms,100 the second was not measured, and nothing said so."""
    with pytest.raises(InputError, match=re.escape(says)):
        definition.load("demo").combinations(only)


def test_the_plan_is_json_where_json_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "demo", "--only", "rtt=20ms", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["runs"]
    assert {"combination": {"profile": "wan", "rtt": "20ms"}, "seed": 3} in told and len(told) == 6
