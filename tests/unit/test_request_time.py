# SPDX-License-Identifier: GPL-2.0-or-later
"""The parts of a request's time where iSCSI's own queues were counted: each is its own, and they sum to the whole."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from fabtune.cli import why as verb
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
