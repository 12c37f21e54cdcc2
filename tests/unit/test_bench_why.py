# SPDX-License-Identifier: GPL-2.0-or-later
"""The cases of `make bench-why`, and how the truth is found and judged, without a guest."""

import dataclasses
import gzip
import json
import sys
from pathlib import Path

import attrs
import pytest

from fabtune.model import typed
from fabtune.model.observation import Observation
from fabtune.model.path import LINUX_FRAMING, NetworkPath
from fabtune.why.judging import judged

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import why  # noqa: E402
import why_judge  # noqa: E402
import why_kept  # noqa: E402
import why_page  # noqa: E402
import why_short  # noqa: E402
from why_cases import BY_NAME, GOOD, PLACE, load_cases  # noqa: E402
from why_judge import Prediction, Run, Truth, best_is_right, limiters_of, predictions, score, summed, with_noise  # noqa: E402

_KEPT = json.loads(gzip.decompress((Path(__file__).parent / "data/observations.json.gz").read_bytes()))
_FILES = sorted(file for file in PLACE.glob("*.toml") if file.name != "lifts.toml")
# How the kept observations were made.
_SETTINGS = {**GOOD, "path.rate": "200mbit", "path.rtt": "20ms"}


def _run(lift: str, kept: str, **changed: str) -> Run:
    seen = typed.STRICT.read(Observation, _KEPT[kept], kept)
    values = {key.replace("__", "."): value for key, value in changed.items()}
    return Run(lift, values, {**_SETTINGS, **values}, attrs.evolve(seen, rate_bytes_per_s=25e6))


def _truth(*runs: Run) -> Truth:
    return Truth("a case", runs)


@pytest.mark.parametrize("file", _FILES, ids=[one.stem for one in _FILES])
def test_each_case_can_be_lifted_and_has_a_name_of_its_own(file: Path) -> None:
    cases = load_cases(file)
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        assert set(case.settings) == set(GOOD)
        assert case.lifts or case.world, case.name
        for changed in [*case.lifts.values(), *case.world.values()]:
            assert all(case.settings[key] != value for key, value in changed.items())


def test_there_are_cases_of_twenty_kinds_and_two_at_once() -> None:
    lifted = {name for file in _FILES for case in load_cases(file) for name in (*case.lifts, *case.world)}
    assert lifted == set(BY_NAME) and len(lifted) >= 20
    assert all(len(case.lifts) == 2 for case in load_cases(PLACE / "double.toml"))


def test_there_are_two_hundred_runs_with_several_seeds_and_fifty_of_them_with_two_limiters() -> None:
    steady = [case for file in _FILES for case in load_cases(file) if not case.duty]
    doubles = load_cases(PLACE / "double.toml")
    assert len(steady) >= 200 and len(doubles) >= 50
    assert {case.seed for case in steady} == {case.seed for case in doubles} == {1, 2}
    pairs = {(case.settings["load.op"], *sorted(case.lifts)) for case in doubles}
    assert len(pairs) >= 25


def test_another_seed_is_another_run_of_the_same_configuration() -> None:
    first, second = (case for case in load_cases(PLACE / "single.toml") if case.name.startswith("pacing-read-20ms-"))
    assert first.settings == second.settings and first.digest != second.digest
    # The look begins elsewhere in the round trips and in the load's own rhythm.
    assert first.ramp_s < second.ramp_s < first.ramp_s + 1


def test_runs_are_counted_by_configuration_and_seed_and_logins_apart() -> None:
    untouched, wan = _run("", "untouched-read"), _run("locked-window", "wan-read", iscsi__tcp_window="0")
    found = summed([Truth("a-20ms-1", (untouched, wan)), Truth("a-20ms-2", (wan,), seed=2), Truth("b-5ms-1", (wan,))])
    assert (found["runs"], found["configurations"], found["seeds"], found["logins"]) == (3, 2, 2, 4)
    assert found["seeds_apart_most"] == pytest.approx(wan.bytes_per_s / untouched.bytes_per_s - 1, rel=1e-3)
    assert summed([Truth("b-5ms-1", (wan,))])["seeds_apart_most"] is None


def test_the_truth_is_what_raises_throughput_most() -> None:
    untouched, wan = _run("", "untouched-read"), _run("locked-window", "wan-read", iscsi__tcp_window="0")
    nothing = _run("queue-depth", "untouched-read", iscsi__queue_depth="128")
    assert _truth(untouched, nothing, wan).lifts == ("locked-window",)
    # The world's lifts count where no setting's helps.
    assert _truth(untouched, nothing, _as_lift(wan, "line")).lifts == ("line",)
    # Where nothing helps, the line is the truth only of what fills it.
    assert limiters_of(_truth(untouched, nothing).lifts, untouched, "read") == set()
    assert limiters_of((), _full(untouched), "read") == {"line"}
    assert limiters_of(("line",), untouched, "read") == limiters_of(("target-rmem",), untouched, "read") == set()


def test_lifts_that_differ_by_less_than_two_seeds_do_are_both_the_truth() -> None:
    untouched, wan = _run("", "untouched-read"), _run("locked-window", "wan-read", iscsi__tcp_window="0")
    less = _as_lift(_less(wan, 0.9), "pacing")
    assert _truth(untouched, wan, less).lifts == ("locked-window",)
    less = _as_lift(_less(wan, 0.92), "pacing")
    first, second = (
        Truth(f"a-{seed}", (_less(untouched, part), wan, less), seed=seed) for seed, part in ((1, 1.0), (2, 0.92))
    )
    (noisy, _) = with_noise([first, second])
    assert noisy.noise == pytest.approx(0.087, abs=0.001) and not noisy.noisy
    assert noisy.lifts == ("locked-window", "pacing")
    # What another seed may take is no wrong choice, and without one it is.
    found = [Prediction("a", "pacing", 20e6, 0, None, less.bytes_per_s, 12e6),
             Prediction("a", "locked-window", 19e6, 0, None, wan.bytes_per_s, 12e6)]  # fmt: skip
    assert best_is_right(noisy, found) == 1
    assert best_is_right(first, found) == 0
    assert with_noise([first])[0].noise == 0


def test_where_seeds_differ_by_more_than_a_tenth_the_truth_is_what_is_best_in_their_mean() -> None:
    untouched, wan = _run("", "untouched-read"), _run("locked-window", "wan-read", iscsi__tcp_window="0")

    def one(seed: int, part: float, window: float, pacing: float) -> Truth:
        runs = _less(untouched, part), _less(wan, window), _as_lift(_less(wan, pacing), "pacing")
        return Truth(f"a-{seed}", runs, seed=seed)

    first, second = with_noise([one(1, 1.0, 0.9, 1.0), one(2, 0.5, 1.0, 0.3)])
    # What one seed alone shows is not the truth: the other lift is best in it.
    assert first.gains["pacing"] > first.gains["locked-window"]
    assert first.noisy and first.lifts == second.lifts == ("locked-window",)
    assert summed([first, second])["noisy_runs"] == 2


def test_a_run_whose_truth_is_not_known_is_not_right_and_is_counted() -> None:
    untouched = _run("", "untouched-read")
    found = summed([_truth(untouched, _as_lift(untouched, "queue-depth"))])
    assert (found["truth_unknown"], found["single_runs"], found["single_right_both_ends"]) == (1, 1, 0)
    assert score((), untouched)[:2] == (0, "unknown")


@pytest.mark.parametrize(("write_part", "points"), [(1.0, 0.5), (0.2, 0.5), (0.05, 1.0)])
def test_each_direction_with_a_tenth_of_the_bytes_is_judged_and_half_of_two_is_half(
    write_part: float, points: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = gzip.decompress((Path(__file__).parent / "data/observations-pairs.json.gz").read_bytes())
    seen = typed.STRICT.read(Observation, json.loads(kept)["both-queue-window-mixed-20ms"], "")
    run = Run("", {}, {**_SETTINGS, "path.rate": "100mbit", "load.op": "mixed"}, seen)
    assert score(("queue-depth",), run) == (1, "nr-requests/queue-depth", "queue-depth")
    read, write = judged(seen)
    wrong = (attrs.evolve(write.first, limiter="loss"),)
    write = attrs.evolve(write, shares=wrong, bytes_per_s=write_part * read.bytes_per_s)
    monkeypatch.setattr(why_judge, "judged", lambda _: [read, write])
    said = "queue-depth" if points == 1 else "read: queue-depth, write: loss"
    assert score(("queue-depth",), run) == (points, "nr-requests/queue-depth", said)


def _full(run: Run) -> Run:
    """Return a run that moved what its line carries."""
    line = NetworkPath(0.0, 25e6, framing_bytes=LINUX_FRAMING).goodput_bytes_per_s
    return _less(run, line / run.bytes_per_s)


def _less(run: Run, part: float) -> Run:
    """Return a run that moved that part of what `run` did."""
    ways = {
        name: attrs.evolve(way, moved_bytes=round(part * way.moved_bytes)) for name, way in run.seen.disk.ways.items()
    }
    return dataclasses.replace(run, seen=attrs.evolve(run.seen, disk=attrs.evolve(run.seen.disk, ways=ways)))


def test_a_case_of_two_limiters_is_counted_as_one() -> None:
    untouched, wan = _run("", "untouched-read"), _run("locked-window", "wan-read", iscsi__tcp_window="0")
    nothing = _run("queue-depth", "untouched-read", iscsi__queue_depth="128")
    found = summed([_truth(untouched, wan, nothing, _as_lift(wan, "all"))])
    assert (found["double_runs"], found["double_right"], found["single_runs"]) == (1, 1, 0)


def _as_lift(run: Run, lift: str) -> Run:
    """Return the same run as that of another lift."""
    return Run(lift, run.changed, run.settings, run.seen)


def test_a_verdict_is_right_half_right_or_wrong() -> None:
    untouched = _run("", "untouched-read")
    assert score(["locked-window"], untouched)[0] == 1
    assert score(["cmds-max"], untouched)[0] == 0
    paced = _run("", "maxrate-read")
    # From the initiator alone it says between which it cannot tell.
    assert score(["pacing"], paced, one_end=True)[0] == 0.5


def test_what_is_foretold_is_held_against_the_lifted_run() -> None:
    truth = _truth(_run("", "untouched-read"), _run("locked-window", "wan-read", iscsi__tcp_window="0"))
    (one,) = predictions(truth)
    assert one.error is not None and one.error < 0.03
    found = summed([truth])
    assert (found["logins"], found["runs_at_bound"]) == (2, 1)
    assert (found["best_change_right"], found["single_right_both_ends"]) == (1, 1)
    assert found["double_right"] is None


def test_a_lift_that_the_model_does_not_know_is_left_open() -> None:
    lifted = _run("idle-restart", "wan-read", target__tcp__slow_start_after_idle="0")
    lifted = dataclasses.replace(lifted, changed={"target:tcp.slow_start_after_idle": "0"})
    (one,) = predictions(_truth(_run("", "untouched-read"), lifted))
    assert one.foretold is None and one.error is None


@pytest.mark.parametrize(
    ("foretold", "measured", "right"),
    [((20e6, 15e6), (20e6, 15e6), True), ((15e6, 20e6), (20e6, 15e6), False), ((12e6, 12e6), (12e6, 12e6), True),
     ((12e6, 12e6), (20e6, 12e6), False), ((None, None), (20e6, 12e6), 0.5), ((None, 12e6), (20e6, 12e6), 0.5),
     ((None, 12e6), (11e6, 12e6), True), ((None, 12e6), (31e6, 12e6), False)],
)  # fmt: skip
def test_the_best_change_is_the_one_that_brought_most(
    foretold: tuple[float | None, ...], measured: tuple[float, ...], right: float
) -> None:
    truth = _truth(_run("", "untouched-read"))
    found = [
        Prediction("a case", name, told, 0, 30e6, came, 12e6)
        for name, told, came in zip(("locked-window", "bursts"), foretold, measured, strict=True)
    ]
    assert best_is_right(truth, found) == right
    assert best_is_right(truth, []) is None


def test_a_full_line_is_judged_with_its_rate_untold_too() -> None:
    full = _full(_run("", "untouched-read"))
    assert not why_judge.advises(full)
    found = summed([_truth(full)])
    assert found["advised_at_bound"] == found["advised_at_bound_rate_untold"] == 1
    # A share that is said to be one of several is no certain advice.
    (one,) = judged(attrs.evolve(full.seen, rate_bytes_per_s=None))
    assert one.liftable == [one.first]
    hedged = attrs.evolve(one.first, among=("line", "receive-window"))
    assert why_judge.advises(full, rate_told=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(why_judge, "judged", lambda _: [attrs.evolve(one, shares=(hedged,))])
        assert not why_judge.advises(full, rate_told=False)


def test_predictions_that_need_more_than_the_told_rate_are_counted_by_themselves() -> None:
    def one(foretold: float | None, measured: float, *, at_line: bool = False) -> Prediction:
        return Prediction("a", "pacing", foretold, 0, None, measured, 12e6, at_line)

    assert [one(20e6, measured).between for measured in (12.2e6, 13e6, 9e6)] == [False, True, True]
    assert not one(24e6, 24e6, at_line=True).between
    truth = _truth(_run("", "untouched-read"), _run("locked-window", "wan-read", iscsi__tcp_window="0"))
    found = summed([truth])
    assert (found["predictions"], found["predictions_between"], found["prediction_between_median"]) == (1, 0, None)
    truth = _truth(truth.base, _less(truth.runs[1], 0.8))
    found = summed([truth])
    assert found["predictions_between"] == 1 and found["prediction_between_p95"] == pytest.approx(0.25, abs=0.03)


def test_bars_demand_enough_runs_seeds_and_kinds_and_few_that_are_left_open() -> None:
    truth = _truth(_run("", "untouched-read"), _run("locked-window", "wan-read", iscsi__tcp_window="0"))
    found = {**summed([truth]), "double_right": 1.0, "share_error_points": 1.0, "advised_at_bound": 0}
    named = {text.split(":")[0] for text in why.missed(found)}
    assert named == {"runs", "double_runs", "seeds", "limiters_put_in", "runs_at_bound"}
    enough = {"runs": 200, "double_runs": 50, "seeds": 2, "limiters_put_in": 20, "runs_at_bound": 20}
    assert why.missed({**found, **enough}) == []
    assert why.missed({**found, **enough, "prediction_open_share": 0.11}) == [
        "prediction_open_share: 0.11, 0 to 0.1 demanded"
    ]
    # What limits the world is put in where it limits; the line can always be lifted.
    lifted = _as_lift(_run("", "untouched-read"), "line")
    assert why_judge.put_in([truth, _truth(truth.base, lifted)]) == {"locked-window"}


def test_runs_of_a_case_that_was_changed_since_are_not_judged_unless_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = load_cases(why_short.CASES)[0]
    runs = [{"lift": "", "settings": {}, "observation": _KEPT["untouched-read"]}]
    file = tmp_path / f"{case.name}.json"
    file.write_text(json.dumps({"digest": "another", "settings": dict(case.settings), "runs": runs}))
    assert why.read_all(tmp_path, [case]) == []
    assert capsys.readouterr().out == f"not judged, made of cases that were changed since: {case.name}\n"
    assert [one.name for one in why.read_all(tmp_path, [case], stale=True)] == [case.name]
    file.write_text(json.dumps({"digest": case.digest, "settings": dict(case.settings), "runs": runs}))
    capsys.readouterr()
    assert len(why.read_all(tmp_path, [case])) == 1 and not capsys.readouterr().out


def test_each_of_the_twelve_short_cases_has_a_truth_that_the_bench_found_of_it_as_it_is() -> None:
    cases = load_cases(why_short.CASES)
    found = {case.name: why_short.known(case) for case in cases}
    assert len(found) == 12 and json.loads(why_short.TRUTHS.read_text())["cases"].keys() == found.keys()
    # Nothing but what was lifted in a run of its own is the truth, and no two are.
    assert all(len(told.lifts) == 1 and told.lifts[0] in told.lifted_mb_per_s for told in found.values())
    tests = (Path(__file__).parents[1] / "vm/why_cases.bats").read_text()
    assert [line.split()[1] for line in tests.splitlines() if line.startswith("\tright ")] == list(found)
    with pytest.raises(SystemExit, match="--keep-truths finds it"):
        why_short.known(dataclasses.replace(cases[0], seed=2))


def test_a_short_case_is_wrong_if_it_is_misnamed_or_moves_something_else_or_is_advised_to_at_the_bound() -> None:
    slow = _run("", "untouched-read")
    kept = gzip.decompress((Path(__file__).parent / "data/observations-100mbit.json.gz").read_bytes())
    seen = typed.STRICT.read(Observation, json.loads(kept)["line-unpaced-read"], "")
    rate = {"path.rate": "100mbit"}
    full = Run("", {}, {**_SETTINGS, **rate}, attrs.evolve(seen, rate_bytes_per_s=12.5e6))

    def told(run: Run, lift: str, part: float = 1.0) -> list[str]:
        return list(why_short.complaints(run, why_short.Known("", part * run.bytes_per_s / 1e6, {}, (lift,))))

    assert told(slow, "locked-window") == [] and told(full, "line") == []
    assert [text.split(":")[0] for text in told(slow, "cmds-max")] == ["from both ends", "from the initiator alone"]
    assert "its truth is of" in told(slow, "locked-window", 0.8)[0]
    assert "the line is not full" in " ".join(told(slow, "line"))
    # As much is moved as the line carries, and a window is blamed where its rate is not told.
    assert "a change is advised, and the line is full" in told(_full(slow), "locked-window")


def test_what_is_kept_is_what_the_judge_says_of_the_kept_runs(tmp_path: Path) -> None:
    """Whatever changes a verdict, a prediction or the judge makes the page's tables stale."""
    why_kept.unpack(tmp_path)
    truths = why.read_all(tmp_path, [case for file in _FILES for case in load_cases(file)])
    assert len(truths) == len(list(tmp_path.iterdir()))
    kept, given = json.loads(why_page.KEPT.read_text()), json.loads(json.dumps(why_page.result(truths)))
    assert given == kept, "tests/bench/why.py --kept --judge-only --document makes it anew"


def test_documentation_has_the_tables_and_the_picture_of_what_is_kept() -> None:
    kept = json.loads(why_page.KEPT.read_text())
    text = why_page.PAGE.read_text()
    again = "tests/bench/why.py --judge-only --document makes it anew"
    assert why_page.with_tables(text, kept) == text, again
    assert why_page.drawing(kept) == why_page.DRAWING.read_text(), again
