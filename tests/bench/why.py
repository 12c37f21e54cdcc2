#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether `fabtune why` names what limits a session, and `fabtune whatif` foretells what lifting it brings.

The truth is counterfactual: in a guest each case runs as it is, then with each limiter lifted alone; what raises
throughput most is the limiter.  Runs are kept in OUT/why and not measured again while their case stays the same.
"""

import argparse
import base64
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace"), str(Path(__file__).parent)]

from why_cases import PLACE, Case, load_cases  # noqa: E402

# A guest that runs more cases shares its boot among more of them; one that fails loses no more than the case it was at.
CASES_A_GUEST = 12


def kept(out: Path, case: Case) -> bool:
    """Tell whether the runs of `case` are there, as it is now."""
    file = out / f"{case.name}.json"
    return file.exists() and json.loads(file.read_text())["digest"] == case.digest


def measure(cases: Sequence[tuple[str, Case]], out: Path, suite: str) -> None:
    """Run `cases` (file and case) in one guest and keep what each gives.  Raises SystemExit for a guest that fails."""
    by_name = {case.name: case for _, case in cases}
    lab = ["/usr/bin/python3", "-m", "fabtune", "lab", "run", "--suite", suite, "--clock", "virtual"]
    words = ["--timeout-s", "3600", str(TOP / "tests/bench/why.guest"), *(f"{file}:{one.name}" for file, one in cases)]
    environment = {**os.environ, "PYTHONPATH": str(TOP / "userspace")}
    with subprocess.Popen([*lab, *words], cwd=TOP, env=environment, stdout=subprocess.PIPE, text=True) as guest:
        assert guest.stdout is not None
        for line in guest.stdout:
            if not line.startswith("CASE "):
                print(line, end="", flush=True)
                continue
            _, name, packed = line.split()
            runs = json.loads(zlib.decompress(base64.b64decode(packed)))
            document = {"digest": by_name[name].digest, "case": name, "settings": by_name[name].settings, "runs": runs}
            (out / f"{name}.json").write_text(json.dumps(document) + "\n")
    if guest.returncode:
        raise SystemExit(f"{', '.join(by_name)}: exit {guest.returncode}")


def main() -> int:
    """Measure what is missing, then judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/bench")
    parser.add_argument("--suite", default="trixie", help="which Debian's kernel and open-iscsi")
    parser.add_argument("--file", action="append", help="cases of this file of tests/bench/why only")
    parser.add_argument("--only", action="append", help="cases whose names begin so")
    asked = parser.parse_args()
    out = asked.out / "why"
    out.mkdir(parents=True, exist_ok=True)
    files = asked.file or sorted(file.name for file in PLACE.glob("*.toml") if file.name != "lifts.toml")
    cases = [(file, case) for file in files for case in load_cases(PLACE / file)]
    if asked.only:
        cases = [(file, case) for file, case in cases if case.name.startswith(tuple(asked.only))]
    missing = [(file, case) for file, case in cases if not kept(out, case)]
    print(f"{len(cases)} cases, {len(missing)} to measure", flush=True)
    for first in range(0, len(missing), CASES_A_GUEST):
        measure(missing[first : first + CASES_A_GUEST], out, asked.suite)
    return 0


if __name__ == "__main__":
    sys.exit(main())
