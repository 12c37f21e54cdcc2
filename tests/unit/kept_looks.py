# SPDX-License-Identifier: GPL-2.0-or-later
"""Kept looks at sessions in guests (tests/unit/data), as if they were looks at the sessions of a host of files."""

import gzip
import json
from functools import cache
from pathlib import Path

import attrs
import hosttree

from fabtune.model import typed
from fabtune.model.observation import Observation

_FILES = ("observations", "observations-100mbit")


@cache
def _read(file: str) -> dict[str, object]:
    path = Path(__file__).parent / f"data/{file}.json.gz"
    return dict(json.loads(gzip.decompress(path.read_bytes())))


def kept(name: str, number: int = 1, rtt_ms: float | None = None) -> Observation:
    """A look of the kept ones from the initiator alone, as if at session `number` of the host of files."""
    raw = next(found[name] for found in map(_read, _FILES) if name in found)
    seen = typed.STRICT.read(Observation, raw, name)
    assert seen.initiator.socket
    address = f"10.2.0.{number}:3260"
    session = attrs.evolve(seen.session, target=hosttree.iqn(number), portal=address, disks=(f"sd{number}",))
    samples = seen.initiator.socket.samples
    if rtt_ms is not None:
        samples = tuple(attrs.evolve(one, rtt_ms=rtt_ms, min_rtt_ms=rtt_ms) for one in samples)
    socket = attrs.evolve(seen.initiator.socket, remote=address, samples=samples)
    return attrs.evolve(
        seen, device=f"sd{number}", session=session, disk=attrs.evolve(seen.disk, name=f"sd{number}"), target=None,
        initiator=attrs.evolve(seen.initiator, socket=socket), rate_bytes_per_s=None, rate_by="",
    )  # fmt: skip
