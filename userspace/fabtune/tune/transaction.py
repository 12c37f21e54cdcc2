# SPDX-License-Identifier: GPL-2.0-or-later
"""What one file of the journal says: a transaction, its steps and what was done about them."""

from collections.abc import Collection, Iterable
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path

from fabtune.catalog.tunable import ROLES
from fabtune.errors import InputError
from fabtune.model.device import Device
from fabtune.tune import lines
from fabtune.tune.lines import (
    AppliedLine,
    BeginLine,
    ClaimLine,
    ClosedLine,
    ConfirmedLine,
    DeviceField,
    DueLine,
    GivenBackLine,
    HoldsLine,
    InheritLine,
    KeptLine,
    LetGoLine,
    Line,
    LoginLine,
    Logout,
    PathLine,
    PendingLine,
    RefusedLine,
    RestoredLine,
    RevertingLine,
    UnconfirmedLine,
    WaitingLine,
    WriteLine,
)  # fmt: skip

# For a file whose first line cannot be read: whatever is asked for, it is named.
_UNKNOWN = BeginLine(lines.VERSION, ROLES, "")
# The state of what was applied whole and not taken back.
IN_FORCE = "in force"
# That of a step which `fabtune tune` has not judged yet.
ON_TRIAL = "on trial"
# That of what was not written to its end.
INTERRUPTED = "interrupted"
# That of what a revert was begun of that left values: somebody else's, without leave, or it was cut short.
PARTLY_BACK = "partly taken back"


@dataclass(frozen=True)
class Step:
    """One journalled write, or a claim on a value found as wanted, and what became of it.

    `instance` distinguishes the device from a later one in its place; `form` is `at_least` or `at_most` where the
    profile asked for a bound alone; `saved` is what the next boot gave a target before, None where that is not known;
    `ours` holds the values of transactions whose old value this step has inherited.
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
    saved: str | None = None
    holds: str | None = None
    ours: tuple[str, ...] = ()
    waiting: bool = False
    restored: bool = False
    # The boot in which that was, '' where an older fabtune journalled it.
    restored_in: str = ""

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
    header: BeginLine = _UNKNOWN
    steps: list[Step] = field(default_factory=list)
    applied: bool = False
    # Whether a revert was begun.
    reverting: bool = False
    closed: bool = False
    # The newest limit for a confirmation, and whether it came.
    unconfirmed: UnconfirmedLine | None = None
    confirmed: bool = False
    damage: str = ""
    pending: list[PendingLine] = field(default_factory=list)
    due: list[DueLine] = field(default_factory=list)
    # Logged out and not known to be back.
    away: list[Logout] = field(default_factory=list)
    # Steps whose values a re-login brought along, by transaction and number.
    carried: set[str] = field(default_factory=set)
    # Seen back, by id and identity, with the id of the session that followed ('' for none); the logout may stand in an
    # earlier transaction.
    back: dict[tuple[str, str], str] = field(default_factory=dict)
    # Whose kept values were given back, by id and identity.
    given: set[tuple[str, str]] = field(default_factory=set)
    # Whose disks, held short before, have their depth again, by id and identity.
    let_go: set[tuple[str, str]] = field(default_factory=set)
    # Logouts of this file whose kept values are still owed to the session that followed, by its id.
    unkept: list[tuple[Logout, str]] = field(default_factory=list)
    # Logged out by this id in this boot, and not taken back by a multipath device at once: id, identity, boot.
    paths: set[tuple[str, str, str]] = field(default_factory=set)
    # Why the last login failed of those that are away, by id, identity and boot.
    refused: dict[tuple[str, str, str], str] = field(default_factory=dict)

    # Each step of a revert asks for that of each other transaction.
    @cached_property
    def name(self) -> str:
        """The transaction's id, which is also its file's name."""
        return self.path.stem

    def copied(self) -> "Transaction":
        """Return one of its own that says the same: lines that are added to one are no other's."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return Transaction(
            **{name: copy(one) if isinstance(one, list | set | dict) else one for name, one in own.items()}
        )

    @property
    def profile(self) -> str:
        """The profile that was applied."""
        return self.header.profile

    @property
    def root(self) -> str:
        """The transaction that somebody asked for: this one, or that for which fabtune itself wrote this one."""
        return self.header.written_for or self.name

    @property
    def begun(self) -> bool:
        """Whether there is a first line, or was one: a crash while it was written leaves none, and no value changed."""
        return self.header is not _UNKNOWN or bool(self.damage)

    @property
    def open_steps(self) -> list[Step]:
        """The steps not yet taken back."""
        return [] if self.closed else [step for step in self.steps if not step.restored]

    @property
    def state(self) -> str:
        """Return one of `damaged`, `taken back`, `waiting` (for devices), `unconfirmed`, and as follows.

        `partly taken back`, `on trial`, `in force`, `interrupted`.
        """
        if self.damage:
            return "damaged"
        if self.closed:
            return "taken back"
        owed = [step for step in self.open_steps if not step.empty]
        if owed and all(step.waiting for step in owed):
            return "waiting"
        if self.unconfirmed and not self.confirmed:
            return "unconfirmed"
        if self.reverting:
            return PARTLY_BACK
        if not self.applied:
            return INTERRUPTED
        return ON_TRIAL if self.header.on_trial and not self.confirmed else IN_FORCE


def parse(path: Path, data: bytes, damage: str = "") -> Transaction:
    """Return the transaction that the file `path` with content `data` describes, as far as it can be read."""
    transaction = Transaction(path, damage=damage)
    complete = data[: data.rfind(b"\n") + 1]
    for number, raw in enumerate(complete.splitlines(), 1):
        where = f"journal {path}: line {number} is damaged"
        try:
            line = lines.read(raw, where)
            if (number == 1) != isinstance(line, BeginLine):
                raise ValueError("the first line, and only it, must be 'begin'")
            take(transaction, line)
        except InputError as error:
            transaction.damage = str(error)
            break
        except (ValueError, RecursionError) as error:
            transaction.damage = f"{where}: {error}"
            break
    return transaction


def without_held(owed: Iterable[tuple[Logout, str]], let_go: Collection[tuple[str, str]]) -> list[tuple[Logout, str]]:
    """Return what is `owed` but for the depths of the disks of the sessions that were `let_go`."""
    return [
        (one.let_go() if isinstance(one, KeptLine) and one.session in let_go else one, successor)
        for one, successor in owed
    ]


def take(transaction: Transaction, line: Line) -> None:
    """Add one line to `transaction`.  Raises ValueError for what does not fit."""
    match line:
        case BeginLine():
            transaction.header = line
        case WriteLine() | ClaimLine():
            transaction.steps.append(_step(line, len(transaction.steps) + 1))
        case HoldsLine() | RestoredLine() | WaitingLine() | InheritLine():
            _amend(transaction.steps, line)
        case PendingLine():
            transaction.pending.append(line)
        case DueLine():
            transaction.due.append(line)
        case KeptLine():
            # It is its own successor.
            transaction.unkept.append((line, line.sid))
        case Logout():
            transaction.away.append(line)
            transaction.carried |= line.carried
        case LoginLine():
            transaction.back[line.session] = line.successor
            if line.successor:
                kept = [one for one in transaction.away if one.session == line.session and one.kept]
                transaction.unkept += [(one, line.successor) for one in kept]
            transaction.away = [one for one in transaction.away if one.session != line.session]
        case GivenBackLine():
            transaction.given.add(line.session)
            transaction.unkept = [(one, sid) for one, sid in transaction.unkept if one.session != line.session]
        case LetGoLine():
            transaction.let_go.add(line.session)
            transaction.unkept = without_held(transaction.unkept, {line.session})
        case PathLine():
            transaction.paths.add((*line.session, line.boot_id))
        case RefusedLine():
            transaction.refused[*line.session, line.boot_id] = line.why
        case AppliedLine():
            transaction.applied = True
        case RevertingLine():
            transaction.reverting = True
        case ClosedLine():
            transaction.closed = True
        case UnconfirmedLine():
            transaction.unconfirmed = line
        case ConfirmedLine():
            transaction.confirmed = True


def _amend(steps: list[Step], line: HoldsLine | RestoredLine | WaitingLine | InheritLine) -> None:
    """Record what became of a step."""
    if not 1 <= line.step <= len(steps):
        raise ValueError(f"step {line.step} was never written")
    step = steps[line.step - 1]
    match line:
        case HoldsLine():
            step = replace(step, holds=line.value)
        case InheritLine():
            step = replace(step, old=line.old, ours=(*step.ours, line.ours), saved=line.saved)
        case WaitingLine():
            step = replace(step, waiting=True)
        case RestoredLine():
            step = replace(step, restored=True, restored_in=line.boot_id)
    steps[line.step - 1] = step


def _step(line: WriteLine | ClaimLine, expected: int) -> Step:
    if line.step != expected:
        raise ValueError(f"step {line.step}, expected {expected}")
    device = line.device
    return Step(
        line.step, line.boot_id, line.tunable, line.backend, line.key,
        Device(device.scope, device.identity, device.label), line.old, line.wrote, line.effect, line.rounds,
        line.disturbed, isinstance(line, ClaimLine), device.instance, line.share, line.form,
        line.saved,
    )  # fmt: skip


def as_line(
    step: Step, kind: type[WriteLine] | type[ClaimLine], instance: str, transaction: str = ""
) -> WriteLine | ClaimLine:
    """Return the journal's line of a step that is written, or that is claimed; `instance` is its very device."""
    device = step.device
    return kind(
        step=step.number,
        boot_id=step.boot_id,
        tunable=step.tunable,
        backend=step.backend,
        key=step.key,
        device=DeviceField(device.scope, device.identity, device.label, instance),
        old=step.old,
        wrote=step.holds or step.wrote,
        effect=step.effect,
        rounds=step.rounds,
        disturbed=step.disturbed,
        share=step.share,
        form=step.form,
        transaction=transaction,
        saved=step.saved,
    )
