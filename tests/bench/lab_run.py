# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs a script of this directory in a guest on the virtual clock."""

import os
import subprocess
from pathlib import Path
from typing import IO

TOP = Path(__file__).resolve().parents[2]


def _words(script: str, words: tuple[str, ...], seed: int, suite: str, timeout_s: int) -> list[str]:
    lab = ["/usr/bin/python3", "-m", "fabtune", "lab", "run", "--suite", suite, "--clock", "virtual"]
    return [*lab, "--timeout-s", str(timeout_s), "--seed", str(seed), str(TOP / "tests/bench" / script), *words]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(TOP / "userspace")}


def lab_run(
    script: str, *words: str, seed: int, suite: str = "trixie", timeout_s: int = 3600, log: IO[str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Return how it ended and what it printed on stdout; with a `log`, all that is said goes there instead."""
    return subprocess.run(
        _words(script, words, seed, suite, timeout_s), cwd=TOP, env=_environment(),
        stdout=log or subprocess.PIPE, stderr=log, text=True, check=False,
    )  # fmt: skip


def lab_started(
    script: str, *words: str, seed: int, suite: str = "trixie", timeout_s: int = 3600
) -> "subprocess.Popen[str]":
    """Return it running: what it prints on stdout comes as it prints it."""
    return subprocess.Popen(
        _words(script, words, seed, suite, timeout_s), cwd=TOP, env=_environment(), stdout=subprocess.PIPE, text=True
    )
