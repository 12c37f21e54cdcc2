# SPDX-License-Identifier: GPL-2.0-or-later
"""One `fabtune run` at a time in an experiment's directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabtune.errors import InputError
from fabtune.host import locks

# Whoever looks for results passes over names that begin with a dot.
_LOCK = ".lock"


@contextmanager
def only_run_in(out: Path) -> Iterator[None]:
    """Have the directory `out`, made when missing, for this run alone.  Raises InputError, naming who has it."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / _LOCK).open("w") as handle:
        if not locks.lock_now(handle.fileno()):
            who = locks.processes_in_words(locks.lock_holders(out / _LOCK))
            raise InputError(f"--out {out}: {who} is measuring into it; wait for it, or name another directory")
        yield
