# SPDX-License-Identifier: GPL-2.0-or-later
"""Which transactions wait to be confirmed, and for which of them the time is up."""

import time
from collections.abc import Sequence

from fabtune.facts.collect import this_host
from fabtune.tune.journal import Transaction
from fabtune.tune.transaction import INTERRUPTED, ON_TRIAL, PARTLY_BACK


def now_s() -> float:
    """Return the seconds since the boot, those asleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def awaited(found: Sequence[Transaction]) -> list[Transaction]:
    """Return the transactions that nobody has confirmed or taken back yet."""
    return [one for one in found if one.unconfirmed and not one.confirmed and not one.closed]


def on_trial(found: Sequence[Transaction]) -> list[Transaction]:
    """Return the steps of a `fabtune tune` that it has neither kept nor taken back yet, and that have no limit.

    One that was killed while it was written is one, too, or while it was taken back: some of it stands.
    """
    half = INTERRUPTED, PARTLY_BACK
    tried = [one for one in found if one.header.on_trial and not one.confirmed]
    return [one for one in tried if one.state == ON_TRIAL or (one.state in half and one.open_steps)]


def overdue(found: Sequence[Transaction]) -> list[Transaction]:
    """Return those of them whose time is up, or was cut short by a boot."""
    boot_id = this_host().boot_id
    limits = [(one, one.unconfirmed) for one in awaited(found)]
    return [one for one, limit in limits if limit and (limit.boot_id != boot_id or limit.until_s <= now_s())]
