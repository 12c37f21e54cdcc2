#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Asks the Prometheus at 127.0.0.1:9090: one query (--count), or every one of a dashboard and of a file of rules.

Fails on a query that is refused, and on one that has nothing to show of a busy host where it should have.
"""

import argparse
import json
import re
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

# Of these a picture is drawn.
PICTURED = ("Total against device time, p99", "Requests a second", "Mean depth", "Refused commands a second",
            "Sending waits", "Round trip, now and least")  # fmt: skip
# What a healthy busy host has nothing of: what fires, waits, fails or drifts.
EMPTY = re.compile(r"ALERTS|fabtune_request_errors_total|fabtune_drifted_values|fabtune_due_values|== 0|_gone")


def ask(query: str) -> tuple[int, float]:
    """Return how many series a query has, and the seconds until the answer; raises on one that is refused."""
    url = "http://127.0.0.1:9090/api/v1/query?" + urllib.parse.urlencode({"query": query})
    started = time.monotonic()
    with urllib.request.urlopen(url) as answer:
        return len(json.load(answer)["data"]["result"]), time.monotonic() - started


def queries(dashboard: Path, rules: Path) -> list[str]:
    """Return every query there is, a dashboard's variables standing for everything."""
    panels = json.loads(dashboard.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    found = [re.sub(r"\$\w+", ".*", query) for query in found]
    return found + re.findall(r"^ +expr: (.*)$", rules.read_text(), re.MULTILINE)


def ranges(dashboard: Path) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return what the panels called in PICTURED would draw of the last minutes: points by panel and first label."""
    now = time.time()
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for panel in json.loads(dashboard.read_text())["panels"]:
        if panel["title"] not in PICTURED:
            continue
        curves = found.setdefault(panel["title"], {})
        for target in panel["targets"]:
            words = {"query": re.sub(r"\$\w+", ".*", target["expr"]), "start": now - 240, "end": now, "step": 4}
            url = "http://127.0.0.1:9090/api/v1/query_range?" + urllib.parse.urlencode(words)
            with urllib.request.urlopen(url) as answer:
                for one in json.load(answer)["data"]["result"]:
                    # {{label}} stands for a label's value.
                    parts = re.split(r"\{\{(\w+)\}\}", target["legendFormat"])
                    parts[1::2] = [one["metric"].get(label, "") for label in parts[1::2]]
                    name = "".join(parts)
                    curves[name] = [(float(at) - now, float(value)) for at, value in one["values"]]
    return found


def main() -> int:
    """Print and write what came of each query; return 1 where one has nothing to show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", metavar="QUERY")
    parser.add_argument("--dashboard", type=Path)
    parser.add_argument("--rules", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--ranges", type=Path, help="write what some panels would draw")
    args = parser.parse_args()
    if args.ranges:
        args.ranges.write_text(json.dumps(ranges(args.dashboard), indent=1) + "\n")
        return 0
    if args.count:
        print(ask(args.count)[0])
        return 0
    found = {query: ask(query) for query in queries(args.dashboard, args.rules)}
    alerts = set(re.findall(r"alert: .*\n(?: +#.*\n)? +expr: (.*)", args.rules.read_text()))
    missing = [query for query, (count, _) in found.items()
               if not count and query not in alerts and not EMPTY.search(query)]  # fmt: skip
    figures = {"queries": len(found), "answered": sum(count > 0 for count, _ in found.values()),
               "slowest_s": max(seconds for _, seconds in found.values()), "missing": missing}  # fmt: skip
    args.out.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    return 1 if missing or len(found) < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
