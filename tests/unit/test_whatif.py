# SPDX-License-Identifier: GPL-2.0-or-later
"""What `whatif` may say of a change: nothing where nothing changes, no figure where the model does not know."""

import gzip
import json
from pathlib import Path

import attrs
import pytest

from fabtune.model import typed
from fabtune.model.foretell import Foretold, foretell
from fabtune.model.observation import Observation
from fabtune.tune.asked import asked

_DATA = Path(__file__).parent / "data"
_KEPT: dict[str, object] = {
    name: one
    for kept in ("observations", "observations-100mbit", "observations-pairs")
    for name, one in json.loads(gzip.decompress((_DATA / f"{kept}.json.gz").read_bytes())).items()
}


def _seen(name: str, rate: float | None = None) -> Observation:
    seen = typed.STRICT.read(Observation, _KEPT[name], name)
    return attrs.evolve(seen, rate_bytes_per_s=rate or seen.rate_bytes_per_s or 25e6)


def _after(seen: Observation, *words: str) -> list[Foretold]:
    return foretell(seen, asked(words, seen).changes)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("both-queue-window-mixed-20ms", "iscsi.tcp_window=100000"),
        ("both-queue-window-mixed-20ms", "initiator:net.rmem_max=212992"),
        # The window is locked: what autotuning might have does not matter.
        ("both-queue-window-mixed-20ms", "initiator:tcp.rmem_max=64MiB"),
        # More than the kernel's limit to it, which locks the same buffer.
        ("untouched-write", "iscsi.tcp_window=400000"),
        ("initiator-wmem-write", "iscsi.tcp_window=0"),
        ("initiator-wmem-write", "initiator:tcp.wmem_max=150000"),
        ("cmds-max-read", "iscsi.cmds_max=16"),
        ("duty-pacing-30-read", "block.queue_depth=113"),
        ("duty-pacing-30-read", "block.nr_requests=113"),
        ("loss-read", "target:tcp.congestion_control=cubic"),
        ("maxrate-read", "target:qdisc.maxrate=50mbit"),
    ],
)
def test_what_is_there_already_changes_nothing(name: str, word: str) -> None:
    seen = _seen(name)
    for one in _after(seen, word):
        assert one.bytes_per_s == pytest.approx(one.now_bytes_per_s, rel=0.001), one
        assert (one.low, one.high) == (one.bytes_per_s, one.bytes_per_s)


def test_what_is_there_already_at_an_end_that_is_not_seen_changes_nothing_either() -> None:
    seen = attrs.evolve(_seen("target-wmem-read"), target=None)
    (one,) = _after(seen, "target:lio.max_burst=1048576")
    assert one.bytes_per_s == pytest.approx(one.now_bytes_per_s)


def test_a_session_that_carries_more_than_the_model_explains_gets_no_figure() -> None:
    """A limit to the rate that was there for a part of the look: 9.5 MB/s came where it lets 4.0 pass."""
    (one,) = _after(_seen("duty-pacing-30-read"), "block.queue_depth=16")
    assert one.now.limiter == "unknown"
    assert one.bytes_per_s is None and one.low <= one.now_bytes_per_s <= (one.high or 0.0)
    assert any("more is carried" in note for note in one.notes)
