# SPDX-License-Identifier: GPL-2.0-or-later
"""open-iscsi's daemon: which process it is, and starting it anew as whoever started it would.

An iscsid that starts reads the node record of each session that the kernel has and makes its connection anew under
that session: devices, mounts and requests stay (open-iscsi, usr/iscsid.c, sync_session).
"""

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host import systemd, tools, tree
from fabtune.host.run import launch

# include/uapi/linux/netlink.h, NETLINK_ISCSI: the kernel asks one daemon alone.
_NETLINK_ISCSI = "8"
START_WAIT_S = 30.0
_IN_UNIT = re.compile(r":(?:/.*)?/([^/]+\.service)$", re.MULTILINE)
_BLOCKED = re.compile(r"^SigBlk:\s*([0-9a-f]+)$", re.MULTILINE)
_SOCKET = re.compile(r"socket:\[(\d+)\]")
# What every distribution calls it.  In another unit somebody's iscsiadm has started it.
_UNIT = "iscsid.service"
# One process, so that whatever happens to us, an iscsid that was ended is started.  A child of the old one that lives
# on has its socket, beside which no other iscsid starts.
_ANEW = """
kill "$1"
tries=0
lives() { grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status"; }
while lives "$1" || grep -qs '@ISCSIADM_ABSTRACT_NAMESPACE' /proc/net/unix; do
	tries=$((tries + 1))
	[ $tries -ne 100 ] || kill -9 -- "-$1"
	[ $tries -lt 1200 ] || break
	sleep 0.1
done
shift
exec "$@"
"""
# No child of ours: iscsid takes one that has ended, and that nobody has waited for, for one that runs.
_APART = 'script=$1; shift; setsid "$0" -c "$script" sh "$@" &'


@dataclass(frozen=True)
class _Process:
    """What the kernel tells of a process in its stat; `since` is its start in clock ticks since the boot."""

    pid: int
    name: str
    parent: int
    group: int
    since: int


@dataclass(frozen=True)
class Daemon:
    """The running iscsid; `since` is its start in clock ticks since the boot."""

    pid: int
    since: str
    # Its process group's number: a SIGTERM that iscsid gets it sends on to all of them.
    group: int

    @property
    def directory(self) -> Path:
        """What the kernel shows of it."""
        return tree.PROC / str(self.pid)

    @property
    def unit(self) -> str:
        """systemd's unit that it belongs to, '' for none."""
        found = _IN_UNIT.search(tree.read_text(self.directory / "cgroup") or "")
        return found[1] if found and systemd.manages_host() else ""

    @property
    def words(self) -> list[str]:
        """The command that started it."""
        return [word for word in (tree.read_text(self.directory / "cmdline") or "").split("\0") if word]

    @property
    def program(self) -> str:
        """The path of its program, '' where another one or none is there now."""
        try:
            found = (self.directory / "exe").readlink()
        except OSError:
            return ""
        return str(found) if found.is_absolute() and found.exists() else ""

    def sockets(self) -> set[int]:
        """Return the inode numbers of its sockets: those of its sessions' connections are among them."""
        return _sockets(self.directory)

    def children(self) -> list[_Process]:
        """Return its children of this moment."""
        everyone = map(_process, tree.PROC.glob("[0-9]*"))
        return [one for one in everyone if one and one.parent == self.pid]


def _sockets(process: Path) -> set[int]:
    found = set()
    for link in (process / "fd").glob("*"):
        # One that is closed while we look.
        with contextlib.suppress(OSError):
            if match := _SOCKET.fullmatch(str(link.readlink())):
                found.add(int(match[1]))
    return found


def _process(directory: Path) -> _Process | None:
    """Return the process of a directory of /proc, None for one that is gone."""
    head, _, rest = (tree.read_text(directory / "stat") or "").rpartition(")")
    fields = rest.split()
    if len(fields) < 20:
        return None
    pid, _, name = head.partition(" (")
    return _Process(int(pid), name, int(fields[1]), int(fields[2]), int(fields[19]))


def running() -> Daemon | None:
    """Return the iscsid that the kernel's sessions answer to, None where there is none."""
    for line in (tree.read_text(tree.PROC / "net/netlink") or "").splitlines()[1:]:
        words = line.split()
        if len(words) > 2 and words[1] == _NETLINK_ISCSI and words[2] != "0":
            found = _process(tree.PROC / words[2])
            if found and found.name == "iscsid":
                return Daemon(int(words[2]), str(found.since), found.group)
    return None


def since() -> str:
    """Return when the running iscsid started, '' where none runs: another value is another iscsid."""
    found = running()
    return found.since if found else ""


def looks_at_disks(daemon: Daemon) -> bool:
    """Tell whether a child of `daemon` looks at a session's disks, and so sets what its record says of them."""
    return any(map(_of_the_loop, daemon.children()))


def _of_the_loop(child: _Process) -> bool:
    """Tell whether iscsid made this `child` once it served sessions: it blocks SIGALRM from then on (event_loop).

    The children that write its log and ask for a new connection of each session are made before.
    """
    found = _BLOCKED.search(tree.read_text(tree.PROC / str(child.pid) / "status") or "")
    return bool(found and int(found[1], 16) >> (signal.SIGALRM - 1) & 1)


def _asking(daemon: Daemon) -> list[int]:
    """Return the child of `daemon` that asks for each session's new connection, and waits a minute for each.

    It heeds no signal to end, and an iscsid that is to end waits for it.  It is told by its connection to iscsid.
    """
    own = daemon.sockets()
    table = tree.read_text(tree.PROC / "net/unix") or ""
    local = {int(words[6]) for words in map(str.split, table.splitlines()[1:]) if len(words) > 6}
    return [
        one.pid for one in daemon.children()
        if not _of_the_loop(one) and (_sockets(tree.PROC / str(one.pid)) - own) & local
    ]  # fmt: skip


def why_not_anew(daemon: Daemon) -> str:
    """Return why `daemon` cannot be started anew as it was, '' if it can."""
    for kind in ("mnt", "net", "pid"):
        if _namespace(daemon.directory, kind) != _namespace(tree.PROC / "self", kind):
            return f"iscsid (process {daemon.pid}) runs in another {kind} namespace, a container's perhaps"
    if daemon.unit:
        return _why_not_the_unit(daemon)
    if daemon.group != daemon.pid:
        return (
            f"iscsid (process {daemon.pid}) was started by hand in the process group {daemon.group} of another "
            "program, which its end would end as well"
        )
    if not daemon.program:
        return f"the program of iscsid (process {daemon.pid}) is no longer where it was started from"
    return ""


def _why_not_the_unit(daemon: Daemon) -> str:
    if daemon.unit != _UNIT:
        return (
            f"iscsid (process {daemon.pid}) runs in {daemon.unit}, which would be started anew with it; "
            f"end it there and start {_UNIT}"
        )
    try:
        others = systemd.depend_on(daemon.unit)
    except FabtuneError as error:
        return f"what depends on {daemon.unit} cannot be told: {error}"
    return f"{', '.join(others)} would be stopped with {daemon.unit}" if others else ""


def _namespace(process: Path, kind: str) -> str:
    try:
        return str((process / "ns" / kind).readlink())
    except OSError:
        return ""


class EndedError(FabtuneError):
    """iscsid was told to end, and no other one is there."""


def let_look(daemon: Daemon, wait_s: float, meanwhile: Callable[[], None]) -> None:
    """Wait until no child of `daemon` looks at disks, so long at most: its sessions carry on meanwhile.

    `meanwhile` is called again and again, and once they have ended.  While it waits for one no signal ends it, and no
    other iscsid starts beside it.  Raises FabtuneError where one does not end.
    """
    deadline = time.monotonic() + wait_s
    while looks_at_disks(daemon):
        if time.monotonic() > deadline:
            raise FabtuneError("iscsid looks at a disk that does not answer, and was left as it is")
        meanwhile()
        time.sleep(0.1)
    # What each sets of its disks is the last that it does.
    meanwhile()


def start_anew(daemon: Daemon) -> None:
    """End `daemon`, which looks at no disk, start it as it was started, and wait until the new one is there.

    Raises EndedError, or FabtuneError where it was left as it is.
    """
    for asking in _asking(daemon):
        # The next iscsid asks for all of them.
        with contextlib.suppress(ProcessLookupError):
            os.kill(asking, signal.SIGKILL)
    # What the kernel shows of it goes with it.
    unit, words = daemon.unit, [daemon.program, *daemon.words[1:]]
    if unit:
        _restart(unit)
    else:
        environment = (tree.read_text(daemon.directory / "environ") or "").split("\0")
        pairs = dict(pair.split("=", 1) for pair in environment if "=" in pair)
        shell = tools.find("sh", "dash")
        apart = [*_own_scope(), shell, "-c", _APART, shell, _ANEW, str(daemon.pid), *words]
        if status := launch(apart, env=pairs, cwd=Path("/")).wait():
            raise FabtuneError(f"iscsid was left as it is: what would start it anew ended with status {status}")
    deadline = time.monotonic() + START_WAIT_S
    while since() in ("", daemon.since):
        if time.monotonic() > deadline:
            start = f"systemctl start {unit}" if unit else " ".join(words)
            still = "" if unit else " (what starts it waits on for two minutes, for what the old one left behind)"
            raise EndedError(f"iscsid was ended and has not come up again{still}; start it: {start}")
        time.sleep(0.05)


def _own_scope() -> list[str]:
    """Return what puts a program into a unit of its own, '' where nothing does: the end of ours would end it."""
    if not systemd.manages_host():
        return []
    about = "--description=iscsid, started anew by fabtune"
    return [tools.find("systemd-run", "systemd"), "--scope", "--collect", "--quiet", about]


def _restart(unit: str) -> None:
    try:
        systemd.systemctl("restart", unit)
    except FabtuneError:
        # Started too often within seconds, perhaps: without an iscsid no session is mended.
        try:
            systemd.systemctl("reset-failed", unit)
            systemd.systemctl("start", unit)
        except FabtuneError as error:
            raise EndedError(f"iscsid was to be started anew: {error}; start it: systemctl start {unit}") from error
