# SPDX-License-Identifier: GPL-2.0-or-later
"""Bounds of a path against published figures."""

import pytest

from fabtune.model.path import (
    ETHERNET_FRAMING,
    Bursts,
    NetworkPath,
    bound_bytes_per_s,
    unsolicited_bytes,
    write_round_trips,
)

GIGABIT = 125e6


def test_goodput_of_a_gigabit_with_mtu_1500() -> None:
    assert NetworkPath(0, GIGABIT).goodput_bytes_per_s == pytest.approx(119.55e6, rel=1e-3)


@pytest.mark.parametrize(("rtt_ms", "mb_per_s"), [(0, 119.55), (10, 119.55), (50, 119.55), (100, 82.1), (150, 55.1)])
def test_bound_of_eight_mebibytes_in_flight(rtt_ms: float, mb_per_s: float) -> None:
    path = NetworkPath(rtt_ms / 1e3, GIGABIT)
    assert bound_bytes_per_s(path, 262144, 32) / 1e6 == pytest.approx(mb_per_s, rel=5e-3)


@pytest.mark.parametrize(("outstanding", "round_trips"), [(1, 9), (16, 2)])
def test_scst_example_of_outstanding_r2ts(outstanding: int, round_trips: int) -> None:
    """SCST's max_outstanding_r2t.txt: 2 MiB writes, FirstBurst 64 KiB, MaxBurst 256 KiB."""
    bursts = Bursts(65536, 262144, 262144, outstanding)
    assert write_round_trips(2 << 20, bursts) == round_trips


def test_immediate_data_fills_one_pdu() -> None:
    assert unsolicited_bytes(262144, Bursts(262144, 262144, 8192)) == 8192
    assert unsolicited_bytes(262144, Bursts(262144, 262144, 8192, initial_r2t=False)) == 262144
    assert unsolicited_bytes(262144, Bursts(262144, 262144, 8192, immediate_data=False)) == 0
    assert write_round_trips(262144, Bursts(262144, 262144, 262144)) == 1


def test_a_window_bounds_each_round_trip() -> None:
    path = NetworkPath(0.05, GIGABIT)
    assert bound_bytes_per_s(path, 262144, 32, window_bytes=262144) == pytest.approx(262144 / 0.05)


def test_real_ethernet_carries_1448_of_1538_bytes() -> None:
    path = NetworkPath(0, GIGABIT, framing_bytes=ETHERNET_FRAMING)
    assert path.goodput_bytes_per_s == pytest.approx(GIGABIT * 1448 / 1538)


def test_a_mixed_load_shares_one_depth() -> None:
    # 16 requests of 4 KiB, 70 % reads of one round trip and 30 % writes of two, at 50 ms: a request takes 65 ms.
    path = NetworkPath(0.05, GIGABIT)
    ways = [bound_bytes_per_s(path, 4096, 16, 0.7 * 1 + 0.3 * 2, share=share) for share in (0.7, 0.3)]
    assert sum(ways) == pytest.approx(16 * 4096 / (0.065 + 4096 / path.goodput_bytes_per_s))
    assert ways[0] / ways[1] == pytest.approx(7 / 3)


def test_a_mixed_load_fills_the_way_that_carries_more() -> None:
    path = NetworkPath(0, GIGABIT)
    ways = [bound_bytes_per_s(path, 262144, 32, share=share) for share in (0.7, 0.3)]
    assert ways == pytest.approx([path.goodput_bytes_per_s, path.goodput_bytes_per_s * 3 / 7])
