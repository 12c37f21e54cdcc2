# SPDX-License-Identifier: GPL-2.0-or-later
"""One reading of the loaded module: typed where it has the typed file, else its text."""

from pathlib import Path

from fabtune.stat.binary import TYPED_FILE, is_typed, parse_typed
from fabtune.stat.snapshot import DIRECTORY, Snapshot, text_snapshot


def snapshot(directory: Path = DIRECTORY) -> Snapshot:
    """Read the module.  Raises FabtuneError when it is not loaded or may not be read.

    Modules before 0.2.0 have the text alone; the text is also read where a newer one has another typed format.
    """
    path = directory / TYPED_FILE
    try:
        data = path.read_bytes()
    except OSError:
        # The text says what is wrong, if it is not that.
        return text_snapshot(directory)
    return parse_typed(data, str(path)) if is_typed(data) else text_snapshot(directory)
