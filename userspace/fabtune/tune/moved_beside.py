# SPDX-License-Identifier: GPL-2.0-or-later
"""What the kernel moves beside a value of a disk that is written: what somebody had set there is given back to him."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fabtune import backends
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import FabtuneError
from fabtune.host import tree
from fabtune.host.blocks import kernel_name
from fabtune.host.sessions import why_waits
from fabtune.model.device import Device
from fabtune.tune import fault, signals
from fabtune.tune.ours import beside, cause_of
from fabtune.tune.plan import REFUSED, Row
from fabtune.tune.signals import Stop
from fabtune.tune.transaction import Step, Transaction

# The kernel moves a latency goal only where nobody has set one (block/blk-wbt.c, enable_state).
_NEVER_SET_BY_HAND = ("block.wbt_lat_usec",)
# block/blk-mq-sched.c and blk-mq.c: what a queue holds by itself, of a disk with so many tags.
_DEFAULT_REQUESTS = 128


@dataclass(frozen=True)
class _Moved:
    """A value of a disk that was `was`, and reads otherwise since the step `cause`."""

    step: Step
    cause: Step
    device: Device

    def put_back(self) -> tuple[str, str]:
        """Write the value from before; return what it reads then, and why that is another one, '' if it is not."""
        backend, why = backends.get(self.step.backend), why_waits(kernel_name(self.device))
        try:
            if not why:
                backend.write(self.device, self.step.key, self.step.old)
        except FabtuneError as error:
            why = str(error)
        fault.checkpoint()
        reads = backend.read(self.device, self.step.key)
        if reads.split() == self.step.old.split():
            return reads, ""
        why = f": {why}" if why else ""
        return reads, f"was {self.step.old} before {self.cause.tunable} was written, and reads {reads}{why}"


def give_back_moved(
    transaction: Transaction, devices: Mapping[int, Device], said: Iterable[tuple[Row, str]], stop: Stop
) -> list[tuple[Row, str]]:
    """Give back what the writes of `transaction` moved and none of them set; return what did not go back, and why.

    `devices` are those of its steps, by number; rows of which something is `said` are as the profile wants them.
    """
    as_wanted = {(row.tunable.name, row.device.key) for row, _ in said if row.device}
    found = []
    for moved in _moved(transaction, devices):
        if (moved.step.tunable, moved.device.key) in as_wanted:
            continue
        stop.check()
        with signals.deferred():
            reads, why = moved.put_back()
        if why:
            tunable, role = shipped_catalog().tunables[moved.step.tunable], transaction.header.roles[0]
            row = Row(tunable, role, moved.device, reads, moved.step.old, REFUSED, "as it was before the profile")
            found.append((row, why))
    return found


def _moved(transaction: Transaction, devices: Mapping[int, Device]) -> Iterator[_Moved]:
    """Yield what was moved and not set; what somebody has set once more since is left alone."""
    of_value: dict[tuple[str, str, str, str], list[Step]] = {}
    for step in transaction.open_steps:
        if step.disturbed:
            of_value.setdefault(step.value, []).append(step)
        else:
            of_value.pop(step.value, None)
    for steps in of_value.values():
        step = steps[0]
        cause, device = cause_of(transaction, step), devices.get(step.number)
        if cause is None or device is None or step.device.scope != "block" or step.tunable in _NEVER_SET_BY_HAND:
            continue
        reads = backends.get(step.backend).read(device, step.key)
        if (
            reads in {one.holds for one in steps}
            and reads.split() != step.old.split()
            and not _is_default(step, cause, device)
        ):
            yield _Moved(step, cause, device)


def _is_default(step: Step, cause: Step, device: Device) -> bool:
    """Tell whether the value before was the kernel's own for the scheduler of then: that of now has its own."""
    tags = tree.whole(tree.read_text(Path(device.where.get("directory", "")) / "mq/0/nr_tags"))
    if (step.tunable, cause.tunable) != ("block.nr_requests", "block.scheduler") or tags is None:
        return False
    return step.old == str(tags if cause.old == "none" else 2 * min(tags, _DEFAULT_REQUESTS))


@contextlib.contextmanager
def sparing_others(
    transaction: Transaction, cause: Step, ours: Collection[int], locate: Callable[[Step], Device | None]
) -> Iterator[None]:
    """Give back what the write of the old value of `cause`, in the block, moves beside it and is not `ours`.

    These are steps' numbers.  What cannot be read or written stays as it is: the step says what it is.
    """
    found = []
    for step in beside(transaction, cause):
        with contextlib.suppress(FabtuneError):
            device = locate(step) if step.device.scope == "block" and step.number not in ours else None
            if device is not None and step.tunable not in _NEVER_SET_BY_HAND:
                found.append((step, device, backends.get(step.backend).read(device, step.key)))
    yield
    for step, device, was in found:
        with contextlib.suppress(FabtuneError):
            if backends.get(step.backend).read(device, step.key).split() != was.split():
                backends.get(step.backend).write(device, step.key, was)
