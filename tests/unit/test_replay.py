# SPDX-License-Identifier: GPL-2.0-or-later
"""Replays: what a trace has is what is sent, what a device cannot take is fitted to it and said, the rest refused."""

import struct
from pathlib import Path
from typing import Any

import attrs
import pytest
from run_records import make_record, with_step

from fabtune.cli.main import main
from fabtune.errors import ExitCode, InputError
from fabtune.measure import blktrace, measured, replay
from fabtune.measure.arrivals import Arrival
from fabtune.measure.target import Target
from fabtune.model import runrecord
from fabtune.model.offered import Offered, Replayed
from fabtune.model.runrecord import PathTold
from fabtune.report import openloops, runs

READ, WRITE, DISCARD, QUEUE, NOTIFY = 1, 2, 1 << 13, 1 << 4, 1 << 10


def event(
    ms: float, sector: int, length: int, what: int = READ, *, action: int = 1, device: int = 8 << 20 | 16,
    order: str = "<", more: bytes = b"", magic: int = 0x65617407,
) -> bytes:  # fmt: skip
    """One event as the kernel writes it."""
    code = action | (what | QUEUE) << 16
    head = struct.pack(
        f"{order}IIQQIIIIIHH", magic, 1, round(ms * 1e6), sector, length, code, 7, device, 0, 0, len(more)
    )
    return head + more


KNOWN = (
    event(0, 0, 0, NOTIFY, action=0, more=b"fio\0")
    + event(5, 8, 4096)
    + event(5.1, 8, 4096, action=7)
    + event(5.2, 8, 4096, action=8)
    + event(7, 2**31, 65536, WRITE)
    + event(6, 1000, 512)
    + event(8, 0, 2**20, DISCARD | WRITE)
    + event(9, 0, 0, WRITE)
)
SENT = (Arrival(0, 4096, 4096, False), Arrival(10**6, 512000, 512, False), Arrival(2 * 10**6, 2**40, 65536, True))


def load(tmp_path: Path, raw: bytes, name: str = "t.bin") -> blktrace.Trace:
    (tmp_path / name).write_bytes(raw)
    return blktrace.load(tmp_path / name)


def test_a_trace_is_its_queued_reads_and_writes_in_order(tmp_path: Path) -> None:
    found = load(tmp_path, KNOWN)
    assert (found.requests, found.left_out, found.device, found.name) == (SENT, 2, "8,16", "t.bin")
    other = load(tmp_path, event(5, 8, 4096, order=">") + event(6, 9, 512, WRITE, order=">"))
    assert other.requests == (Arrival(0, 4096, 4096, False), Arrival(10**6, 4608, 512, True))


def test_of_blktraces_own_files_all_cpus_are_read(tmp_path: Path) -> None:
    (tmp_path / "sda.blktrace.0").write_bytes(event(9, 16, 512))
    (tmp_path / "sda.blktrace.10").write_bytes(event(7, 24, 512))
    (tmp_path / "sdb.blktrace.0").write_bytes(event(1, 0, 512))
    assert [one.offset for one in load(tmp_path, event(8, 8, 512), "sda.blktrace.1").requests] == [12288, 4096, 8192]


def test_a_file_s_name_is_no_pattern_and_only_blktraces_own_files_are_read(tmp_path: Path) -> None:
    """A copy beside them was read as well, of "run[1].blktrace.0" nothing but that, and of one not there all others."""
    for copy in ("run[1].blktrace.0.bak", "run[1].blktrace.0~", "run[1].blktrace.\u0662", "run1.blktrace.0"):
        (tmp_path / copy).write_bytes(event(1, 0, 512))
    (tmp_path / "run[1].blktrace.10").write_bytes(event(7, 24, 512))
    assert [one.offset for one in load(tmp_path, event(8, 8, 512), "run[1].blktrace.0").requests] == [12288, 4096]
    with pytest.raises(InputError, match=r"run\[1\]\.blktrace\.7: no such file"):
        blktrace.load(tmp_path / "run[1].blktrace.7")
    with pytest.raises(InputError, match=r"gone/sda\.blktrace\.0: no such file"):
        blktrace.load(tmp_path / "gone/sda.blktrace.0")


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "no reads or writes were queued, allowed: one or more"),
        (
            b"fio version 3 iolog\n",
            "found b'fio ' at its beginning, allowed: a binary trace of blktrace, version 7 (record",
        ),
        (event(1, 0, 512, magic=0x65617406), "at its beginning, allowed: a binary trace of blktrace, version 7"),
        (event(1, 0, 512)[:-1], "ends at byte 47 within the event that begins at byte 0: cut short"),
        (event(1, 0, 512) + event(2, 0, 512, magic=1), "found 0x1 at byte 48, allowed: 0x65617407, the begin of an ev"),
        (event(1, 0, 512, action=7), "no reads or writes were queued, allowed: one or more"),
        (event(1, 0, 513), "a request of 513 bytes, allowed: multiples of 512"),
        (
            event(1, 0, 512) + event(2, 0, 512, device=3) * 2,
            "devices 0,3 (2 requests), 8,16 (1 requests), allowed: one",
        ),
    ],
)
def test_what_is_no_trace_of_one_device_is_refused(tmp_path: Path, raw: bytes, says: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, raw)
    assert str(caught.value).startswith(f"{tmp_path}/t.bin: ") and says in str(caught.value)


def test_what_lies_beyond_the_device_is_folded_and_whole_blocks_are_sent(tmp_path: Path) -> None:
    trace = load(tmp_path, KNOWN)
    assert blktrace.fit(trace, 2**41, 512) == blktrace.Fitted(SENT, 0, 0)
    fitted = blktrace.fit(trace, 2**20 + 512, 4096)
    # 512 bytes at 512000 are the block that they lie in; 2**40 is a multiple of the device's whole blocks, 2**20.
    assert [(one.offset, one.length) for one in fitted.requests] == [(4096, 4096), (512000, 4096), (0, 65536)]
    assert (fitted.folded, fitted.aligned) == (1, 1)
    # Folded onto the last bytes, where it would end beyond them.
    near = attrs.evolve(trace, requests=(Arrival(0, 2**21 - 4096, 8192, False),))
    assert blktrace.fit(near, 2**20, 512).requests[0].offset == 2**20 - 8192
    with pytest.raises(InputError, match="t.bin: a request of 65536 bytes, allowed on this device: 8192"):
        blktrace.fit(trace, 8192, 512)


def test_a_replay_sends_the_trace_for_as_long_as_it_lasts(tmp_path: Path) -> None:
    place = Target(Path("/dev/sdx"), "device", 2**41, "sdx", "", "", 512, ())
    trace = load(tmp_path, KNOWN)
    step = replay.Replay(trace, place, PathTold(), blktrace.fit(trace, 2**41, 512))._step()
    assert step.open_loop is not None and tuple(step.open_loop.arrivals(0, 1, None)) == SENT  # type: ignore[arg-type]
    assert step.runtime_s == 0.003 and step.measured_s == 0.003 and not step.closed_loop
    assert step.replayed == Replayed("t.bin", trace.sha256, "8,16", 3, 0, 0, 2)


def test_what_was_changed_and_how_the_times_were_held_is_said() -> None:
    sent = Offered(3, 3, 0.003, 2, 0, 10_000, 20_000, 1_500_000)
    record: Any = with_step(make_record(1), offered=sent, replayed=Replayed("t.bin", "ab", "8,16", 3, 1, 0, 2))
    (sentence,) = openloops.said(record)
    assert sentence.endswith(
        "Of the 3 requests of the trace 1 folded back, as they lay beyond the device's end, 2 left out, as they "
        "move no data; they left 0.010/0.020/1.500 ms (p50/p99/most) after their instants."
    )
    said: Any = runs.as_json(record)["steps"]
    assert said[0]["replayed"]["folded"] == 1 and said[0]["behind_max_ms"] == 1.5
    assert runrecord.read(runrecord.as_json(record), "x").steps[0].replayed == record.steps[0].replayed


def test_a_trace_that_ends_in_a_burst_keeps_its_latencies() -> None:
    """50 of 250 requests left within 50 us at its end and took 10 ms: "cannot tell the latency; offer less"."""
    sent = Offered(250, 200, 0.996, 51, 0, 10_000, 20_000, 1_500_000)
    record: Any = with_step(make_record(1), offered=sent, replayed=Replayed("t.bin", "ab", "8,16", 250, 0, 0, 0))
    assert measured.latencies(record.steps[0], "read").quantile_ns(0.5) is not None
    (sentence,) = openloops.said(record)
    # What was under way at the end is said: of a path slower than the traced one it is most.
    assert "50 of 250 came back after the trace's end; latency counts from the instant" in sentence
    assert "offer less" not in sentence and "reached" not in sentence
    assert runs.as_json(record)["steps"][0]["latency"] == "from the instant"  # type: ignore[call-overload, index]
    page = openloops.section([record])
    assert page is not None and page.tables[0].rows[0][-1] == "from the instant"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--on", "/dev/null"], "measuring 'replay' needs --trace with a file that blktrace made"),
        (["--trace", "t.bin"], "measuring 'replay' needs --on with a block device"),
        (["--trace", "t.bin", "--on", "/tmp"], "--on /tmp: a directory; a trace is replayed on a block device"),
        (["--trace", "t.bin", "--on", "/tmp", "--runtime", "3s"], "--runtime cannot be given with a replay, whose"),
        (["--trace", "t.bin", "--on", "/tmp", "--capture"], "--capture cannot be given with a replay"),
    ],
)
def test_what_cannot_be_replayed_is_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "replay", *words]) == ExitCode.USAGE
    assert says in capsys.readouterr().err
