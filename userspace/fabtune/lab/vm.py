# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs one guest to its end: builds QEMU's command line, relays the job's output, brings its results back.

Two clocks.  virtual: TCG with instruction counting on one vCPU; guest time advances by executed
instructions and jumps over idle time, so the same inputs give the same bytes.
On User Mode Linux computing takes no time at all, and chance comes from the host.
real: KVM where a probe guest boots under it, else TCG, with as many vCPUs as asked for.
"""

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host.run import Process, launch, require, tail
from fabtune.lab import initramfs, left, uml
from fabtune.lab.cache import using_cache
from fabtune.lab.image import Image
from fabtune.lab.qemu_words import file_line, in_option

# One instruction is 2**SHIFT ns of guest time: a CPU of 1 GIPS.  Without recording, QEMU's main loop may look at
# the clock while the vCPU is on its way into HLT and skip the time of instructions not yet accounted; recording
# lets the two threads run in turns.  Nobody replays, so the log goes nowhere.
_ICOUNT = "shift=0,sleep=off,rr=record,rrfile=/dev/null"
# QEMU before 8.0 computes the flags of cmpxchg16b from a stale state.  Only an interrupt right behind it sees
# them: the flags it saves hold the bits of a pointer, and its iret double-faults.  Linux has another way.
_TCG_CPU = "max,-cx16"
_RTC_BASE = "2026-01-01T00:00:00"
_POLL_S = 0.05
_COMPLAINT = re.compile(r"Kernel panic|BUG: |Oops|general protection fault|sysrq: Trigger a crash")


@dataclass(frozen=True)
class Machine:
    """The guest's hardware and clock."""

    image: Image
    kernel_image: Image | None = None
    clock: str = "virtual"
    accelerator: str = "tcg"
    smp: int = 1
    memory_mib: int = 2048
    seed: int = 1
    devices: tuple[str, ...] = ()
    append: str = ""
    # The program and the root it runs in, where `accelerator` is uml.
    uml: tuple[Path, Image] | None = None
    # What its guests write is kept here from one to the next; they boot with systemd.
    state: Path | None = None

    @property
    def kernel(self) -> Image:
        """The image that the kernel and its modules come from."""
        return self.kernel_image or self.image


@dataclass(frozen=True)
class GuestOutcome:
    """What a finished guest left: the job's exit status and the directory of its results."""

    exit_status: int
    directory: Path


def qemu_command(machine: Machine, ttys: Sequence[str]) -> list[str]:
    """Return QEMU's command line; `ttys` are chardev definitions for ttyS0, ttyS1, ..."""
    images = [machine.image.squashfs] + ([machine.kernel_image.squashfs] if machine.kernel_image else [])
    append = f"console=ttyS0 panic=-1 nokaslr quiet loglevel=4 mitigations=off {machine.append}"
    if len(images) > 1:
        append += " lab.modules=pmem1"
    command = [
        require("qemu-system-x86_64", "qemu-system-x86"), "-nodefaults", "-display", "none", "-no-reboot",
        "-machine", "q35,nvdimm=on", "-m", f"{machine.memory_mib}M,slots={len(images)},maxmem=64G",
        "-smp", str(machine.smp), "-seed", str(machine.seed), "-kernel", str(machine.kernel.kernel),
        "-append", append.strip(),
    ]  # fmt: skip
    if machine.clock == "virtual":
        command += ["-accel", "tcg", "-icount", _ICOUNT, "-rtc", f"clock=vm,base={_RTC_BASE}", "-cpu", _TCG_CPU]
    elif machine.accelerator == "kvm":
        command += ["-accel", "kvm", "-cpu", "host"]
    else:
        threads = "single" if machine.accelerator == "tcg-single" else "multi"
        command += ["-accel", f"tcg,thread={threads}", "-cpu", _TCG_CPU]
    for index, path in enumerate(images):
        where = f"mem-path={in_option(path)},size={path.stat().st_size},share=on,readonly=on"
        backing = f"memory-backend-file,id=image{index},{where}"
        command += ["-object", backing, "-device", f"nvdimm,id=nvdimm{index},memdev=image{index},unarmed=on"]
    for index, tty in enumerate(ttys):
        command += ["-chardev", f"{tty},id=tty{index}", "-device", f"isa-serial,index={index},chardev=tty{index}"]
    for device in machine.devices:
        command += device.split(" ", 1)
    return command


def start(machine: Machine, job: Path, ttys: Sequence[str], log: Path) -> "Process[bytes]":
    """Start the guest with `job` and return its process (QEMU's, or the kernel itself), which dies with this one."""
    if machine.uml is not None:
        program, host = machine.uml
        return uml.start(
            program, host, machine.image,
            memory_mib=machine.memory_mib, append=machine.append, job=job, ttys=ttys, log=log,
            state=machine.state, virtual=machine.clock == "virtual",
        )  # fmt: skip
    joined = log.parent / "initramfs.cpio"
    with joined.open("wb") as whole:
        for part in (initramfs.boot_archive(machine.kernel), job):
            whole.write(part.read_bytes())
    command = qemu_command(machine, ttys) + ["-initrd", str(joined)]
    with log.open("wb") as said:
        return launch(command, log=said, on_terminal=uml.on_terminal(ttys), dies_by="KILL")


def run_guest(
    machine: Machine,
    job: Path,
    out: Path,
    *,
    timeout_s: float = 600.0,
    on_output: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> GuestOutcome:
    """Boot `machine` with the archive `job`, run it and return what it left in `out`.

    `on_output` gets the job's output line by line while it runs (default: copied to stderr).  `out` gets the
    result files, ``console.log`` (the kernel's) and ``output.log`` (the job's); what an earlier guest left there
    goes.  Raises FabtuneError, with the console's tail, when the guest dies, is not done after `timeout_s` of wall
    time, or `stop` is set.
    """
    out.mkdir(parents=True, exist_ok=True)
    console, output, results = out / "console.log", out / "output.log", out / "results.tar.gz"
    for stale in (console, output, results):
        stale.unlink(missing_ok=True)
    left.remove_left(out)
    relay = _Relay(output, on_output or _to_stderr)
    ttys = [file_line(path) for path in (console, output, results)]
    try:
        with using_cache():
            status = _to_its_end(start(machine, job, ttys, out / "qemu.log"), relay, out, timeout_s, stop)
    finally:
        for archive in ("initramfs.cpio", "uml.cpio"):
            (out / archive).unlink(missing_ok=True)
    if status != 0:
        raise FabtuneError(_story(f"the guest's process ended with exit {status}", out))
    return GuestOutcome(_unpack(results, out), out)


def _to_its_end(
    process: "Process[bytes]", relay: "_Relay", out: Path, timeout_s: float, stop: threading.Event | None
) -> int:
    """Let the guest run until it ends, and return its process's exit status; where it is not to go on, it is ended."""
    try:
        deadline = time.monotonic() + timeout_s
        while process.poll() is None:
            relay.copy()
            if stop is not None and stop.is_set():
                raise FabtuneError("the guest was stopped before its end")
            if time.monotonic() > deadline:
                raise FabtuneError(_story(f"the guest was not done after {timeout_s:g} s", out))
            time.sleep(_POLL_S)
        relay.copy(final=True)
        return process.returncode
    finally:
        process.kill()
        process.wait()


def _unpack(results: Path, out: Path) -> int:
    """Unpack the result stream and return the job's exit status."""
    try:
        left.unpack(results, out)
        status = int((out / ".exit-status").read_text())
    except (OSError, ValueError, FabtuneError):
        raise FabtuneError(_story("the guest ended without handing over its results (a crash?)", out)) from None
    (out / ".exit-status").unlink()
    results.unlink()
    return status


def _story(what: str, out: Path) -> str:
    parts = [what]
    for name, title in (
        ("qemu.log", "its process said"),
        ("output.log", "last output"),
        ("console.log", "end of the console"),
    ):
        path = out / name
        text = path.read_text(errors="replace") if path.exists() else ""
        if text.strip():
            parts.append(f"{title} ({path}):\n{_first_complaint(text)}{tail(text)}")
    return "\n".join(parts)


def _first_complaint(text: str) -> str:
    """Return what the kernel said first of a crash, whose register dump pushes it out of every tail."""
    lines = text.splitlines()
    first = next((number for number, line in enumerate(lines) if _COMPLAINT.search(line)), None)
    return "" if first is None else "".join(f"  {line}\n" for line in lines[first : first + 3]) + "  ...\n"


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class _Relay:
    """Copies a growing file's whole lines to a callback."""

    def __init__(self, path: Path, on_line: Callable[[str], None]) -> None:
        self._path, self._on_line, self._offset, self._rest = path, on_line, 0, b""

    def copy(self, *, final: bool = False) -> None:
        try:
            with self._path.open("rb") as handle:
                handle.seek(self._offset, os.SEEK_SET)
                data = handle.read()
        except FileNotFoundError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if final and self._rest:
            lines.append(self._rest)
        for line in lines:
            self._on_line(line.decode(errors="replace").rstrip("\r"))
