# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs a script of this directory in a guest on the virtual clock."""

import os
import subprocess
from pathlib import Path
from typing import IO

TOP = Path(__file__).resolve().parents[2]


def lab_run(
    script: str, *words: str, seed: int, suite: str = "trixie", timeout_s: int = 3600, log: IO[str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Return how it ended and what it printed on stdout; with a `log`, all that is said goes there instead."""
    lab = ["/usr/bin/python3", "-m", "fabtune", "lab", "run", "--suite", suite, "--clock", "virtual"]
    asked = ["--timeout-s", str(timeout_s), "--seed", str(seed), str(TOP / "tests/bench" / script), *words]
    return subprocess.run(
        [*lab, *asked], cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP / "userspace")},
        stdout=log or subprocess.PIPE, stderr=log, text=True, check=False,
    )  # fmt: skip
