# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: a file of a mounted ext4 is written for a while; in the middle both ends are tuned in place.

Prints one line: CURVE {...}, with the MB/s of each quarter of a second, and when apply --reconnect began and ended.
"""

import json
import subprocess
import time
from pathlib import Path

from guest_words import fabtune, guest, output_of

_PATH = ("--rtt", "50ms", "--rate", "200mbit")
_SESSIONS = Path("/sys/class/iscsi_session")
_EVERY_MS, _BEFORE_S, _WHOLE_S = 250, 10, 30


def _points(log: Path) -> list[tuple[float, float]]:
    """Return (s, MB/s) of each interval of fio's log; one without a line had nothing."""
    found = {}
    for line in log.read_text().splitlines():
        end_ms, kib_per_s = line.split(",")[:2]
        found[round(int(end_ms) / _EVERY_MS)] = int(kib_per_s) * 1024 / 1e6
    return [(place * _EVERY_MS / 1e3, round(found.get(place, 0.0), 2)) for place in range(1, max(found) + 1)]


def main() -> None:
    """Write, tune in the middle, and tell."""
    guest("up", *_PATH, "--size-mib", "512", "--keeps-data")
    disk = f"/dev/{guest('login')}"
    output_of("mkfs.ext4", "-q", "-F", "-E", "nodiscard", disk)
    Path("/m").mkdir(exist_ok=True)
    output_of("mount", disk, "/m")
    words = [
        "--name=file",
        "--filename=/m/file",
        "--size=256m",
        "--rw=write",
        "--bs=256k",
        "--iodepth=32",
        "--direct=1",
    ]
    words += ["--ioengine=libaio", "--fallocate=native", "--time_based", f"--runtime={_WHOLE_S}"]
    words += ["--write_bw_log=/tmp/file", "--log_unix_epoch=0", f"--log_avg_msec={_EVERY_MS}"]
    load = subprocess.Popen(["fio", *words], stdout=subprocess.DEVNULL)
    begun_s = time.monotonic()
    time.sleep(_BEFORE_S)
    fabtune("apply", "wan", "--role", "target", "--netns", "target", *_PATH)
    apply_s = time.monotonic() - begun_s
    told = json.loads(fabtune("apply", "wan", "--role", "initiator", *_PATH, "--reconnect", "--json"))
    done_s = time.monotonic() - begun_s
    if load.wait():
        raise SystemExit("fio met with an error")
    pauses = [one["pause_s"] for one in told["reconnected"]]
    curve = {
        "points": _points(Path("/tmp/file_bw.1.log")), "apply_s": round(apply_s, 2), "done_s": round(done_s, 2),
        "pause_s": max(pauses, default=0.0), "sessions": sorted(one.name for one in _SESSIONS.iterdir()),
    }  # fmt: skip
    print("CURVE", json.dumps(curve), flush=True)


if __name__ == "__main__":
    main()
