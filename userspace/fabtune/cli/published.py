# SPDX-License-Identifier: GPL-2.0-or-later
"""What the metrics show of the values on this host, where a verb may have changed it."""

import contextlib
import sys
from collections.abc import Iterator

from fabtune.cli import console


@contextlib.contextmanager
def renewed() -> Iterator[None]:
    """Look once more for the metrics when the block is left, however that is; its outcome and exit code stand."""
    # Before anything is done: a watch may outlast an upgrade, and what is imported after it is another version's.
    from fabtune.export import verified

    try:
        yield
    finally:
        # Who waits for the result has it before others are looked for.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        verified.renew(console.say)
