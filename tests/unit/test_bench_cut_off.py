# SPDX-License-Identifier: GPL-2.0-or-later
"""How `make bench-cut-off` judges what a guest tells: what counts, what came back, and that each bar can be missed."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import cut_off as bench  # noqa: E402
import cut_off_guest as guest  # noqa: E402
import cut_off_seen as seen  # noqa: E402


def one(**changes: Any) -> dict[str, Any]:
    """A host that was cut off and came back."""
    usual = {
        "number": 1, "strike": "apply killed", "moment": "writing", "cutter": "mtu too small", "came": True,
        "status": None, "written": 1, "in_force": ["i0 mtu"], "client_cut": True, "state": "unconfirmed", "missing": {},
        "history": "taken back", "awaited": False, "late_s": 2.5, "served_late_s": 1.0,
    }  # fmt: skip
    return usual | changes


def without_verdict(**changes: Any) -> dict[str, Any]:
    """One whose guest told nothing after the strike."""
    ends = ("missing", "history", "awaited", "late_s", "served_late_s")
    return {key: value for key, value in one(**changes).items() if key not in ends}


def test_a_host_with_values_in_force_and_an_administrator_cut_off_counts() -> None:
    assert bench.counts(one())
    assert not bench.counts(one(in_force=[]))
    assert not bench.counts(one(client_cut=False))
    # The first of two writes that are journalled is done; the apply's end tells of all.
    assert bench.counts(one(in_force=[], written=2))
    assert bench.counts(one(in_force=[], written=0, status=0))
    assert not bench.counts(one(in_force=[], written=0, status=1))
    assert not bench.counts(one(status=0, state="taken back"))


def test_whom_a_power_cut_leaves_alone_need_not_be_asked() -> None:
    assert bench.counts(one(strike="power", client_cut=None))
    assert not bench.counts(one(strike="power", client_cut=False))
    assert not bench.counts(one(strike="power", client_cut=None, in_force=[], written=1))
    assert not bench.counts(one(client_cut=None))


@pytest.mark.parametrize(
    "changes",
    [
        {"missing": {"i0 mtu": ["1500", "68"]}},
        {"after_waking": {"i0 mtu": ["1500", "68"]}},
        {"awaited": True},
        {"history": "in force"},
    ],
)
def test_a_host_in_which_something_is_left_did_not_come_back(changes: dict[str, Any]) -> None:
    assert bench.came_back(one()) and not bench.missed([one()])
    assert not bench.came_back(one(**changes))
    assert len(bench.missed([one(), one(**changes)])) == 1


def test_without_a_verdict_a_host_did_not_come_back() -> None:
    silent = without_verdict()
    assert not bench.came_back(silent)
    (told,) = bench.missed([silent])
    assert "no verdict" in told
    assert bench.by_strike([silent, one()]) == [
        "apply killed, writing              1 of   2 came back,   2.5 s late at most; 0 not counted"
    ]


def test_what_does_not_count_must_leave_nothing_either() -> None:
    early = one(strike="arming killed", moment="arming", in_force=[], written=0, client_cut=False, history="none")
    assert not bench.missed([early])
    (told,) = bench.missed([early | {"missing": {"units": ["", "fabtune-unconfirmed-at-boot.service"]}}])
    assert "does not count" in told
    found = bench.document("a digest", [one(), early, one(awaited=True)])
    assert (found["cut_offs"], found["came_back"], found["not_counted"]) == (2, 1, 1)


@pytest.fixture
def guests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first number of each guest that is started; each tells of two hosts, the second of which does not count."""
    started: list[int] = []

    def lines(_: str, *words: str, **__: Any) -> Iterator[str]:
        first = int(words[1])
        started.append(first)
        for number, in_force in ((first, ["i0 mtu"]), (first + 1, list[str]())):
            told = one(number=number, in_force=in_force)
            after = ("missing", "history", "awaited", "late_s", "served_late_s", "client_cut")
            yield "STRUCK " + json.dumps({key: told[key] for key in told if key not in after} | {"client_cut": None})
            yield "JUDGED " + json.dumps({key: told[key] for key in (*after, "number")} | {"status": 137})
        yield "something else"

    monkeypatch.setattr(bench, "lab_lines", lines)
    return started


def test_a_guest_s_lines_are_put_together(guests: list[int]) -> None:
    found = list(bench.run_guest(1, 0, "trixie"))
    assert guests == [0]
    assert [bench.counts(each) for each in found] == [True, False]
    # How it ended after it was struck does not tell that it had ended before.
    assert found[0]["status"] is None and found[0]["end_status"] == 137


def test_it_goes_on_where_it_stopped_unless_what_measures_has_changed(
    guests: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(cut_offs: int) -> int:
        guests.clear()
        monkeypatch.setattr(sys, "argv", ["cut_off.py", "--out", str(tmp_path), "--cut-offs", str(cut_offs)])
        return bench.main()

    assert run(2) == 0 and guests == [0, 2]
    # The guest was not let go on to what does not count.
    assert run(3) == 0 and guests == [3]
    assert run(3) == 0 and guests == []
    file = tmp_path / "cut-off.json"
    found = json.loads(file.read_text())
    assert (found["cut_offs"], found["came_back"], found["not_counted"]) == (3, 3, 1)
    found["each"][0]["missing"] = {"i0 mtu": ["1500", "68"]}
    file.write_text(json.dumps(found))
    assert run(3) == 1 and guests == []
    monkeypatch.setattr(bench, "code", lambda *_: "another")
    assert run(3) == 0 and guests == [0, 2, 4]


def test_a_seed_s_hosts_are_struck_in_every_way_at_every_moment() -> None:
    draws = [guest.drawn(1, number) for number in range(20 * len(guest.STRIKES))]
    assert draws[7] == guest.drawn(1, 7) != guest.drawn(2, 7)
    assert {one.strike for one in draws} == set(guest.STRIKES)
    assert {one.cutter for one in draws} == {"mtu too small", "mtu too large", "rate too low"}
    assert {one.moment for one in draws if one.strike == "power"} == {"writing", "ended", "late"}
    assert {one.persist for one in draws if one.strike == "power"} == {True, False}
    assert {one.moment for one in draws if one.strike.endswith("while arming")} == {"arming"}


def test_what_has_come_and_what_has_gone_are_both_differences() -> None:
    before = {"i0 mtu": "1500", "a file": "-> there", "units": ""}
    after = {"i0 mtu": "1500", "a draft": "draft", "units": ""}
    assert seen.differences(before, before) == {}
    assert seen.differences(before, after) == {"a draft": ["(none)", "draft"], "a file": ["-> there", "(none)"]}


def test_only_what_the_new_transaction_has_journalled_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen, "_JOURNAL", tmp_path)
    assert not seen.has_begun(set()) and seen.writes_journalled(set()) == 0
    (tmp_path / "one.jsonl").write_text('{"kind": "begin"}\n{"kind": "write", "step": 1}\n')
    assert seen.has_begun(set()) and seen.writes_journalled(set()) == 1
    assert not seen.has_begun({"one"}) and seen.writes_journalled({"one"}) == 0
