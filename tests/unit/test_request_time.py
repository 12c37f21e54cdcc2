# SPDX-License-Identifier: GPL-2.0-or-later
"""The parts of a request's time where iSCSI's own queues were counted: each is its own, and they sum to the whole."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest

from fabtune.cli import why as verb
from fabtune.errors import FabtuneError
from fabtune.host.sockets import TcpSocket
from fabtune.measure import connection_group, look
from fabtune.measure.queue_times import QueueCounters, queue_between
from fabtune.model import typed
from fabtune.model.observation import Observation, QueueSeen
from fabtune.why.judging import judged

_KEPT = Path(__file__).parent / "data/observations.json.gz"


def _seen(name: str, *, initiator: Mapping[str, QueueSeen] = {}, target: Mapping[str, QueueSeen] = {}) -> Observation:
    seen = typed.STRICT.read(Observation, json.loads(gzip.decompress(_KEPT.read_bytes()))[name], "")
    assert seen.target
    ends = {
        "initiator": attrs.evolve(seen.initiator, queue=initiator), "target": attrs.evolve(seen.target, queue=target)
    }  # fmt: skip
    return attrs.evolve(seen, **ends)


def _parts(seen: Observation) -> dict[str, float]:
    (one,) = judged(seen)
    return {part.name: part.ms for part in one.request}


def test_a_read_that_waits_in_the_target_s_own_queue_is_no_rest() -> None:
    before = _parts(_seen("untouched-read"))
    assert before["rest"] > 300 and before["queue"] == 0
    command, data = QueueSeen(0.2, 0.1), QueueSeen(before["rest"], 22.0)
    told = _parts(_seen("untouched-read", initiator={"read": command}, target={"read": data}))
    assert told["queue"] == pytest.approx(before["rest"] + 0.2)
    # What enters the socket as slowly as it leaves has no byte that is later than the others for having come with them.
    assert told["wire"] < before["wire"] / 2
    assert told["rest"] == pytest.approx(before["wire"] - told["wire"] - 0.2)
    # A write's time has nothing of it.
    assert _parts(_seen("untouched-write", target={"read": data}))["queue"] == 0


def test_parts_that_are_more_than_the_whole_are_shown_so(capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = judged(_seen("untouched-read", target={"read": QueueSeen(600.0, 22.0)}))
    whole_ms = sum(part.ms for part in one.request)
    assert one.request[-1].ms < -0.1 * whole_ms
    verb._show_shares(one)
    said = " ".join(capsys.readouterr().out.split())
    assert f"a request takes {whole_ms:.1f} ms:" in said and "600.0 ms in iSCSI's own queues" in said
    assert f"which is {-one.request[-1].ms:.1f} ms too much" in said


def test_what_was_counted_before_the_look_is_not_of_it() -> None:
    before = {"read": QueueCounters(10, 5_000_000, 1_000_000)}
    after = {"read": QueueCounters(30, 45_000_000, 5_000_000), "write": QueueCounters(0, 0, 0)}
    assert queue_between(before, after) == {"read": QueueSeen(2.0, 0.2)}
    assert queue_between({}, before) == {"read": QueueSeen(0.5, 0.1)}


def test_a_look_that_fails_leaves_nothing_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs stayed in the kernel's hot path until the process ended, and `measure` measured with them."""
    closed: list[str] = []

    class Group:
        def __init__(self, end: str, *_: object, **__: object) -> None:
            if end == "target":
                raise FabtuneError("no such namespace")
            self.close = lambda: closed.append(end)

    monkeypatch.setattr(look, "ConnectionGroup", Group)
    one = object.__new__(look.Look)
    one._sockets, one._theirs, one._looked, one._groups = {}, {}, [], []
    one._host = one._netns = ""
    one._unconnected = one._in_netns = False
    with pytest.raises(FabtuneError):
        one.over(1.0)
    assert closed == ["initiator"]


def test_a_connection_group_that_cannot_sample_lets_go_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    def refused(*_: object) -> None:
        raise FabtuneError("inet_diag: no")

    end = SimpleNamespace(missing=[], close=lambda: closed.append(True))
    monkeypatch.setattr(connection_group, "End", lambda *_, **__: end)
    monkeypatch.setattr(connection_group, "SocketSampler", refused)
    socket = TcpSocket("10.0.0.1", "10.0.0.2", 3260, 40000, 20.0, 20.0, 0, 10, 1448, 0, "cubic", 0, 0)
    with pytest.raises(FabtuneError):
        connection_group.ConnectionGroup("target", "", [socket])
    assert closed == [True]


def test_of_several_busy_disks_of_a_session_none_has_the_others_queue() -> None:
    """It is counted by session: a small disk had its neighbour's mean."""
    seen = _seen("untouched-read", target={"read": QueueSeen(100.0, 1.0)})
    ways = {"read": attrs.evolve(seen.disk.ways["read"], moved_bytes=seen.disk.ways["read"].moved_bytes // 2)}
    seen = attrs.evolve(
        seen, disk=attrs.evolve(seen.disk, ways=ways), session=attrs.evolve(seen.session, disks=("sda", "sdb"))
    )
    assert _parts(seen)["queue"] == 0
