# SPDX-License-Identifier: GPL-2.0-or-later
"""The lines of the journal: one class a kind, each a JSON object with its kind and the fields of the class.

    {"kind": "begin", "transaction": ..., "boot_id": ..., "profile": "wan", ...}
    {"kind": "write", "step": 2, "tunable": ..., "device": {...}, "old": "0", "wrote": "1", ...}

A `write` line stands on disk before the value changes; a line without its newline never preceded a change and is
dropped.  Each line carries all that revert needs (backend, key, device identity), so a journal outlives renamed
tunables and package upgrades.  Unknown keys, which a later fabtune may write, are ignored.
"""

import json
import typing
from typing import Annotated, Any, ClassVar

import attrs

from fabtune import backends
from fabtune.catalog.tunable import ROLES
from fabtune.errors import InputError
from fabtune.host import targets, tree
from fabtune.model import typed
from fabtune.model.typed import Check, omitted

VERSION = 1
_JOURNAL = typed.TOLERANT
# What revert needs of the first line; the rest only tells people, and keeps nothing from being taken back.
_NEEDED_FIRST = ("version", "roles", "netns", "profile")


def _is_known(version: int) -> bool:
    if version != VERSION:
        raise ValueError(f"version {version}, this fabtune reads {VERSION}")
    return True


def _is_scope(scope: str) -> bool:
    if scope not in targets.every_scope():
        raise ValueError("device needs a known scope")
    return True


def _is_backend(name: str) -> bool:
    if name not in backends.NAMES:
        raise ValueError(f"unknown backend {name!r:.60}")
    return True


def _is_session(sid: str) -> bool:
    if not sid.isdecimal() or tree.whole(sid) is None:
        raise ValueError(f"session id: found {sid!r:.60}, expected a number")
    return True


_SessionId = Annotated[str, Check(_is_session, "a number")]
_SessionIdOrNone = Annotated[str, Check(lambda sid: not sid or _is_session(sid), "a number")]


@attrs.frozen
class EndsField:
    """The addresses of both ends of a connection."""

    local: str
    remote: str


@attrs.frozen
class BeginLine:
    """The first line, and only it: what was applied, on which boot of what host."""

    kind: ClassVar = "begin"
    version: Annotated[int, Check(_is_known, str(VERSION))]
    roles: Annotated[
        tuple[str, ...], Check(lambda roles: set(roles) <= set(ROLES), f"an array of {' and '.join(ROLES)}")
    ]
    netns: str
    profile: str = "?"
    boot_id: str = ""
    transaction: str | None = None
    time: str | None = None
    kernel: str | None = None
    fabtune: str | None = None
    rtt_ms: float | None = None
    rate_bit_per_s: float | None = None
    # Whoever asked for it, in his own words.
    note: str = omitted("")
    # Whether it was all that the profile says, with no parameter set: what was not needed is meant, too.
    whole: bool = omitted(False)
    # The rate that was planned for where nobody vouches for it: who plans anew needs it, and takes it for no line's.
    estimated_bit_per_s: float | None = omitted(None)
    # Whether somebody looks whether it helps, and keeps it only then: until it is confirmed nobody has.
    on_trial: bool = omitted(False)
    # Whether the rate is that of the fastest NIC, as nobody told one: it is the line's of no session by itself.
    rate_by_nic: bool = omitted(False)
    # The apply for which fabtune itself wrote this, after a boot or for a path that moved: it goes with that.
    written_for: str = omitted("")
    # The parameters by which the user answered for others whom it concerns: so it is when it is written again.
    overrides: tuple[str, ...] = omitted(())
    # The request that a queue was sized for.
    io_bytes: float | None = omitted(None)
    # The connections that a step on trial was planned for, as it is for theirs alone.
    ends: tuple[EndsField, ...] = omitted(())


@attrs.frozen
class DeviceField:
    """Which device a value belongs to; `instance` distinguishes it from a later one in its place."""

    scope: Annotated[str, Check(_is_scope, "a known scope")]
    identity: str
    label: str
    instance: str = omitted("")


@attrs.frozen
class _Value:
    step: int
    boot_id: str
    tunable: str
    backend: Annotated[str, Check(_is_backend, "a known backend")]
    key: str
    device: DeviceField
    old: str
    wrote: str
    effect: str
    rounds: bool
    disturbed: bool = omitted(False)
    share: str = omitted("")
    form: str = omitted("")
    transaction: str = omitted("")
    saved: str | None = omitted(None)


@attrs.frozen
class WriteLine(_Value):
    """A value about to be written.

    `share`: of a file that several profiles write, this one's lines.  `disturbed`: not written itself; the next
    step's write may move it.  `form`: at_least or at_most where the profile asked for a bound alone.  `saved`: what the
    next boot gave a target before, '' for nothing; none where that is not known, or nothing saves the value.
    """

    kind: ClassVar = "write"


@attrs.frozen
class ClaimLine(_Value):
    """A value found as wanted; another transaction wrote it."""

    kind: ClassVar = "claim"


@attrs.frozen
class HoldsLine:
    """What the kernel made of the value of a step, if it differs."""

    kind: ClassVar = "holds"
    step: int
    value: str


@attrs.frozen
class InheritLine:
    """An earlier transaction went; its old value is ours to give, and what was `saved` before it counts."""

    kind: ClassVar = "inherit"
    step: int
    old: str
    ours: str
    saved: str | None = omitted(None)


@attrs.frozen
class RevertingLine:
    """A revert is about to give the first value back: nothing of the transaction is in force from here on."""

    kind: ClassVar = "reverting"


@attrs.frozen
class WaitingLine:
    """Revert did not find the device of a step; it is still owed."""

    kind: ClassVar = "waiting"
    step: int


@attrs.frozen
class RestoredLine:
    """Nothing is left to do for a step, since the boot `boot_id`."""

    kind: ClassVar = "restored"
    step: int
    boot_id: str = omitted("")


@attrs.frozen
class TodoLine:
    """What is still to do: an action of pending.Pending, on the session or initiator `identity`."""

    action: str
    identity: str
    label: str
    sid: str
    boot_id: str
    # When the iscsid started that has not read what was written.
    iscsid: str = omitted("")


@attrs.frozen
class PendingLine(TodoLine):
    """What must happen before the new values count."""

    kind: ClassVar = "pending"


@attrs.frozen
class DueLine(TodoLine):
    """What must happen before the old values count again."""

    kind: ClassVar = "due"


@attrs.frozen
class _OfSession:
    """A session by its id (`sid`) when it was logged out and its name in facts.sessions (`identity`)."""

    sid: _SessionId
    identity: str

    @property
    def session(self) -> tuple[str, str]:
        """What tells the session from every other of this boot."""
        return self.sid, self.identity


# Before a key of what is kept over a re-login: a value that is ours and not set by hand.
STEP_MARK = "step "
# Beside a key of what is kept over a new connection: how few requests are let through meanwhile, and how many before.
HELD = "held device/queue_depth"
# What a login makes of its record, by the key of the value.
FROM_RECORD = {
    "device/queue_depth": "node.session.queue_depth",
    "recovery_tmo": "node.session.timeo.replacement_timeout",
}


@attrs.frozen
class Logout(_OfSession):
    """A session about to be logged out; without its `login` line it may have stayed away.

    Target, portal and interface are what iscsiadm needs to log it in again; `kept` holds what a login would not
    bring back (tune.carry).
    """

    kind: ClassVar = "logout"
    # What takes the values away, for people.
    act: ClassVar = "re-login"
    target: str
    portal: str
    interface: str
    boot_id: str
    kept: dict[str, dict[str, str]] = attrs.field(factory=dict, hash=False)
    # The id of the newest session of all: the kernel gives a later one a higher id.  An older fabtune wrote none.
    newest: _SessionIdOrNone = attrs.field(default="", kw_only=True)

    def precedes(self, sid: int) -> bool:
        """Tell whether session `sid` was not there yet, as far as the line tells."""
        return sid > int(self.newest or self.sid)

    @property
    def carried(self) -> set[str]:
        """Which steps wrote what is kept, by transaction and number."""
        return {step for values in self.kept.values() for key, step in values.items() if key.startswith(STEP_MARK)}


@attrs.frozen
class KeptLine(Logout):
    """A session whose connection is about to be made anew: `kept` is what that would not bring back.

    `iscsid` is when the daemon started that is to go, `at_s` the time of this line (CLOCK_BOOTTIME).
    """

    kind: ClassVar = "kept"
    act: ClassVar = "new connection"
    iscsid: str = ""
    at_s: float = 0.0

    def let_go(self) -> "KeptLine":
        """Return it without the disks' depths that were held short."""
        kept = {
            place: {key: value for key, value in values.items() if key != HELD} for place, values in self.kept.items()
        }
        return attrs.evolve(self, kept=kept)


@attrs.frozen
class LoginLine(_OfSession):
    """The session of the `logout` line with this id is back as session `successor`.

    Without one it never logged out, or is given up.
    """

    kind: ClassVar = "login"
    successor: _SessionIdOrNone = ""


@attrs.frozen
class GivenBackLine(_OfSession):
    """What that `logout` line kept is there again, or was said to be lost."""

    kind: ClassVar = "given-back"


@attrs.frozen
class LetGoLine(_OfSession):
    """Each disk that a `kept` line of this session held short has its depth again: a later one is meant."""

    kind: ClassVar = "let-go"


@attrs.frozen
class RefusedLine(_OfSession):
    """A login was tried, and the session is not back."""

    kind: ClassVar = "refused"
    boot_id: str
    why: str


@attrs.frozen
class PathLine(_OfSession):
    """After its login a multipath device lacked the session."""

    kind: ClassVar = "path"
    boot_id: str


@attrs.frozen
class AppliedLine:
    """All was written."""

    kind: ClassVar = "applied"


@attrs.frozen
class UnconfirmedLine:
    """All goes back at `until_s` (CLOCK_BOOTTIME of that boot), `within_s` after this line, unless it is confirmed."""

    kind: ClassVar = "unconfirmed"
    until_s: float
    within_s: float
    boot_id: str
    reconnect: bool
    relogin: bool


@attrs.frozen
class ConfirmedLine:
    """Somebody said that it shall stay."""

    kind: ClassVar = "confirmed"


@attrs.frozen
class ClosedLine:
    """Nothing of the transaction is left to take back."""

    kind: ClassVar = "closed"


Line = (
    BeginLine | WriteLine | ClaimLine | HoldsLine | InheritLine | RevertingLine | WaitingLine | RestoredLine
    | PendingLine | DueLine | Logout | KeptLine | LoginLine | GivenBackLine | LetGoLine | RefusedLine | PathLine
    | AppliedLine | ClosedLine | UnconfirmedLine | ConfirmedLine
)  # fmt: skip
KINDS: dict[str, Any] = {one.kind: one for one in typing.get_args(Line)}


def read(raw: bytes, where: str) -> Line:
    """Return the line that the bytes `raw` are.  Raises InputError, which begins with `where`, or ValueError."""
    table: Any = json.loads(raw)
    kind = table.get("kind") if isinstance(table, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r:.60}")
    try:
        line: Line = _JOURNAL.read(KINDS[kind], table, where)
    except InputError:
        if kind != BeginLine.kind:
            raise
        line = _JOURNAL.read(BeginLine, {key: table[key] for key in _NEEDED_FIRST if key in table}, where)
    return line


def text(line: Line) -> str:
    """Return `line` as it is written, without its newline."""
    return json.dumps({"kind": line.kind, **_JOURNAL.write(line)})
