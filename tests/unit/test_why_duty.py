# SPDX-License-Identifier: GPL-2.0-or-later
"""Causes that come and go within a look: each has the time for which it was there (kept observations, joined)."""

import gzip
import json
import struct
import subprocess
from pathlib import Path

import attrs
import pytest

from fabtune.backends import record
from fabtune.host.qdisc_rates import QdiscRates, qdisc_limit
from fabtune.measure import look
from fabtune.model import typed
from fabtune.model.observation import DiskSample, EndSeen, Observation, SocketSample
from fabtune.why.judging import judged
from fabtune.why.one_way import OneWay

_DATA = Path(__file__).parent / "data"
_COUNTERS = ("sent_bytes", "received_bytes", "busy_us", "rwnd_limited_us", "sndbuf_limited_us", "retransmitted_bytes")


def _kept(file: str, name: str, rate_bit_per_s: float) -> Observation:
    raw = json.loads(gzip.decompress((_DATA / file).read_bytes()))[name]
    return attrs.evolve(
        typed.STRICT.read(Observation, raw, name), rate_bytes_per_s=rate_bit_per_s / 8, rate_by="--rate"
    )


def _joined(first: EndSeen | None, second: EndSeen | None, share: float) -> EndSeen:
    """Return `share` of the samples of `first`, then the rest of `second`, with counters that go on."""
    assert first and first.socket and second and second.socket
    cut = round(share * len(first.socket.samples))
    head, tail = first.socket.samples[: cut + 1], second.socket.samples[cut + 1 :]
    joined = (*head, *(_onwards(one, head[-1], second.socket.samples[cut]) for one in tail))
    return attrs.evolve(first, socket=attrs.evolve(first.socket, samples=joined))


def _onwards(one: SocketSample, end: SocketSample, start: SocketSample) -> SocketSample:
    return attrs.evolve(one, **{key: getattr(one, key) - getattr(start, key) + getattr(end, key) for key in _COUNTERS})


def _marked(end: EndSeen, share: float, **values: object) -> EndSeen:
    """Put `values` into the first samples."""
    assert end.socket
    count = round(share * len(end.socket.samples))
    samples = [attrs.evolve(one, **values) if i <= count else one for i, one in enumerate(end.socket.samples)]
    return attrs.evolve(end, socket=attrs.evolve(end.socket, samples=tuple(samples)))


@pytest.mark.parametrize("share", [0.3, 0.7])
@pytest.mark.parametrize("by_qdisc", [True, False])
def test_a_limit_to_the_rate_that_was_gone_when_the_look_ended_has_its_time(share: float, by_qdisc: bool) -> None:
    paced, line = (_kept("observations.json.gz", name, 200e6) for name in ("maxrate-read", "wan-read"))
    sender = _joined(paced.target, line.target, share)
    assert paced.target and paced.target.qdisc and line.target
    rate = paced.target.qdisc.max_bytes_per_s
    values = {"qdisc_bytes_per_s": rate} if by_qdisc else {"max_pacing_bytes_per_s": int(rate or 0)}
    # The qdisc as it was read at both ends of the look: without a limit.
    sender = attrs.evolve(
        _marked(sender, share, **values), qdisc=attrs.evolve(paced.target.qdisc, max_bytes_per_s=None)
    )
    (one,) = judged(attrs.evolve(line, target=sender))
    told = {found.limiter: found.share for found in one.shares}
    assert told["pacing"] == pytest.approx(share, abs=0.05)


def test_a_socket_s_limit_is_of_payload_and_a_qdisc_s_of_packets() -> None:
    """TCP counts no headers where it paces: evidence and shares took 4.4 % off its limit."""
    seen = _kept("observations.json.gz", "maxrate-read", 200e6)
    limited = attrs.evolve(seen, target=_marked(_end(seen.target), 1.0, max_pacing_bytes_per_s=5_000_000))
    found = OneWay(limited, "read")
    assert found.socket_limit == 5_000_000
    assert found.qdisc_rate and found.qdisc_limit == pytest.approx(found.qdisc_rate * 1448 / 1514)
    assert found.paced_at(_end(limited.target).socket.samples[0]) == 5_000_000  # type: ignore[union-attr]


def _end(end: EndSeen | None) -> EndSeen:
    assert end and end.socket
    return end


def test_a_limit_that_came_and_went_three_times_in_a_guest_has_its_time() -> None:
    (one,) = judged(_kept("observations-100mbit.json.gz", "duty-pacing-30-read", 100e6))
    told = {found.limiter: found.share for found in one.shares}
    assert told["pacing"] == pytest.approx(0.3, abs=0.05) and told["line"] == pytest.approx(0.7, abs=0.05)


def _deep(seen: Observation, share: float, limits: tuple[int, int], tags: tuple[int, int]) -> tuple[DiskSample, ...]:
    count = round(share * len(seen.disk.samples))
    return tuple(
        attrs.evolve(
            one, in_flight=min(limits[i > count], tags[i > count], 32), limit=limits[i > count],
            nr_requests=tags[i > count],
        )
        for i, one in enumerate(seen.disk.samples)
    )  # fmt: skip


@pytest.mark.parametrize("share", [0.3, 0.7])
@pytest.mark.parametrize(
    ("limits", "tags", "limiter"),
    [((2, 113), (128, 128), "queue-depth"), ((113, 113), (2, 128), "nr-requests")],
)
def test_a_queue_depth_that_comes_and_goes_is_named_for_its_time_and_not_the_load(
    share: float, limits: tuple[int, int], tags: tuple[int, int], limiter: str
) -> None:
    small, line = (
        _kept("observations-100mbit.json.gz", name, 100e6) for name in ("queue-depth-read", "line-unpaced-read")
    )
    shallow, full = small.disk.ways["read"], line.disk.ways["read"]
    moved = round(share * shallow.moved_bytes + (1 - share) * full.moved_bytes)
    way = attrs.evolve(
        shallow, moved_bytes=moved, completed=round(moved / shallow.request_bytes), device_ms=90.0, total_ms=90.0,
        block_ms=160.0,
    )  # fmt: skip
    disk = attrs.evolve(
        small.disk, ways={"read": way}, samples=_deep(small, share, limits, tags), limit=113, at_limit=share,
        mean_depth=20.0,
    )  # fmt: skip
    (one,) = judged(attrs.evolve(small, disk=disk, target=_joined(small.target, line.target, share)))
    told = {found.limiter: found.share for found in one.shares}
    assert told[limiter] == pytest.approx(share, abs=0.05)
    assert told.get("load", 0.0) + told.get("target-disk", 0.0) < 0.05


def test_a_depth_that_stands_is_judged_as_ever() -> None:
    seen = _kept("observations-100mbit.json.gz", "queue-depth-read", 100e6)
    samples = _deep(seen, 1.0, (2, 2), (128, 128))
    (before,), (after,) = judged(seen), judged(attrs.evolve(seen, disk=attrs.evolve(seen.disk, samples=samples)))
    assert before.shares == after.shares


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def test_the_limit_of_each_kind_of_qdisc_is_read() -> None:
    fq = _attribute(5, struct.pack("=I", 1)) + _attribute(7, struct.pack("=I", 6_250_000))
    assert qdisc_limit("fq", fq) == 6_250_000
    assert qdisc_limit("fq", _attribute(7, struct.pack("=I", (1 << 32) - 1))) is None
    netem = bytes(24) + _attribute(6, struct.pack("=IiIi", 12_500_000, 0, 0, 0))
    assert qdisc_limit("netem", netem) == 12_500_000
    wide = netem + _attribute(8, struct.pack("=Q", 5_000_000_000))
    assert qdisc_limit("netem", wide) == 5_000_000_000
    assert qdisc_limit("netem", bytes(24)) is None
    assert qdisc_limit("fq_codel", fq) is None and qdisc_limit("tbf", b"\x08\0") is None


def test_a_token_bucket_s_rate_is_read_from_the_kernel() -> None:
    code = (
        "from fabtune.host.qdisc_rates import QdiscRates; import subprocess\n"
        "rates = QdiscRates(('lo',)); print(rates.read())\n"
        "subprocess.run('tc qdisc add dev lo root tbf rate 80mbit burst 10k latency 10ms'.split(), check=True)\n"
        "print(rates.read()); rates.close()"
    )
    made = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "/usr/bin/python3", "-c", code],
        capture_output=True, text=True, cwd=Path(QdiscRates.__init__.__code__.co_filename).parents[2],
    )  # fmt: skip
    if made.returncode and "qdisc kind is unknown" in made.stderr or "unshare" in made.stderr:
        pytest.skip("this kernel has no tbf, or lets nobody make a namespace")
    assert made.stdout.split("\n")[:2] == [
        "{}",
        "{'lo': QdiscNow(max_bytes_per_s=10000000.0, dropped=0, backlog_bytes=0)}",
    ], made.stderr


def test_each_look_reads_the_node_records_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """`why --watch` looks again and again in one process, while somebody changes them."""
    monkeypatch.setattr(record.BACKEND, "_records", {"of the last look": {"node.conn[0].tcp.window_size": "524288"}})
    monkeypatch.setattr("fabtune.host.iscsiadm.iscsiadm", lambda *words: "")
    assert look._records() == {}
