# SPDX-License-Identifier: GPL-2.0-or-later
"""The house's own rules, as far as no tool has them: licences, and names that mean one thing."""

import subprocess
from fnmatch import fnmatch
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
# Files that have no comments, and others' files, which say their licence themselves.
UNSIGNED = (
    "*.png", "*.jsonl", "*.json.gz", "LICENSE", "*.LICENSE", "userspace/fabtune/report/templates/vendor/*",
    # The form of the kernel's Documentation/ABI has no room for it.
    "Documentation/ABI/*",
)  # fmt: skip


def _files() -> list[Path]:
    """Return what git knows of this tree, or all of it where it is no repository."""
    listed = subprocess.run(["git", "-C", str(TOP), "ls-files", "-z"], capture_output=True, text=True, check=False)
    names = [name for name in listed.stdout.split("\0") if name]
    return [path for path in map(TOP.joinpath, names) if path.is_file()]


def test_every_file_says_its_licence() -> None:
    unsigned = [
        str(path.relative_to(TOP))
        for path in _files()
        if not any(fnmatch(str(path.relative_to(TOP)), pattern) for pattern in UNSIGNED)
        and "SPDX-License-Identifier: GPL-2.0" not in path.read_text(errors="replace")[:400]
    ]
    assert unsigned == []
