# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks of fabtune tune that tests make up, and steps that are only counted."""

import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest

from fabtune.autotune import climb as climbing
from fabtune.autotune import step as stepping
from fabtune.autotune import view, wanted
from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.autotune.path_found import PathFound
from fabtune.autotune.view import View
from fabtune.cli import autotune as cli
from fabtune.host import systemd
from fabtune.model import typed
from fabtune.model.observation import Observation
from fabtune.tune import reconnect
from fabtune.why.judging import Judged, Share, judged
from fabtune.why.summing_up import with_rate

ASKED = ClimbAsked((), None, None, 4.0, 8)


def seen(mb_per_s: float, limiter: str, share: float = 1.0, lifts: tuple[str, ...] = ("a.tunable",)) -> View:
    """What a look sees of a load of that rate, which varies by 1 %."""
    found = Share(limiter, share, limiter, lifts=lifts, ends=("initiator",))
    way = Judged("sda", "read", mb_per_s * 1e6, True, None, (found,))
    return View((), (way,), tuple(mb_per_s * 1e6 * (1 + 0.01 * (turn % 2)) for turn in range(8)))


class Climber:
    """Looks that were prepared in the place of a session's, and steps that are only counted."""

    def __init__(self, looks: list[View | BaseException]) -> None:
        self.looks: Iterator[View | BaseException] = iter(looks)
        self.acts: list[str] = []
        # What stays of a step on a host that does not answer.
        self.left = ""
        self.looks_s: list[object] = []

    def look(self, *words: object, **_: object) -> View:
        self.looks_s.append(words[3])
        found = next(self.looks)
        if isinstance(found, BaseException):
            raise found
        return found

    def take_back(self) -> str:
        self.acts.append("take back")
        return self.left


def rows_of(step: stepping.TuningStep, _: object) -> list[SimpleNamespace]:
    """What a step writes: something else against each limiter."""
    tunable = SimpleNamespace(effect="live", name=f"against.{'+'.join(step.limiters)}")
    return [SimpleNamespace(tunable=tunable, role="initiator", device=None, wanted="1")]


@pytest.fixture
def climber(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[View | BaseException]], Climber]:
    def make(looks: list[View | BaseException]) -> Climber:
        found = Climber(looks)
        monkeypatch.setattr(view, "see", found.look)
        monkeypatch.setattr(wanted, "_rate_to_plan_for", lambda *_: None)
        monkeypatch.setattr(wanted, "profile_for", lambda *_: "wan")
        monkeypatch.setattr(wanted, "_disks", lambda *_: ())
        monkeypatch.setattr(wanted, "_as_counted", lambda *_: ())
        monkeypatch.setattr(View, "one_way", lambda *_: None)
        monkeypatch.setattr(View, "lossy", property(lambda self: self.main.first.limiter == "loss"))
        monkeypatch.setattr(wanted, "_beside", lambda *_: [])
        monkeypatch.setattr(View, "seen", property(lambda self: [None], lambda self, _: None), raising=False)
        monkeypatch.setattr(View, "missing", [])
        monkeypatch.setattr(View, "unconnected", [])
        monkeypatch.setattr(View, "gone_bytes_per_s", {})
        monkeypatch.setattr(View, "rate_doubts", [])
        monkeypatch.setattr(View, "pace_doubts", [])
        monkeypatch.setattr(View, "rates_above", lambda *_: [])
        monkeypatch.setattr(climbing, "rtt_doubts", lambda: [])
        monkeypatch.setattr(climbing, "other_rates", lambda: ())
        step = stepping.TuningStep
        monkeypatch.setattr(step, "_rows", rows_of)
        monkeypatch.setattr(reconnect, "why_not_for", lambda *_: "")
        monkeypatch.setattr(step, "_write", lambda self: found.acts.append("write"))
        monkeypatch.setattr(step, "_take_back", lambda self: found.take_back())
        monkeypatch.setattr(time, "sleep", lambda _: None)
        monkeypatch.setattr(step, "_keep", lambda self: found.acts.append("confirm"))
        monkeypatch.setattr(systemd, "manages_host", lambda: True)
        monkeypatch.setattr(cli, "path_found", lambda seen, _: PathFound(seen.main.device))
        return found

    return make


def paced_line(told_mbit: float | None) -> View:
    """What a look saw of reads that are paced to a line of 200 Mb/s, which somebody said is of `told_mbit`."""
    kept = json.loads(gzip.decompress((Path(__file__).parent / "data/observations.json.gz").read_bytes()))
    observed = typed.STRICT.read(Observation, kept["wan-read"], "wan-read")
    told = with_rate(observed, None if told_mbit is None else told_mbit * 1e6 / 8)
    return View((told,), tuple(judged(told)), (20e6,) * 8)


def lost_after(one: Observation, seconds: float) -> Observation:
    """Return `one` with a connection that ended then: there are no samples of it from there on."""
    socket = one.initiator.socket
    assert socket is not None
    left = tuple(sample for sample in socket.samples if sample.at_s <= seconds)
    return attrs.evolve(one, initiator=attrs.evolve(one.initiator, socket=attrs.evolve(socket, samples=left)))


def gone_after(one: Observation, seconds: float) -> Observation:
    """Return `one` of a disk that went away then, with its session: nobody could read what it had counted."""
    left = tuple(sample for sample in one.disk.samples if sample.at_s <= seconds)
    return attrs.evolve(lost_after(one, seconds), disk=attrs.evolve(one.disk, samples=left, ways={}))


def limited_by(found: View, limiter: str) -> View:
    """Return `found` with all of its time taken by `limiter`."""
    return attrs.evolve(
        found, ways=tuple(attrs.evolve(one, shares=(Share(limiter, 1.0, limiter),)) for one in found.ways)
    )


def nobody(_: str) -> None:
    """Hear nothing."""


Make = Callable[[list[View | BaseException]], Climber]


@pytest.fixture(autouse=True)
def no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views without observations know neither round trip nor rate, nor whose sessions are of one stripe."""
    for name in (
        "rtt_ms",
        "rate_bit_per_s",
        "filled_bit_per_s",
        "overflowing_bit_per_s",
        "shown",
        "shown_bit_per_s",
    ):
        monkeypatch.setattr(View, name, None)
    for name in ("sawtooth", "nearly_full", "overfills", "floods", "lossy_line"):
        monkeypatch.setattr(View, name, False)
    monkeypatch.setattr(View, "paced", ())
    monkeypatch.setattr(wanted, "_divided", lambda _: ())
    monkeypatch.setattr(View, "loses_little", lambda self, way: False)
    monkeypatch.setattr(View, "began_with_losses", lambda self, way: False)


def uneven(mb_per_s: float) -> View:
    """What a look sees of a load of that rate on average, which goes up and down by half of it."""
    found = seen(mb_per_s, "receive-window")
    rates = (6, 20, 7, 21, 14, 9, 19)
    return attrs.evolve(found, blocks_bytes_per_s=tuple(mb_per_s * 1e6 * one / 13.7 for one in rates))
