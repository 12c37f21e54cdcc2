# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of fio as a process: when it may be asked for its figures, and since when its jobs run."""

import fcntl
import math
import os
import select
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fabtune.measure import beat, fio, measured
from fabtune.model import typed
from fabtune.model.outputs import FioOutput

_QUEUE = 32 * 262144
_JOB = "[job]\nioengine=null\nsize=1g\ntime_based=1\nruntime=300ms\nnumjobs=2\nthread={thread}\n"


@pytest.mark.parametrize("thread", [1, 0])
def test_fio_is_asked_for_figures_only_while_its_jobs_run(
    thread: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, _ = fio.find()
    (tmp_path / "job.fio").write_text(_JOB.format(thread=thread))
    os.mkfifo(tmp_path / "figures")
    pipe = os.open(tmp_path / "figures", os.O_RDWR | os.O_NONBLOCK)
    # Its last figures do not fit: fio stands still between its jobs' end and its own, where a signal can kill it.
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
    printing, asked = [0], []

    def look() -> bool:
        return bool(select.select([pipe], [], [], 0)[0])

    def tick() -> None:
        printing[0] += look()
        if printing[0] > 20:
            while look():
                os.read(pipe, 65536)

    monkeypatch.setattr(fio, "_ASK_S", 0.01)
    monkeypatch.setattr(fio, "_to_main_thread", lambda _process, _number: asked.append(look()))
    command = [program, "--output-format=json+", "--eta=never", f"--output={tmp_path / 'figures'}", "job.fio"]
    with fio.Load(command, tmp_path) as load:
        load.wait(tick, 0.01, measured_s=0.0)
    os.close(pipe)
    assert printing[0] > 20 and asked and not any(asked)


# fio's threads while it starts a job: the first keeps all signals off, the second, its helper, is ended by one.
_STARTS_A_JOB = """
import signal, threading, time
def helper():
    lost.extend([1] if signal.sigtimedwait(wanted, 60) else [])
lost, asked, wanted, over = [], [], [signal.SIGUSR1], threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
threads = [threading.Thread(target=one, daemon=True) for one in (helper, over.wait)]
for thread in threads:
    thread.start()
while not signal.sigpending() and not lost:
    time.sleep(0.01)
signal.pthread_sigmask(signal.SIG_UNBLOCK, wanted)
print("lost" if lost else "asked" if asked else "neither")
"""


def test_a_question_that_meets_fio_starting_a_job_is_not_lost(tmp_path: Path) -> None:
    """It went to fio's helper, which ended: a measurement never began, at one start in 25 of a loaded machine."""
    with fio.Load([sys.executable, "-c", _STARTS_A_JOB], tmp_path) as load:
        load.wait(lambda: None, 0.01, measured_s=0.0)
    assert (tmp_path / "fio.err").read_text() == "asked\n"


def test_samples_are_taken_off_the_beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, float]] = []

    def recorded(turn: int, every_s: float) -> float:
        asked.append((turn, every_s))
        return beat.off_beat(turn, every_s)

    monkeypatch.setattr(fio, "off_beat", recorded)
    ticks: list[float] = []
    with fio.Load(["sleep", "0.3"], tmp_path) as load:
        load.wait(lambda: ticks.append(time.monotonic()), 0.02)
    assert len(ticks) > 2 and {every_s for _, every_s in asked} == {0.02}
    assert [turn for turn, _ in dict.fromkeys(asked)] == list(range(1, len(ticks) + 2))


def _slope(part_s: float, every_s: float, trip_s: float, begun_s: float, instant: Any) -> measured.Rate:
    """A queue of 8 MiB that comes back once a round trip, in a tenth of it; the true rate is 8 MiB a round trip."""

    def moved(when_s: float) -> float:
        trips, part = divmod((when_s + begun_s) / trip_s, 1)
        return _QUEUE * (trips + min(1.0, part / 0.1))

    times = [when_s for turn in range(200) if (when_s := instant(turn, every_s)) <= part_s]
    return measured.rate_of(times, [moved(when_s) for when_s in times], _QUEUE)


def test_requests_that_come_back_near_the_samples_beat_do_not_bend_the_slope() -> None:
    """On the beat, a tenth of sound runs at 0.248 s and a sample each 0.25 s lay above their bound by more than 1 %."""

    def wrong(instant: Any) -> tuple[int, int]:
        found = []
        for part_s, every_s in ((3.0, 0.25), (6.0, 0.5), (30.0, 1.0)):
            for trip_s in (0.0496, 0.0504, 0.099, 0.1245, 0.15, 0.248, 0.3):
                for begun in range(20):
                    rate, true = _slope(part_s, every_s, trip_s, begun * trip_s / 20, instant), _QUEUE / trip_s
                    error = rate.error_bytes_per_s / true
                    found.append((rate.bytes_per_s / true - 1, error))
        return sum(off > 0.01 + error for off, error in found), sum(abs(off) > error for off, error in found)

    voided, outside = wrong(lambda turn, every_s: turn * every_s)
    assert voided >= 5 and outside >= 150
    voided, outside = wrong(beat.off_beat)
    # Twice the standard error holds in nine of ten.
    assert voided == 0 and outside <= 50


@pytest.mark.parametrize("thread", [1, 0])
def test_a_load_begins_when_its_files_are_made(thread: int, tmp_path: Path) -> None:
    program, _ = fio.find()
    file, size = tmp_path / "file", 128 << 20
    job = f"[job]\nioengine=psync\nrw=read\nfilename={file}\nsize={size}\nfallocate=none\ntime_based=1\nruntime=60s\n"
    seen: list[tuple[float, int, float | None]] = []

    def tick() -> None:
        begun_s = load.measures_since_s(0.0)
        seen.append((time.monotonic(), file.stat().st_size if file.exists() else 0, begun_s))
        if begun_s is not None:
            load.stop()

    with fio.load(program, f"{job}numjobs=2\nthread={thread}\n", tmp_path) as load:
        load.wait(tick, 0.002)
    making = [at_s for at_s, made, begun_s in seen if made < size and begun_s is None]
    at_s, made, begun_s = seen[-1]
    assert len(making) > 1 and made == size
    # The kernel notes a start to 10 ms.
    assert begun_s is not None and making[-1] - 0.02 <= begun_s <= at_s


@pytest.mark.parametrize(("runtime_ms", "ends", "past"), [(1019, 0, False), (2100, 0, True), (10, 1, True)])
def test_a_ramp_that_a_job_has_not_seen_the_end_of_is_none_that_is_over(runtime_ms: int, ends: int, past: bool) -> None:
    """On a loaded machine a job looks at the clock some time after its ramp's end, and began to measure there."""
    assert an_answer(0, runtime_ms, ends).is_past_ramp(1.0) is past


def test_an_answer_that_a_ramp_s_end_tore_is_not_believed() -> None:
    """A job that had counted since its ramp began had timed requests already: what fio says is noted at two times."""
    torn, next_one, third = an_answer(5019, 1019, 3), an_answer(5060, 30, 9), an_answer(5100, 71, 20)
    assert not fio._measures([torn], -math.inf, 1.0)
    assert not fio._measures([an_answer(4980, 980, 0), torn], -math.inf, 1.0)
    assert not fio._measures([torn, next_one], -math.inf, 1.0)
    assert fio._measures([torn, next_one, third], -math.inf, 1.0)
    # Without a ramp nothing tears it.
    assert fio._measures([torn], -math.inf, 0.0)


def an_answer(at_ms: int, runtime_ms: int, ends: int) -> FioOutput:
    """Return what fio says of a job that counts for so long and has timed so many requests."""
    way: dict[str, object] = {"total_ios": 9, "io_bytes": 9, "runtime": 9, "clat_ns": {}}
    read, write = (dict(way, lat_ns={"N": count, "mean": 1.0}) for count in (ends, 0))
    job = {"job_runtime": runtime_ms, "read": read, "write": write}
    return typed.TOLERANT.read(FioOutput, {"timestamp_ms": at_ms, "jobs": [job]}, "fio")


@pytest.mark.parametrize("thread", [1, 0])
def test_a_load_measures_from_when_fio_says_so(thread: int, tmp_path: Path) -> None:
    """A job was taken to begin with its thread or process, then with its ramp where that began late."""
    job = "[job]\nioengine=null\nsize=1g\ntime_based=1\nexec_prerun=sleep 1\nramp_time=1s\n"
    seen: list[tuple[float, float]] = []

    def tick() -> None:
        begun_s = load.measures_since_s(1.0)
        if begun_s is not None:
            seen.append((begun_s, time.monotonic()))
        if len(seen) == 3:
            load.stop()

    started_s = time.monotonic()
    with fio.load(fio.find()[0], f"{job}runtime=1m\nnumjobs=2\nthread={thread}\n", tmp_path) as load:
        load.wait(tick, 0.05)
        with pytest.raises(fio.FioError, match="status 128") as stopped:
            load.document()
    ended_s = time.monotonic()
    assert stopped.value.document is not None
    measured_s = stopped.value.document.run_s()
    assert seen and all(started_s + 2.0 <= begun_s <= at_s for begun_s, at_s in seen)
    # It ends once it has measured that long, and answers a little after it has looked at the clock.
    assert max(begun_s for begun_s, _ in seen) <= ended_s - measured_s + 0.5
    # What fio said of its beginning is not what it had counted before it waited for what was outstanding.
    assert load.before_drain() is None
