# SPDX-License-Identifier: GPL-2.0-or-later
"""Judges from the wire whether an iSCSI session does what was configured: "configured X, seen Y"."""

from collections.abc import Iterable, Mapping

import attrs

from fabtune.measure.wire import COMMAND, DATA_IN, DATA_OUT, R2T, RESPONSE, UNSOLICITED, Pdu
from fabtune.model.path import Bursts, unsolicited_bytes
from fabtune.model.runrecord import JudgedClaim

AS_CONFIGURED, NOT_AS_CONFIGURED, CANNOT_TELL = "as configured", "not as configured", "cannot tell"
CLAIMS = (
    "ImmediateData", "InitialR2T", "FirstBurstLength", "MaxBurstLength", "MaxOutstandingR2T", "R2TsPerWrite",
    "CommandWindow", "WindowClosed",
)  # fmt: skip


@attrs.define
class Task:
    """One SCSI command: what of its data went unasked, and what the target asked for (bytes)."""

    bytes: int
    immediate_bytes: int
    unsolicited_bytes: int = 0
    r2ts: list[int] = attrs.field(factory=list)
    open_r2ts: dict[int, int] = attrs.field(factory=dict)
    most_open_r2ts: int = 0

    @property
    def is_write(self) -> bool:
        """Whether data went to the target: every write carries some, asks or is asked for it."""
        return bool(self.immediate_bytes or self.unsolicited_bytes or self.r2ts)


@attrs.frozen
class Seen:
    """What a capture shows.  `window` is the widest command window, `closures` how often it was found closed."""

    writes: tuple[Task, ...]
    window: int
    closures: int
    most_tasks: int


def observe(pdus: Iterable[Pdu]) -> Seen:
    """Return what the PDUs of one session show; tasks begun before the capture are left out."""
    tasks: dict[int, Task] = {}
    done: list[Task] = []
    window = closures = most_tasks = 0
    for pdu in pdus:
        task = tasks.get(pdu.task)
        if pdu.opcode == COMMAND:
            tasks[pdu.task] = Task(pdu.expected_bytes or 0, pdu.data_bytes)
            most_tasks = max(most_tasks, len(tasks))
        elif task and pdu.opcode == DATA_OUT:
            _take_data(task, pdu)
        elif task and pdu.opcode == R2T and pdu.desired_bytes is not None and pdu.transfer_tag is not None:
            task.r2ts.append(pdu.desired_bytes)
            task.open_r2ts[pdu.transfer_tag] = pdu.desired_bytes
            task.most_open_r2ts = max(task.most_open_r2ts, len(task.open_r2ts))
        elif task and (pdu.opcode == RESPONSE or (pdu.opcode == DATA_IN and pdu.status)):
            done.append(tasks.pop(pdu.task))
        if pdu.max_cmd_sn is not None and pdu.exp_cmd_sn is not None:
            # Serial-number arithmetic of RFC 1982: the numbers wrap.
            width = (pdu.max_cmd_sn - pdu.exp_cmd_sn + 1) % 2**32
            window = max(window, width if width < 2**31 else 0)
            closures += width == 0
    writes = tuple(task for task in done if task.is_write)
    return Seen(writes, window, closures, most_tasks)


def _take_data(task: Task, pdu: Pdu) -> None:
    """Count a Data-Out; an R2T is answered when all that it asked for has come."""
    if pdu.transfer_tag == UNSOLICITED:
        task.unsolicited_bytes += pdu.data_bytes
    elif pdu.transfer_tag in task.open_r2ts:
        task.open_r2ts[pdu.transfer_tag] -= pdu.data_bytes
        if task.open_r2ts[pdu.transfer_tag] <= 0:
            del task.open_r2ts[pdu.transfer_tag]


def judge(claims: Mapping[str, str], seen: Seen) -> list[JudgedClaim]:
    """Return a finding for each of `claims` that this module knows, named as in RFC 7143 (``CLAIMS``)."""
    rules = {
        "ImmediateData": _immediate,
        "InitialR2T": _initial_r2t,
        "FirstBurstLength": _first_burst,
        "MaxBurstLength": _max_burst,
        "MaxOutstandingR2T": _outstanding,
        "R2TsPerWrite": _per_write,
        "CommandWindow": _window,
        "WindowClosed": _closed,
    }
    found = []
    for claim, configured in claims.items():
        if claim in rules:
            said, verdict = rules[claim](configured, seen, claims)
            found.append(JudgedClaim(claim, configured, said, verdict))
    return found


def expected_r2ts(size_bytes: int, bursts: Bursts) -> int:
    """Return the R2Ts that one write takes: one a MaxBurstLength of what is not sent unasked."""
    return -(-(size_bytes - unsolicited_bytes(size_bytes, bursts)) // bursts.max_burst_bytes)


def _verdict(holds: bool) -> str:
    return AS_CONFIGURED if holds else NOT_AS_CONFIGURED


def _yes(text: str) -> bool:
    return text.strip().lower() in ("yes", "1", "true")


def _immediate(configured: str, seen: Seen, _: Mapping[str, str]) -> tuple[str, str]:
    if not seen.writes:
        return "no writes", CANNOT_TELL
    sizes = {write.immediate_bytes for write in seen.writes}
    said = f"Yes, up to {max(sizes)} bytes in a command" if max(sizes) else "No: no command carried data"
    return said, _verdict(_yes(configured) == bool(max(sizes)))


def _initial_r2t(configured: str, seen: Seen, claims: Mapping[str, str]) -> tuple[str, str]:
    unasked = [write for write in seen.writes if write.unsolicited_bytes]
    if unasked:
        return f"No: {len(unasked)} writes sent data unasked", _verdict(not _yes(configured))
    # Only a write with more to send than its command carried, and a first burst to send it in, shows the rest.
    first_burst = int(claims.get("FirstBurstLength", 0))
    telling = [w for w in seen.writes if w.bytes > w.immediate_bytes and w.immediate_bytes < first_burst]
    if not telling:
        return "no write had more to send unasked", CANNOT_TELL
    return f"Yes: {len(telling)} writes waited for an R2T", _verdict(_yes(configured))


def _first_burst(configured: str, seen: Seen, _: Mapping[str, str]) -> tuple[str, str]:
    limit = int(configured)
    unasked = [(write, write.immediate_bytes + write.unsolicited_bytes) for write in seen.writes]
    most = max((sent for _, sent in unasked), default=0)
    said = f"at most {most} bytes sent unasked"
    if most > limit:
        return said, NOT_AS_CONFIGURED
    if most == limit and any(write.bytes > limit for write, _ in unasked):
        return said, AS_CONFIGURED
    # Data-Outs that follow a command unasked fill the burst; immediate data alone may end at the PDU's own limit.
    if any(write.unsolicited_bytes and write.bytes > limit for write, _ in unasked):
        return said, NOT_AS_CONFIGURED
    return said, CANNOT_TELL


def _max_burst(configured: str, seen: Seen, _: Mapping[str, str]) -> tuple[str, str]:
    limit = int(configured)
    asked = [desired for write in seen.writes for desired in write.r2ts]
    if not asked:
        return "no R2T", CANNOT_TELL
    said = f"R2Ts of at most {max(asked)} bytes"
    several = any(len(write.r2ts) > 1 for write in seen.writes)
    if several or max(asked) > limit:
        return said, _verdict(max(asked) == limit)
    # Every write was asked for whole: the limit is at least that large.
    return f"{said}, no write needed two", AS_CONFIGURED


def _outstanding(configured: str, seen: Seen, _: Mapping[str, str]) -> tuple[str, str]:
    limit = int(configured)
    most = max((write.most_open_r2ts for write in seen.writes), default=0)
    needed = max((len(write.r2ts) for write in seen.writes), default=0)
    said = f"at most {most} R2Ts of a write open at once"
    if most > limit:
        return said, NOT_AS_CONFIGURED
    if most < min(limit, needed) or needed < 2:
        return said, CANNOT_TELL
    return said, AS_CONFIGURED


def _per_write(configured: str, seen: Seen, _: Mapping[str, str]) -> tuple[str, str]:
    if not seen.writes:
        return "no writes", CANNOT_TELL
    mean = sum(len(write.r2ts) for write in seen.writes) / len(seen.writes)
    return f"{mean:g} R2Ts a write", _verdict(mean == float(configured))


def _window(configured: str, seen: Seen, _: Mapping[str, str]) -> tuple[str, str]:
    if not seen.window:
        return "no command window seen", CANNOT_TELL
    return f"window of {seen.window} commands", _verdict(seen.window == int(configured))


def _closed(configured: str, seen: Seen, _: Mapping[str, str]) -> tuple[str, str]:
    said = f"closed in {seen.closures} answers, {seen.most_tasks} tasks open at most"
    return said, _verdict(_yes(configured) == bool(seen.closures))


def claims_of(negotiated: Mapping[str, str], write_bytes: int | None, bursts: Bursts | None) -> dict[str, str]:
    """Return what a session's negotiated values claim, with the R2Ts that a write of `write_bytes` must take."""
    claims = {name: negotiated[name] for name in CLAIMS if name in negotiated}
    if write_bytes and bursts:
        claims["R2TsPerWrite"] = str(expected_r2ts(write_bytes, bursts))
    return claims
