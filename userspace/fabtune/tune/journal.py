# SPDX-License-Identifier: GPL-2.0-or-later
"""The write-ahead journal: one text file a transaction, one JSON line a step, fsynced before each write.

    {"kind": "begin", "transaction": ..., "boot_id": ..., "profile": "wan", ...}
    {"kind": "write", "step": 1, "tunable": ..., "device": {...}, "old": "0", "wrote": "1", ...}
    {"kind": "holds", "step": 1, "value": "1"}          what the kernel made of it, if it differs
    {"kind": "write", "step": 2, ..., "disturbed": true}  not written itself; the next step's write may move it
    {"kind": "applied"}
    {"kind": "restored", "step": 1}
    {"kind": "closed"}                                  nothing of it is left to take back
    {"kind": "due", "action": "relogin", "sid": ...}    what must happen before the old values are felt
    {"kind": "logout", "sid": ..., "identity": ..., "target": ..., "portal": ..., "interface": ..., "boot_id": ...}
    {"kind": "login", "sid": ..., "identity": ...}      the session of the `logout` line with this sid is back


A `write` line stands on disk before the value changes; a line without its newline never
preceded a change and is dropped.  Each line carries all that revert needs (backend, key, device
identity), so a journal outlives renamed tunables and package upgrades.
"""

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fabtune import __version__, backends
from fabtune.backends import files, tree
from fabtune.errors import FabtuneError, InputError
from fabtune.facts.collect import Host
from fabtune.model.device import SCOPES, Device
from fabtune.tune import fault
from fabtune.tune.plan import Plan

VERSION = 1
# Where the file backends write, below /etc.
_WRITTEN_DIRECTORIES = (
    "", "iscsi", "target", "rtslib-fb-target", "sysctl.d", "modprobe.d", "udev/rules.d", "systemd/network",
)  # fmt: skip
# A tool that outlives a killed fabtune ends within this time.
_LOCK_WAIT_S = 3.0


def state_dir() -> Path:
    """Return where journal and lock are kept."""
    return Path(os.environ.get("FABTUNE_STATE_DIR", "/var/lib/fabtune"))


@dataclass(frozen=True)
class Logout:
    """A session about to be logged out; without its `login` line it may have stayed away.

    `sid` is the session that ends, and `identity` its name in facts.sessions; target, portal and
    interface are what iscsiadm needs to log it in again.
    """

    sid: str
    identity: str
    target: str
    portal: str
    interface: str
    boot_id: str

    def as_json(self) -> dict[str, str]:
        """Return the fields of the journal's `logout` line."""
        return asdict(self)


@dataclass(frozen=True)
class Step:
    """One journalled write and what became of it."""

    number: int
    boot_id: str
    tunable: str
    backend: str
    key: str
    device: Device
    old: str
    wrote: str
    effect: str
    rounds: bool
    disturbed: bool = False
    holds: str | None = None
    restored: bool = False


@dataclass
class Transaction:
    """One `apply`: its header and its steps in the order they were written."""

    path: Path
    header: dict[str, Any]
    steps: list[Step] = field(default_factory=list)
    applied: bool = False
    closed: bool = False
    pending: list[dict[str, str]] = field(default_factory=list)
    due: list[dict[str, str]] = field(default_factory=list)
    # Logged out and not known to be back.
    away: list[Logout] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The transaction's id, which is also its file's name."""
        return self.path.stem

    @property
    def open_steps(self) -> list[Step]:
        """The steps not yet taken back."""
        return [] if self.closed else [step for step in self.steps if not step.restored]


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Hold the state directory for this process alone.  Raises FabtuneError if another one has it."""
    directory = state_dir()
    try:
        (directory / "journal").mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FabtuneError(
            f"state directory {directory}: {error.strerror}; run as root or set FABTUNE_STATE_DIR"
        ) from error
    try:
        _take_lock(fd)
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        tree.held.append(fd)
        # A killed writer's draft of iscsid.conf holds CHAP secrets too: it must not lie about.
        with contextlib.suppress(OSError):
            files.sweep(tree.ETC / name for name in _WRITTEN_DIRECTORIES)
        yield
    finally:
        tree.held.clear()
        os.close(fd)


def _take_lock(fd: int) -> None:
    """Lock `fd`, waiting for a tool that a killed fabtune left behind.  Raises FabtuneError."""
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
                raise FabtuneError(f"another fabtune (process {holder}) is changing this host; wait for it") from None
            time.sleep(0.02)


class Writer:
    """Appends lines to one transaction's file; each is on disk when its call returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._drop_torn_line()

    def _drop_torn_line(self) -> None:
        data = self.path.read_bytes()
        if data and not data.endswith(b"\n"):
            os.ftruncate(self._fd, data.rfind(b"\n") + 1)

    def append(self, kind: str, **values: object) -> None:
        """Write one line and wait until the disk has it.  Raises OSError."""
        line = (json.dumps({"kind": kind, **values}) + "\n").encode()
        if fault.checkpoint() == "torn":
            os.write(self._fd, line[: len(line) // 2])
            os.fsync(self._fd)
            os.kill(os.getpid(), signal.SIGKILL)
        start = os.fstat(self._fd).st_size
        try:
            if os.write(self._fd, line) != len(line):
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


def begin(plan: Plan, host: Host) -> tuple[Writer, Transaction]:
    """Start a transaction for `plan` and return its writer.  Raises FabtuneError when the disk refuses."""
    directory = state_dir() / "journal"
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    taken = {path.stem for path in directory.glob("*.jsonl")}
    name = next(f"{stamp}-{serial:03}" for serial in range(len(taken) + 1) if f"{stamp}-{serial:03}" not in taken)
    header: dict[str, Any] = {
        "version": VERSION,
        "transaction": name,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "boot_id": host.boot_id,
        "kernel": host.kernel,
        "fabtune": __version__,
        "profile": plan.profile,
        "roles": list(plan.roles),
        "netns": plan.netns,
        "rtt_ms": plan.path.rtt_s * 1e3 if plan.path else None,
        "rate_bit_per_s": plan.path.rate_bytes_per_s * 8 if plan.path else None,
    }
    try:
        writer = Writer(directory / f"{name}.jsonl")
        writer.append("begin", **header)
        # The new name itself must survive a crash, not only the bytes.
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.fsync(fd)
        os.close(fd)
    except OSError as error:
        raise FabtuneError(f"journal in {directory}: {error.strerror}; nothing was changed") from error
    return writer, Transaction(writer.path, header)


def transactions() -> list[Transaction]:
    """Return every transaction, oldest first.  Raises InputError for a damaged file."""
    try:
        # A glob would find nothing in a directory that may not be read, and say so to nobody.
        files = sorted(path for path in (state_dir() / "journal").iterdir() if path.suffix == ".jsonl")
        found = [parse(path) for path in files]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FabtuneError(f"journal {error.filename}: {error.strerror}; run as root") from error
    # A crash during the very first line leaves a file without one, and nothing was written then.
    return [transaction for transaction in found if transaction.header]


def owed_logins(found: Iterable[Transaction], boot_id: str) -> list[Logout]:
    """Return the sessions that fabtune logged out in this boot and never saw back, oldest first.

    Closed transactions count too.  Whether a session has come back by itself since is for the caller to look.
    """
    return [one for transaction in found for one in transaction.away if one.boot_id == boot_id]


def parse(path: Path) -> Transaction:
    """Return the transaction in `path`.  Raises InputError naming the line that is damaged."""
    transaction = Transaction(path, {})
    data = path.read_bytes()
    complete = data[: data.rfind(b"\n") + 1]
    for number, raw in enumerate(complete.splitlines(), 1):
        try:
            line = json.loads(raw)
            if not isinstance(line, dict) or (number == 1) != (line.get("kind") == "begin"):
                raise ValueError("the first line, and only it, must be 'begin'")
            take(transaction, line)
        except (ValueError, KeyError, TypeError, RecursionError, IndexError) as error:
            what = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
            raise InputError(
                f"journal {path}: line {number} is damaged: {what}; compare the values by hand, "
                "then move the file out of the journal directory"
            ) from None
    return transaction


def take(transaction: Transaction, line: dict[str, Any]) -> None:
    """Add one parsed line to `transaction`.  Raises ValueError, KeyError or TypeError for what does not fit."""
    kind = line["kind"]
    if kind == "begin":
        if line["version"] != VERSION:
            raise ValueError(f"version {line['version']!r}, this fabtune reads {VERSION}")
        if not isinstance(line["roles"], list) or not isinstance(line["netns"], str):
            raise ValueError("roles must be an array and netns a text")
        transaction.header = line
    elif kind == "write":
        transaction.steps.append(_step(line, len(transaction.steps) + 1))
    elif kind in ("holds", "restored"):
        index = _integer(line, "step") - 1
        if not 0 <= index < len(transaction.steps):
            raise ValueError(f"step {line['step']} was never written")
        step = transaction.steps[index]
        transaction.steps[index] = (
            replace(step, holds=_text(line, "value")) if kind == "holds" else replace(step, restored=True)
        )
    elif kind in ("pending", "due"):
        left = transaction.pending if kind == "pending" else transaction.due
        left.append({key: _text(line, key) for key in ("action", "identity", "label", "sid", "boot_id")})
    elif kind == "logout":
        transaction.away.append(Logout(**{one.name: _text(line, one.name) for one in fields(Logout)}))
    elif kind == "login":
        back = _text(line, "sid"), _text(line, "identity")
        transaction.away = [one for one in transaction.away if (one.sid, one.identity) != back]
    elif kind == "applied":
        transaction.applied = True
    elif kind == "closed":
        transaction.closed = True
    else:
        raise ValueError(f"unknown kind {kind!r}")


def _step(line: dict[str, Any], expected: int) -> Step:
    if _integer(line, "step") != expected:
        raise ValueError(f"step {line['step']}, expected {expected}")
    device = line["device"]
    if not isinstance(device, dict) or device.get("scope") not in SCOPES:
        raise ValueError("device needs a known scope")
    if line["backend"] not in backends.NAMES:
        raise ValueError(f"unknown backend {line['backend']!r}")
    return Step(
        number=expected,
        boot_id=_text(line, "boot_id"),
        tunable=_text(line, "tunable"),
        backend=_text(line, "backend"),
        key=_text(line, "key"),
        device=Device(device["scope"], _text(device, "identity"), _text(device, "label")),
        old=_text(line, "old"),
        wrote=_text(line, "wrote"),
        effect=_text(line, "effect"),
        rounds=line["rounds"] is True,
        disturbed=line.get("disturbed") is True,
    )


def _text(line: dict[str, Any], key: str) -> str:
    if not isinstance(line[key], str):
        raise ValueError(f"key '{key}': found {line[key]!r:.60}, expected text")
    return str(line[key])


def _integer(line: dict[str, Any], key: str) -> int:
    if type(line[key]) is not int:
        raise ValueError(f"key '{key}': found {line[key]!r:.60}, expected an integer")
    return int(line[key])
