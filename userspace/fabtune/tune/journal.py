# SPDX-License-Identifier: GPL-2.0-or-later
"""The write-ahead journal: one text file a transaction, one JSON line a step, fsynced before each write.

What the lines say stands in fabtune.tune.lines; here are the files, and the lock that keeps two
processes from changing one host.  They tell root what to write, so nobody else may be able to change them.
"""

import contextlib
import errno
import fcntl
import os
import re
import signal
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabtune import __version__
from fabtune.backends import record
from fabtune.errors import FabtuneError
from fabtune.facts.collect import Host
from fabtune.host import files, locks, tools, tree
from fabtune.tune import fault, lines
from fabtune.tune.lines import VERSION, BeginLine, Line, Logout
from fabtune.tune.transaction import Step, Transaction, parse, take, without_held

if TYPE_CHECKING:
    from fabtune.tune.plan import Plan

__all__ = [
    "Logout", "Step", "Transaction", "Writer", "begin", "locked", "owed_logins", "owed_values", "state_dir",
    "take", "transactions",
]  # fmt: skip

# Where files are written, below /etc.
_WRITTEN_DIRECTORIES = (
    "", "iscsi", "target", "rtslib-fb-target", "sysctl.d", "modprobe.d", "udev/rules.d", "systemd/network",
    "systemd/system",
)  # fmt: skip
# A tool that outlives a killed fabtune ends within this time.
_LOCK_WAIT_S = 3.0
# A file system that takes no writes.
_NO_WRITES = (errno.EROFS, errno.ENOSPC, errno.EDQUOT)
_NAME = re.compile(r"(?P<stamp>\d{8}T\d{6}Z)-(?P<serial>\d{3,})")
# What each file said, with what tells whether it still is that one and says the same: one command asks a dozen times,
# and parsing takes a hundred times as long as looking.
_parsed: dict[Path, tuple[tuple[int, ...], Transaction]] = {}


def state_dir() -> Path:
    """Return where journal and lock are kept."""
    return Path(os.environ.get("FABTUNE_STATE_DIR", tree.ROOT / "var/lib/fabtune")).absolute()


def _checked(fd: int, path: Path, is_kind: Any) -> int:
    """Return `fd` if it is of the right kind and nobody but root or ourselves could write it.  Raises FabtuneError."""
    found = os.fstat(fd)
    problem = ""
    if not is_kind(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink > 1):
        problem = "is not what fabtune made there"
    elif found.st_uid not in (0, os.geteuid()):
        problem = f"belongs to user {found.st_uid}"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = f"may be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
    if problem:
        os.close(fd)
        raise FabtuneError(
            f"state directory: {path} {problem}; its content tells root what to write, "
            "so nobody else may write there: make root its owner and remove write permission for others"
        )
    return fd


def _directory(path: Path) -> int:
    """Open a directory of ours.  Raises OSError, FabtuneError."""
    return _checked(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path, stat.S_ISDIR)


def _open(path: Path, flags: int) -> int:
    """Open a file in a directory of ours, never through a link.  Raises OSError, FabtuneError."""
    os.close(_directory(path.parent))
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FabtuneError(f"state directory: {path} is a link, which fabtune never makes; remove it") from error
        raise
    return _checked(fd, path, stat.S_ISREG)


def _unusable(what: str, error: OSError) -> FabtuneError:
    """Return `error` in words; being root helps only who lacks a right."""
    root = "run as root or " if error.errno in (errno.EACCES, errno.EPERM) else ""
    return FabtuneError(f"{what}: {error.strerror}; {root}set FABTUNE_STATE_DIR")


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Hold the state directory for this process alone.  Raises FabtuneError if another one has it."""
    directory = state_dir()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(_directory(directory))
        (directory / "journal").mkdir(mode=0o700, exist_ok=True)
        os.close(_directory(directory / "journal"))
        fd = _open_lock(directory)
    except OSError as error:
        raise _unusable(f"state directory {directory}", error) from error
    try:
        _take_lock(fd)
        with contextlib.suppress(OSError):
            # Who holds it is told to those who wait; a full or read-only disk does not matter.
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
        tools.held.append(fd)
        record.BACKEND.forget()  # Whoever waited, for the lock or for an answer, knows old ones.
        # A killed writer's draft of iscsid.conf holds CHAP secrets too: it must not lie about.
        with contextlib.suppress(OSError):
            files.sweep(tree.ETC / name for name in _WRITTEN_DIRECTORIES)
        yield
    finally:
        tools.held.clear()
        os.close(fd)


def _open_lock(directory: Path) -> int:
    """Open the lock; on a disk that takes no new file the directory serves as the lock, since values must go back."""
    path = directory / "lock"
    try:
        return _open(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        if error.errno not in _NO_WRITES:
            raise
    try:
        return _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return _directory(directory)


def _take_lock(fd: int) -> None:
    """Lock `fd`, waiting for a tool that a killed fabtune left behind.  Raises FabtuneError."""
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise FabtuneError(_told_of_holder(fd)) from None
            time.sleep(0.02)


def _told_of_holder(fd: int) -> str:
    """Return which process holds the lock `fd`, and what to do about it: a stopped one waits for its shell."""
    holder = "unknown"
    with contextlib.suppress(OSError):
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or holder
    whose = f"another fabtune (process {holder}) is changing this host"
    if holder.isdecimal() and _state(holder) in ("T", "t"):
        return f"{whose} and is stopped; `fg` in its shell or `kill -CONT {holder}` lets it go on"
    return f"{whose}; wait for it"


def lock_keepers() -> tuple[list[int], list[int]]:
    """Return which processes hold the lock: those that were stopped, as by Ctrl-Z, and tools of a fabtune that is gone.

    A tool that writes keeps it until it has ended, even if who started it was killed.  One that runs and answers for
    itself is in neither list.
    """
    try:
        found = locks.lock_holders(state_dir() / "lock")
        said = (state_dir() / "lock").read_text(errors="replace").strip()
    except OSError:
        return [], []
    stopped = [pid for pid in found if _state(pid) == "T"]
    # A fabtune of another pid namespace calls itself by another number.
    tools_alone = not any(said == str(pid) or "fabtune" in _words(pid) for pid in found)
    return stopped, [pid for pid in found if pid not in stopped] if tools_alone else []


def _state(pid: int | str) -> str:
    """Return a process's state as /proc has it, '' for one that is gone."""
    # Not below FABTUNE_ROOT: it runs here.
    return (tree.read_text(Path(f"/proc/{pid}/stat")) or "").rpartition(")")[2].strip()[:1]


def _words(pid: int) -> str:
    return (tree.read_text(Path(f"/proc/{pid}/cmdline")) or "").replace("\0", " ")


def at_work() -> str:
    """Return which other fabtune holds the lock, and what to do about it; '' where none does or nobody can tell."""
    try:
        fd = _open(state_dir() / "lock", os.O_RDONLY)
    except (OSError, FabtuneError):
        return ""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _told_of_holder(fd)
    finally:
        os.close(fd)
    return ""


class Writer:
    """Appends lines to one transaction's file; each is on disk when its call returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = _open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            self._drop_torn_line()
        except OSError:
            os.close(self._fd)
            raise

    def _drop_torn_line(self) -> None:
        data = self.path.read_bytes()
        if data and not data.endswith(b"\n"):
            os.ftruncate(self._fd, data.rfind(b"\n") + 1)

    def append(self, line: Line) -> None:
        """Write one line and wait until the disk has it.  Raises OSError."""
        data = f"{lines.text(line)}\n".encode()
        if fault.checkpoint() == "torn":
            os.write(self._fd, data[: len(data) // 2])
            os.fsync(self._fd)
            os.kill(os.getpid(), signal.SIGKILL)
        start = os.fstat(self._fd).st_size
        try:
            if os.write(self._fd, data) != len(data):
                raise OSError(28, "No space left on device", str(self.path))
            os.fsync(self._fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, start)
            raise
        fault.checkpoint()

    def close(self) -> None:
        """Close the file; the journal stays."""
        os.close(self._fd)


def _new_name(taken: Iterable[str]) -> str:
    """Return a name that sorts after all of `taken`: their order is that of what was written, whatever the clock."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    last = max((match for match in map(_NAME.fullmatch, taken) if match), key=lambda match: match[0], default=None)
    if last is None or last["stamp"] < stamp:
        return f"{stamp}-000"
    serial = last["serial"]
    # Names are sorted as text: after 999 comes 999000, not 1000.
    following = f"{serial}000" if serial == "9" * len(serial) else f"{int(serial) + 1:0{len(serial)}}"
    return f"{last['stamp']}-{following}"


def begin(plan: "Plan", host: Host) -> tuple[Writer, Transaction]:
    """Start a transaction for `plan` and return its writer.  Raises FabtuneError when the disk refuses."""
    directory = state_dir() / "journal"
    try:
        name = _new_name(path.stem for path in directory.glob("*.jsonl"))
        rate_bit_per_s = plan.path.rate_bytes_per_s * 8 if plan.path else None
        estimated = plan.path is not None and plan.path.estimated
        header = BeginLine(
            version=VERSION,
            transaction=name,
            time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            boot_id=host.boot_id,
            kernel=host.kernel,
            fabtune=__version__,
            profile=plan.profile,
            roles=plan.roles,
            netns=plan.netns,
            rtt_ms=plan.path.rtt_s * 1e3 if plan.path else None,
            # Whoever reads it takes it for the line's: an estimate is none.
            rate_bit_per_s=None if estimated else rate_bit_per_s,
            note=plan.note,
            whole=plan.whole,
            estimated_bit_per_s=rate_bit_per_s if estimated else None,
            on_trial=plan.on_trial,
            written_for=plan.written_for,
            rate_by_nic=plan.path is not None and plan.path.by_nic,
            overrides=plan.overrides,
            io_bytes=plan.io_bytes,
            ends=plan.ends,
        )
        writer = Writer(directory / f"{name}.jsonl")
        writer.append(header)
        # The new name itself must survive a crash, not only the bytes.
        files.sync_directory(directory)
    except OSError as error:
        raise FabtuneError(f"journal in {directory}: {error.strerror}; nothing was changed") from error
    return writer, Transaction(writer.path, header)


def refuse_others() -> None:
    """Raise FabtuneError where somebody else could write the state directory, as far as it is there."""
    with contextlib.suppress(FileNotFoundError):
        for ours in (state_dir(), state_dir() / "journal"):
            os.close(_directory(ours))


def files_as_they_are() -> frozenset[tuple[str, int, int]]:
    """Return each file of the journal with when it was written last (ns) and its size: what is the same says the same.

    Nothing of it is read: the guard asks each second.  Raises FabtuneError.
    """
    try:
        with os.scandir(state_dir() / "journal") as entries:
            seen = ((one.name, one.stat(follow_symlinks=False)) for one in entries if one.name.endswith(".jsonl"))
            return frozenset((name, there.st_mtime_ns, there.st_size) for name, there in seen)
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise _unusable(f"journal {error.filename}", error) from error


def transactions() -> list[Transaction]:
    """Return every transaction, oldest first; a damaged one as far as it can be read, with its damage.

    Raises FabtuneError where the journal cannot be read, or somebody else could have written it.
    """
    directory = state_dir() / "journal"
    try:
        # A glob would find nothing in a directory that may not be read, and say so to nobody.
        paths = sorted(path for path in directory.iterdir() if path.suffix == ".jsonl")
        if paths:
            refuse_others()
        for gone in _parsed.keys() - paths:
            del _parsed[gone]
        found = [_read(path) for path in paths]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unusable(f"journal {error.filename}", error) from error
    # A crash during the very first line leaves a file without one, and nothing was written then.
    return [transaction for transaction in found if transaction.begun]


def _read(path: Path) -> Transaction:
    try:
        fd = _open(path, os.O_RDONLY)
    except FabtuneError as error:
        # One file that is not ours says nothing about the others.
        return parse(path, b"", str(error))
    with os.fdopen(fd, "rb") as stream:
        there = os.fstat(fd)
        found = there.st_dev, there.st_ino, there.st_mtime_ns, there.st_ctime_ns, there.st_size
        if (known := _parsed.get(path)) and known[0] == found:
            return known[1].copied()
        data = stream.read()
    transaction = parse(path, data)
    _parsed.pop(path, None)
    # Half a line makes room for another one, which might be as long.
    if data.endswith(b"\n") and len(data) == there.st_size:
        _parsed[path] = found, transaction.copied()
    return transaction


def owed_logins(found: Iterable[Transaction], boot_id: str) -> list[Logout]:
    """Return the sessions that fabtune logged out in this boot and never saw back, oldest first.

    Closed transactions count too.  Whether a session has come back by itself since is for the caller to look.
    """
    owed: list[Logout] = []
    for transaction in found:
        # A login may stand in a later file than its logout; ids of sessions begin anew with each boot.
        owed = [one for one in owed if one.session not in transaction.back] + transaction.away
    return [one for one in owed if one.boot_id == boot_id]


def owed_values(found: Iterable[Transaction], boot_id: str) -> list[tuple[Logout, str]]:
    """Return the logouts of this boot whose session is back without what they kept, each with its successor's id."""
    away: list[Logout] = []
    owed: list[tuple[Logout, str]] = []
    for transaction in found:
        back = transaction.back
        owed += [(one, back[one.session]) for one in away if one.kept and back.get(one.session)]
        owed = [
            (one, successor)
            for one, successor in without_held(owed, transaction.let_go)
            if one.session not in transaction.given
        ] + transaction.unkept
        away = [one for one in away if one.session not in back] + transaction.away
    return [(one, successor) for one, successor in owed if one.boot_id == boot_id]
