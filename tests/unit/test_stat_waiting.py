# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests that wait in the block layer: on a host that hangs the module, loaded late, knows of none of them."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from test_stat import reading

import fabtune.cli.stat
from fabtune.cli.main import main
from fabtune.errors import ExitCode, FabtuneError
from fabtune.host import tree
from fabtune.stat import Waiting, parse, queue_lists, unsent
from fabtune.stat.stuck import StuckRequest, parse_stuck

EMPTY = "# fabstat-stuck 1\nlist time_ns=9 threshold_ns=60000000000 requests=0\n"
_HEAD = "{who} {{.op={op}, .cmd_flags=, .rq_flags={rq}, .state={state}, .tag=-1, .internal_tag=12"
_SCSI = {
    # Linux 5.10 and 6.1: also of a command that SCSI has not taken up, what an earlier one left.
    "6.1.0-56-amd64": ", .cmd={cmd}, .retries=0, .result = 0x0, .flags={flags}, .timeout=30.000, allocated {age} s ago",
    "6.12.107+deb13-amd64": ", .cmd={cmd}, .retries=0, .allowed=5, .result = 0x0, .timeout=30.000, allocated {age} s "
    "ago, .flags={flags}",
}
_READ = "Read(10) 28 00 00 00 45 18 00 00 08 00"
STAT = "100 0 8000 50 0 0 0 0 {} 9 9 0 0 0 0 0 0\n"


def line(
    who: str = "00000000aabbccdd", op: str = "READ", *, age: str = "", cmd: str = _READ, rq: str = "DONTPREP|IO_STAT",
    state: str = "idle", flags: str = "TAGGED|INITIALIZED", kernel: str = "6.1.0-56-amd64",
) -> str:  # fmt: skip
    """Return a line of a list, of a SCSI command where it has an age."""
    told = _SCSI[kernel].format(cmd=cmd, flags=flags, age=age) if age else ""
    return f"{_HEAD.format(who=who, op=op, rq=rq, state=state)}{told}}}\n"


class Host:
    """A host whose block layer shows its lists."""

    def __init__(self, root: Path) -> None:
        self.sys, self.proc = root / "sys", root / "proc"
        self.lists = self.sys / "kernel/debug/block"
        self.release("6.1.0-56-amd64")

    def release(self, said: str) -> None:
        self._put(self.proc / "sys/kernel/osrelease", said + "\n")

    def disk(self, name: str = "sda", *, scsi: bool = True, scheduler: str = "fifo_batch") -> None:
        for path in ("requeue_list", "hctx0/dispatch"):
            self._put(self.lists / name / path, "")
        self._put(self.sys / "block" / name / "stat", STAT.format(1))
        if scheduler:
            self._put(self.sys / "block" / name / "queue/iosched" / scheduler, "16\n")
        if scsi:
            (self.sys / "block" / name / "device").symlink_to("../../devices/host3/target3:0:0/3:0:0:1")
            self.state("running")

    def state(self, said: str) -> None:
        self._put(self.sys / "class/scsi_host/host3/state", said + "\n")

    def waits(self, path: str, text: str, disk: str = "sda") -> None:
        self._put(self.lists / disk / path, text)

    def _put(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Return a host that the verbs look at, whose module has an empty list."""
    found = Host(tmp_path)
    monkeypatch.setattr(tree, "SYS", found.sys)
    monkeypatch.setattr(tree, "PROC", found.proc)
    monkeypatch.setattr(fabtune.cli.stat, "stuck", lambda: parse_stuck(EMPTY))
    monkeypatch.setattr(fabtune.cli.stat, "snapshot", lambda: parse(reading([1000])))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return found


def said(capsys: pytest.CaptureFixture[str], *asked: str, code: int = ExitCode.DONE) -> str:
    assert main(["stuck", *asked]) == code
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("kernel", list(_SCSI))
def test_a_host_whose_session_is_blocked_has_requests_that_wait(
    host: Host, capsys: pytest.CaptureFixture[str], kernel: str
) -> None:
    """It was "no request is older than 60 s": they had been sent back before the module was loaded."""
    host.release(kernel)
    host.disk()
    host.waits(
        "hctx0/dispatch", line(age="125.250", kernel=kernel) + line("0000000000000001", age="59.999", kernel=kernel)
    )
    shown = said(capsys)
    assert "125.2 sda read 17688 8 dispatch" in shown and "no request" not in shown and "60.0" not in shown
    (one,) = json.loads(said(capsys, "--json"))["waiting"]
    assert one == {"disk": "sda", "op": "read", "lba": 0x4518, "blocks": 8, "age_ms": 125250.0, "place": "dispatch"}


def test_what_scsi_never_took_up_has_neither_the_age_nor_the_place_of_an_earlier_command(host: Host) -> None:
    host.disk()
    host.waits("sched/read0_fifo_list", line(age="4000.000", flags="TAGGED"))
    (one,) = unsent(sys=host.sys).requests
    assert (one.age_ns, one.lba, one.place) == (None, None, "scheduler")
    # SCSI's own commands have their age from the beginning.
    host.waits("sched/read0_fifo_list", line(op="DRV_IN", age="61.000", flags="", cmd="Inquiry 12 00 00 00 24 00"))
    (one,) = unsent(sys=host.sys).requests
    assert (one.age_ns, one.lba, one.op) == (61 * 10**9, None, "drv_in")


@pytest.mark.parametrize(
    ("command", "lba", "blocks"),
    [
        ("Write(16) 8a 00 00 00 00 01 00 00 00 00 00 00 00 10 00 00", 1 << 32, 16),
        ("opcode=0xa8 a8 00 00 00 00 09 00 00 01 00 00 00", 9, 256),
        ("Read(6) 08 01 00 00 00 00", 0x10000, 256),
        ("Synchronize Cache(10) 35 00 00 00 00 00 00 00 00 00", None, None),
        ("Read(32), sa=0x9 7f 00 00 00 00 00 00 18 00 09", None, None),
        ("(?)", None, None),
    ],
)
def test_a_command_tells_its_blocks(command: str, lba: int | None, blocks: int | None) -> None:
    one = queue_lists.request_in(line(age="1.000", cmd=command).strip(), "sda", "dispatch")
    assert one and (one.lba, one.blocks, one.age_ns) == (lba, blocks, 10**9)


def after_a_look(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: change())


def test_of_unknown_age_is_listed_what_is_there_still_while_its_disk_ended_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host.disk("nvme0n1", scsi=False, scheduler="")
    host.waits("hctx0/cpu1/default_rq_list", line("01", "WRITE") + line("02"), "nvme0n1")
    after_a_look(monkeypatch, lambda: host.waits("hctx0/cpu1/default_rq_list", line("01", "WRITE"), "nvme0n1"))
    assert "unknown nvme0n1 write - - scheduler" in said(capsys)
    # One ended: the next may have its place.
    after_a_look(
        monkeypatch, lambda: (host.sys / "block/nvme0n1/stat").write_text(STAT.replace("100", "101").format(1))
    )
    assert unsent(sys=host.sys) == Waiting()
    # Only how many are in flight and for how long has changed.
    after_a_look(
        monkeypatch, lambda: (host.sys / "block/nvme0n1/stat").write_text(STAT.replace("100", "101").format(7))
    )
    assert [one.op for one in unsent(sys=host.sys).requests] == ["write"]


def test_without_statistics_nobody_can_tell_a_request_from_the_next(host: Host) -> None:
    host.disk("nvme0n1", scsi=False, scheduler="")
    host.waits("requeue_list", line(rq="DONTPREP"), "nvme0n1")
    found = unsent(sys=host.sys)
    assert not found.requests and "no I/O statistics" in found.unseen[0] and "nvme0n1" in found.unseen[0]


def module(op: str, sector: int, size: int, state: str = "sent_back") -> StuckRequest:
    return StuckRequest(4, "sda", "8:0", op, sector, size, 61 * 10**9, state, 0, 1)


@pytest.mark.parametrize("block", [512, 4096])
def test_what_the_module_lists_is_not_told_twice(host: Host, block: int) -> None:
    host.disk()
    two = line("01", age="61.000") + line("02", age="61.000", cmd=_READ.replace("45", "46"))
    host.waits("hctx0/dispatch", two)
    sector = 0x4518 * block // 512
    (one,) = unsent(listed=[module("read", sector, 8 * block)], sys=host.sys).requests
    assert one.lba == 0x4618
    assert len(unsent(listed=[module("write", sector, 8 * block)], sys=host.sys).requests) == 2
    # Of unknown place are as many told as the module has not.
    host.waits("hctx0/dispatch", line("01") + line("02") + line("03"))
    assert len(unsent(listed=[module("read", 8, 4096), module("read", 16, 4096)], sys=host.sys).requests) == 1
    assert len(unsent(listed=[module("read", 8, 4096, "in_flight")], sys=host.sys).requests) == 3


def test_what_is_being_sent_or_ends_does_not_wait(host: Host) -> None:
    host.disk()
    host.waits("hctx0/dispatch", line(age="61.000", state="in_flight") + "no line of a list\n")
    assert unsent(sys=host.sys) == Waiting()


def test_where_the_lists_are_not_there_or_may_not_be_read_it_says_so(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "not seen" in (shown := said(capsys)) and "debugfs is not mounted" in shown and "no request is" in shown
    (host.sys / "kernel/debug/fabstat").mkdir(parents=True)
    assert "CONFIG_BLK_DEBUG_FS" in said(capsys)
    host.disk()
    assert said(capsys) == "no request is older than 60 s"

    def refused(path: object, *more: object, **others: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    really = os.open

    def list_refused(path: object, *more: object, **others: object) -> int:
        refused(path) if "debug" in str(path) else None
        return really(path, *more, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", list_refused)
    found = queue_lists.queue_lists().unseen
    assert len(found) == 2 and all(one.startswith("of sda: ") and "not permitted" in one for one in found)
    monkeypatch.setattr(os, "open", really)
    monkeypatch.setattr(os, "listdir", refused)
    assert "Operation not permitted" in json.loads(said(capsys, "--json"))["waiting_unseen"][0]


def test_files_that_vanish_are_no_word(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.disk()
    (host.lists / "sda/hctx0/dispatch").unlink()
    (host.lists / "dm-0").mkdir()
    assert queue_lists.queue_lists(host.sys) == queue_lists.QueueLists((), ())


@pytest.mark.parametrize(("release", "seen"), [("6.6.30", 0), ("6.9.1", 0), ("5.14.0-503.el9.x86_64", 0), ("6.5.0", 2)])
def test_no_list_is_read_whose_reading_may_end_the_host(host: Host, release: str, seen: int) -> None:
    """SCSI looks up a device that a command which it never took up has not."""
    host.release(release)
    host.disk()
    host.disk("nvme0n1", scsi=False)
    host.waits("hctx0/dispatch", line(age="61.000"))
    host.waits("requeue_list", line("02", age="61.000"))
    host.waits("requeue_list", line("03"), "nvme0n1")
    found = queue_lists.queue_lists(host.sys)
    assert [one.disk for one in found.requests] == ["nvme0n1"] + ["sda"] * seen
    assert any("may crash" in why and "sda" in why for why in found.unseen) == (not seen)


@pytest.mark.parametrize("state", ["running", "recovery"])
def test_scsi_s_requeue_list_is_not_read_where_that_lets_interrupts_in_under_its_lock(host: Host, state: str) -> None:
    host.release("6.12.107+deb13-amd64")
    host.disk()
    host.state(state)
    host.waits("requeue_list", line(age="61.000"))
    found = queue_lists.queue_lists(host.sys)
    assert not found.requests
    # Without a recovery nothing stays there.
    assert [why.split(":")[0] for why in found.unseen] == ([] if state == "running" else ["of sda"])


def test_nothing_that_takes_the_queue_s_lock_is_read(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sets nr_requests on a host that hangs holds it, and so would every reader of queue/ hang."""
    opened: list[str] = []
    really = os.open

    def noted(path: object, *more: object, **others: object) -> int:
        opened.append(str(path))
        return really(path, *more, **others)  # type: ignore[arg-type]

    host.disk()
    host.waits("sched/read0_fifo_list", line())
    monkeypatch.setattr(os, "open", noted)
    assert unsent(sys=host.sys).requests
    assert opened and not [path for path in opened if "/queue/" in path or path.endswith(("tags", "tags_bitmap"))]


@pytest.mark.parametrize("scheduler", ["slice_idle", "read_lat_nsec"])
def test_a_scheduler_that_does_not_tell_what_it_holds_is_named(host: Host, scheduler: str) -> None:
    host.disk(scheduler=scheduler)
    assert queue_lists.queue_lists(host.sys).unseen == ("of sda: the I/O scheduler does not tell what it holds",)


def test_reading_ends_in_time_and_in_size(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.disk()
    host.waits("hctx0/dispatch", "".join(line(f"{number:016x}", age="61.000") for number in range(9000)))
    found = queue_lists.queue_lists(host.sys)
    assert 3000 < len(found.requests) < 9000 and "of sda: more wait than were read" in found.unseen
    monkeypatch.setattr(queue_lists, "_MOST_S", -1.0)
    found = queue_lists.queue_lists(host.sys)
    assert not found.requests and found.unseen == ("of sda: reading took longer than -1 s",)
    assert queue_lists.by_reason({"why": ["a", "b", "c", "d", "e", "f"]}) == ["of a, b, c, d and 2 more: why"]


def test_without_the_module_what_waits_is_shown_beside_the_error(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> None:
        raise FabtuneError("fabstat is not loaded")

    monkeypatch.setattr(fabtune.cli.stat, "stuck", none)
    host.disk()
    assert said(capsys, code=ExitCode.FAILED) == ""
    host.waits("hctx0/dispatch", line(age="61.000"))
    assert "61.0 sda read" in said(capsys, code=ExitCode.FAILED)
    told = json.loads(said(capsys, "--json", code=ExitCode.FAILED))
    assert told["requests"] is None and len(told["waiting"]) == 1 and told["threshold_ms"] == 60_000
