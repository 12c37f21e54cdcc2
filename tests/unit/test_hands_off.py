# SPDX-License-Identifier: GPL-2.0-or-later
"""Experiments' profile `tune`: `fabtune tune`, told nothing, beside the load of each direction."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.experiment import batch, combination, definition, hands_off, testbed
from fabtune.experiment.settings import check_settings, parse_settings
from fabtune.host.run import Ended
from fabtune.lab import cross, topology
from fabtune.model.factors import Settings
from fabtune.model.results import Point

SAID = {"steps": [{"step": "receive-window", "kept": True}], "ended": "at the bound"}
SETTINGS = {"profile": "tune", "rtt": "50ms", "rate": "100mbit", "ramp": "6s", "cross": "cubic", "buffer": "1"}


def settings(**more: str) -> Settings:
    return parse_settings(SETTINGS | more, "test")


class Lab:
    """What the guest was made to do, in order; `answer` is that of fabtune tune."""

    def __init__(self) -> None:
        self.acts: list[str] = []
        self.answer = Ended(0, json.dumps(SAID), "step 1 of 8\n")
        self.load_ended: int | None = None
        self.waited_s = 0.0

    @contextmanager
    def traffic(self, kind: str, op: str) -> Iterator[None]:
        self.acts.append(f"{kind} {op}")
        yield
        self.acts.append(f"no {kind}")

    def launch(self, words: list[str], **_: Any) -> "Lab":
        self.acts.append(" ".join(words))
        return self

    def poll(self) -> int | None:
        return self.load_ended

    @property
    def returncode(self) -> int | None:
        return self.load_ended

    def terminate(self) -> None:
        self.acts.append("end of the load")

    def wait(self) -> None:
        pass

    def finish(self, words: list[str]) -> Ended:
        self.acts.append(" ".join(words))
        return self.answer

    def sleep(self, seconds: float) -> None:
        self.waited_s += seconds


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    found = Lab()
    for name in ("launch", "finish"):
        monkeypatch.setattr(hands_off, name, getattr(found, name))
    monkeypatch.setattr(cross, "traffic", found.traffic)
    monkeypatch.setattr(time, "sleep", found.sleep)
    monkeypatch.setattr(topology, "lose_anew", lambda _: found.acts.append("lose anew"))
    monkeypatch.setattr(topology, "target_namespace", lambda: "target")
    return found


def tuned(wanted: Settings, op: str = "read") -> dict[str, Any]:
    return hands_off.tuned_beside_load(wanted, topology.emulated_path(wanted), ["sda", "sdb"], op)


def test_it_is_told_nothing_and_runs_beside_the_load_and_the_neighbours(lab: Lab) -> None:
    did = tuned(settings())
    traffic, load, *rest = lab.acts
    assert traffic == "cubic read"
    assert "--rw=read --bs=262144 --iodepth=32" in load
    assert load.endswith("--name=sda --filename=/dev/sda --name=sdb --filename=/dev/sdb")
    words = "fabtune tune --yes --target-netns target --json"
    assert rest == ["lose anew", words, "end of the load", "no cubic"]
    assert lab.waited_s == pytest.approx(6.5)
    assert did["exit"] == 0 and did["steps"] == SAID["steps"] and did["ended"] == "at the bound"
    tuned(settings(), "write")
    assert any("--rw=write" in one for one in lab.acts)


def test_nothing_runs_for_another_profile(lab: Lab) -> None:
    assert tuned(settings(profile="wan")) == {} and lab.acts == []


def test_it_counts_where_no_step_of_it_stays(lab: Lab) -> None:
    lab.answer = Ended(ExitCode.CANNOT_TELL, json.dumps(SAID | {"steps": []}), "")
    assert tuned(settings())["exit"] == ExitCode.CANNOT_TELL


@pytest.mark.parametrize("text", ["", "no document", '{"error": {"message": "nobody is logged in"}}', "[]"])
def test_a_run_in_which_it_failed_is_none(lab: Lab, text: str) -> None:
    lab.answer = Ended(1, text, "fabtune: nobody is logged in")
    with pytest.raises(FabtuneError, match="fabtune tune: exit 1: fabtune: nobody is logged in"):
        tuned(settings())
    assert "end of the load" in lab.acts


def test_a_load_that_ended_beside_it_is_no_load(lab: Lab) -> None:
    lab.load_ended = 1
    with pytest.raises(FabtuneError, match="the load beside fabtune tune ended with 1"):
        tuned(settings())


class Bed:
    """A testbed that only notes what is asked of it."""

    path = None

    def __init__(self, wanted: Settings) -> None:
        self.settings = wanted
        self.acts: list[str] = []

    def tune(self) -> list[str]:
        self.acts.append("tune")
        return ["sda"]

    def renew(self) -> list[str]:
        self.acts.append("renew")
        return ["sdb"]


@pytest.mark.parametrize(("profile", "records"), [("tune", ["read", "write"]), ("wan", [])])
def test_each_direction_is_tuned_beside_its_own_load_and_its_record_says_what_was_done(
    monkeypatch: pytest.MonkeyPatch, profile: str, records: list[str]
) -> None:
    beds: list[Bed] = []
    seen: list[tuple[list[str], str, dict[str, Any]]] = []

    def bed(wanted: Settings) -> Bed:
        beds.append(Bed(wanted))
        return beds[0]

    def did(wanted: Settings, _: object, disks: list[str], op: str) -> dict[str, Any]:
        return {"of": op} if wanted.profile == "tune" else {}

    def measured(_: Bed, disks: list[str], op: str, around: dict[str, Any]) -> list[Point]:
        seen.append((disks, op, around))
        return [Point({"oldest_s": 0.0})]

    read = iter(["before", "after reads", "after writes"])
    monkeypatch.setattr(combination, "Testbed", bed)
    monkeypatch.setattr(combination, "run", lambda *_, **__: "")
    monkeypatch.setattr(hands_off, "tuned_beside_load", did)
    monkeypatch.setattr(combination, "measure_op", measured)
    monkeypatch.setattr(combination, "target_tunables", lambda: {"target: x": next(read)})
    combination.run_combination(settings(profile=profile))
    assert beds[0].acts == ["tune", "renew"]
    assert [(disks, op) for disks, op, _ in seen] == [(["sda"], "read"), (["sdb"], "write")]
    assert [around[hands_off.DID]["of"] for _, _, around in seen if hands_off.DID in around] == records
    values = ["after reads", "after writes"] if profile == "tune" else ["before", "before"]
    assert [around["target: x"] for *_, around in seen] == values


def test_what_was_tuned_for_one_direction_is_taken_back_before_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    acts: list[str] = []

    class Fabric:
        def part(self) -> None:
            acts.append("part")

        def logout(self) -> None:
            acts.append("logout")

        def login(self) -> list[str]:
            acts.append("login")
            return ["sda"]

        def join(self, disks: list[str]) -> list[str]:
            return disks

    bed = object.__new__(testbed.Testbed)
    bed.fabric = Fabric()  # type: ignore[assignment]
    monkeypatch.setattr(testbed, "fabtune", lambda _, *words: acts.append(" ".join(words)))
    monkeypatch.setattr(topology, "forget_paths", lambda: acts.append("forget"))
    bed.settings = settings()
    assert bed.tune() == ["sda"] and acts == ["login"]
    acts.clear()
    assert bed.renew() == ["sda"]
    assert acts == ["part", "revert --allow-relogin", "part", "logout", "forget", "login"]
    acts.clear()
    bed.settings = settings(profile="wan")
    bed.renew()
    assert acts == ["part", "logout", "forget", "login"]


def test_a_definition_may_name_it() -> None:
    for name in ("wan-buffer", "wan-cross", "wan-jitter", "wan-shared"):
        wanted = definition.load(name)
        cells = wanted.combinations()
        assert {"untouched", "fasterdata", "bpftune", "wan", "tune"} == {one.settings.profile for one in cells}
        batch.check_profiles(wanted, cells)


@pytest.mark.parametrize(
    "more", [{"workload": "net", "cross": "none"}, {"fabric": "iser"}, {"known": "measured"}], ids=str
)
def test_what_it_cannot_tune_is_refused(more: dict[str, str]) -> None:
    with pytest.raises(InputError, match="profile = tune with"):
        check_settings(settings(**more), "test")
    check_settings(settings(), "test")


def test_the_session_that_carried_least_is_held_against_its_part() -> None:
    before = {"sda": 100, "sdb": 100}
    assert combination.evenness(before, {"sda": 400, "sdb": 200}) == {"slowest_share": 0.5}
    assert combination.evenness({}, {}) == {} and combination.evenness(before, before) == {}
