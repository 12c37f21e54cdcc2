# SPDX-License-Identifier: GPL-2.0-or-later
"""Open loops: requests leave at their instants whatever became of those before, and their times count from these."""

import os
import random
import signal
import statistics
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from run_records import make_record, with_step

from fabtune.cli.main import main
from fabtune.errors import ExitCode, InputError
from fabtune.measure import aio, checks, fio, measured, metrics, paced, paced_load, recordfile, workload
from fabtune.measure.arrivals import Arrival, packed, unpacked
from fabtune.measure.open_loop import OpenLoop
from fabtune.measure.workload import Place
from fabtune.model.offered import Offered
from fabtune.model.runrecord import RunRecord, WorkloadUsed
from fabtune.report import openloops, runs

MS = 10**6
ASKED = OpenLoop("/dev/sdx", 200, 4096, 2**20, 0.7, 64)


def test_arrivals_are_as_many_as_the_rate_says_and_come_by_chance() -> None:
    found = ASKED.arrivals(2, 30, random.Random(1))
    times = [one.at_ns for one in found]
    assert times == sorted(times) and sum(t < 2e9 for t in times) == 400 and len(times) == 6400
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
    # The gaps of a Poisson process vary as much as their mean is long.
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(1, abs=0.05)
    assert {one.length for one in found} == {4096} and {one.offset % 4096 for one in found} == {0}
    assert max(one.offset for one in found) == 2**20 - 4096
    assert sum(one.write for one in found) / 6400 == pytest.approx(0.3, abs=0.02)
    assert list(unpacked(packed(found))) == found


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def monotonic_ns(self) -> int:
        return self.now

    def time_ns(self) -> int:
        return self.now


class StallingRing:
    """A device that takes `took_ns` for a request, and answers none from `stall[0]` to `stall[1]`."""

    def __init__(
        self, clock: Clock, took_ns: int, stall: tuple[int, int], blocks_ns: int = 0, making_ns: int = 0
    ) -> None:
        self.clock, self.took_ns, self.stall, self.blocks_ns = clock, took_ns, stall, blocks_ns
        self.making_ns = making_ns
        self.ends: list[tuple[int, int, int]] = []
        self.lengths: dict[int, int] = {}

    def prepare(self, slot: int, offset: int, length: int, *, write: bool) -> None:
        self.clock.now += self.making_ns
        self.lengths[slot] = length

    def submit(self, slot: int) -> None:
        end = self.clock.now + self.took_ns
        self.ends.append((self.stall[1] if self.stall[0] <= end < self.stall[1] else end, slot, self.lengths.pop(slot)))
        self.clock.now += self.blocks_ns

    def wait(self, timeout_ns: int | None) -> Iterator[tuple[int, int]]:
        until = min((end for end, _, _ in self.ends), default=1 << 62)
        self.clock.now = max(self.clock.now, until if timeout_ns is None else min(until, self.clock.now + timeout_ns))
        ended = [one for one in self.ends if one[0] <= self.clock.now]
        self.ends = [one for one in self.ends if one[0] > self.clock.now]
        return iter([(slot, length) for _, slot, length in ended])


def run(
    monkeypatch: pytest.MonkeyPatch, slots: int, *, stall_ms: int = 0, blocks_ns: int = 0, making_ns: int = 0,
    apart_ms: int = 10,
) -> Any:  # fmt: skip
    """What the generator says of a request every 10 ms, of 1 ms each, for 1 s after a ramp of 100 ms."""
    clock = Clock()
    monkeypatch.setattr(paced, "time", clock)
    begin = paced._HEAD_START_NS + 300 * MS
    ring: Any = StallingRing(clock, MS, (begin, begin + stall_ms * MS), blocks_ns, making_ns)
    pacer = paced._Pacer(ring, slots, 100 * MS, 1000 * MS)
    pacer.run(iter([Arrival(number * apart_ms * MS, 0, 512, False) for number in range(1100 // apart_ms)]))
    return pacer.figures()


@pytest.mark.parametrize("slots", [64, 2])
def test_a_stall_is_in_the_time_of_every_request_that_was_to_leave_in_it(
    monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    """However many may be outstanding: with two, the others could not even be sent."""
    said = run(monkeypatch, slots, stall_ms=400)
    way = said["jobs"][0]["read"]
    slow = {ns: count for ns, count in way["clat_ns"]["bins"].items() if int(ns) > 2 * MS}
    assert way["total_ios"] == 100 and sum(slow.values()) == pytest.approx(40, abs=2)
    assert way["lat_ns"]["max"] == pytest.approx(400 * MS, rel=0.03)
    # Instants 10 ms apart over the stall: on average they had half of it before them.
    assert way["lat_ns"]["mean"] == pytest.approx((40 * 200 * MS + 60 * MS) / 100, rel=0.1)
    assert said["offered"]["most_outstanding"] == min(slots, 40)
    assert (said["offered"]["behind_max_ns"] > 300 * MS) == (slots == 2)
    assert said["offered"]["late_p99_ns"] == 0


def test_what_the_device_held_up_is_not_the_generators_doing(monkeypatch: pytest.MonkeyPatch) -> None:
    said = run(monkeypatch, 1024, blocks_ns=15 * MS)
    assert said["offered"]["behind_p50_ns"] > 200 * MS and said["offered"]["late_p99_ns"] == 0
    # What came back meanwhile is seen between two that are due: 15 ms each.
    assert said["offered"]["completed"] == pytest.approx(66, abs=2)


def test_what_making_a_request_takes_is_the_generators_doing_not_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 writes of 1 MiB at once: 4 ms for each one's random bytes were the device's, "by itself" said 0.15 ms."""
    said = run(monkeypatch, 1024, making_ns=4 * MS, apart_ms=2)
    # Two are due for each that is made: they leave later and later, all of it by the generator's own doing.
    assert said["offered"]["behind_p50_ns"] > 200 * MS
    assert said["offered"]["late_p99_ns"] == said["offered"]["behind_p99_ns"]
    # Between requests there is time for it.
    said = run(monkeypatch, 1024, making_ns=4 * MS)
    assert said["offered"]["behind_p99_ns"] == 0 == said["offered"]["late_p99_ns"]


def test_no_request_waits_for_random_bytes_and_none_is_written_twice_or_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot's buffer was filled once: a write sent what the slot had read, the next one the same again."""
    place = Path("/var/tmp") / f"fabtune-{tmp_path.name}-{time.monotonic_ns()}"
    place.write_bytes(was := random.Random(1).randbytes(1 << 20))
    descriptor = os.open(place, os.O_DIRECT | os.O_RDWR)
    try:
        ring = aio.Ring(descriptor, 1, longest=(4096, 65536))
        monkeypatch.setattr(os, "urandom", None)
        sent = [(0, 4096, False), *((65536 * (1 + n % 8), 65536, True) for n in range(300)), (4096, 4096, False)]
        written = []
        for offset, length, write in sent:
            ring.prepare(0, offset, length, write=write)
            ring.submit(0)
            assert list(ring.wait(None)) == [(0, length)]
            written += [place.read_bytes()[offset : offset + length]] if write else []
    finally:
        os.close(descriptor)
        place.unlink()
    blocks = [data[at : at + 4096] for data in written for at in range(0, 65536, 4096)]
    assert len(set(blocks)) == len(blocks) == 4800 and was[:4096] not in blocks
    assert all(len(zlib.compress(data)) > 65536 for data in written)


def test_the_times_count_from_the_instants_on_a_real_file(tmp_path: Path) -> None:
    place = Path("/var/tmp") / f"fabtune-{tmp_path.name}-{time.monotonic_ns()}"
    place.write_bytes(bytes(2**20))
    try:
        with paced_load.start(
            str(place), 64, attrs.evolve(ASKED, per_s=100).arrivals(0.1, 0.5, random.Random(1)), 0.1, 0.5, tmp_path
        ) as load:
            load.wait(lambda: None, 1.0)
            document = load.document()
    finally:
        place.unlink()
    offered = paced_load.offered(document)
    assert offered.requests == 50 == document.requests() and offered.seconds == 0.5 == document.run_s()
    assert document.moved_bytes() == 50 * 4096 and document.directions == ["read", "write"]
    assert offered.behind_max_ns <= max(document.longest_ns(op) for op in document.directions)


@pytest.mark.parametrize(
    ("size", "says"), [(4096, "read of 4096 bytes at 8192 failed: 0 bytes"), (None, "direct requests failed: No such")]
)
def test_a_request_that_fails_ends_the_load_with_its_words(tmp_path: Path, size: int | None, says: str) -> None:
    place = Path("/var/tmp") / f"fabtune-{tmp_path.name}-{time.monotonic_ns()}"
    if size:
        place.write_bytes(bytes(size))
    with paced_load.start(str(place), 4, [Arrival(0, 8192, 4096, False)], 0, 1, tmp_path) as load:
        load.wait(lambda: None, 1.0)
        place.unlink(missing_ok=True)
        with pytest.raises(fio.FioError, match=f"the load ended with status 1: .*{says}"):
            load.document()


def test_stopped_it_says_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(paced, "time", clock)
    ring: Any = StallingRing(clock, MS, (0, 0))
    pacer = paced._Pacer(ring, 4, 0, 1000 * MS)

    def arrivals() -> Iterator[Arrival]:
        for number in range(1000):
            if number == 30:
                pacer.stop(signal.SIGINT)
            yield Arrival(number * MS, 0, 512, False)

    pacer.run(arrivals())
    said: Any = pacer.figures()
    assert said["offered"]["requests"] == 30 == said["jobs"][0]["read"]["total_ios"]
    assert said["offered"]["seconds"] == pytest.approx(0.03, abs=0.002)


def asked(**options: Any) -> Any:
    load = workload.load("openloop")
    load = attrs.evolve(load, options={key: value for key, value in (load.options | options).items() if value != ""})
    (step,) = workload.expand(load, Place(Path("/dev/sdx"), Path("/x"), 2**30), runtime_s=3, ramp_s=1)
    return step


def test_the_shipped_workload_asks_for_one() -> None:
    step = asked()
    assert step.open_loop == OpenLoop("/dev/sdx", 200, 4096, 2**30, 1, 1024)
    assert step.name == "randread, 200 requests/s" and not step.closed_loop


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"thread": 1},
            "section 'openloop': key 'thread': found 1 (integer), allowed: none where rate_process is 'poi",
        ),
        ({"direct": 0}, "key 'direct': found 0 (integer), allowed: 1 where rate_process is 'poisson'"),
        ({"norandommap": ""}, "key 'norandommap': found nothing, allowed: 1 where"),
        ({"iodepth": -1}, "key 'iodepth': found -1 (integer), allowed: a number above 0"),
        ({"size": "all"}, "key 'size': found 'all' (text), allowed: a number above 0"),
    ],
)
def test_what_the_generator_does_not_do_is_refused(options: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        asked(**options)
    assert str(caught.value).startswith("workload 'openloop': step 'randread, 200 requests/s': ")
    assert says in str(caught.value)


def test_one_section_alone_and_random_requests() -> None:
    load = workload.load("openloop").with_parameters(["op=read"])
    with pytest.raises(InputError, match="key 'rw': found 'read', allowed: randread, randwrite, randrw"):
        workload.expand(load, Place(Path("/dev/sdx"), Path("/x"), 2**30), runtime_s=3, ramp_s=1)
    load = workload.load("openloop")
    load = attrs.evolve(load, steps=(attrs.evolve(load.steps[0], options={}, jobs={"a": {}, "b": {}}),))
    with pytest.raises(InputError, match="found 2 sections, allowed: one"):
        workload.expand(load, Place(Path("/dev/sdx"), Path("/x"), 2**30), runtime_s=3, ramp_s=1)


def offered(completed: int, late_ns: int = 0) -> RunRecord:
    found = Offered(1000, completed, 10.0, 16, late_ns, 0, 0, 0)
    return with_step(make_record(1), offered=found, depth=16)


def test_an_offered_rate_that_was_not_reached_leaves_no_latency() -> None:
    for completed, told in ((1000, True), (970, True), (960, False), (500, False)):
        record = offered(completed)
        keys = {one.key for one in metrics.of_step(record.steps[0])}
        assert ("read_p99_ms" in keys) == told and "read_mb_per_s" in keys
        (sentence,) = openloops.said(record)
        assert f"open loop, 100.0 requests/s offered, {completed / 10:.1f} reached" in sentence
        assert ("cannot tell the latency" in sentence) != told
        said: Any = runs.as_json(record)["steps"]
        assert said[0]["latency"] == ("from the instant" if told else "cannot tell")
        assert (said[0]["offered_per_s"], said[0]["reached_per_s"]) == (100, completed / 10)


def test_the_figure_that_decides_says_why_it_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two overloaded loads p99, the figure of `openloop`, was no row: "no practical difference", for no reason."""
    decided = WorkloadUsed("openloop", primary="p99_ms")
    for side, label in enumerate(("untouched", "wan")):
        for run in range(3):
            made = attrs.evolve(offered(500), workload=decided, label=label, started_unix_s=float(2 * run + side))
            recordfile.write(made, tmp_path / label / f"{run}.run.json.gz")
    assert main(["compare", str(tmp_path / "untouched"), str(tmp_path / "wan")]) == ExitCode.CANNOT_TELL
    told = " ".join(capsys.readouterr().out.split())
    assert "read latency p99" in told and "the offered rate was not reached" in told, told
    assert main(["report", str(tmp_path)]) == ExitCode.DONE
    answers = (tmp_path / "report.html").read_text().split("</dl>")[0]
    assert "no run of untouched tells it: the offered rate was not reached" in answers
    # Three were made: it is not for their number that nothing is told.
    assert "No point has runs on both sides that tell it." in answers and "too few" not in answers


def test_of_two_loads_together_nothing_is_said_where_one_was_overloaded() -> None:
    both = [measured.latencies(offered(completed).steps[0], "read") for completed in (1000, 500)]
    assert both[0].quantile_ns(0.5) is not None
    assert measured.together(both).untold(0.5) == measured.together(both[::-1]).untold(0.5) == both[1].untold(0.5)


def test_latency_of_an_open_loop_is_the_generators_not_the_devices() -> None:
    record = offered(1000)
    assert measured.latencies(record.steps[0], "read").counts == record.steps[0].document.bins("read")


def test_a_generator_that_was_late_itself_is_said() -> None:
    def verdict(late_ns: int) -> str:
        return next(one.verdict for one in checks.of_record(offered(1000, late_ns)) if "their instants" in one.law)

    assert verdict(50_000) == checks.PASS and verdict(150_000) == checks.FAIL
    assert openloops.section([make_record(1)]) is None
