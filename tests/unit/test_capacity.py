# SPDX-License-Identifier: GPL-2.0-or-later
"""The throughput model beside rows measured in the lab: RTT, rate, windows, depth, bursts, loss."""

import math

import pytest

from fabtune.model import capacity
from fabtune.model.capacity import Direction, Window, carried
from fabtune.model.path import Bursts, NetworkPath

_REQUEST = 256 * 1024
# What an untouched iscsid locks: 512 KiB asked for, 208 KiB allowed, and the kernel doubles it.
_LOCKED = capacity.locked_buffer_bytes(524_288, 212_992)


def _direction(
    rtt_ms: float, rate_mbit: float, *, depth: int = 32, windows: dict[str, Window] | None = None, trips: int = 1
) -> Direction:
    path = NetworkPath(rtt_ms / 1e3, rate_mbit * 1e6 / 8)
    return Direction(
        rtt_s=path.rtt_s, request_bytes=_REQUEST, depths={("load", "initiator"): depth}, round_trips=trips,
        windows={(name, ""): size for name, size in (windows or {}).items()},
        rates={("line", ""): path.goodput_bytes_per_s},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rtt_ms", "measured"), [(10, 24.7), (20, 12.8), (50, 5.2), (100, 2.6), (150, 1.8)]
)  # Documentation/wan.md, untouched reads at 1 Gb/s
def test_a_locked_receive_buffer_is_one_window_a_round_trip(rtt_ms: float, measured: float) -> None:
    window = capacity.receive_window(_LOCKED, rtt_ms / 1e3, locked=True)
    found = carried(_direction(rtt_ms, 1000, windows={"receive-window": window}))
    assert found.first.limiter == "receive-window"
    assert found.bytes_per_s / 1e6 == pytest.approx(measured, rel=0.04)
    assert window.size_bytes == 262_140


@pytest.mark.parametrize(
    ("rtt_ms", "rate_mbit", "measured"),
    [(10, 1000, 31.2), (20, 1000, 16.4), (50, 1000, 7.0), (100, 1000, 3.5), (20, 200, 12.7)],
)  # untouched writes: Documentation/wan.md, and one look at 200 Mb/s
def test_a_locked_send_buffer_is_refilled_a_large_part_at_a_time(
    rtt_ms: float, rate_mbit: float, measured: float
) -> None:
    window = capacity.send_window(_LOCKED)
    found = carried(_direction(rtt_ms, rate_mbit, windows={"send-buffer": window}))
    assert found.first.limiter == "send-buffer"
    assert found.bytes_per_s / 1e6 == pytest.approx(measured, rel=0.04)


@pytest.mark.parametrize(
    ("rtt_ms", "rate_mbit", "depth", "measured", "limiter"),
    [
        (10, 1000, 32, 119.5, "line"), (50, 1000, 32, 119.5, "line"), (20, 200, 32, 23.9, "line"),
        (100, 1000, 32, 81.5, "load"), (150, 1000, 32, 54.9, "load"), (20, 1000, 1, 11.5, "load"),
    ],
)  # fmt: skip
def test_with_open_windows_the_line_or_the_queue_is_the_bound(
    rtt_ms: float, rate_mbit: float, depth: int, measured: float, limiter: str
) -> None:
    found = carried(_direction(rtt_ms, rate_mbit, depth=depth))
    assert found.first.limiter == limiter
    assert found.bytes_per_s / 1e6 == pytest.approx(measured, rel=0.03)


def test_each_group_of_r2ts_is_a_round_trip() -> None:
    bursts = Bursts(65536, 65536, 262_144, outstanding_r2t=1, immediate_data=False, initial_r2t=True)
    trips = capacity.round_trips("write", _REQUEST, bursts)
    assert (trips, capacity.round_trips("read", _REQUEST, bursts)) == (5, 1)
    found = carried(_direction(20, 1000, trips=trips))
    # Measured: 78.4 MB/s.
    assert found.bytes_per_s / 1e6 == pytest.approx(78.4, rel=0.05)


def test_a_request_larger_than_its_window_takes_several_round_trips() -> None:
    narrow = carried(_direction(50, 100, depth=1, windows={"receive-window": Window(65536)}))
    wide = carried(_direction(50, 100, depth=1, windows={"receive-window": Window(1 << 20)}))
    assert narrow.bytes_per_s == pytest.approx(65536 / 0.05)
    assert wide.bytes_per_s == pytest.approx(_REQUEST / (0.05 + _REQUEST / (12.5e6 * 1448 / 1514)), rel=1e-3)


def test_what_holds_next_is_the_second_least_bound() -> None:
    found = carried(_direction(50, 1000, windows={"receive-window": Window(262_140)}))
    assert [one.limiter for one in found.bounds] == ["receive-window", "line", "load"]


def test_requests_of_both_directions_share_the_depth() -> None:
    alone = _direction(20, 100, depth=1)
    mixed = Direction(
        alone.rtt_s, alone.request_bytes, alone.depths, {}, alone.rates, share=0.25, other_s=alone.request_s
    )
    assert carried(mixed).bytes_per_s == pytest.approx(carried(alone).bytes_per_s / 4)


@pytest.mark.parametrize(("asked", "found"), [(16, 1), (64, 49), (128, 113), (200, 113), (256, 241), (2, 1)])
def test_open_iscsi_keeps_commands_for_itself_and_rounds_down(asked: int, found: int) -> None:
    # 113 of 128 and 241 of 256 are what can_queue shows.
    assert capacity.session_commands(asked) == found


def test_losses_bind_cubic_and_reno_and_not_bbr() -> None:
    reno = capacity.loss_bytes_per_s(1448, 0.05, 0.001, "reno")
    # Mathis: 1.22 MSS / (RTT sqrt(p)); wan-loss measured 1.2 MB/s with cubic.
    assert reno / 1e6 == pytest.approx(1.12, abs=0.01)
    assert capacity.loss_bytes_per_s(1448, 0.05, 0.001, "cubic") == reno
    # Long and nearly clean: there cubic's own function is the larger one.
    assert capacity.loss_bytes_per_s(1448, 0.1, 1e-6, "cubic") / 1e6 == pytest.approx(85.8, rel=0.01)
    assert capacity.loss_bytes_per_s(1448, 0.05, 0.001, "bbr") == math.inf
    assert capacity.loss_bytes_per_s(1448, 0.05, 0.0, "cubic") == math.inf


def test_littles_law_gives_the_latency() -> None:
    # Depth 32 at 23.9 MB/s: 344 ms by fabstat.
    assert capacity.latency_s(32, _REQUEST, 23.9e6) == pytest.approx(0.351, rel=0.02)
