# SPDX-License-Identifier: GPL-2.0-or-later
"""The target's own time of a disk whose initiator has several sessions with it: each session's own, or not told."""

import re

import attrs
import pytest
from test_stat_target import INITIATOR, served

from fabtune.measure.ends import _served_between
from fabtune.model.observation import DiskSeen, EndSeen, Observation, ServedSeen, SessionSeen

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
