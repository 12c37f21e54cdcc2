#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What monitoring costs, kept in the tree, and the tables of Documentation/monitoring.md that show it.

ops_kept.py export out/bench/export.json, ops_kept.py sessions figures-sessions.json, or ops_kept.py scale
figures-scale.json (both of them below out/ops) keeps what was measured; `make figures` then puts it on the page.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace")]

import kept_file  # noqa: E402
import kept_tables  # noqa: E402
from kept_file import Point  # noqa: E402

DIRECTORY = TOP / "Documentation/results/bench"
PAGE = TOP / "Documentation/monitoring.md"
COMMANDS = {
    "export": "python3 tests/bench/export.py",
    "sessions": "make check-ops OPS=sessions",
    "scale": "make check-ops OPS=scale",
}
# Verbs as figures-sessions.json begins them, and as the table has them.
_VERBS = {
    "show": "`show`", "plan": "`plan`", "verify": "`verify`", "stat": "`stat`", "lint": "`lint`",
    "export": "`export --textfile`", "why": "`why`, its look left out",
}  # fmt: skip
_OF_A_RUN = (
    "hosts", "minutes", "series", "cpu_cores", "rss_gb", "slowest_recorded_query_cpu_s", "scraped_mb", "recorded_mb",
    "mb_per_host_and_day",
)  # fmt: skip


def export(points: Sequence[Point]) -> str:
    """Return what a scrape takes, a column a number of disks."""

    def cells(says: str, shown: Callable[[Point], str]) -> tuple[str, ...]:
        return says, *map(shown, points)

    rows = [
        cells("CPU time a scrape, compressing included", lambda one: f"{one['scrape_s'] * 1e3:.0f} ms"),
        cells("of it in the kernel", lambda one: f"{one['kernel_s'] * 1e3:.0f} ms"),
        cells("memory (RSS)", lambda one: f"{one['rss_mib']:.0f} MiB"),
        cells(
            "series, bytes of text, bytes compressed",
            lambda one: f"{one['series']:,}; {one['bytes'] / 1e6:.1f} MB; {one['gzip_bytes'] / 1e3:.0f} kB",
        ),
    ]
    return kept_tables.table(("", *(f"{one['disks']:,} disks" for one in points)), rows)


def sessions(points: Sequence[Point]) -> str:
    """Return what each verb takes, a column a verb."""
    (one,) = points
    return kept_tables.table(list(_VERBS.values()), [[f"{one[verb]:.1f} s" for verb in _VERBS]])


def scale(points: Sequence[Point]) -> str:
    """Return what a Prometheus takes, of all runs, which may have measured parts of it."""

    def all_of(key: str, digits: int) -> str:
        return " and ".join(f"{one[key]:.{digits}f}" for one in points if key in one)

    (day,) = (one for one in points if "mb_per_host_and_day" in one)
    least = " and ".join(f"{one['minutes']:g}" for one in points if "minutes" in one)
    scraped = f"{day['scraped_a_host']} scraped, the rest" if "scraped_a_host" in day else "scraped and"
    parts = f"{day['scraped_mb']:.2f} scraped, {day['recorded_mb']:.2f} recorded"
    rows = [
        ("CPU", f"{all_of('cpu_cores', 3)} of a core", f"scraping and recording, over {least} minutes"),
        ("memory (RSS)", f"{all_of('rss_gb', 2)} GB", "with the settings below"),
        (
            "series a host",
            " and ".join(f"{one['series'] / one['hosts']:.0f}" for one in points if "series" in one),
            f"{scraped} recorded",
        ),
        (
            "a dashboard's query of recorded series, all hosts",
            f"{all_of('slowest_recorded_query_cpu_s', 3)} s of CPU at most",
            "the least of five",
        ),
        ("bytes a host and day", f"{day['mb_per_host_and_day']:.2f} MB", parts),
    ]
    return kept_tables.table(("", "measured", ""), rows)


TABLES: dict[str, Callable[[Sequence[Point]], str]] = {"export": export, "sessions": sessions, "scale": scale}


def points_of(kind: str, measured: Mapping[str, Any]) -> list[Point]:
    """Return what a bench or a part of check-ops measured as it is kept."""
    if kind == "export":
        return [{"disks": int(disks), **one} for disks, one in measured.items()]
    if kind == "sessions":
        # Each verb was asked with one option or more; of lint, of this host before another's facts.
        cpu_s = {verb: [told["cpu_s"] for words, told in measured["verbs"].items() if words.split()[0] == verb]
                 for verb in _VERBS}  # fmt: skip
        return [{"sessions": measured["sessions"]} | {verb: some[0] for verb, some in cpu_s.items()}]
    return [{key: measured[key] for key in _OF_A_RUN if key in measured}]


def with_tables(text: str, directory: Path = DIRECTORY) -> str:
    """Return a page of Documentation with the tables of what is kept between their marks."""
    for kind, table in TABLES.items():
        kept = kept_file.read(directory / f"{kind}.json")
        text = kept_tables.between_marks(text, f"ops-{kind}", f"{table(kept.points)}\n{kept.origin}.\n")
    return text


def main() -> int:
    """Keep what a file has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=COMMANDS)
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    made = time.strftime("%Y-%m-%d", time.gmtime())
    points = points_of(args.kind, json.loads(args.file.read_text()))
    kept_file.write(DIRECTORY / f"{args.kind}.json", points, f"`{COMMANDS[args.kind]}`, made {made}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
