# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs fabtune's command line, and other Python programs, in forked children of a process that has imported them.

Starting Python and importing costs more than the command itself; the child is otherwise as a shell starts it:
its own descriptors 0 to 2 and nothing above, default signals, its own environment, the interpreter's usual end.
"""

import contextlib
import io
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 180.0
STDOUT, STDERR = Path("/run/harm/stdout"), Path("/run/harm/stderr")


@dataclass(frozen=True)
class Done:
    """How a command ended: its exit code (negative: the signal) and what it printed."""

    code: int
    out: str
    err: str
    seconds: float


def preload() -> None:
    """Import what the verbs import, and what else is the same for every command: code and shipped data, no state."""
    import importlib

    from fabtune import backends
    from fabtune.catalog.profile import available
    from fabtune.catalog.tunable import shipped_catalog

    for name in (
        "cli.main",
        "cli.tune",
        "cli.output",
        "tune.apply",
        "tune.persist",
        "tune.undo",
        "tune.verify",
        "tune.memory",
    ):
        importlib.import_module(f"fabtune.{name}")
    for name in backends.NAMES:
        importlib.import_module(f"fabtune.backends.{name}")
    shipped_catalog()
    available()
    for name in ("configshell_fb", "rtslib_fb", "targetcli", "readline", "fcntl", "six", "socket"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # The second is its older name.
    for name in ("configshell.log", "configshell_fb.log"):
        with contextlib.suppress(ImportError):
            # Walks the stack for a line that nobody keeps, and takes nine tenths of targetcli's time.
            importlib.import_module(name).Log.debug = lambda *_: None


def child(action: Callable[[], None], fds: tuple[int, int, int], environment: dict[str, str]) -> int:
    """Fork; in the child run `action` as a program's main with `fds` as 0, 1, 2; return the process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for target, fd in enumerate(fds):
            if fd < 0:
                os.close(target)
            else:
                os.dup2(fd, target)
        os.closerange(3, 256)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        os.environ.update(environment)
        sys.stdin, sys.stdout, sys.stderr = _stream(0, "r"), _stream(1, "w"), _stream(2, "w")  # type: ignore[assignment]
        os._exit(_as_interpreter(action))
    except BaseException as error:
        os.write(2, f"command.child: {error!r}\n".encode())
    finally:
        os._exit(99)


def _stream(fd: int, mode: str) -> "io.TextIOWrapper | None":
    """Return standard stream `fd` as the interpreter opens it when it is no terminal; None for a closed one."""
    try:
        binary = open(fd, f"{mode}b", closefd=False)  # noqa: SIM115
    except OSError:
        return None
    return io.TextIOWrapper(binary, errors="backslashreplace" if fd == 2 else "strict", line_buffering=fd == 2)


def _as_interpreter(action: Callable[[], None]) -> int:
    """Run `action` and end as Python does: SystemExit's code, a traceback with 1, 120 when stdout cannot be flushed."""
    code = 0
    try:
        action()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        with contextlib.suppress(OSError):
            traceback.print_exc()
        code = 1
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        code = 120
    return int(code)


def _fabtune(argv: Sequence[str], fault: str) -> None:
    from fabtune.tune import fault as faults

    # The module reads its environment at its import, which has been long ago.
    faults._spec, faults._count = fault, 0
    sys.argv = ["fabtune", *argv]
    runpy.run_module("fabtune", run_name="__main__", alter_sys=True)


def fabtune(argv: Sequence[str], *, fault: str = "", after_s: float | None = None, output: str = "") -> Done:
    """Run ``fabtune ARGV``; `fault` is FABTUNE_FAULT, `after_s` sends SIGKILL then, `output` breaks a stream."""
    opened: list[int] = []

    def keep(fd: int) -> int:
        opened.append(fd)
        return fd

    null = keep(os.open("/dev/null", os.O_RDONLY))
    out = keep(os.open(STDOUT, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))
    err = keep(os.open(STDERR, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))
    reader = -1
    fds = [null, out, err]
    if output in ("head", "head-err"):
        reader, fds[1 if output == "head" else 2] = os.pipe()
        keep(fds[1 if output == "head" else 2])
    elif output in ("devfull", "errfull"):
        fds[1 if output == "devfull" else 2] = keep(os.open("/dev/full", os.O_WRONLY))
    elif output == "closed":
        fds[1] = -1
    started = time.monotonic()
    pid = child(lambda: _fabtune(argv, fault), (fds[0], fds[1], fds[2]), {"FABTUNE_FAULT": fault} if fault else {})
    for fd in opened:
        os.close(fd)
    if reader >= 0:
        # As `| head -1`: read some, then go away.
        os.read(reader, 1)
        os.close(reader)
    code = _wait(pid, started, after_s)
    return Done(
        code, STDOUT.read_text(errors="replace"), STDERR.read_text(errors="replace"), time.monotonic() - started
    )


def _wait(pid: int, started: float, after_s: float | None) -> int:
    """Return the child's exit code; kill its whole group after TIMEOUT_S, itself alone after `after_s`."""
    pause = 0.002
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        passed = time.monotonic() - started
        if after_s is not None and passed > after_s:
            os.kill(pid, signal.SIGKILL)
            after_s = None
        if passed > TIMEOUT_S:
            os.killpg(pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(0.02, pause * 1.3)


def program(path: str, argv: Sequence[str], stdin: str = "", enter: Callable[[], None] | None = None) -> Done:
    """Run the Python program at `path` with `argv`; `enter` is called in the child first (to change namespaces)."""

    def action() -> None:
        if enter is not None:
            enter()
        sys.argv = [path, *argv]
        runpy.run_path(path, run_name="__main__")

    return python(action, stdin)


def python(action: Callable[[], None], stdin: str = "") -> Done:
    """Run `action` in a child with `stdin`."""
    source = os.open("/run/harm/stdin", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(source, stdin.encode())
    os.lseek(source, 0, os.SEEK_SET)
    out = os.open(STDOUT, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    err = os.open(STDERR, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    started = time.monotonic()
    pid = child(action, (source, out, err), {})
    for fd in (source, out, err):
        os.close(fd)
    code = _wait(pid, started, None)
    return Done(
        code, STDOUT.read_text(errors="replace"), STDERR.read_text(errors="replace"), time.monotonic() - started
    )
