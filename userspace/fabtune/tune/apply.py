# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes a plan: journal line first, then the value, then read back; any failure takes everything back."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fabtune import backends
from fabtune.backends import UnsupportedError
from fabtune.catalog.tunable import Tunable, shipped_catalog
from fabtune.errors import ExitCode, FabtuneError
from fabtune.facts.collect import Host, read
from fabtune.model.device import Device
from fabtune.tune import fault, journal, relogin, signals
from fabtune.tune.journal import Transaction, Writer
from fabtune.tune.plan import Plan, Row
from fabtune.tune.relogin import Pending
from fabtune.tune.revert import Outcome, revert_transaction

Progress = Callable[[str], None]
# These cannot be written to a running kernel.
AT_LOAD = ("reload", "reboot")
# These are written only where no live session would suffer, or where the user allowed a re-login.
DISRUPTIVE = ("kills-session", "refused-while-exported")


@dataclass
class Result:
    """What apply did: rows written, rows that could not be, and what is still to do."""

    transaction: str = ""
    written: list[Row] = field(default_factory=list)
    refused: list[tuple[Row, str]] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    relogged: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> ExitCode:
        """4 while something still needs an action, else 0."""
        return ExitCode.NEEDS_ACTION if self.pending else ExitCode.DONE


class RolledBackError(FabtuneError):
    """Ctrl-C, or a signal to end: everything written so far has been taken back."""

    exit_code = ExitCode.INTERRUPTED


def apply(plan: Plan, host: Host, allow_relogin: bool, progress: Progress) -> Result:
    """Write `plan`.  The caller holds the lock.

    Raises FabtuneError (RolledBackError after Ctrl-C) with every value taken back.
    """
    result = Result()
    carried = relogin.still_pending(journal.transactions(), host.boot_id)
    if not plan.changes:
        result.pending = carried
        return _relogin(result, None, allow_relogin, progress)
    with signals.raising():
        writer, transaction = journal.begin(plan, host)
        try:
            for row in plan.changes:
                _write_row(row, host, writer, transaction, result, allow_relogin, progress)
            result.transaction = transaction.name
            result.pending = relogin.merge(carried, relogin.needed(transaction.steps, plan.roles, host.boot_id))
            for pending in result.pending:
                writer.append("pending", **pending.as_json())
            _relogin(result, transaction, allow_relogin, progress)
            writer.append("applied" if transaction.steps else "closed")
        except (FabtuneError, OSError, KeyboardInterrupt) as error:
            with signals.ignored():
                raise _rolled_back(error, writer, transaction, result, progress) from error
        finally:
            writer.close()
    return result


def _write_row(
    row: Row,
    host: Host,
    writer: Writer,
    transaction: Transaction,
    result: Result,
    allow_relogin: bool,
    progress: Progress,
) -> None:
    tunable, device = row.tunable, row.device
    assert device is not None and row.now is not None and row.wanted is not None
    if tunable.effect in DISRUPTIVE and not allow_relogin and relogin.in_use(device):
        result.refused.append((row, f"would cut live sessions ({tunable.effect}); give --allow-relogin"))
        return
    if tunable.effect in AT_LOAD:
        result.refused.append((row, f"takes effect at {tunable.effect} only; --persist writes it for the next one"))
        return
    disturbed = _journal_disturbed(tunable, device, host, writer, transaction)
    step = _journal_write(tunable, device, row.now, row.wanted, host, writer, transaction)
    progress(f"{tunable.name} {device.label}: {row.now} -> {row.wanted}")
    backend = backends.get(tunable.backend)
    try:
        with signals.deferred():
            backend.write(device, tunable.key, row.wanted)
    except UnsupportedError as error:
        result.refused.append((row, str(error)))
        return
    fault.checkpoint()
    now = backend.read(device, tunable.key)
    if not tunable.same(now, row.wanted) and not tunable.rounds:
        raise FabtuneError(f"{tunable.name} of {device.label}: wrote {row.wanted}, but it reads {now}")
    if now.split() != row.wanted.split():
        _journal_holds(step, now, writer, transaction)
    for other, place in disturbed:
        _journal_holds(place, backends.get(other.backend).read(device, other.key), writer, transaction)
    result.written.append(row)


def _journal_write(
    tunable: Tunable,
    device: Device,
    old: str,
    wrote: str,
    host: Host,
    writer: Writer,
    transaction: Transaction,
    disturbed: bool = False,
) -> int:
    """Put one step on disk before it happens; return its number."""
    line = {
        "step": len(transaction.steps) + 1,
        "transaction": transaction.name,
        "boot_id": host.boot_id,
        "tunable": tunable.name,
        "backend": tunable.backend,
        "key": tunable.key,
        "device": {"scope": device.scope, "identity": device.identity, "label": device.label},
        "old": old,
        "wrote": wrote,
        "effect": tunable.effect,
        "rounds": tunable.rounds,
    }
    if disturbed:
        line["disturbed"] = True
    writer.append("write", **line)
    journal.take(transaction, {"kind": "write", **line})
    return len(transaction.steps)


def _journal_holds(step: int, value: str, writer: Writer, transaction: Transaction) -> None:
    writer.append("holds", step=step, value=value)
    journal.take(transaction, {"kind": "holds", "step": step, "value": value})


def _journal_disturbed(
    tunable: Tunable, device: Device, host: Host, writer: Writer, transaction: Transaction
) -> list[tuple[Tunable, int]]:
    """Put down what writing `tunable` may move besides itself (a scheduler resets nr_requests)."""
    found = []
    for name in tunable.disturbs:
        other = shipped_catalog().tunables[name]
        reading = read(other, device)
        if reading.value is not None:
            value = reading.value
            found.append(
                (other, _journal_write(other, device, value, value, host, writer, transaction, disturbed=True))
            )
    return found


def _relogin(result: Result, transaction: Transaction | None, allowed: bool, progress: Progress) -> Result:
    if allowed:
        result.relogged, result.pending = relogin.perform(result.pending, progress)
    return result


def _rolled_back(
    error: BaseException, writer: Writer, transaction: Transaction, result: Result, progress: Progress
) -> FabtuneError:
    """Take back what was written and return the error to raise."""
    progress("taking back what was written")
    outcomes = revert_transaction(transaction, writer, force=False)
    left = [outcome for outcome in outcomes if outcome.state in (Outcome.FOREIGN, Outcome.FAILED)]
    tail = "everything written was taken back"
    if left:
        tail = f"{len(left)} values could not be taken back; see `fabtune revert`"
    # A session that logged in with the new values keeps them until its next login.
    if result.relogged:
        relogged = ", ".join(result.relogged)
        tail += f"; these sessions logged in with the new values and need a re-login: {relogged}"
    if isinstance(error, relogin.SessionDownError):
        tail += f"; {relogin.bring_back(error.device)}"
    if isinstance(error, KeyboardInterrupt):
        return RolledBackError(f"interrupted; {tail}")
    return FabtuneError(f"{error}; {tail}")
