#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What a scrape takes of the reader with 64 and with 1,000 disks: CPU time and memory, against their bars.

The module's typed reading and the kernel's part of it are those of snapshot.py's guest (out/bench/snapshot); the
kernel's part of 64 disks is a share of that.  What the reader does with it is measured on this machine, in a process of
its own.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace"), str(TOP / "tests/bench")]

import snapshot as snapshot_bench  # noqa: E402

BARS_S = {64: 0.05, 1000: 0.4}
BAR_RSS_MIB = 64
_READER = """
import json, resource, struct, sys, time, zlib
from pathlib import Path
from fabtune.export import gather, reader
from fabtune.stat import Endpoint, parse_typed
count, source = int(sys.argv[1]), Path(sys.argv[2])
def first(count):
    data = source.read_bytes()
    at, seen = data.index(0) // 8 * 8 + 8, 0
    while at < len(data):
        kind, length = struct.unpack_from("=II", data, at)
        seen += kind == 0
        if seen > count:
            break
        at += length
    return data[:at]
# Read anew for each scrape, as the kernel's file is.
gather.snapshot = lambda: parse_typed(first(count))
gather.endpoint = lambda one: Endpoint("iscsi", f"iqn.2026-01.lab.fabtune:target{one.id}", "10.2.0.1:3260")
answering, costs = reader.MetricsReader(), []
for _ in range(7):
    answering._kept.clear()
    started = time.process_time()
    data = answering.answer("prometheus")
    costs.append(time.process_time() - started)
rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
text = zlib.decompress(data, 31)
series = sum(not line.startswith(b"#") for line in text.splitlines())
sizes = {"series": series, "bytes": len(text), "gzip_bytes": len(data)}
print(json.dumps({"reader_s": min(costs), "rss_mib": rss_mib, **sizes}))
"""


def measure(count: int, directory: Path) -> dict[str, float]:
    """Return what a scrape of `count` disks takes."""
    done = subprocess.run(
        [sys.executable, "-c", _READER, str(count), str(directory / "stats.bin")],
        env={"PYTHONPATH": str(TOP / "userspace"), "PATH": "/usr/bin:/bin"}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout)
    instructions = snapshot_bench.CPUS * json.loads((directory / "read.json").read_text())["typed_instructions"]
    kernel_s = instructions / snapshot_bench.INSTRUCTIONS_PER_S * count / 1000
    return {**found, "kernel_s": kernel_s, "scrape_s": found["reader_s"] + kernel_s, "bar_s": BARS_S[count]}


def main() -> int:
    """Measure, print, write export.json; return 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/bench")
    out = parser.parse_args().out.resolve()
    directory = out / "snapshot"
    if not (directory / "stats.bin").exists():
        out.mkdir(parents=True, exist_ok=True)
        directory = snapshot_bench.guest(out)
    found = {count: measure(count, directory) for count in BARS_S}
    (out / "export.json").write_text(json.dumps(found, indent=2) + "\n")
    missed = False
    for count, one in found.items():
        wrong = one["scrape_s"] > BARS_S[count] or one["rss_mib"] > BAR_RSS_MIB
        missed |= wrong
        print(
            f"{count} disks: {one['scrape_s'] * 1e3:.0f} ms of CPU a scrape, {one['kernel_s'] * 1e3:.0f} of it in the "
            f"kernel (bar {BARS_S[count] * 1e3:.0f}), {one['rss_mib']:.0f} MiB (bar {BAR_RSS_MIB}), {one['series']} "
            f"series, {one['bytes'] / 1e6:.1f} MB, compressed {one['gzip_bytes'] / 1e3:.0f} kB",
            "MISSED" if wrong else "",
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
