# SPDX-License-Identifier: GPL-2.0-or-later
"""The half of the exporter that may read the kernel: answers over a local socket with compressed metrics.

Whoever connects sends one line, the form, and gets one gzip stream.  Nothing else of a request is looked at.
"""

import contextlib
import os
import socket
import struct
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fabtune.errors import FabtuneError, explained
from fabtune.export.exposition import render
from fabtune.export.families import CONTENT_TYPES
from fabtune.export.gather import Gatherer

# However often somebody asks, the kernel is asked once a second.
_KEPT_S = 1.0
# Anybody on this host may connect: who is slow holds nobody up but other clients of the same user.
_REQUEST_WAIT_S, _CLIENT_WAIT_S = 1.0, 10.0
_MOST_OF_A_USER = 8
# struct ucred: pid, uid, gid.
_PEER = struct.Struct("3i")
_MOST_REQUEST_BYTES = 64
_FIRST_INHERITED = 3


def listener(path: Path) -> socket.socket:
    """Return a listening socket at `path`, to which anybody on this host may connect.  Raises FabtuneError."""
    if path.exists() and _answers(path):
        raise FabtuneError(f"{path}: another reader listens there already")
    with explained(str(path)):
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        found = socket.socket(socket.AF_UNIX)
        found.bind(os.fspath(path))
        path.chmod(0o666)
        found.listen()
    return found


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(os.fspath(path)) == 0


def inherited() -> socket.socket | None:
    """Return the listening socket that systemd started us with, None without one."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS", "0") == "0":
        return None
    return socket.socket(fileno=_FIRST_INHERITED)


@dataclass
class MetricsReader:
    """Looks at the host for those who ask, and keeps an answer for a second."""

    gatherer: Gatherer = field(default_factory=Gatherer)
    _kept: dict[str, tuple[float, bytes]] = field(default_factory=dict)
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    _connected: Counter[int] = field(default_factory=Counter)
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, listening: socket.socket) -> None:
        """Answer for ever, each client in a thread; whoever does not read in time, or has many, gets nothing."""
        while True:
            client, _ = listening.accept()
            user = _PEER.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]
            with self._counting:
                welcome = self._connected[user] < _MOST_OF_A_USER
                self._connected[user] += welcome
            if welcome:
                threading.Thread(target=self._serve_one, args=(client, user), daemon=True).start()
            else:
                client.close()

    def _serve_one(self, client: socket.socket, user: int) -> None:
        try:
            with client, contextlib.suppress(OSError):
                client.settimeout(_REQUEST_WAIT_S)
                form = client.recv(_MOST_REQUEST_BYTES).decode(errors="replace").strip()
                client.settimeout(_CLIENT_WAIT_S)
                if form in CONTENT_TYPES:
                    client.sendall(self.answer(form))
        finally:
            with self._counting:
                self._connected[user] -= 1

    def answer(self, form: str) -> bytes:
        """Return the metrics in `form`, compressed."""
        with self._one_at_a_time:
            made_s, data = self._kept.get(form, (0.0, b""))
            if not data or time.monotonic() - made_s > _KEPT_S:
                data = b"".join(_compressed(render(self.gatherer.gather(), form)))
                self._kept[form] = time.monotonic(), data
            return data


def _compressed(texts: Iterator[str]) -> Iterator[bytes]:
    # gzip's own format, as HTTP wants it; one pass, so that the whole text never is in memory.
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    for text in texts:
        yield packer.compress(text.encode())
    yield packer.flush()


def answer_of(path: Path, form: str) -> bytes:
    """Return what the reader at `path` answers, a gzip stream.  Raises FabtuneError where none does."""
    parts = []
    with explained(f"metrics reader at {path}"), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_CLIENT_WAIT_S)
        connection.connect(os.fspath(path))
        connection.sendall(f"{form}\n".encode())
        while part := connection.recv(1 << 16):
            parts.append(part)
    if not parts:
        raise FabtuneError(f"metrics reader at {path}: no answer")
    return b"".join(parts)
