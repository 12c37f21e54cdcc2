# SPDX-License-Identifier: GPL-2.0-or-later
"""A plan as a file: `fabtune plan --out` writes it, `fabtune apply --plan` holds it against the host first.

    {"fabtune_plan": 1, "host": ..., "kernel": ..., "vocabulary": "<digest>", "profile": "wan", ...,
     "sessions": ["iqn...,10.2.0.1:3260,default"],
     "rows": [{"tunable": "tcp.rmem_max", "device": {"identity": ..., "label": ...}, "now": ..., "wanted": ..., ...}]}

A row names a tunable of the vocabulary and a device by what survives renaming.  Where a value lives
and how it is written come from the vocabulary and the host, never from the file, so that a file
made by somebody else can ask for no more than a profile can.

The host is the same if its name, kernel, vocabulary and sessions are, and every tunable of the plan is there
on the same devices with the same value.  What a plan makes of an initiator depends on its sessions even where
no row is of one: the path, the memory needed, the next login.  A reboot alone changes nothing: what it took away
shows as a value.
"""

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import attrs

from fabtune import __version__
from fabtune.catalog.profile import FORMS
from fabtune.catalog.tunable import ROLES, Catalog, Tunable
from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.facts.collect import Facts
from fabtune.host import files
from fabtune.model import typed
from fabtune.model.device import Device
from fabtune.model.document import Json
from fabtune.model.path import NetworkPath
from fabtune.model.typed import Check, at_least, omitted, one_of_words
from fabtune.tune import plan as planning
from fabtune.tune.plan import CHANGE, KEPT, NO_DEVICE, NOT_LIMITED, NOT_NEEDED, REFUSED, SAME, Plan, Row, ordered

VERSION = 1
# 1,000 LUNs with eight tunables each make about 4 MiB.
MAX_BYTES = 8 << 20
_MAX_TEXT = 4096
_MOST_TOLD = 12
_STATES = (CHANGE, SAME, KEPT, planning.UNSUPPORTED, planning.UNREADABLE, NOT_NEEDED, NO_DEVICE, REFUSED)

_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _is_line(text: str) -> bool:
    """Tell whether `text` can be printed on one line."""
    return len(text) <= _MAX_TEXT and text.replace("\t", " ").isprintable()


_Line = Annotated[str, Check(_is_line, "one line of printable text")]
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def _is_time(text: str) -> bool:
    try:
        return time.strftime(_TIME, time.strptime(text, _TIME)) == text
    except ValueError:
        return False


@attrs.frozen
class _PathTable:
    """The path that the plan was made for, in the file's units."""

    rtt_ms: Annotated[float, at_least(0)]
    rate_bit_per_s: Annotated[float, at_least(1)]
    mtu_bytes: Annotated[int, at_least(68)]
    estimated: bool
    by_nic: bool = typed.omitted(False)


@attrs.frozen
class _DeviceTable:
    """A device by what survives renaming; its scope is the tunable's."""

    identity: _Line
    label: _Line


@attrs.frozen
class _RowTable:
    """One row of the plan."""

    tunable: _Line
    role: Annotated[str, one_of_words(*ROLES)]
    state: Annotated[str, one_of_words(*_STATES)]
    form: Annotated[str, one_of_words(*FORMS)]
    device: _DeviceTable | None = omitted()
    now: _Line | None = omitted()
    wanted: _Line | None = omitted()
    why: _Line = ""
    note: _Line = ""
    peers: tuple[_Line, ...] | None = omitted()
    own_path: bool = omitted(False)


@attrs.frozen
class _PlanTable:
    """The whole file; path and rows are read one by one, for errors that name them."""

    made: Annotated[str, Check(_is_time, "a time in UTC such as 2026-11-22T08:00:00Z")]
    fabtune: _Line
    host: _Line
    kernel: _Line
    vocabulary: _Line
    profile: _Line
    netns: Annotated[str, Check(lambda name: not name or bool(_NAMESPACE.fullmatch(name)), "a namespace's name")]
    roles: Annotated[
        tuple[str, ...],
        Check(lambda found: 0 < len(set(found)) == len(found) and set(found) <= set(ROLES), " and ".join(ROLES)),
    ]
    sessions: tuple[_Line, ...]
    parameters: Annotated[
        dict[str, float], Check(lambda found: all(map(_is_line, found)), "names of one line of printable text")
    ]
    rows: list[Any]
    path: Any = omitted()
    on_trial: bool = omitted(False)
    session_count: Annotated[int, at_least(1)] = omitted(1)
    memory_bytes: Annotated[int, at_least(0)] = omitted(0)


class HostChangedError(FabtuneError):
    """A host is not as it was when the plan was made: the message says in what, and what to do, `changes` what."""

    exit_code = ExitCode.DRIFT

    def __init__(self, text: str, changes: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.changes = "; ".join(changes) or text


@dataclass(frozen=True)
class SavedPlan:
    """A plan and the host it was made for; `made` is UTC, `vocabulary` a digest, devices know no `where`.

    `sessions` are the identities of the initiator's sessions, none where the plan is the target's alone;
    `session_count` those that the host has or serves, which its memory, 0 where that is not told, is to hold.
    `on_trial` whoever made it looks whether it helps, and confirms it only then.
    """

    made: str
    fabtune: str
    host: str
    kernel: str
    vocabulary: str
    profile: str
    roles: tuple[str, ...]
    sessions: tuple[str, ...]
    netns: str
    path: NetworkPath | None
    parameters: dict[str, float]
    rows: tuple[Row, ...]
    on_trial: bool = False
    session_count: int = 1
    memory_bytes: int = 0

    @property
    def tunables(self) -> list[Tunable]:
        """Each tunable of the plan, once."""
        return list({row.tunable.name: row.tunable for row in self.rows}.values())


def digest(catalog: Catalog) -> str:
    """Return what tells one vocabulary from another."""
    words = (repr(catalog.tunables[name]) for name in sorted(catalog.tunables))
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def of(plan: Plan, facts: Facts, catalog: Catalog) -> SavedPlan:
    """Return `plan`, made for the host of `facts`, as it can be saved."""
    host = facts.host
    made = time.strftime(_TIME, time.gmtime())
    return SavedPlan(
        made, __version__, host.name, host.kernel, digest(catalog), plan.profile, plan.roles,
        _sessions(plan.roles, facts), plan.netns, plan.path, dict(plan.parameters), tuple(plan.rows),
        session_count=facts.session_count, memory_bytes=host.memory_bytes,
    )  # fmt: skip


def _sessions(roles: Iterable[str], facts: Facts) -> tuple[str, ...]:
    return tuple(one.own_identity for one in facts.sessions) if ROLES[0] in roles else ()


def resume(saved: SavedPlan, facts: Facts) -> Plan:
    """Return the plan for the host as `facts` show it.  Raises HostChangedError if that is no longer the same."""
    changed = host_changes(saved, facts)
    if changed:
        told = changed[:_MOST_TOLD] + ([f"and {len(changed) - _MOST_TOLD} more"] if len(changed) > _MOST_TOLD else [])
        raise HostChangedError(
            f"the host has changed since the plan was made ({saved.made}); nothing was written; make a new plan:\n  "
            + "\n  ".join(told),
            told,
        )
    present = {(one.tunable, one.device.key): one for one in facts.readings}
    rows = []
    for row in saved.rows:
        if row.device is not None:
            reading = present[row.tunable.name, row.device.key]
            if row.state == CHANGE and reading.limit is not None and int(row.wanted or 0) > reading.limit:
                raise InputError(
                    f"saved plan: {row.tunable.name} of {row.device.label}: found {row.wanted}, "
                    f"allowed: up to {reading.limit} on this device"
                )
            row = replace(row, device=reading.device, now=reading.value)
        rows.append(row)
    return Plan(
        saved.profile, saved.roles, saved.netns, saved.path, dict(saved.parameters), ordered(rows),
        on_trial=saved.on_trial,
    )  # fmt: skip


def host_changes(saved: SavedPlan, facts: Facts) -> list[str]:
    """Return how the host in `facts` differs from the one that the plan was made for."""
    if saved.host != facts.host.name:
        return [f"host: was {saved.host}, is {facts.host.name}"]
    found = []
    if saved.kernel != facts.host.kernel:
        found.append(f"kernel: was {saved.kernel}, is {facts.host.kernel}")
    was = {
        (row.tunable.name, row.device.key if row.device else None): row for row in saved.rows if row.state != NOT_NEEDED
    }
    watched = {name for name, _ in was}
    # A portal is an initiator's or a target's: the other role's is no part of this plan.
    mine = [one for one in facts.readings if one.device.where.get("role") in (None, *saved.roles)]
    now = {(one.tunable, one.device.key): one for one in mine if one.tunable in watched}
    gone = [row.device for key, row in was.items() if row.device and (row.tunable.name, row.device.key) not in now]
    new = [one.device for key, one in now.items() if key not in was]
    sessions = _sessions(saved.roles, facts)
    found += [f"gone: session {one}" for one in saved.sessions if one not in sessions]
    found += [f"new: session {one}" for one in sessions if one not in saved.sessions]
    found += _once(f"gone: {one.scope} {one.label}" for one in gone if one and one.scope != "session")
    found += _once(f"new: {one.scope} {one.label}" for one in new if one.scope != "session")
    for row in was.values():
        reading = now.get((row.tunable.name, row.device.key)) if row.device else None
        # What nobody needs written may change by itself.
        if reading is None or row.note == NOT_LIMITED:
            continue
        if row.state == CHANGE and reading.refusal and not saved.parameters.get(reading.unless):
            found.append(f"{row.tunable.name} of {reading.device.label}: must be left alone now: {reading.refusal}")
        elif not _same(row.tunable, row.now, reading.value):
            value = "not readable" if reading.value is None else reading.value
            found.append(f"{row.tunable.name} of {reading.device.label}: was {row.now or '-'}, is {value}")
    return found


def _once(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _same(tunable: Tunable, was: str | None, now: str | None) -> bool:
    return was == now if was is None or now is None else tunable.same(was, now)


def write(saved: SavedPlan, path: Path) -> None:
    """Write `saved` to `path`, whole or not at all.

    Raises InputError where `path` holds something else than a saved plan, or the plan cannot be one.
    """
    text = plan_text(saved)
    try:
        if path.exists() and not (path.is_file() and b'"fabtune_plan"' in _read(path)[:64]):
            raise InputError(f"{path}: exists and is not a saved plan; give another name")
        files.keep(path, text.encode(), over=True)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def plan_text(saved: SavedPlan) -> str:
    """Return the text of a file that keeps `saved`.  Raises InputError where the plan cannot be saved."""
    return json.dumps(_as_json(saved), indent=1) + "\n"


def _as_json(saved: SavedPlan) -> dict[str, Json]:
    if saved.netns and not _NAMESPACE.fullmatch(saved.netns):
        raise InputError(f"--netns {saved.netns}: a saved plan names its namespace, it holds no path")
    path = saved.path
    table = _PlanTable(
        saved.made, saved.fabtune, saved.host, saved.kernel, saved.vocabulary, saved.profile, saved.netns,
        saved.roles, saved.sessions, saved.parameters, [typed.STRICT.write(_row_table(row)) for row in saved.rows],
        path and typed.STRICT.write(
            _PathTable(path.rtt_s * 1e3, path.rate_bytes_per_s * 8, path.mtu, path.estimated, path.by_nic)
        ),
        saved.on_trial, saved.session_count, saved.memory_bytes,
    )  # fmt: skip
    return {"fabtune_plan": VERSION, **typed.STRICT.write(table)}


def _row_table(row: Row) -> _RowTable:
    return _RowTable(
        row.tunable.name, row.role, row.state, row.form,
        _DeviceTable(row.device.identity, row.device.label) if row.device else None,
        row.now, row.wanted, " ".join(row.why.split()), " ".join(row.note.split()), row.peers, row.own_path,
    )  # fmt: skip


def load(path: Path, catalog: Catalog) -> SavedPlan:
    """Return the plan saved in `path`.

    Raises InputError naming file and key, HostChangedError if it was made with another vocabulary.
    """
    return parse(_read(path), str(path), catalog)


def parse(data: bytes, where: str, catalog: Catalog) -> SavedPlan:
    """Return the plan whose text is `data`; errors call it `where`.  Raises as `load` does."""
    if len(data) > MAX_BYTES:
        raise InputError(f"{where}: larger than the {MAX_BYTES} bytes that are allowed")
    try:
        table = json.loads(data, parse_constant=_refused)
    except UnicodeDecodeError:
        raise InputError(f"{where}: not a saved plan but binary; make one with `fabtune plan --out FILE`") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {error}; make a plan with `fabtune plan --out FILE`") from None
    version = table.pop("fabtune_plan", None) if isinstance(table, dict) else None
    if version != VERSION or version is True:
        raise InputError(f"{where}: no saved plan of version {VERSION}; make one with `fabtune plan --out FILE`")
    kept = typed.STRICT.read(_PlanTable, table, where)
    if kept.vocabulary != digest(catalog):
        raise HostChangedError(
            f"{where}: made by fabtune {kept.fabtune} with another vocabulary than this fabtune ({__version__}) "
            "has; make a new plan"
        )
    return SavedPlan(
        kept.made, kept.fabtune, kept.host, kept.kernel, kept.vocabulary, kept.profile, kept.roles, kept.sessions,
        kept.netns, _path(kept.path, f"{where}: path"), kept.parameters, _rows(kept.rows, catalog, kept.roles, where),
        kept.on_trial, kept.session_count, kept.memory_bytes,
    )  # fmt: skip


def _refused(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _read(path: Path) -> bytes:
    """Return the bytes of a regular file.  Raises InputError for others, and for one that is too large."""
    try:
        # A FIFO without a writer must not make us wait.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise InputError(f"{path}: not a regular file")
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _path(table: object, where: str) -> NetworkPath | None:
    if table is None:
        return None
    path = typed.STRICT.read(_PathTable, table, where)
    return NetworkPath(
        path.rtt_ms / 1e3, path.rate_bit_per_s / 8, path.mtu_bytes, path.estimated, by_nic=path.by_nic
    )  # fmt: skip


def _rows(items: list[Any], catalog: Catalog, roles: tuple[str, ...], where: str) -> tuple[Row, ...]:
    rows: dict[tuple[str, tuple[str, str] | None], Row] = {}
    for number, item in enumerate(items, 1):
        row = _row(item, catalog, f"{where}: row {number}")
        if row.role not in roles:
            raise InputError(f"{where}: row {number}: key 'role': found '{row.role}', allowed: {', '.join(roles)}")
        key = row.tunable.name, row.device.key if row.device else None
        if key in rows:
            raise InputError(f"{where}: row {number}: {row.tunable.name} of the same device stands there twice")
        rows[key] = row
    return tuple(rows.values())


def _row(item: object, catalog: Catalog, where: str) -> Row:
    data = typed.STRICT.read(_RowTable, item, where)
    tunable = catalog.get(data.tunable, where)
    named = data.device
    device = Device(tunable.scope, named.identity, named.label) if named else None
    state, now, wanted = data.state, data.now, data.wanted
    if (device is None) != (state in (NOT_NEEDED, NO_DEVICE)):
        raise InputError(f"{where}: key 'device' and state '{state}' do not fit")
    if state in (CHANGE, SAME, KEPT):
        if now is None or wanted is None:
            raise InputError(f"{where}: key '{'now' if now is None else 'wanted'}' is missing")
        # What the device rounds is right without being the same.
        if state == CHANGE or (state == SAME and tunable.rounds):
            wanted = tunable.native(tunable.check(tunable.parse(wanted), where))
        elif not tunable.same(now, wanted):
            raise InputError(f"{where}: state '{state}', but now is {now[:60]!r} and wanted {wanted[:60]!r}")
    return Row(
        tunable, data.role, device, now, wanted, state, data.why, data.note, data.form, peers=data.peers,
        own_path=data.own_path,
    )  # fmt: skip
