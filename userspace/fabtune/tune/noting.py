# SPDX-License-Identifier: GPL-2.0-or-later
"""Journal lines of a revert: a disk that does not take one keeps no value from going back."""

from fabtune.errors import FabtuneError
from fabtune.tune import journal
from fabtune.tune.journal import Transaction, Writer
from fabtune.tune.lines import Line


def note(writer: Writer | None, line: Line) -> bool:
    """Write a line to the journal if there is one; tell whether its disk took it."""
    if writer is None:
        return False
    try:
        writer.append(line)
    except OSError:
        return False
    return True


def note_to(transaction: Transaction, line: Line) -> bool:
    """Journal one line for another transaction; tell whether it is on disk."""
    try:
        writer = None if transaction.damage else Writer(transaction.path)
    except (OSError, FabtuneError):
        writer = None
    done = note(writer, line)
    if writer is not None:
        writer.close()
    if done:
        journal.take(transaction, line)
    return done
