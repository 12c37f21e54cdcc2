# SPDX-License-Identifier: GPL-2.0-or-later
"""What one file of the journal says: a transaction, its steps and what was done about them.

    {"kind": "begin", "transaction": ..., "boot_id": ..., "profile": "wan", ...}
    {"kind": "claim", "step": 1, ..., "old": "16", "wrote": "16"}  found as wanted; another transaction wrote it
    {"kind": "write", "step": 2, "tunable": ..., "device": {...}, "old": "0", "wrote": "1", ...}
    {"kind": "write", "step": 2, ..., "share": "..."}   of a file that several profiles write, this one's lines
    {"kind": "holds", "step": 2, "value": "1"}          what the kernel made of it, if it differs
    {"kind": "write", "step": 3, ..., "disturbed": true}  not written itself; the next step's write may move it
    {"kind": "logout", "sid": ..., "identity": ..., "target": ..., "portal": ..., "interface": ..., "boot_id": ...,
     "kept": {...}}
    {"kind": "login", "sid": ..., "identity": ..., "successor": "7"}  the session of the `logout` line with this sid is
                                     back, as session 7; without it the session never went, or is given up
    {"kind": "given-back", "sid": ..., "identity": ...} what that `logout` line kept is there, or was said to be lost
    {"kind": "refused", "sid": ..., "identity": ..., "boot_id": ..., "why": "..."}  it was tried in vain
    {"kind": "path", "sid": ..., "identity": ..., "boot_id": ...}  after its login a multipath device lacked it
    {"kind": "applied"}
    {"kind": "inherit", "step": 2, "old": "5", "ours": "0"}  an earlier transaction went; its old value is ours to give
    {"kind": "waiting", "step": 2}                      revert did not find the device; it is still owed
    {"kind": "restored", "step": 1}
    {"kind": "closed"}                                  nothing of it is left to take back
    {"kind": "due", "action": "relogin", "sid": ...}    what must happen before the old values are felt

A `write` line stands on disk before the value changes; a line without its newline never
preceded a change and is dropped.  Each line carries all that revert needs (backend, key, device
identity), so a journal outlives renamed tunables and package upgrades.
"""

import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fabtune import backends
from fabtune.catalog.tunable import ROLES
from fabtune.host import targets, tree
from fabtune.model.device import Device

VERSION = 1
# For a file whose first line cannot be read: whatever is asked for, it is named.
_UNKNOWN = {"profile": "?", "roles": list(ROLES), "netns": "", "boot_id": ""}


@dataclass(frozen=True)
class Logout:
    """A session about to be logged out; without its `login` line it may have stayed away.

    `sid` is the session that ends, and `identity` its name in facts.sessions; target, portal and
    interface are what iscsiadm needs to log it in again; `kept` holds what a login would not bring back (tune.carry).
    """

    sid: str
    identity: str
    target: str
    portal: str
    interface: str
    boot_id: str
    kept: dict[str, dict[str, str]] = field(default_factory=dict, hash=False)

    @property
    def session(self) -> tuple[str, str]:
        """What tells the session from every other of this boot."""
        return self.sid, self.identity

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the journal's `logout` line."""
        return asdict(self)


@dataclass(frozen=True)
class Step:
    """One journalled write, or a claim on a value found as wanted, and what became of it.

    `instance` tells the very device from one that took its place since; `form` is `at_least` or `at_most` where the
    profile asked for a bound alone; `ours` holds the values of
    transactions whose old value this step has inherited.
    """

    number: int
    boot_id: str
    tunable: str
    backend: str
    key: str
    device: Device
    old: str
    wrote: str
    effect: str
    rounds: bool
    disturbed: bool = False
    claim: bool = False
    instance: str = ""
    share: str = ""
    form: str = ""
    holds: str | None = None
    ours: tuple[str, ...] = ()
    waiting: bool = False
    restored: bool = False

    @property
    def value(self) -> tuple[str, str, str, str]:
        """What is written: two steps with the same value write the same place."""
        return self.backend, self.key, self.device.scope, self.device.identity

    @property
    def empty(self) -> bool:
        """Tell whether there is nothing to give back: a claim on what somebody else still answers for."""
        return self.claim and self.old.split() == self.wrote.split()


@dataclass
class Transaction:
    """One `apply`: its header and its steps in the order they were written.

    `damage` says which line cannot be read; what stood after it is not known.
    """

    path: Path
    header: dict[str, Any]
    steps: list[Step] = field(default_factory=list)
    applied: bool = False
    closed: bool = False
    damage: str = ""
    pending: list[dict[str, str]] = field(default_factory=list)
    due: list[dict[str, str]] = field(default_factory=list)
    # Logged out and not known to be back.
    away: list[Logout] = field(default_factory=list)
    # Seen back, by id and identity, with the id of the session that followed ('' for none); the logout may stand in an
    # earlier transaction.
    back: dict[tuple[str, str], str] = field(default_factory=dict)
    # Whose kept values were given back, by id and identity.
    given: set[tuple[str, str]] = field(default_factory=set)
    # Logouts of this file whose kept values are still owed to the session that followed, by its id.
    unkept: list[tuple[Logout, str]] = field(default_factory=list)
    # Logged out by this id in this boot, and not taken back by a multipath device at once: id, identity, boot.
    paths: set[tuple[str, str, str]] = field(default_factory=set)
    # Why the last login failed of those that are away, by id, identity and boot.
    refused: dict[tuple[str, str, str], str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The transaction's id, which is also its file's name."""
        return self.path.stem

    @property
    def profile(self) -> str:
        """The profile that was applied."""
        return str(self.header.get("profile", "?"))

    @property
    def open_steps(self) -> list[Step]:
        """The steps not yet taken back."""
        return [] if self.closed else [step for step in self.steps if not step.restored]

    @property
    def state(self) -> str:
        """Return `damaged`, `taken back`, `waiting` (for devices), `in force` or `interrupted`."""
        if self.damage:
            return "damaged"
        if self.closed:
            return "taken back"
        if self.open_steps and all(step.waiting for step in self.open_steps if not step.empty):
            return "waiting"
        return "in force" if self.applied else "interrupted"


def parse(path: Path, data: bytes, damage: str = "") -> Transaction:
    """Return the transaction that the file `path` with content `data` describes, as far as it can be read."""
    transaction = Transaction(path, dict(_UNKNOWN) if damage else {}, damage=damage)
    complete = data[: data.rfind(b"\n") + 1]
    for number, raw in enumerate(complete.splitlines(), 1):
        try:
            line = json.loads(raw)
            if not isinstance(line, dict) or (number == 1) != (line.get("kind") == "begin"):
                raise ValueError("the first line, and only it, must be 'begin'")
            take(transaction, line)
        except (ValueError, KeyError, TypeError, RecursionError, IndexError) as error:
            what = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
            transaction.damage = f"journal {path}: line {number} is damaged: {what}"
            transaction.header = transaction.header or dict(_UNKNOWN)
            break
    return transaction


def take(transaction: Transaction, line: dict[str, Any]) -> None:
    """Add one parsed line to `transaction`.  Raises ValueError, KeyError or TypeError for what does not fit."""
    kind = line["kind"]
    if kind == "begin":
        if line["version"] != VERSION:
            raise ValueError(f"version {line['version']!r}, this fabtune reads {VERSION}")
        if not isinstance(line["roles"], list) or not set(map(str, line["roles"])) <= set(ROLES):
            raise ValueError(f"roles: found {line['roles']!r:.60}, expected an array of {' and '.join(ROLES)}")
        _text(line, "netns")
        transaction.header = line
    elif kind in ("write", "claim"):
        transaction.steps.append(_step(line, len(transaction.steps) + 1))
    elif kind in ("holds", "restored", "waiting", "inherit"):
        _amend(transaction, kind, line)
    elif kind in ("pending", "due"):
        left = transaction.pending if kind == "pending" else transaction.due
        left.append({key: _text(line, key) for key in ("action", "identity", "label", "sid", "boot_id")})
    elif kind == "logout":
        _session(line)
        texts = {one.name: _text(line, one.name) for one in fields(Logout) if one.name != "kept"}
        transaction.away.append(Logout(**texts, kept=_kept(line.get("kept", {}))))
    elif kind == "login":
        back, successor = _session(line), _optional(line, "successor")
        transaction.back[back] = successor
        if successor:
            _session_id(line, "successor")
            transaction.unkept += [(one, successor) for one in transaction.away if one.session == back and one.kept]
        transaction.away = [one for one in transaction.away if one.session != back]
    elif kind == "given-back":
        given = _session(line)
        transaction.given.add(given)
        transaction.unkept = [(one, successor) for one, successor in transaction.unkept if one.session != given]
    elif kind == "path":
        transaction.paths.add((*_session(line), _text(line, "boot_id")))
    elif kind == "refused":
        transaction.refused[*_session(line), _text(line, "boot_id")] = _text(line, "why")
    elif kind == "applied":
        transaction.applied = True
    elif kind == "closed":
        transaction.closed = True
    else:
        raise ValueError(f"unknown kind {kind!r}")


def _amend(transaction: Transaction, kind: str, line: dict[str, Any]) -> None:
    """Put down what became of a step."""
    index = _integer(line, "step") - 1
    if not 0 <= index < len(transaction.steps):
        raise ValueError(f"step {line['step']} was never written")
    step = transaction.steps[index]
    if kind == "holds":
        step = replace(step, holds=_text(line, "value"))
    elif kind == "inherit":
        step = replace(step, old=_text(line, "old"), ours=(*step.ours, _text(line, "ours")))
    else:
        step = replace(step, waiting=True) if kind == "waiting" else replace(step, restored=True)
    transaction.steps[index] = step


def _step(line: dict[str, Any], expected: int) -> Step:
    if _integer(line, "step") != expected:
        raise ValueError(f"step {line['step']}, expected {expected}")
    device = line["device"]
    if not isinstance(device, dict) or device.get("scope") not in targets.every_scope():
        raise ValueError("device needs a known scope")
    if line["backend"] not in backends.NAMES:
        raise ValueError(f"unknown backend {line['backend']!r}")
    return Step(
        number=expected,
        boot_id=_text(line, "boot_id"),
        tunable=_text(line, "tunable"),
        backend=_text(line, "backend"),
        key=_text(line, "key"),
        device=Device(device["scope"], _text(device, "identity"), _text(device, "label")),
        old=_text(line, "old"),
        wrote=_text(line, "wrote"),
        effect=_text(line, "effect"),
        rounds=line["rounds"] is True,
        disturbed=line.get("disturbed") is True,
        claim=line["kind"] == "claim",
        instance=_optional(device, "instance"),
        share=_optional(line, "share"),
        form=_optional(line, "form"),
    )


def _session(line: dict[str, Any]) -> tuple[str, str]:
    """Return id and identity of the session that `line` is about."""
    return _session_id(line, "sid"), _text(line, "identity")


def _session_id(line: dict[str, Any], key: str) -> str:
    text = _text(line, key)
    if not text.isdecimal() or tree.whole(text) is None:
        raise ValueError(f"session id: found {text!r:.60}, expected a number")
    return text


def _text(line: dict[str, Any], key: str) -> str:
    if not isinstance(line[key], str):
        raise ValueError(f"key '{key}': found {line[key]!r:.60}, expected text")
    return str(line[key])


def _optional(line: dict[str, Any], key: str) -> str:
    return _text(line, key) if key in line else ""


def _kept(found: Any) -> dict[str, dict[str, str]]:
    if not isinstance(found, dict) or not all(isinstance(values, dict) for values in found.values()):
        raise ValueError(f"key 'kept': found {found!r:.60}, expected a table of tables")
    return {place: {key: _text(values, key) for key in values} for place, values in found.items()}


def _integer(line: dict[str, Any], key: str) -> int:
    if type(line[key]) is not int:
        raise ValueError(f"key '{key}': found {line[key]!r:.60}, expected an integer")
    return int(line[key])
