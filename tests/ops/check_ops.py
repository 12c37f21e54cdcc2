#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the parts of `make check-ops`, each a file tests/ops/*.bats, and writes summary.json.

A file with a line `# guest: ...` runs inside that guest (tests/vm/run.py), another one on this host.  Both may leave
JSON in files called figures-*.json, a guest's in /results, a host's in $OPS_OUT: the summary has their content.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


def run(part: Path, out: Path) -> dict[str, object]:
    """Run one part, its output on ours, and return what the summary has of it."""
    out.mkdir(parents=True, exist_ok=True)
    for stale in out.rglob("figures-*.json"):
        stale.unlink()
    command = ["/usr/bin/bats", str(part)]
    if "\n# guest: " in part.read_text():
        command = ["/usr/bin/python3", str(TOP / "tests/vm/run.py"), "--out", str(out), str(part)]
    started = time.monotonic()
    done = subprocess.run(command, cwd=TOP, env={**os.environ, "OPS_OUT": str(out)}, check=False)
    figures = {
        path.stem.removeprefix("figures-"): json.loads(path.read_text()) for path in sorted(out.rglob("figures-*.json"))
    }
    return {"ok": done.returncode == 0, "seconds": round(time.monotonic() - started), "figures": figures}


def main() -> int:
    """Run the parts named (default: all) and return 0 when each was right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/ops")
    parser.add_argument("parts", nargs="*", metavar="PART", help="such as monitoring, for tests/ops/monitoring.bats")
    args = parser.parse_args()
    out = args.out.resolve()
    summary = out / "summary.json"
    parts = [path for path in sorted((TOP / "tests/ops").glob("*.bats")) if not args.parts or path.stem in args.parts]
    # What was run alone stands beside what was run before.
    found = json.loads(summary.read_text()) if args.parts and summary.exists() else {}
    for path in parts:
        found[path.stem] = run(path, out / path.stem)
        summary.write_text(json.dumps(found, indent=2) + "\n")
        print(f"{path.stem}: {'ok' if found[path.stem]['ok'] else 'FAILED'}", flush=True)
    return 0 if parts and all(one["ok"] for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
