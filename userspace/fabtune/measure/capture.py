# SPDX-License-Identifier: GPL-2.0-or-later
"""A short load under capture, judged: apart from the measured one, because capturing changes its timing."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs

from fabtune.errors import FabtuneError, InputError
from fabtune.host.sessions import Session, live_sessions
from fabtune.measure import fio, proof, wire
from fabtune.measure.checks import bursts_of
from fabtune.measure.target import Target
from fabtune.measure.workload import LoadStep, Place, Workload, expand
from fabtune.model.runrecord import Captured, RunRecord

# Enough for several bursts and a full queue, few enough that no frame is lost: tshark prints immediate data whole.
_REQUESTS = 32


def claims(words: Sequence[str]) -> dict[str, str]:
    """Return ``NAME=VALUE`` words as claims.  Raises InputError for a name that cannot be judged."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in proof.CLAIMS:
            raise InputError(f"--claim {word}: expected NAME=VALUE with NAME one of {', '.join(proof.CLAIMS)}")
        found[name] = value
    return found


def check_session(target: Target) -> None:
    """Raise FabtuneError unless exactly one iSCSI session carries `target`, a block device."""
    _session(target)


def prove(record: RunRecord, workload: Workload, target: Target, extra: dict[str, str]) -> RunRecord:
    """Run a little of each kind of step of `workload` under capture and return `record` with what it shows.

    ``proof``: what the session negotiated held against the wire, and `extra` with it (a claim in it
    replaces the negotiated one).  ``capture``: what the writes were (bytes each, R2Ts each).  Raises
    FabtuneError without exactly one iSCSI session below the target, or when the capture lost frames.
    """
    seen = observe(workload, target)
    sizes = {write.bytes for write in seen.writes}
    write_bytes = sizes.pop() if len(sizes) == 1 else None
    known = _claims(_session(target), write_bytes) | extra
    per_write = sum(len(write.r2ts) for write in seen.writes) / len(seen.writes) if seen.writes else None
    captured = Captured(len(seen.writes), write_bytes, per_write)
    return attrs.evolve(record, proof=tuple(proof.judge(known, seen)), capture=captured)


def observe(workload: Workload, target: Target) -> proof.Seen:
    """Return what the wire shows of a little of `workload`.  Raises FabtuneError as `prove` does."""
    session = _session(target)
    place = Place(target.path, target.path, target.size_bytes)
    steps = _representative(expand(workload, place, runtime_s=None, ramp_s=0))
    with tempfile.TemporaryDirectory(prefix="fabtune-capture-") as scratch:
        path = Path(scratch) / "iscsi.pcapng"
        with wire.Capture(session.address, session.port, path):
            for step in steps:
                _load(step, Path(scratch))
        return proof.observe(wire.pdus(path, session.port))


def _session(target: Target) -> Session:
    sessions = [session for session in live_sessions() if session.sid in target.sessions]
    if len(sessions) != 1:
        raise FabtuneError(f"a capture needs one iSCSI session below {target.path}; there are {len(sessions)}")
    if target.kind != "device":
        raise FabtuneError(f"a capture needs a block device, not a directory: give the LUN below {target.path}")
    return sessions[0]


def _claims(session: Session, write_bytes: int | None) -> dict[str, str]:
    return proof.claims_of(session.negotiated, write_bytes, bursts_of(session.negotiated))


def _representative(steps: Sequence[LoadStep]) -> list[LoadStep]:
    """Return one step of each direction; of several the last, which has the largest requests."""
    found = {str(next(iter(step.jobs.values())).get("rw")): step for step in steps if not step.must_fail}
    return list(found.values())


def _load(step: LoadStep, scratch: Path) -> None:
    for name, job in step.jobs.items():
        short = {key: value for key, value in job.items() if not key.startswith("verify")}
        short |= {"number_ios": _REQUESTS, "numjobs": 1}
        text = f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in short.items())
        with fio.Load(fio.find()[0], text, scratch) as load:
            load.wait(lambda: None, 1.0)
            load.document()
