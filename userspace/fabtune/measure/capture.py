# SPDX-License-Identifier: GPL-2.0-or-later
"""A short load under capture, judged: apart from the measured one, because capturing changes its timing."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from fabtune.errors import FabtuneError, InputError
from fabtune.host.sessions import Session, live_sessions, scsi_devices
from fabtune.measure import fio, proof, wire
from fabtune.measure.checks import bursts_of
from fabtune.measure.target import Target
from fabtune.measure.workload import LoadStep, Place, Workload, expand
from fabtune.model.runrecord import Captured, RunRecord

# Enough for several bursts and a full queue, few enough that no frame is lost: tshark prints immediate data whole.
_REQUESTS = 32
# A session on which nothing was asked for so long is quiet; it must become so in the time that follows.
_QUIET_S = 0.3
_PATIENCE_S = 15.0


def claims(words: Sequence[str]) -> dict[str, str]:
    """Return ``NAME=VALUE`` words as claims.  Raises InputError for a name that cannot be judged."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in proof.CLAIMS:
            raise InputError(f"--claim {word}: expected NAME=VALUE with NAME one of {', '.join(proof.CLAIMS)}")
        found[name] = value
    return found


def check_capture(target: Target) -> None:
    """Raise FabtuneError unless `target` is a block device of one iSCSI session, and can be captured here."""
    _session(target)
    wire.check_programs()


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
    """Return what the wire shows of a little of `workload`.  Raises FabtuneError as `prove` does, or on a busy session.

    tshark loses a stream whose capture begins within a PDU, so that nothing may be under way then: not what udev
    reads of a new disk, nor what others ask of another LUN.
    """
    session = _session(target)
    place = Place(target.path, target.path, target.size_bytes)
    steps = _representative(expand(workload, place, runtime_s=None, ramp_s=0))
    with tempfile.TemporaryDirectory(prefix="fabtune-capture-") as scratch:
        path, begun, deadline = Path(scratch) / "iscsi.pcapng", False, time.monotonic() + _PATIENCE_S
        while not begun:
            asked = _when_quiet(session, deadline)
            with wire.Capture(session.address, session.port, path):
                begun = _asked(session) == asked
                for step in steps if begun else []:
                    _load(step, Path(scratch))
        found = wire.pdus(path, session.port)
    if not found:
        raise FabtuneError(f"the capture of port {session.port} shows no iSCSI PDU, so it proves nothing; try again")
    return proof.observe(found)


def _when_quiet(session: Session, deadline: float) -> tuple[str, ...]:
    """Wait until nothing is asked of `session`, and return what was asked of it so far.  Raises FabtuneError."""
    before = _asked(session)
    while time.monotonic() < deadline:
        time.sleep(_QUIET_S)
        now = _asked(session)
        if now == before and not _under_way(session):
            return now
        before = now
    disks = ", ".join(session.luns)
    raise FabtuneError(
        f"session {session.sid} ({disks}) was never quiet for {_QUIET_S:g} s in {_PATIENCE_S:g} s: others use it, and "
        f"a capture that begins within a PDU proves nothing; end that use, or capture on a session of its own"
    )


def _asked(session: Session) -> tuple[str, ...]:
    """Return the kernel's count of the SCSI commands that each device of `session` was given."""
    return tuple((device / "iorequest_cnt").read_text() for device in scsi_devices(session))


def _under_way(session: Session) -> int:
    """Return how many requests the block devices of `session` have not completed."""
    found = [path for device in scsi_devices(session) for path in device.glob("block/*/inflight")]
    return sum(int(word) for path in found for word in path.read_text().split())


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
        with fio.load(fio.find()[0], text, scratch) as load:
            load.wait(lambda: None, 1.0)
            load.document()
