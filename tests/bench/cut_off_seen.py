# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: an administrator far away, whom a host serves or not, and all that an apply may change of that host."""

import contextlib
import hashlib
import json
import os
import secrets
import socket
import socketserver
import stat
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from guest_words import fabtune, output_of

from fabtune.host import namespaces
from fabtune.lab import topology
from fabtune.tune import journal
from fabtune.tune.transaction import Transaction

NIC = "i0"
_PORT = 2222
# What a shell's words and a screenful are: more than one packet of 1,500 bytes back, and one that is not small out.
_TOKEN, _ASKED_BYTES, _ANSWERED_BYTES, _TURNS = 8, 1000, 4000, 5
# Far beyond what five turns take over a round trip of 2 ms on a busy machine.
_PATIENCE_S = 2.5
_KEPT_IN = (
    "/etc/sysctl.d", "/etc/systemd", "/etc/udev/rules.d", "/etc/modprobe.d", "/etc/modules-load.d", "/etc/iscsi",
)  # fmt: skip
_STATE_DIR = Path("/var/lib/fabtune")
_JOURNAL = _STATE_DIR / "journal"
# Drawn by the kernel or moved by traffic: nobody's setting.
_MOVES_BY_ITSELF = ("tcp_fastopen_key", "flow_limit_cpu_bitmap")


class _Answer(socketserver.BaseRequestHandler):
    """The host's end of an administrator's session: to each request a longer answer, which ends with its token."""

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                asked = bytearray()
                while len(asked) < _ASKED_BYTES:
                    more = self.request.recv(_ASKED_BYTES - len(asked))
                    if not more:
                        return
                    asked += more
                self.request.sendall(bytes(_ANSWERED_BYTES - _TOKEN) + asked[:_TOKEN])


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def serve() -> None:
    """Answer whoever connects, in a thread, for as long as this program runs."""
    server = _Server((topology.INITIATOR_ADDRESS, _PORT), _Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()


class Session:
    """A connection of the administrator's, from the far end of the path.  Raises OSError."""

    def __init__(self) -> None:
        with namespaces.inside(topology.TARGET):
            self._socket = socket.socket()
        self._socket.settimeout(_PATIENCE_S)
        self._socket.connect((topology.INITIATOR_ADDRESS, _PORT))

    def answers(self) -> bool:
        """Tell whether some requests are answered in time; what is late of earlier ones is let pass."""
        deadline = time.monotonic() + _PATIENCE_S
        try:
            for _ in range(_TURNS):
                token = secrets.token_bytes(_TOKEN)
                self._socket.sendall(token + bytes(_ASKED_BYTES - _TOKEN))
                if not self._gets(token, deadline):
                    return False
        except OSError:
            return False
        return True

    def _gets(self, token: bytes, deadline: float) -> bool:
        end = b""
        while end[-_TOKEN:] != token:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            self._socket.settimeout(left_s)
            more = self._socket.recv(65536)
            if not more:
                return False
            end = (end + more)[-_TOKEN:]
        return True

    def close(self) -> None:
        """End it."""
        self._socket.close()


def is_served() -> bool:
    """Tell whether an administrator who comes now is served."""
    with contextlib.suppress(OSError), contextlib.closing(Session()) as session:
        return session.answers()
    return False


def _said(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def _sysctls() -> dict[str, str]:
    found = {}
    for pattern in ("ipv4/tcp_*", "core/*"):
        for path in Path("/proc/sys/net").glob(pattern):
            if path.is_file() and path.name not in _MOVES_BY_ITSELF:
                with contextlib.suppress(OSError):
                    found[str(path)] = " ".join(path.read_text().split())
    return found


def _files() -> dict[str, str]:
    found = {}
    for top in _KEPT_IN:
        for path in Path(top).rglob("*"):
            if path.is_symlink():
                found[str(path)] = f"-> {path.readlink()}"
            elif path.is_file():
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
            elif stat.S_ISDIR(path.stat().st_mode):
                found[str(path)] = "directory"
    for top in ("/etc", str(_STATE_DIR)):
        found |= {str(path): "draft" for path in Path(top).rglob(".*.fabtune-draft")}
    return found


def _nic() -> dict[str, str]:
    (link,) = json.loads(output_of("ip", "-json", "-details", "link", "show", "dev", NIC))
    found = {f"{NIC} {key}": str(link.get(key)) for key in ("mtu", "txqlen", "flags", "qdisc", "operstate")}
    for number, one in enumerate(json.loads(output_of("tc", "-json", "qdisc", "show", "dev", NIC))):
        # A handle is numbered anew each time.
        found[f"{NIC} qdisc {number}"] = json.dumps({key: one[key] for key in one if key != "handle"}, sort_keys=True)
    found[f"{NIC} features"] = output_of("ethtool", "--show-features", NIC)
    found["routes"] = output_of("ip", "-details", "route", "show")
    (addresses,) = json.loads(output_of("ip", "-json", "address", "show", "dev", NIC))
    # One of the link is made of a hardware address that is new with each boot.
    found[f"{NIC} addresses"] = ", ".join(
        sorted(one["local"] for one in addresses["addr_info"] if one["scope"] != "link")
    )
    return found


def in_force(before: dict[str, str]) -> list[str]:
    """Return which values that take no program to read are not as before."""
    places = [f"/proc/sys/net/{name}" for name in ("ipv4/tcp_slow_start_after_idle", "core/netdev_max_backlog")]
    found = [place for place in places if Path(place).read_text().strip() != before[place]]
    mtu = Path(f"/sys/class/net/{NIC}/mtu").read_text().strip()
    return found + ([f"{NIC} mtu"] if mtu != before[f"{NIC} mtu"] else [])


def watchers() -> list[int]:
    """Return the processes that wait to take something back."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            if b"revert" in words and b"--unconfirmed" in words:
                found.append(int(entry.parent.name))
    return found


def _units() -> str:
    return _said("systemctl", "list-units", "--all", "--full", "--plain", "--no-legend", "fabtune*").strip()


def state() -> dict[str, str]:
    """Return all that an apply may change of this host, and what watches it."""
    sessions = _said("iscsiadm", "-m", "session", "-P", "1")
    states = [line.strip() for line in sessions.splitlines() if "State" in line]
    found = {"units": _units(), "watchers": str(len(watchers())), "sessions": "; ".join(states)}
    return _sysctls() | _files() | _nic() | found


def differences(before: dict[str, str], after: dict[str, str]) -> dict[str, list[str]]:
    """Return what is not as before: its name, what it was and what it is."""
    names = sorted(before.keys() | after.keys())
    return {
        name: [before.get(name, "(none)"), after.get(name, "(none)")]
        for name in names
        if before.get(name) != after.get(name)
    }


def newest(known: set[str]) -> Transaction | None:
    """Return the transaction that is not among the `known` names, if there is one already."""
    new = [one for one in journal.transactions() if one.name not in known]
    return new[-1] if new else None


def _file(known: set[str]) -> Path | None:
    return next((path for path in _JOURNAL.glob("*.jsonl") if path.stem not in known), None)


def has_begun(known: set[str]) -> bool:
    """Tell whether there is a transaction that is not `known`."""
    return _file(known) is not None


def writes_journalled(known: set[str]) -> int:
    """Return how many writes the transaction that is not `known` has journalled: quickly, as it may be under way."""
    with contextlib.suppress(OSError):
        if path := _file(known):
            return path.read_bytes().count(b'"kind": "write"')
    return 0


def names() -> set[str]:
    """Return the names of all transactions."""
    return {one.name for one in journal.transactions()}


def evidence(transaction: Transaction | None) -> dict[str, Any]:
    """Return what tells why a host did not come back."""
    file = transaction.path if transaction else None
    return {
        "journal": file.read_text(errors="replace").splitlines() if file and file.exists() else [],
        "history": fabtune("history", allowed=range(256)),
        "units": _units(),
        "unit_files": sorted(str(path) for path in Path("/etc/systemd/system").rglob("fabtune*")),
        "processes": [line for line in _said("ps", "-eo", "pid,stat,etimes,args").splitlines() if "fabtune" in line],
        "log": _said("journalctl", "--boot", "--no-pager", "--lines=40", "--output=short-monotonic",
                     "--unit=fabtune*").splitlines(),
        "uptime_s": round(time.clock_gettime(time.CLOCK_BOOTTIME), 1),
    }  # fmt: skip


def write_through(path: Path, text: str) -> None:
    """Write a file so that a power cut right afterwards does not take it."""
    with path.open("w") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
