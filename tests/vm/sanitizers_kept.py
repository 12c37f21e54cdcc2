# SPDX-License-Identifier: GPL-2.0-or-later
"""What the runs on debug kernels came to, kept in the tree: all of them take hours on one computer."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import run
from reports import Reports

sys.path[:0] = [str(run.TOP / "tests/bench"), str(run.TOP / "userspace")]

import kept_file  # noqa: E402
import kept_tables  # noqa: E402

FILE = run.TOP / "Documentation/results/sanitizers/suites.json"
PAGE = run.TOP / "Documentation/fabstat.md"
_KINDS = ("ours", "others", "known")

# By kernel and suite what came of it, and the digest of all that it depends on.
Results = dict[str, dict[str, dict[str, Any]]]
# By kernel and suite what its kernel complained of, as far as its log is kept.
Complaints = Mapping[tuple[str, str], Reports]
# By kernel and suite what a result of today's code depends on.
Digests = Mapping[str, Mapping[str, str]]


def read(path: Path) -> tuple[Results, Complaints]:
    """Return what is kept, nothing where there is no such file.  Raises ValueError when it is not what was kept."""
    results: Results = {}
    complaints = {}
    for point in kept_file.read(path).points if path.exists() else []:
        kernel, suite = point.pop("kernel"), point.pop("suite")
        complaints[kernel, suite] = Reports(*(point.pop(kind) for kind in _KINDS))
        results.setdefault(kernel, {})[suite] = point
    return results, complaints


def write(path: Path, results: Results, complaints: Complaints, module: str) -> None:
    """Keep `results`, all of the module whose sources have this digest, with the first line of each report."""
    points = [
        {"kernel": kernel, "suite": suite, **one, **_first_lines(complaints[kernel, suite])}
        for kernel, suites in results.items()
        for suite, one in sorted(suites.items())
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    kept_file.write(path, points, f"`make check-sanitizers`, module {module[:16]}")


def _first_lines(found: Reports) -> dict[str, Any]:
    return {kind: [report.splitlines()[0] for report in getattr(found, kind)] for kind in _KINDS}


def table(path: Path, digests: Digests) -> str:
    """Return what is kept as a table of Documentation, a row a kernel.

    What is of other code than `digests` names is no word of today's: it is not counted, and said to be there.
    """
    results, complaints = read(path)
    all_suites = len(list((run.TOP / "tests/vm").glob("fabstat*.bats")))
    rows = []
    older: dict[str, list[str]] = {}
    # One of which nothing is of today's code has its row as well.
    for kernel in dict.fromkeys([*digests, *results]):
        todays, kept = digests.get(kernel, {}), results.get(kernel, {})
        suites = {suite: one for suite, one in kept.items() if one["digest"] == todays.get(suite)}
        for suite in kept.keys() - suites.keys():
            older.setdefault(suite, []).append(kernel)
        wrote = [complaints[kernel, suite] for suite in suites]
        counts = (
            f"{len(suites)} of {all_suites}",
            *(sum(one[key] for one in suites.values()) for key in ("passed", "failed")),
            sum(len(one["skipped"]) for one in suites.values()),
            sum(len(one.ours) + len(one.others) for one in wrote), sum(len(one.known) for one in wrote),
        )  # fmt: skip
        minutes = sum(one["cpu_s"] for one in suites.values()) / 60
        rows.append((kernel, *map(str, counts), f"{minutes:.0f}"))
    titles = ("kernel", "suites", "tests passed", "failed", "skipped", "reports", "known ones", "minutes of CPU")
    return f"{kept_tables.table(titles, rows)}\n{kept_file.read(path).origin}.\n{_not_counted(older)}"


def _not_counted(older: Mapping[str, Sequence[str]]) -> str:
    if not older:
        return ""
    named = ", ".join(f"`{suite}` ({', '.join(kernels)})" for suite, kernels in sorted(older.items()))
    return f"Not counted, because the tests, the module or the kernel have changed since: {named}.\n"


def with_table(text: str, path: Path, digests: Digests) -> str:
    """Return a page of Documentation with the table of what is kept between its marks."""
    return kept_tables.between_marks(text, "sanitizers", table(path, digests))
