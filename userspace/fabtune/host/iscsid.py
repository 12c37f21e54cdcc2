# SPDX-License-Identifier: GPL-2.0-or-later
"""open-iscsi's daemon: which process it is, and starting it anew as whoever started it would.

An iscsid that starts reads the node record of each session that the kernel has and makes its connection anew under
that session: devices, mounts and requests stay (open-iscsi, usr/iscsid.c, sync_session).
"""

import re
import time
from dataclasses import dataclass
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host import tools, tree
from fabtune.host.run import launch

# include/uapi/linux/netlink.h, NETLINK_ISCSI: the kernel asks one daemon alone.
_NETLINK_ISCSI = "8"
_START_WAIT_S = 30
_CHILD_WAIT_S = 15
_LOGGER_TICKS = 20
_UNIT = re.compile(r":(?:/.*)?/([^/]+\.service)$", re.MULTILINE)
# One process, so that whatever happens to us, an iscsid that was ended is started.  A child of the old one that lives
# on has its socket, beside which no other iscsid starts.
_ANEW = """
kill "$1"
tries=0
lives() { grep -qs '^State:[[:space:]]*[^ZX]' "/proc/$1/status"; }
while lives "$1" || grep -qs '@ISCSIADM_ABSTRACT_NAMESPACE' /proc/net/unix; do
	tries=$((tries + 1))
	[ $tries -ne 100 ] || kill -9 -- "-$1"
	[ $tries -lt 1200 ] || break
	sleep 0.1
done
shift
exec "$@"
"""


@dataclass(frozen=True)
class Daemon:
    """The running iscsid; `since` is its start in clock ticks since the boot, `unit` systemd's, '' for none."""

    pid: int
    since: str
    unit: str
    words: tuple[str, ...]
    # Its process group's number: a SIGTERM that iscsid gets it sends on to all of them.
    group: int

    @property
    def directory(self) -> Path:
        """What the kernel shows of it."""
        return tree.PROC / str(self.pid)


def running() -> Daemon | None:
    """Return the iscsid that the kernel's sessions answer to, None where there is none."""
    for line in (tree.read_text(tree.PROC / "net/netlink") or "").splitlines()[1:]:
        words = line.split()
        if len(words) > 2 and words[1] == _NETLINK_ISCSI and words[2] != "0":
            found = _daemon(tree.PROC / words[2])
            if found:
                return found
    return None


def since() -> str:
    """Return when the running iscsid started, '' where none runs: another value is another iscsid."""
    found = running()
    return found.since if found else ""


def _daemon(process: Path) -> Daemon | None:
    head, _, rest = (tree.read_text(process / "stat") or "").rpartition(")")
    fields = rest.split()
    if not head.endswith("(iscsid") or len(fields) < 20:
        return None
    words = (tree.read_text(process / "cmdline") or "").split("\0")
    unit = _UNIT.search(tree.read_text(process / "cgroup") or "")
    managed = unit and (tree.ROOT / "run/systemd/system").is_dir()
    return Daemon(
        int(process.name), fields[19], unit[1] if unit and managed else "", tuple(word for word in words if word),
        int(fields[2]),
    )  # fmt: skip


def looks_at_disks(daemon: Daemon) -> bool:
    """Tell whether a child of `daemon` is looking at a session's disks, which also sets what its record says of them.

    The child that writes its log starts with it.
    """
    for process in tree.PROC.glob("[0-9]*"):
        fields = (tree.read_text(process / "stat") or "").rpartition(")")[2].split()
        if len(fields) >= 20 and fields[1] == str(daemon.pid) and int(fields[19]) > int(daemon.since) + _LOGGER_TICKS:
            return True
    return False


def waits_for_a_disk(daemon: Daemon) -> bool:
    """Tell whether a child of `daemon` waits for a disk that does not answer, so that no signal ends it."""
    for process in tree.PROC.glob("[0-9]*"):
        fields = (tree.read_text(process / "stat") or "").rpartition(")")[2].split()
        if len(fields) >= 20 and fields[:2] == ["D", str(daemon.pid)]:
            return True
    return False


def why_not_anew(daemon: Daemon) -> str:
    """Return why `daemon` cannot be started anew as it was, '' if it can."""
    for kind in ("mnt", "net", "pid"):
        if _namespace(daemon.directory, kind) != _namespace(tree.PROC / "self", kind):
            return f"iscsid (process {daemon.pid}) runs in another {kind} namespace, a container's perhaps"
    if not daemon.unit and daemon.group != daemon.pid:
        return (
            f"iscsid (process {daemon.pid}) was started by hand in the process group {daemon.group} of another "
            "program, which its end would end as well"
        )
    return ""


def _namespace(process: Path, kind: str) -> str:
    try:
        return str((process / "ns" / kind).readlink())
    except OSError:
        return ""


def start_anew(daemon: Daemon) -> None:
    """End `daemon` and start it as it was started, and wait until the new one is there.  Raises FabtuneError."""
    deadline = time.monotonic() + _CHILD_WAIT_S
    while waits_for_a_disk(daemon):
        if time.monotonic() > deadline:
            raise FabtuneError("iscsid waits for a disk that does not answer, and was left as it is")
        time.sleep(0.1)
    if daemon.unit:
        _systemctl("restart", daemon.unit)
    else:
        environment = (tree.read_text(daemon.directory / "environ") or "").split("\0")
        pairs = dict(pair.split("=", 1) for pair in environment if "=" in pair)
        launch([tools.find("sh", "dash"), "-c", _ANEW, "sh", str(daemon.pid), *daemon.words], env=pairs, cwd=Path("/"))
    deadline = time.monotonic() + _START_WAIT_S
    while since() in ("", daemon.since):
        if time.monotonic() > deadline:
            raise FabtuneError(
                f"iscsid was ended and has not come up again; start it: {daemon.unit and 'systemctl start '}"
                f"{daemon.unit or ' '.join(daemon.words)}"
            )
        time.sleep(0.05)


def _systemctl(verb: str, unit: str) -> None:
    done = tools.run_tool("systemctl", "systemd", verb, unit, timeout_s=90)
    if done.status:
        # Started too often within seconds, perhaps: without an iscsid no session is mended.
        tools.run_tool("systemctl", "systemd", "reset-failed", unit)
        done = tools.run_tool("systemctl", "systemd", "start", unit, timeout_s=90)
    if done.status:
        raise FabtuneError(f"systemctl {verb} {unit}: {tools.last_words(done)}")
