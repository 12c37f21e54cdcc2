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
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace"), str(Path(__file__).parent)]

import why_kept  # noqa: E402
import why_page  # noqa: E402
import why_short  # noqa: E402
from why_cases import PLACE, Case, load_cases  # noqa: E402
from why_judge import Truth, predictions, read_run, share_error_points, with_noise  # noqa: E402

# A guest that runs more cases shares its boot among more of them; one that fails loses no more than the case it was at.
CASES_A_GUEST = 12
# What is demanded: least and most.
BARS = {
    "single_right_both_ends": (0.97, 1), "single_right_one_end": (0.90, 1), "double_right": (0.92, 1),
    "advised_at_bound": (0, 0), "share_error_points": (0, 5), "prediction_median": (0, 0.05),
    "prediction_p95": (0, 0.12), "best_change_right": (0.93, 1), "prediction_open_share": (0, 0.1),
    # So many there have to be for the others to say anything.
    "runs": (200, inf), "double_runs": (50, inf), "seeds": (2, inf), "limiters_put_in": (20, inf),
    "runs_at_bound": (20, inf),
}  # fmt: skip


def kept(out: Path, case: Case) -> bool:
    """Tell whether the runs of `case` are there, as it is now."""
    file = out / f"{case.name}.json"
    return file.exists() and json.loads(file.read_text())["digest"] == case.digest


def measure(cases: Sequence[tuple[str, Case]], out: Path, suite: str) -> None:
    """Run `cases` (file and case) in one guest and keep what each gives; those after one that fails stay missing."""
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
        print(f"{', '.join(by_name)}: exit {guest.returncode}", flush=True)


def main() -> int:
    """Measure what is missing, then judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/bench")
    parser.add_argument("--suite", default="trixie", help="which Debian's kernel and open-iscsi")
    parser.add_argument("--file", action="append", help="cases of this file of tests/bench/why only")
    parser.add_argument("--only", action="append", help="cases whose names have this in them")
    parser.add_argument("--judge-only", action="store_true", help="measure nothing: judge what is kept")
    parser.add_argument("--kept", action="store_true", help="take what is missing from the runs kept in Documentation")
    parser.add_argument("--stale", action="store_true", help="judge runs of cases that were changed since, too")
    parser.add_argument("--most", type=int, help="measure at most so many cases, and judge what is there then")
    parser.add_argument("--document", action="store_true", help="keep what is judged, and make Documentation anew")
    parser.add_argument("--keep-truths", action="store_true", help="keep the truths of short.toml for `make check`")
    parser.add_argument("--verbose", action="store_true", help="print each prediction")
    asked = parser.parse_args()
    out = asked.out / "why"
    out.mkdir(parents=True, exist_ok=True)
    if asked.kept:
        why_kept.unpack(out)
    files = asked.file or sorted(file.name for file in PLACE.glob("*.toml") if file.name != "lifts.toml")
    cases = [(file, case) for file in files for case in load_cases(PLACE / file)]
    if asked.only:
        cases = [(file, case) for file, case in cases if any(part in case.name for part in asked.only)]
    missing = [(file, case) for file, case in cases if not kept(out, case)]
    print(f"{len(cases)} cases, {len(missing)} to measure", flush=True)
    if not asked.judge_only:
        for first in range(0, len(missing[: asked.most]), CASES_A_GUEST):
            measure(missing[first : first + CASES_A_GUEST][: asked.most], out, asked.suite)
    truths = read_all(out, [case for _, case in cases], stale=asked.stale)
    result = why_page.result(truths)
    found = result["figures"]
    (asked.out / "why.json").write_text(json.dumps(found, indent=1) + "\n")
    print(why_page.tables(result))
    if asked.verbose:
        print_predictions(truths)
    if asked.document:
        why_page.keep(result)
        why_kept.pack(out, [truth.name for truth in truths])
    if asked.keep_truths:
        why_short.keep((case, truth) for case in load_cases(why_short.CASES) if (truth := read(out, case)))
    told = missed(found)
    if not asked.judge_only and asked.most is None:
        told += [f"{case.name}: not measured" for _, case in cases if not kept(out, case)]
    print("\n".join(told) or "all bars held")
    return int(bool(told))


def read_all(out: Path, cases: Sequence[Case], *, stale: bool = False) -> list[Truth]:
    """Return what is kept of `cases`; say which are of one that was changed since, and whether they count."""
    found = [case for case in cases if (out / f"{case.name}.json").exists()]
    if others := [case.name for case in found if not kept(out, case)]:
        print(f"{'' if stale else 'not '}judged, made of cases that were changed since: {', '.join(others)}")
    return with_noise([truth for case in found if (truth := read(out, case, stale=stale)) is not None])


def read(out: Path, case: Case, *, stale: bool = False) -> Truth | None:
    """Return the runs of `case` if they are kept; `stale` ones, whatever it was when they were made, if asked for."""
    file = out / f"{case.name}.json"
    if not file.exists() or not (stale or kept(out, case)):
        return None
    document = json.loads(file.read_text())
    runs = [read_run(one, document["settings"], str(file)) for one in document["runs"]]
    return Truth(case.name, tuple(runs), (case.limiter, case.duty) if case.duty else None, case.seed)


def print_predictions(truths: Sequence[Truth]) -> None:
    """Print what was foretold of each lift beside what came."""
    for truth in truths:
        if (points := share_error_points(truth)) is not None:
            print(f"{truth.name}: the share is {points:.1f} points off")
        for one in predictions(truth):
            figure = "open" if one.foretold is None else f"{one.foretold / 1e6:.2f} ({one.error:.1%} off)"
            print(f"{one.case} {one.lift}: {one.before / 1e6:.2f} -> {one.measured / 1e6:.2f} MB/s, foretold {figure}")


def missed(found: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each bar that `found` misses, or has no runs for."""
    told = []
    for name, (least, most) in BARS.items():
        value = found[name]
        if value is None:
            told.append(f"{name}: no runs tell")
        elif not least <= value <= most:
            told.append(f"{name}: {value}, {least} {'or more' if most == inf else f'to {most}'} demanded")
    return told


if __name__ == "__main__":
    sys.exit(main())
