# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune tune: what a look shows of a path's queue, rate and MTU, and when it says nothing of them."""

import struct
from collections.abc import Sequence
from dataclasses import replace

import attrs
import pytest
from test_shown_line import delivering
from tuned_looks import limited_by, paced_line

from fabtune.autotune.path_found import PathFound, path_found
from fabtune.autotune.view import View
from fabtune.host.sockets import INFO, _socket
from fabtune.measure.connection_group import _connection
from fabtune.model.observation import EndSeen, Observation, SocketSample

_LEAST_MS, _MSS, _SAMPLES = 20.0, 1448, 3


def queueing(queues_ms: Sequence[float], sent_again: Sequence[int], deviation_ms: float = 0.2) -> View:
    """A look at reads of 20 MB/s: how long the queue was in each of its parts, and how many segments it sent again."""
    found = delivering(paced_line(None), 1.0, sent_again=0)
    (one,) = found.seen
    target = one.target
    assert target is not None and target.socket is not None
    samples, again = list[SocketSample](), 0
    for turn in range(_SAMPLES * len(queues_ms)):
        part, first = divmod(turn, _SAMPLES)
        # What is sent again comes at the end of its part.
        again += _MSS * sent_again[part - 1] if part and not first else 0
        samples.append(
            attrs.evolve(
                target.socket.samples[0], at_s=0.2 * turn, delivered_segments=round(0.2 * turn * 20e6 / _MSS),
                sent_bytes=round(0.2 * turn * 20e6), retransmitted_bytes=again, rtt_ms=_LEAST_MS + queues_ms[part],
                min_rtt_ms=_LEAST_MS, rtt_deviation_ms=deviation_ms,
            )
        )  # fmt: skip
    socket = attrs.evolve(target.socket, samples=tuple(samples))
    return attrs.evolve(found, seen=(attrs.evolve(one, target=attrs.evolve(target, socket=socket)),))


def test_a_queue_that_overflowed_holds_about_what_stood_in_it() -> None:
    """The buffer of the bottleneck was nowhere in what tune says of the path."""
    found = path_found(queueing((0, 5, 10, 0, 5, 10, 0, 5), (0, 0, 80, 0, 0, 80, 0, 0)))
    assert (round(found.queue_most_ms or 0, 6), found.queue_overflowed) == (10.0, True)
    # 20 MB/s of payload, with headers.
    assert found.queue_most_bytes == pytest.approx(0.01 * 20e6 * 1514 / _MSS, rel=0.05)
    assert "its queue holds about 10.0 ms, 209.1 kB of this connection's" in found.in_words


def test_what_a_pace_has_emptied_was_seen_before() -> None:
    """The last look of a tune that paces shows no queue; the first had overflowed it."""
    flat, full = ((0,) * 4, (0,) * 4), ((0, 5, 10, 0), (0, 0, 80, 0))
    found = path_found(queueing(*flat), queueing(*full))
    assert (round(found.queue_most_ms or 0, 6), found.queue_overflowed) == (10.0, True)
    # A longer one that did not overflow shows that the other was no queue's end.
    found = path_found(queueing((0, 20, 40, 20), (0,) * 4), queueing(*full))
    assert (round(found.queue_most_ms or 0, 6), found.queue_overflowed) == (40.0, False)
    assert path_found(queueing(*flat), queueing(*flat)).queue_most_ms is None


def test_single_losses_show_an_overflow_where_chance_puts_them_elsewhere_as_well() -> None:
    rising = (0, 5, 5, 5, 10) * 4
    assert path_found(queueing(rising, (0, 0, 0, 0, 1) * 4)).queue_overflowed
    found = path_found(queueing(rising, (0, 1, 0, 0, 0) * 4))
    assert found.queue_overflowed is False and "its queue holds at least 10.0 ms" in found.in_words


@pytest.mark.parametrize("sent_again", [0, 1])
def test_a_queue_that_was_not_seen_to_overflow_holds_at_least_what_stood_in_it(sent_again: int) -> None:
    """One loss at its longest may be the path's."""
    found = path_found(queueing((0, 5, 10, 10), (0, 0, sent_again, 0)))
    assert (round(found.queue_most_ms or 0, 6), found.queue_overflowed) == (10.0, False)
    assert "its queue holds at least 10.0 ms" in found.in_words


@pytest.mark.parametrize(
    ("queues_ms", "deviation_ms"),
    [((0, 3, 6, 3), 5.0), ((6.0, 6.2, 6.1, 6.0), 0.4), ((0.0, 0.1, 0.2, 0.1), 0.01)],
    ids=["jitter", "jitter that keeps packets in order", "next to nothing"],
)
def test_of_round_trips_that_vary_by_themselves_no_queue_is_told(
    queues_ms: tuple[float, ...], deviation_ms: float
) -> None:
    found = path_found(queueing(queues_ms, (0, 80, 0, 0), deviation_ms))
    assert (found.queue_most_ms, found.queue_most_bytes, found.queue_overflowed) == (None, None, None)
    assert "queue" not in found.in_words


def test_a_kernel_that_does_not_tell_what_arrived_tells_of_a_queue_in_time_alone() -> None:
    view = queueing((0, 5, 10, 5), (0, 0, 0, 0))
    (one,) = view.seen
    assert one.target is not None and one.target.socket is not None
    samples = tuple(attrs.evolve(sample, delivered_segments=None) for sample in one.target.socket.samples)
    target = attrs.evolve(one.target, socket=attrs.evolve(one.target.socket, samples=samples))
    found = path_found(attrs.evolve(view, seen=(attrs.evolve(one, target=target),)))
    assert (round(found.queue_most_ms or 0, 6), found.queue_most_bytes) == (10.0, None)
    assert "its queue holds at least 10.0 ms" in found.in_words and "10.0 ms," not in found.in_words


@pytest.mark.parametrize(("full", "said"), [(True, "the line carries"), (False, "the line carries at least")])
def test_a_line_that_was_never_seen_full_carries_at_least_what_arrived(
    monkeypatch: pytest.MonkeyPatch, full: bool, said: str
) -> None:
    monkeypatch.setattr(View, "main_is_paced", False)
    found = path_found(limited_by(delivering(paced_line(None), 0.98, 1.0, sent_again=0), "line" if full else "loss"))
    assert found.line_seen_full is full
    assert f"{said} {(found.arrived_most_bit_per_s or 0) / 1e6:.1f} Mb/s" in found.in_words


def test_what_is_paced_does_not_show_that_its_line_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "main_is_paced", True)
    found = path_found(limited_by(delivering(paced_line(None), 1.0, sent_again=0), "line"))
    assert found.line_seen_full is False


def test_what_arrived_on_average_is_told_with_its_interval() -> None:
    uneven = path_found(delivering(paced_line(None), 0.9, 1.0, 0.8, 1.0, 0.9, 1.0, 0.8, sent_again=0))
    low, mean, high = uneven.arrived_low_bit_per_s, uneven.arrived_bit_per_s, uneven.arrived_high_bit_per_s
    assert low and mean and high and low < mean < high
    assert f"{mean / 1e6:.1f} Mb/s arrived ({low / 1e6:.1f}..{high / 1e6:.1f})" in uneven.in_words
    even = path_found(delivering(paced_line(None), 1.0, sent_again=0))
    assert even.arrived_low_bit_per_s == pytest.approx(even.arrived_bit_per_s, rel=0.01)


def test_the_path_s_mtu_is_the_least_that_its_connection_has() -> None:
    """A NIC's says nothing of a tunnel on the way."""

    def known(end: EndSeen, mtu: int | None) -> EndSeen:
        assert end.socket is not None
        return attrs.evolve(end, socket=attrs.evolve(end.socket, path_mtu_bytes=mtu))

    def told(initiator: int | None, target: int | None) -> PathFound:
        view = paced_line(None)
        (one,) = view.seen
        assert one.target is not None
        ends: Observation = attrs.evolve(
            one, initiator=known(one.initiator, initiator), target=known(one.target, target)
        )
        return path_found(attrs.evolve(view, seen=(ends,)))

    assert told(1500, 1400).path_mtu_bytes == 1400 and "the path's MTU 1400 bytes" in told(1500, 1400).in_words
    assert told(None, 9000).path_mtu_bytes == 9000
    assert told(None, None).path_mtu_bytes is None and "the path's MTU" not in told(None, None).in_words


def test_a_look_reads_the_path_s_mtu_of_tcp_info() -> None:
    info = bytearray(232)
    struct.pack_into("=I", info, 60, 1400)
    message = struct.pack("=BBBB", 2, 1, 0, 0) + bytes(68) + struct.pack("=HH", 4 + len(info), INFO) + bytes(info)
    one = _socket(message)
    sample = delivering(paced_line(None), 1.0, sent_again=0).seen[0].initiator.socket
    assert sample is not None and one.path_mtu_bytes == 1400
    connection = _connection(one, sample.samples, None)
    assert connection is not None and connection.path_mtu_bytes == 1400
    # A kernel that tells none of it has none, and not 0.
    none = _connection(replace(one, path_mtu_bytes=0), sample.samples, None)
    assert none is not None and none.path_mtu_bytes is None
