# SPDX-License-Identifier: GPL-2.0-or-later
"""The programs of tests/ start wherever they are run from, as the Makefile runs them: with no path told to Python."""

import os
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PROGRAMS = sorted(
    path.relative_to(TESTS)
    for path in TESTS.rglob("*.py")
    if path.read_text().startswith("#!/usr/bin/python3") and "ArgumentParser(" in path.read_text()
)


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_program_says_what_it_takes(program: Path, tmp_path: Path) -> None:
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        ["/usr/bin/python3", TESTS / program, "--help"],
        cwd=tmp_path, env=plain, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:")
