# SPDX-License-Identifier: GPL-2.0-or-later
"""The target's own time of a disk whose initiator has several sessions with it: each session's own, or not told."""

import re
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from test_stat_target import INITIATOR, served

from fabtune.measure.ends import _served_between
from fabtune.measure.look import Look
from fabtune.model.observation import (
    BackstoreSeen,
    DiskSample,
    DiskSeen,
    EndSeen,
    Observation,
    SessionSeen,
    WaySeen,
)
from fabtune.model.served_seen import ServedSeen
from fabtune.why.judging import judged

TARGET = "iqn.2026-01.example:t"


def second(text: str, *changes: tuple[str, str]) -> str:
    """The LUN of `text` again, as another session uses it, whose reads take 9 ms."""
    lun = text[text.index("nexus ") :].replace("id=1", "id=2")
    for change in changes:
        lun = lun.replace(*change)
    return re.sub(r"target_ns=(\d+)", lambda found: f"target_ns={9 * int(found[1])}", lun)


def told(*changes: tuple[str, str]) -> tuple[ServedSeen, ...]:
    texts = (served(10), served(110, time_ns=3 * 10**9))
    return _served_between(*(text + second(text, *changes) for text in texts))


def seen(sessions: tuple[ServedSeen, ...], tpg: str) -> Observation:
    disk = DiskSeen("sda", True, 1.0, {}, None, 32, None, {}, {}, {}, lun=3)
    session = SessionSeen(
        TARGET, "192.0.2.1:3260", "LOGGED_IN", "iscsi_tcp", 128, {}, ("sda",), initiator=INITIATOR, tpg=tpg
    )
    initiator, target = EndSeen("initiator", "6.1", None), EndSeen("target", "6.1", None, served=sessions)
    return Observation("sda", 1.0, session, disk, initiator, target)


def mean_ms(one: Observation) -> float | None:
    return one.served.mean_ms["read"] if one.served else None


def test_each_of_two_portal_groups_has_its_own_time() -> None:
    sessions = told(("tpg=tpgt_1", "tpg=tpgt_2"))
    assert mean_ms(seen(sessions, "tpgt_1")) == pytest.approx(1)
    assert mean_ms(seen(sessions, "tpgt_2")) == pytest.approx(9)
    assert mean_ms(seen(sessions, "tpgt_3")) is None
    assert mean_ms(seen(sessions, "")) is None, "a session whose group nobody tells"


def test_two_sessions_of_one_portal_group_are_not_told_apart() -> None:
    sessions = told(("isid=00023d01", "isid=00023d02"))
    assert len(sessions) == 2
    one = seen(sessions, "tpgt_1")
    assert mean_ms(one) is None and len(one.served_sessions) == 2


def test_a_session_that_did_nothing_meanwhile_is_no_other_one() -> None:
    before = served(10)
    idle = second(before, ("isid=00023d01", "isid=00023d02"))
    sessions = _served_between(before + idle, served(110, time_ns=3 * 10**9) + idle)
    assert mean_ms(seen(sessions, "tpgt_1")) == pytest.approx(1)


def test_a_target_of_an_older_fabtune_names_no_group() -> None:
    (one, _) = told(("isid=00023d01", "isid=00023d02"))
    assert mean_ms(seen((attrs.evolve(one, tpg=""),), "tpgt_1")) == pytest.approx(1)


def test_an_initiator_s_name_with_capitals_is_the_one_that_lio_lowered_at_login() -> None:
    """Its disks had no time at the target, without a word."""
    one = seen(_served_between(served(10), served(110, time_ns=3 * 10**9)), "tpgt_1")
    shouted = attrs.evolve(one, session=attrs.evolve(one.session, initiator=INITIATOR.replace(":a", ":A")))
    assert mean_ms(shouted) == pytest.approx(1)
    other = attrs.evolve(one, session=attrs.evolve(one.session, initiator=INITIATOR.replace(":a", ":b")))
    assert mean_ms(other) is None


def unconnected(monkeypatch: pytest.MonkeyPatch, stores: tuple[BackstoreSeen, ...], **session: Any) -> Observation:
    """Return what is seen of an iSER session, whose target's fabstat counted 100 reads of 1 ms."""
    look: Any = object.__new__(Look)
    look._missing, look._theirs, look._afar, look._host = [], {}, {}, ""
    told = _served_between(served(10), served(110, time_ns=3 * 10**9))
    look._serving = EndSeen("target", "6.12", None, cpu_busy=(0.1, 0.1), backstores=stores, served=told)
    one = attrs.evolve(seen(told, "tpgt_1").session, **{"transport": "iser", "rdma": True, **session})
    monkeypatch.setattr(Look, "_session", lambda *_: one)
    disk = DiskSeen(
        "sda", True, 1.0, {"read": WaySeen(100, 409600, 1.5, 1.5)}, 0.15, 32, 0.0, {}, {}, {}, lun=3
    )  # fmt: skip
    looked: Any = SimpleNamespace(disk="sda", socket=None, why_no_socket="", session=None)
    found: Observation = look._observation(looked, disk, {}, EndSeen("initiator", "6.12", None, cpu_busy=(0.1, 0.1)))
    return found


def store(name: str, reads: int) -> BackstoreSeen:
    return BackstoreSeen(name, {"read": reads}, {"read": 0.9}, 0.1, 0.1)


@pytest.mark.parametrize("stores", [(), (store("sdy", 100), store("sdz", 900))])
def test_without_a_connection_the_target_s_half_is_joined_by_session_and_lun(
    stores: tuple[BackstoreSeen, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file behind the LUN, or a second busy disk beside it, took the target's own count away with the disks'."""
    one = unconnected(monkeypatch, stores)
    assert one.target and one.served_ms("read") == pytest.approx(1) and one.target.backstores == ()
    (said,) = [text for text in one.missing if "target's" in text]
    assert said.startswith("the target's backstore")
    mine = unconnected(monkeypatch, (store("sdy", 100),))
    assert mine.target and mine.target.backstores and not [text for text in mine.missing if "target's" in text]
    stranger = unconnected(monkeypatch, stores, target="iqn.2026-01.example:other")
    assert stranger.target is None and any("the target's end" in text for text in stranger.missing)


def test_where_the_target_does_not_name_sessions_as_the_initiator_does_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = "0011223344556677:0011223344556677"
    names = {"target": port, "portal": port, "initiator": "", "tpg": "", "transport": "srp"}
    for stores in ((), (store("sdy", 100),)):
        one = unconnected(monkeypatch, stores, **names)
        assert one.served_ms("read") is None and any("the target's time" in text for text in one.missing)


def test_the_target_s_own_time_of_a_read_is_told_from_the_way_s_without_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = attrs.evolve(unconnected(monkeypatch, ()), rate_bytes_per_s=1e9, rate_by="--rate")
    samples = tuple(DiskSample(at_s, 0, 0, 1) for at_s in (0.0, 0.5, 1.0))
    one = attrs.evolve(one, disk=attrs.evolve(one.disk, samples=samples))
    (found,) = judged(one)
    assert found.first.limiter == "target-disk" and found.first.share == pytest.approx(1 / 1.5)
    # Of a write nobody tells the target's time, its data comes meanwhile: the way may have all of it.
    writes = {"write": one.disk.ways["read"]}
    (other,) = judged(attrs.evolve(one, disk=attrs.evolve(one.disk, ways=writes)))
    assert other.first.limiter == "cannot-tell-unconnected"
