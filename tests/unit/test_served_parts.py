# SPDX-License-Identifier: GPL-2.0-or-later
"""What the target tells of a command's time there, joined with the initiator's disk: its parts, the command window."""

import io
import json
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import attrs
import pytest
from test_served_sessions import seen
from test_stat_target import in_parts, served

from fabtune.cli import why as verb
from fabtune.measure.ends import _served_between
from fabtune.model.observation import DiskSample, Observation, WaySeen
from fabtune.tune import lift
from fabtune.why.judging import judged
from fabtune.why.limiters.requests import COMMAND_WINDOW
from fabtune.why.one_way import OneWay


def parted(change: Callable[[str], str] = str) -> Observation:
    """A disk whose target told the parts: reads of 1 ms there, 0.8 in the backstore; writes of 5, 3 of it for data."""
    texts = in_parts(10, 5), in_parts(110, 55, time_ns=3 * 10**9)
    return seen(_served_between(*map(change, texts)), "tpgt_1")


def untold(text: str) -> str:
    """The same of a module whose target_parts is N."""
    return re.sub(r"(ready|ready_ns|done|done_ns)=\d+", r"\1=0", text)


def writes(one: Observation, total_ms: float, **session: Any) -> Observation:
    """Return `one` as a look without a connection at writes that took `total_ms`; the line's rate is known."""
    samples = tuple(DiskSample(at_s, 0, 0, 1) for at_s in (0.0, 0.5, 1.0))
    ways = {"write": WaySeen(50, 50 * 65536, total_ms, total_ms)}
    end = {"cpu_busy": (0.1, 0.1)}
    assert one.target
    return attrs.evolve(
        one, rate_bytes_per_s=1e10, rate_by="--rate", disk=attrs.evolve(one.disk, ways=ways, samples=samples),
        session=attrs.evolve(one.session, **{"transport": "iser", "rdma": True, **session}),
        initiator=attrs.evolve(one.initiator, **end), target=attrs.evolve(one.target, **end),
    )  # fmt: skip


def shown(one: Observation) -> str:
    """What `why` prints of a look."""
    ways = judged(one)
    told = verb._Told(one, ways, lift.Advice(), [], {})
    with redirect_stdout(io.StringIO()) as text:
        verb._show([told])
    return " ".join(text.getvalue().split())


def test_the_parts_and_the_window_are_taken_over_from_the_target() -> None:
    """They were read and dropped: the join had counts and means alone."""
    one = parted().served
    assert one and one.mean_ms == pytest.approx({"read": 1, "write": 5})
    assert one.r2t_ms == pytest.approx({"write": 3}), "a read waits for no data"
    assert one.backstore_ms == pytest.approx({"read": 0.8, "write": 1.5})
    # Of all LUNs of the session: 2 of this one, 3 of the other.
    assert (one.window, one.window_used) == (128, 5)
    before = parted(untold).served
    assert before and (before.r2t_ms, before.backstore_ms) == ({}, {})
    (older,) = _served_between(served(10), served(110, time_ns=3 * 10**9))
    assert (older.window, older.window_used) == (None, None)


def test_a_write_s_time_at_the_target_is_what_it_does_not_wait_for_its_data() -> None:
    assert parted().served_ms("write") == pytest.approx(2) and parted().served_ms("read") == pytest.approx(1)
    # What its data's way has of it is not known then: none of it is told.
    assert parted(untold).served_ms("write") is None and parted(untold).served_ms("read") == pytest.approx(1)


def test_writes_that_the_backstore_keeps_are_told_from_those_that_wait_for_their_data() -> None:
    """Of writes no target's count was ever used: what its backstore took was accused by elimination, or not told."""
    (kept,) = judged(writes(parted(), 2.5))
    assert kept.first.limiter == "target-disk" and kept.first.share == pytest.approx(2 / 2.5)
    (way,) = judged(writes(parted(), 50.0))
    assert way.first.limiter != "target-disk" and not way.first.among
    (unknown,) = judged(writes(parted(untold), 2.5))
    assert unknown.first.limiter == "cannot-tell-unconnected"


def test_time_at_the_target_that_its_backstore_has_not_is_not_the_disk_s() -> None:
    late = parted(lambda text: text.replace("target_ns=25000000 ", "target_ns=4025000000 ").replace(
        "target_ns=275000000 ", "target_ns=44275000000 "))  # fmt: skip
    assert late.served_ms("write") == pytest.approx(802) and late.backstore_ms("write") == pytest.approx(1.5)
    (one,) = judged(writes(late, 803.0))
    assert one.first.limiter != "target-disk"


def test_why_says_the_parts_where_the_target_told_them() -> None:
    text = shown(writes(parted(), 2.5))
    assert (
        "at the target a write takes 5.0 ms: 3.0 ms waiting for its data (R2T), 1.5 ms in the backstore; "
        "5 under way of 128 commands that its session may have there" in text
    )
    assert "target: a command's time at the target 2.0 ms, 1.5 ms of it in the backstore" in text
    assert "at the target a write" not in shown(writes(parted(untold), 2.5))


def test_the_json_has_what_the_target_counted() -> None:
    one = writes(parted(), 2.5)
    told = verb._Told(one, judged(one), lift.Advice(), [], {})
    (way,) = json.loads(json.dumps(verb._as_json(told)))["ways"]
    assert way["served"] == {
        "commands": 50, "mean_ms": 5.0, "r2t_wait_ms": 3.0, "backstore_ms": 1.5, "window_granted": 128,
        "window_used": 5,
    }  # fmt: skip
    bare = writes(seen((), "tpgt_1"), 2.5)
    told = verb._Told(bare, judged(bare), lift.Advice(), [], {})
    assert [one["served"] for one in json.loads(json.dumps(verb._as_json(told)))["ways"]] == [None]


def test_a_closed_command_window_is_shown_with_its_size() -> None:
    one = writes(parted(), 2.5, transport="iscsi_tcp", rdma=False)
    said = {proof.counter: proof.value for proof in COMMAND_WINDOW.evidence(OneWay(one, "write"))}
    assert said["the session's command window"] == "128 commands"
