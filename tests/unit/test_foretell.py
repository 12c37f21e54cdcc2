# SPDX-License-Identifier: GPL-2.0-or-later
"""What is foretold from looks at sessions of known causes, kept from guests at 200 Mb/s and 20 ms (tests/unit/data)."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from fabtune.errors import InputError
from fabtune.model import typed
from fabtune.model.change import Change
from fabtune.model.foretell import Foretold, foretell
from fabtune.model.observation import Observation
from fabtune.tune.asked import asked, sorted_out

_RATE = 200e6 / 8
_LINE = _RATE * 1448 / 1514
_KEPT: dict[str, object] = json.loads(
    gzip.decompress((Path(__file__).parent / "data/observations.json.gz").read_bytes())
)


def _kept(name: str, rate: float | None = _RATE) -> Observation:
    seen = typed.STRICT.read(Observation, _KEPT[name], name)
    return attrs.evolve(seen, rate_bytes_per_s=rate)


def _foretold(seen: Observation, changes: Mapping[Change, float | str]) -> Foretold:
    (one,) = foretell(seen, changes)
    return one


@pytest.mark.parametrize("name", sorted(_KEPT))
def test_what_is_there_is_foretold_where_nothing_changes(name: str) -> None:
    found = _foretold(_kept(name), {})
    assert found.bytes_per_s == pytest.approx(found.now_bytes_per_s, rel=0.01)


@pytest.mark.parametrize("name", ["untouched-read", "untouched-write"])
def test_without_the_lock_the_line_is_next(name: str) -> None:
    found = _foretold(_kept(name), {Change("initiator", "iscsi.tcp_window"): 0.0})
    # 23.5 and 23.0 MB/s were measured with the whole profile.
    assert found.bytes_per_s == pytest.approx(_LINE, rel=0.01)
    assert (found.first.limiter, found.low, found.high) == ("line", found.bytes_per_s, found.bytes_per_s)
    assert found.latency_ms == pytest.approx(350, rel=0.02)


def test_without_the_lines_rate_there_is_an_interval_and_no_figure() -> None:
    found = _foretold(_kept("untouched-read", None), {Change("initiator", "iscsi.tcp_window"): 0.0})
    assert found.bytes_per_s is None
    assert found.low == pytest.approx(12.0e6, rel=0.02)
    assert found.high is not None and found.high > 4 * _LINE
    assert "--rate" in found.notes[0]


def test_what_may_lift_what_is_not_seen_from_here_stays_open() -> None:
    seen = attrs.evolve(_kept("maxrate-read"), target=None)
    found = _foretold(seen, {Change("target", "qdisc.maxrate"): 0.0})
    assert (found.bytes_per_s, found.now.limiter) == (None, "unknown")
    assert found.low == pytest.approx(6.0e6, rel=0.01) and found.high == pytest.approx(_LINE, rel=0.01)
    # What the initiator's end does is seen.
    still = _foretold(seen, {Change("initiator", "iscsi.tcp_window"): 0.0})
    assert still.bytes_per_s == pytest.approx(still.now_bytes_per_s)


def test_a_buffer_that_holds_no_more_than_r2ts_ask_for_holds_nothing_back() -> None:
    kept = gzip.decompress((Path(__file__).parent / "data/observations-100mbit.json.gz").read_bytes())
    seen = typed.STRICT.read(Observation, json.loads(kept)["both-r2t-wmem-write"], "")
    bursts = {"initial_r2t": "No", "immediate_data": "Yes", "first_burst": "262144", "max_burst": "1048576"}
    words = [f"{kind}.{name}={value}" for kind in ("iscsi", "lio")
             for name, value in {**bursts, "max_outstanding_r2t": "16"}.items()]  # fmt: skip
    found = _foretold(seen, asked(words, seen).changes)
    # 7.63 MB/s were measured.
    assert found.bytes_per_s == pytest.approx(7.63e6, rel=0.03) and found.first.limiter == "send-buffer"


def test_half_a_window_is_half_the_throughput() -> None:
    found = _foretold(_kept("untouched-read"), {Change("initiator", "iscsi.tcp_window"): 65536.0})
    assert found.bytes_per_s is not None
    assert 0.35 < found.bytes_per_s / found.now_bytes_per_s < 0.55
    assert found.first.limiter == "receive-window"


def test_a_load_of_one_request_gains_nothing_by_windows() -> None:
    found = _foretold(_kept("depth1"), {Change("initiator", "iscsi.tcp_window"): 0.0})
    assert found.bytes_per_s == pytest.approx(found.now_bytes_per_s, rel=0.01)
    assert found.first.limiter == "load"


def test_another_pacing_rate_is_what_is_carried_then() -> None:
    seen = _kept("maxrate-read")
    halved = _foretold(seen, {Change("target", "qdisc.maxrate"): 25e6 / 8})
    lifted = _foretold(seen, {Change("target", "qdisc.maxrate"): 0.0})
    assert halved.bytes_per_s == pytest.approx(25e6 / 8 * 1448 / 1514, rel=0.02)
    assert lifted.bytes_per_s == pytest.approx(_LINE, rel=0.01)
    assert lifted.first.limiter == "line"


def test_bbr_may_not_mind_the_losses_that_hold_cubic() -> None:
    found = _foretold(_kept("loss-read"), {Change("target", "tcp.congestion_control"): "bbr"})
    assert found.bytes_per_s is None and found.high == pytest.approx(_LINE, rel=0.02)
    assert found.first.limiter == "line"


def test_from_one_end_a_gain_is_what_comes_if_the_other_end_can_do_so_much() -> None:
    change = {Change("initiator", "iscsi.tcp_window"): 0.0}
    whole = _foretold(_kept("untouched-read"), change)
    alone = _foretold(attrs.evolve(_kept("untouched-read"), target=None), change)
    assert (whole.low, alone.bytes_per_s) == (whole.bytes_per_s, whole.bytes_per_s)
    assert alone.low == pytest.approx(alone.now_bytes_per_s) and "target's end" in alone.notes[-1]


def _slow_from_one_end() -> Observation:
    """Return three requests at once that take much longer than the round trip, and nothing of the target."""
    # What takes so long may be losses, a limit to the rate, a small buffer or the disk.
    seen = _kept("qdepth3")
    way = seen.disk.ways["read"]
    samples = tuple(attrs.evolve(one, in_flight=32) for one in seen.disk.samples)
    slow = attrs.evolve(way, moved_bytes=way.moved_bytes // 3)
    disk = attrs.evolve(seen.disk, ways={"read": slow}, samples=samples)
    return attrs.evolve(seen, disk=disk, target=None)


def test_what_an_end_that_is_not_seen_does_in_most_of_a_requests_time_may_take_the_gain_of_more_at_once() -> None:
    seen = _slow_from_one_end()
    found = _foretold(seen, {Change("initiator", "block.queue_depth"): 64.0})
    assert found.bytes_per_s is None and found.low == pytest.approx(found.now_bytes_per_s)
    assert "the target's or unknown" in found.notes[-1]


def test_a_change_at_an_end_that_is_not_seen_may_shorten_what_requests_wait_for_there() -> None:
    seen = _slow_from_one_end()
    found = _foretold(seen, {Change("target", "tcp.wmem_max"): 16.0 * (1 << 20)})
    assert found.bytes_per_s is None and found.low == pytest.approx(found.now_bytes_per_s)
    assert found.high is not None and found.high > 2 * found.now_bytes_per_s
    assert "may be what is lifted there" in found.notes[-1]


def test_losses_too_few_to_tell_a_rate_leave_open_what_more_data_would_gain() -> None:
    seen, change = _kept("untouched-read"), {Change("initiator", "iscsi.tcp_window"): 0.0}
    assert seen.target and seen.target.socket
    *before, last = seen.target.socket.samples
    again = attrs.evolve(last, retransmitted_bytes=last.retransmitted_bytes + 3 * 1448)
    lossy = attrs.evolve(seen.target, socket=attrs.evolve(seen.target.socket, samples=(*before, again)))
    found = _foretold(attrs.evolve(seen, target=lossy), change)
    assert found.bytes_per_s is None and found.high == pytest.approx(_LINE, rel=0.01)
    assert found.now_bytes_per_s <= found.low < 0.9 * _LINE
    assert _foretold(seen, change).bytes_per_s == pytest.approx(_LINE, rel=0.01)


def test_fewer_commands_hold_what_the_line_did() -> None:
    found = _foretold(_kept("wan-read"), {Change("initiator", "iscsi.cmds_max"): 16.0})
    assert found.first.limiter == "session-commands"
    assert found.bytes_per_s == pytest.approx(262144 / (0.02 + 262144 / _LINE), rel=0.03)


def test_a_profile_asks_for_both_ends_by_the_path_that_was_seen() -> None:
    wanted = asked(["wan"], _kept("untouched-read"))
    assert wanted.changes[Change("initiator", "iscsi.tcp_window")] == 0
    # What is larger already stays.
    assert Change("target", "tcp.wmem_max") not in wanted.changes
    assert "tcp.slow_start_after_idle" in wanted.unknown
    found = _foretold(_kept("untouched-read"), wanted.changes)
    assert found.bytes_per_s == pytest.approx(_LINE, rel=0.02)


@pytest.mark.parametrize(
    ("word", "changes"),
    [
        ("iscsi.tcp_window=0", {("initiator", "iscsi.tcp_window"): 0}),
        ("tcp.wmem_max=16MiB", {("initiator", "tcp.wmem_max"): 1 << 24, ("target", "tcp.wmem_max"): 1 << 24}),
        ("target:tcp.wmem_max=65536", {("target", "tcp.wmem_max"): 65536}),
        ("initiator:qdisc.maxrate=80mbit", {("initiator", "qdisc.maxrate"): 10e6}),
        ("iscsi.initial_r2t=No", {("initiator", "iscsi.initial_r2t"): 0}),
        ("target:tcp.congestion_control=bbr", {("target", "tcp.congestion_control"): "bbr"}),
    ],
)
def test_single_values_take_units_and_an_end(word: str, changes: dict[tuple[str, str], float]) -> None:
    assert dict(asked([word], _kept("wan-read")).changes) == changes


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("iscsi.tcp_windw=0", "iscsi.tcp_window"),
        ("client:tcp.wmem_max=1MiB", "initiator, target"),
        ("target:iscsi.cmds_max=64", "roles: initiator"),
        ("iscsi.cmds_max=many", "iscsi.cmds_max"),
    ],
)
def test_what_cannot_be_asked_is_named(word: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        asked([word], _kept("wan-read"))


def test_a_profile_that_needs_the_rate_says_so() -> None:
    with pytest.raises(InputError, match="--rate"):
        asked(["wan"], _kept("wan-read", None))


def test_words_are_changes_or_devices() -> None:
    assert sorted_out(["wan", "sda", "tcp.ecn=1", "./mine.toml"]) == (["wan", "tcp.ecn=1", "./mine.toml"], ["sda"])
