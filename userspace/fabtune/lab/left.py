# SPDX-License-Identifier: GPL-2.0-or-later
"""Which files of a directory a guest left there, so that the next one's results do not stand among them."""

import contextlib
from pathlib import Path

from fabtune.host.run import run

# One name a line, as tar has written it.
LIST = ".left"


def unpack(results: Path, out: Path) -> None:
    """Unpack the archive `results` into `out`, and keep the names of what it held.  Raises FabtuneError."""
    kept = out.resolve() / LIST
    run(
        ["tar", "--extract", "--gzip", "--verbose", "--quoting-style=escape", f"--index-file={kept}", "--file", results,
         "--directory", out],
        what="unpacking the guest's results",
    )  # fmt: skip


def remove_left(out: Path) -> None:
    """Remove from `out` what a guest left there, and nothing that lies elsewhere or is somebody else's."""
    kept = out / LIST
    names = kept.read_text(errors="replace").splitlines() if kept.is_file() else []
    whole = out.resolve()
    for name in sorted(names, reverse=True):
        path = out / name
        # Whether a link leads elsewhere; a file that is a link itself is here.
        if path.name in ("", "..") or not path.parent.resolve().is_relative_to(whole) or path.resolve() == whole:
            continue
        # What is of another kind by now is not the guest's, nor is a directory with more in it.
        with contextlib.suppress(OSError):
            if name.endswith("/"):
                path.rmdir()
            else:
                path.unlink()
    kept.unlink(missing_ok=True)
