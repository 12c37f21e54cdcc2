# SPDX-License-Identifier: GPL-2.0-or-later
"""The other hosts' traffic in the lab ends with the load that it competes with."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtune.lab import cross, iperf3
from fabtune.lab.waiting import until


@contextlib.contextmanager
def _listening(*_: object) -> Iterator[int]:
    yield os.getpid()


class _NobodyLooks:
    def __init__(self, _: tuple[int, ...]) -> None: ...

    def stop(self) -> None: ...


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("kind", ["short", "cubic"])
def test_no_flow_goes_on_when_the_traffic_is_over(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of short flows only the loop was ended: the one that was there sent on, into what was measured next."""
    client, pids = tmp_path / "iperf3", tmp_path / "pids"
    client.write_text(f"#!/bin/sh\necho $$ >> {pids}\nexec sleep 60\n")
    client.chmod(0o755)
    monkeypatch.setattr(cross, "nsenter", lambda _: [])
    monkeypatch.setattr(cross, "Arrived", _NobodyLooks)
    monkeypatch.setattr(iperf3, "program", lambda: str(client))
    monkeypatch.setattr(iperf3, "listening", _listening)
    with cross.traffic(kind, "read"):
        until(lambda: pids.exists() and pids.read_text().endswith("\n"), "the client")
        (pid,) = map(int, pids.read_text().split())
        assert _is_there(pid)
    until(lambda: not _is_there(pid), "the client's end", 5)
