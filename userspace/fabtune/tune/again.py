# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes again what is in force by the journal and a boot, a new login or a new link has undone.

It is for what no native file keeps: queueing disciplines, routes, other namespaces, the queues of disks that log in.
Three-way as everywhere: a value is written only where what apply found before it stands there again, and no file of
somebody else sets it at boot.  Anything else was set by somebody since, and is left alone and said.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fabtune import backends
from fabtune.catalog.tunable import Tunable, shipped_catalog
from fabtune.errors import ExitCode, FabtuneError
from fabtune.facts.collect import this_host
from fabtune.host import blocks
from fabtune.host.sessions import why_waits
from fabtune.model.device import Device
from fabtune.model.document import Json
from fabtune.tune import journal, owed, persist
from fabtune.tune.apply import AT_LOAD, Result, TakenBackError
from fabtune.tune.held import steps_in_force
from fabtune.tune.journal import Step, Transaction
from fabtune.tune.lines import BeginLine
from fabtune.tune.locate import OUTLIVE_A_BOOT, Locator, current
from fabtune.tune.plan import CHANGE, Plan, Row, better, ordered
from fabtune.tune.row_by_row import apply_row_by_row
from fabtune.tune.unconfirmed import awaited, on_trial

# Their own files set them at boot, or the next login or load does.
_NOT_HERE = ("kills-session", *AT_LOAD)
_JOURNAL = "journal"


@dataclass(frozen=True)
class LeftAlone:
    """A value that is not as applied and was not written, and why."""

    tunable: str
    device: str
    expected: str
    found: str
    why: str

    def as_json(self) -> dict[str, Json]:
        """Return it with stable keys."""
        return {"tunable": self.tunable, "device": self.device, "expected": self.expected, "found": self.found,
                "why": self.why}  # fmt: skip


@dataclass
class Restored:
    """What was written again, what was left alone, and what waits for its device.

    Of what was left alone, `refused` is what was tried; `failed` tells that a whole plan came to nothing.
    """

    left_alone: list[LeftAlone] = field(default_factory=list)
    results: list[tuple[Plan, Result]] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    refused: list[tuple[Row, str]] = field(default_factory=list)
    failed: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """3 where something is not as applied and was left so, 1 where a plan failed, 2 where the journal is damaged.

        What is absent is written when it comes.
        """
        if self.failed:
            return ExitCode.FAILED
        if any(one.tunable == _JOURNAL for one in self.left_alone):
            # Nothing that passes by itself, as another fabtune's work does.
            return ExitCode.USAGE
        return ExitCode.DRIFT if self.left_alone else ExitCode.DONE

    def refuse(self, rows: Iterable[tuple[Row, str]]) -> None:
        """Note what was tried and is not written, and why."""
        for row, why in rows:
            label = row.device.label if row.device else ""
            self.refused.append((row, why))
            self.left_alone.append(LeftAlone(row.tunable.name, label, row.wanted or "", row.now or "", why))


def write_again(progress: Callable[[str], None], only: Callable[[Step], bool] = lambda _: True) -> Restored:
    """Write every value in force that was undone, of those that `only` lets through.

    A value that is refused keeps no other from being written.  A disk that comes meanwhile is looked at, too: for it
    systemd does not start anew what is starting.  Raises FabtuneError where a signal came, or nothing can be written;
    the error says what stays of what was written before.
    """
    found = Restored()
    with journal.locked():
        disks: set[Path] | None = None
        while disks != (disks := blocks.disks_there()):
            # What was left alone or absent before is so still, or has come.
            found = Restored(results=found.results)
            _look_and_write(found, progress, only)
    return found


def _look_and_write(found: Restored, progress: Callable[[str], None], only: Callable[[Step], bool]) -> None:
    """Write what is undone now, and note it in `found`."""
    host = this_host()
    # A depth at which a disk is held looks as one that somebody has set.
    owed.let_disks_go(host.boot_id)
    known = journal.transactions()
    found.left_alone += _untold(known)
    # A value that several wanted is as the last of them wrote it, and may be as any of them found it.
    latest: dict[tuple[str, ...], tuple[Transaction, Step]] = {}
    before: dict[tuple[str, ...], set[str]] = {}
    for transaction, step in _wanted(known, only):
        latest[step.value] = transaction, step
        before.setdefault(step.value, set()).update((step.old, step.wrote, *step.ours))
    for plan in _plans(list(latest.values()), before, found):
        try:
            result = apply_row_by_row(plan, host, progress)
        except TakenBackError as error:
            found.refuse((row, str(error)) for row in plan.changes)
            found.failed = True
        except FabtuneError as error:
            raise type(error)(f"{error}{_stays(found)}") from error
        else:
            found.refuse(result.refused)
            found.results.append((plan, result))


def may_write(backend: str, effect: str) -> bool:
    """Tell whether values of this kind are written again at all: not what a native file or the next login brings."""
    return backend not in OUTLIVE_A_BOOT and effect not in _NOT_HERE


def _stays(found: Restored) -> str:
    """Return what is to be said of earlier plans where a later one ends it all."""
    names = [result.transaction for _, result in found.results if result.written]
    return f"; what was written again before stays: {', '.join(names)}" if names else ""


def _untold(known: Sequence[Transaction]) -> list[LeftAlone]:
    """Return the transactions of which the journal cannot tell what is in force."""
    return [LeftAlone(_JOURNAL, one.name, "readable", "damaged", one.damage) for one in known if one.damage]


def _wanted(known: Sequence[Transaction], only: Callable[[Step], bool]) -> Iterator[tuple[Transaction, Step]]:
    # What waits to be confirmed or judged is tried just now, though it may look as what was there before.
    tried = {step.value for one in (*awaited(known), *on_trial(known)) for step in one.open_steps}
    for one, step in steps_in_force(known):
        tunable = shipped_catalog().tunables.get(step.tunable)
        if tunable and only(step) and step.value not in tried and may_write(step.backend, step.effect):
            yield one, step


def _plans(
    wanted: Sequence[tuple[Transaction, Step]], before: dict[tuple[str, ...], set[str]], found: Restored
) -> list[Plan]:
    """Return a plan for each transaction that wanted some of the values that were lost; note the rest in `found`."""
    plans: dict[str, Plan] = {}
    locators: dict[str, Locator] = {}
    for transaction, step in wanted:
        header = transaction.header
        if header.netns not in locators:
            locators[header.netns] = Locator(header.netns)
        row = _row(step, header, locators[header.netns], before[step.value], found)
        if row is not None:
            of = Plan(
                header.profile, header.roles, header.netns, None, {}, overrides=header.overrides,
                written_for=transaction.root,
            )  # fmt: skip
            plans.setdefault(transaction.root, of).rows.append(row)
    for plan in plans.values():
        plan.rows = ordered(plan.rows)
    return list(plans.values())


def _row(step: Step, header: BeginLine, locate: Locator, before: set[str], found: Restored) -> Row | None:
    tunable, expected = shipped_catalog().tunables[step.tunable], step.holds or step.wrote

    def left(now: str, why: str) -> None:
        found.left_alone.append(LeftAlone(step.tunable, step.device.label, expected, now, why))

    try:
        device = locate.of(step)
        if device is None:
            found.absent.append(f"{step.tunable} of {step.device.label}")
            return None
        now = current(step, device)
    except FabtuneError as error:
        left("", str(error))
        return None
    form = step.form or "value"
    if _holds(tunable, now, expected, form) or tunable.same(now, step.wrote):
        return None
    # Whoever sets in a file of his own what was there before means it.
    if his := persist.what_sets(step.tunable, device, other_than=step.wrote):
        left(now, his)
        return None
    if not any(tunable.same(now, one) for one in before):
        left(now, "somebody has set it since")
        return None
    if refused := _why_not(tunable, device, locate, header.overrides):
        left(now, refused)
        return None
    if device.scope == "block" and why_waits(blocks.kernel_name(device)):
        # Its write would wait for requests that do not come back now.
        found.absent.append(f"{step.tunable} of {step.device.label}")
        return None
    why = "in force before a boot, a new login or a new link undid it"
    return Row(tunable, header.roles[0], device, now, step.wrote, CHANGE, why, form=form)


def _why_not(tunable: Tunable, device: Device, locate: Locator, overrides: Collection[str]) -> str:
    """Return why `apply` would leave the value alone by now, '' if it would write it."""
    try:
        device = locate.with_users(device) if device.scope == "nic" else device
        refusal = backends.why_not(tunable.backend, device, tunable.key)
    except FabtuneError as error:
        return str(error)
    return refusal.reason if refusal and refusal.unless not in overrides else ""


def _holds(tunable: Tunable, now: str, expected: str, form: str) -> bool:
    return tunable.same(now, expected) or better(tunable, form, tunable.parse(now), tunable.parse(expected))
