# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs a script of this directory in a guest, on the virtual clock unless told otherwise."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

TOP = Path(__file__).resolve().parents[2]
VIRTUAL = ("--clock", "virtual")
# A bench that `kill` ends takes its guest along, as one that Ctrl-C ends does.
WITH_ITS_BENCH = ("setpriv", "--pdeathsig", "TERM")
# Guests on a virtual clock: User Mode Linux, many times as fast and blind to CPUs; or an emulated CPU, the same bytes
# each time, with Debian's own kernel and all that it can do for BPF.
ACCELS = {"uml": (*VIRTUAL, "--accel", "uml"), "tcg": VIRTUAL}


def _command(
    script: str, words: Sequence[str], seed: int, suite: str, timeout_s: int, machine: Sequence[str] = VIRTUAL
) -> tuple[list[str], dict[str, Any]]:
    """Return the words that run it, and where and in which environment."""
    lab = [*WITH_ITS_BENCH, "/usr/bin/python3", "-m", "fabtune", "lab", "run", "--suite", suite, *machine]
    # User Mode Linux has no seed: the path's losses have netem's own, which the script is told.
    seeded = [] if "uml" in machine else ["--seed", str(seed)]
    asked = ["--timeout-s", str(timeout_s), *seeded, str(TOP / "tests/bench" / script), *words]
    return [*lab, *asked], {"cwd": TOP, "env": {**os.environ, "PYTHONPATH": str(TOP / "userspace")}, "text": True}


def lab_run(
    script: str, *words: str, seed: int, suite: str = "trixie", timeout_s: int = 3600, log: IO[str] | None = None,
    accel: str = "tcg",
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Return how it ended and what it printed on stdout; with a `log`, all that is said goes there instead."""
    command, place = _command(script, words, seed, suite, timeout_s, ACCELS[accel])
    return subprocess.run(command, stdout=log or subprocess.PIPE, stderr=log, check=False, **place)


def lab_started(
    script: str, *words: str, seed: int, suite: str = "trixie", timeout_s: int = 3600
) -> "subprocess.Popen[str]":
    """Return it running: what it prints on stdout comes as it prints it."""
    command, place = _command(script, words, seed, suite, timeout_s)
    return subprocess.Popen(command, stdout=subprocess.PIPE, **place)


def lab_lines(script: str, *words: str, seed: int, suite: str, timeout_s: int, machine: Sequence[str]) -> Iterator[str]:
    """Yield each line as the guest prints it, then one that says how it ended where that is not well.

    Whoever wants no more of them ends the guest.
    """
    command, place = _command(script, words, seed, suite, timeout_s, machine)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", **place
    ) as guest:
        assert guest.stdout
        try:
            yield from guest.stdout
        except GeneratorExit:
            guest.terminate()
            raise
    if guest.returncode:
        yield f"the guest's exit {guest.returncode}"
