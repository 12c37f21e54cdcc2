# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: what retuning a mounted, busy session in place brings beside a re-login, and what faults do to it.

    in_place_guest.py cases RTT_MS FILESYSTEM      in_place_guest.py faults COUNT SEED

Each result is one line: CASE {...}, or BEGUN {...} and FAULT {...}, or MISSED {...} for a fault that did not strike.
"""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from guest_words import fabtune, guest, output_of
from in_place_faults import FAULTS, drawn
from in_place_host import MAKE, Host, Writer

_RATE, _FILE = "200mbit", Path("/m/data")
# How often a fault that did not strike is drawn anew.
_TRIES = 8


def _mb_per_s(operation: str) -> float:
    words = ["--direct=1", "--ioengine=libaio", f"--rw={operation}", "--bs=256k", "--iodepth=32", "--size=64m"]
    timed = ["--time_based", "--runtime=8", "--ramp_time=4", "--output-format=json"]
    told = json.loads(output_of("fio", "--name=speed", f"--filename={_FILE}", *words, *timed))
    return float(told["jobs"][0][operation]["bw_bytes"]) / 1e6


def _both() -> dict[str, float]:
    return {operation: _mb_per_s(operation) for operation in ("read", "write")}


_VERIFIED = """
while [ ! -e /tmp/enough ]; do
	fio --name=verified --rw=write --bs=64k --iodepth=4 --size=8m --ioengine=libaio --direct=1 --filename=/m/verified \
		--verify=crc32c --verify_fatal=1 --do_verify=1 >/dev/null || exit 1
done
"""


def _verified() -> "subprocess.Popen[bytes]":
    """Start what writes with checksums and reads all of it back, until there is /tmp/enough."""
    return subprocess.Popen(["sh", "-c", _VERIFIED])


def cases(rtt_ms: str, filesystem: str) -> None:
    """Print one CASE each for reads and writes at this round trip."""
    path = ("--rtt", f"{rtt_ms}ms", "--rate", _RATE)
    guest("up", *path, "--size-mib", "512", "--keeps-data")
    disk = f"/dev/{guest('login')}"
    output_of(*MAKE[filesystem], disk)
    Path("/m").mkdir(exist_ok=True)

    def mounted(measure: Callable[[], dict[str, float]]) -> dict[str, float]:
        output_of("mount", disk, "/m")
        try:
            return measure()
        finally:
            output_of("umount", "/m")

    def laid_out() -> dict[str, float]:
        output_of("dd", "if=/dev/zero", f"of={_FILE}", "bs=1M", "count=64", "oflag=direct")
        return _both()

    untouched = mounted(laid_out)
    fabtune("apply", "wan", "--role", "target", "--netns", "target", *path)
    fabtune("apply", "wan", "--role", "initiator", *path, "--allow-relogin")
    reference = mounted(_both)
    fabtune("revert", "--allow-relogin")
    output_of("mount", disk, "/m")
    foretold = json.loads(fabtune("plan", "wan", "--role", "initiator", *path, "--json"))["reconnect"]
    writer, verified = Writer(), _verified()
    fabtune("apply", "wan", "--role", "target", "--netns", "target", *path)
    done = json.loads(fabtune("apply", "wan", "--role", "initiator", *path, "--reconnect", "--json"))
    writer.look()
    Path("/tmp/enough").touch()
    told, wrong = writer.end(), verified.wait()
    after = _both()
    for operation, speed in after.items():
        case = {
            "rtt_ms": float(rtt_ms), "rate": _RATE, "op": operation, "filesystem": filesystem,
            "mb_per_s": round(speed, 2),
            "of_relogin": round(speed / reference[operation], 4), "relogin_mb_per_s": round(reference[operation], 2),
            "untouched_mb_per_s": round(untouched[operation], 2), "pause_s": told["pause_s"],
            "foretold_pause_s": foretold["pause_s"], "reconnected": len(done["reconnected"]),
            "errors": len(told["errors"]) + bool(wrong), "bytes_wrong": told["bytes_wrong"],
            "records_read": told["records_read"],
        }  # fmt: skip
        print("CASE", json.dumps(case), flush=True)


def faults(count: str, seed: str) -> None:
    """Print BEGUN, then FAULT, or MISSED for one that did not strike, for each retune that something happens to."""
    host = Host()
    usual_s = host.retune_undisturbed()
    draw = random.Random(int(seed))
    kinds = [FAULTS[number % len(FAULTS)] for number in range(int(count))]
    draw.shuffle(kinds)
    for number, kind in enumerate(kinds):
        for _ in range(_TRIES):
            fault = {"seed": int(seed), "number": number, **drawn(kind, draw, usual_s)}
            print("BEGUN", json.dumps(fault), flush=True)
            ended = host.retune(fault)
            print("MISSED" if ended["missed"] else "FAULT", json.dumps(ended), flush=True)
            if not host.whole:
                raise SystemExit("the host is not whole any more: no further fault on it would tell anything")
            if not ended["missed"]:
                break


if __name__ == "__main__":
    if sys.argv[1] == "cases":
        cases(*sys.argv[2:])
    else:
        faults(*sys.argv[2:])
