# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks of `make bench-why` that were misnamed or foretold wrong once, at 100 Mb/s; lifting the truth brought most."""

import gzip
import json
from pathlib import Path

import attrs
import pytest

from fabtune.model import typed
from fabtune.model.foretell import foretell
from fabtune.model.observation import BackstoreSeen, Observation
from fabtune.tune.asked import asked
from fabtune.why.judging import judged

_KEPT: dict[str, object] = json.loads(
    gzip.decompress((Path(__file__).parent / "data/observations-pairs.json.gz").read_bytes())
)


def _seen(name: str) -> Observation:
    return typed.STRICT.read(Observation, _KEPT[name], name)


@pytest.mark.parametrize(
    ("name", "limiter"),
    [
        # The window comes full for 45 % of the time, and next to nothing waits for it: requests wait for the disk.
        ("both-disk-window-read-20ms", "target-disk"),
        # Reads fill the window for half of the time, and lose three tenths of theirs by it.
        ("both-queue-window-mixed-20ms", "queue-depth"),
        # The buffer is full for 39 % of the time, and path and disk explain all of a request's time.
        ("both-disk-window-write-50ms", "target-disk"),
        # One packet of 4,000 is lost, and data waits behind the congestion window now and then: two requests at once
        # lose a fifth of their time by it, and the rest to the queue's depth.
        ("both-queue-loss-read-50ms", "queue-depth"),
        # 92 % of the line, and neither socket nor path holds what fills the gaps: four R2Ts a write are waited for.
        ("r2t-write-5ms", "r2t"),
        # 99 % of what fq lets pass, and what waits does so in fq, not in the socket.
        ("both-nr-pacing-read-5ms", "pacing"),
        # One read at a time, that fq lets pass in 73 ms in place of 22, and a round trip of 20 ms between two.
        ("both-pacing-cmdsmax-read-20ms", "pacing"),
    ],
)
def test_the_stronger_of_two_is_named(name: str, limiter: str) -> None:
    for one in judged(_seen(name)):
        assert one.first.limiter == limiter
        assert sum(share.share for share in one.shares) == pytest.approx(1)


def test_what_arrives_is_judged_by_the_limit_under_which_it_was_asked_for() -> None:
    """Three tenths of the look had a queue depth of 2; for a round trip after each the line is not full yet."""
    (one,) = judged(_seen("duty-queue-30-read-50ms"))
    shares = {share.limiter: share.share for share in one.shares}
    assert shares["queue-depth"] == pytest.approx(0.3, abs=0.03) and shares["load"] < 0.04


def test_a_moment_in_which_nothing_is_asked_for_is_the_load_s() -> None:
    """The load pauses for 1.5 of each 2 s; from the initiator alone the target was blamed for most of that."""
    (one,) = judged(attrs.evolve(_seen("idle-restart-read-50ms"), target=None))
    shares = {told.limiter: told.share for told in one.shares}
    assert shares["load"] > 0.7
    # Of the rest, what a setting lifts comes first.
    assert one.first.limiter == "slow-start"


@pytest.mark.parametrize(("rtt_ms", "share"), [(50, 0.08), (100, 0.15)])
def test_a_window_that_starts_anew_after_each_pause_has_its_share(rtt_ms: int, share: float) -> None:
    """A pause of 1.5 s, then 2 MB: the share is how long the sender is busy beyond the line and a round trip each."""
    (one,) = judged(_seen(f"idle-restart-read-{rtt_ms}ms"))
    shares = {told.limiter: told.share for told in one.shares}
    assert shares["slow-start"] == pytest.approx(share, abs=0.05)
    # Of the time in which the load asks for something it is more, but less than a tenth is not worth a change.
    assert one.first.limiter == ("slow-start" if share >= 0.1 else "load")
    assert "congestion-window" not in shares


@pytest.mark.parametrize(("there", "mb_per_s"), [(1.6, 11.96), (31.0, 6.68)])
def test_a_busy_disk_is_full_only_where_most_requests_are(there: float, mb_per_s: float) -> None:
    """One that works on several at once is busy all the time, and has more to give while requests wait elsewhere."""
    kept = gzip.decompress((Path(__file__).parent / "data/observations-100mbit.json.gz").read_bytes())
    seen = typed.STRICT.read(Observation, json.loads(kept)["initiator-rmem-read"], "")
    assert seen.target
    disk = BackstoreSeen("dm-0", {"read": 156}, {"read": 20.0}, busy_share=1.0, mean_depth=there)
    seen = attrs.evolve(seen, target=attrs.evolve(seen.target, backstores=(disk,)))
    (found,) = foretell(seen, asked(["tcp.rmem_max=16MiB"], seen).changes)
    assert found.bytes_per_s == pytest.approx(1e6 * mb_per_s, rel=0.02)


@pytest.mark.parametrize(
    ("name", "changed", "mb_per_s"),
    [
        # What reads wait for a full window goes with the window, and the answers of writes with it.
        ("both-queue-window-mixed-20ms", "iscsi.tcp_window=0", 10.21),
        # The window is next, which holds reads; a load of both waits for these.
        ("both-queue-window-mixed-20ms", "iscsi.queue_depth=128", 11.24),
        # A full buffer, no request waits for which, holds nothing; and what one carries that holds the next 31.
        ("both-cmdsmax-wmem-write-20ms", "iscsi.cmds_max=128", 6.01),
        # Samples miss some of a depth of one, which the driver's own count does not.
        ("short-cmds-max-read-20ms", "iscsi.cmds_max=128", 6.0),
        # The target's disk has most requests: another window brings nothing, and costs nothing.
        ("both-disk-window-mixed-20ms", "iscsi.tcp_window=0", 4.87),
    ],
)
def test_what_a_change_brings_is_foretold_within_a_twelfth(name: str, changed: str, mb_per_s: float) -> None:
    seen = _seen(name)
    found = [one.bytes_per_s for one in foretell(seen, asked([changed], seen).changes)]
    assert None not in found
    assert sum(one or 0.0 for one in found) == pytest.approx(1e6 * mb_per_s, rel=0.08)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        # What stood before fq on the target was taken for others' on the path once the limit was supposed to be gone.
        ("pacing-read-0ms", ["target:qdisc.maxrate=100mbit"]),
        # Gaps of a twelfth in the line, while writes waited for R2Ts, were foretold to stay without these.
        ("r2t-write-5ms", ["iscsi.initial_r2t=No", "iscsi.immediate_data=Yes", "iscsi.first_burst=262144",
                           "iscsi.max_burst=1048576", "iscsi.max_outstanding_r2t=16"]),
    ],
)  # fmt: skip
def test_the_line_is_full_where_nothing_else_is_left(name: str, changed: list[str]) -> None:
    seen = _seen(name)
    (found,) = foretell(seen, asked(changed, seen).changes)
    # 11.97 and 11.92 MB/s were measured.
    assert found.bytes_per_s == pytest.approx(11.96e6, rel=0.005) and found.first.limiter == "line"


def test_what_more_requests_at_once_are_to_a_disk_that_has_all_of_them_is_left_open() -> None:
    """A disk that takes 64 ms for each of two at once was foretold to do no more; eight times as much came."""
    seen = _seen("both-disk-queue-read-20ms")
    (found,) = foretell(seen, asked(["iscsi.queue_depth=128"], seen).changes)
    assert found.bytes_per_s is None and found.high
    assert found.low <= found.now_bytes_per_s < 11.96e6 <= 1.01 * found.high
    assert "the target's disk does more at once" in found.notes[-1]


def test_a_buffer_is_filled_up_at_the_end_of_each_write_that_is_smaller_than_a_third_of_it() -> None:
    """7.66 MB/s came of writes of 128 KiB through 550 KiB; of larger ones a third of the buffer is free before."""
    seen = _seen("both-r2t-wmem-write-50ms")
    offers = (
        "initial_r2t=No",
        "immediate_data=Yes",
        "first_burst=262144",
        "max_burst=1048576",
        "max_outstanding_r2t=16",
    )
    lifted = [f"{kind}.{offer}" for kind in ("iscsi", "lio") for offer in offers]
    (found,) = foretell(seen, asked(lifted, seen).changes)
    assert found.first.limiter == "send-buffer"
    assert found.bytes_per_s == pytest.approx(7.66e6, rel=0.1)


def test_what_more_data_in_flight_gets_of_a_shared_line_stays_open() -> None:
    """A window that is full beside a bulk flow: another one's share is nobody's to foretell, and 1.73 MB/s came."""
    seen = _seen("both-competing-window-read-20ms")
    (found,) = foretell(seen, asked(["iscsi.tcp_window=0"], seen).changes)
    assert found.bytes_per_s is None and found.high is not None and found.low < 1.73e6 < found.high
    assert any("what others leave" in note for note in found.notes)
    (still,) = foretell(seen, {})
    assert still.bytes_per_s == pytest.approx(still.now_bytes_per_s)
