# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: what retuning a mounted, busy session in place brings beside a re-login, and what faults do to it.

    in_place_guest.py cases RTT_MS FILESYSTEM      in_place_guest.py faults COUNT SEED

Each result is one line: CASE {...} or FAULT {...}.
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guest_words import fabtune, guest, output_of

from fabtune.host import iscsid
from fabtune.host.sessions import live_sessions

_RATE, _FILE, _TOP = "200mbit", Path("/m/data"), Path(__file__).parents[2]
_MAKE = {"ext4": ["mkfs.ext4", "-q", "-F", "-E", "nodiscard"], "xfs": ["mkfs.xfs", "-q", "-f", "-K"]}
# For how long the line is cut or the target gone, and how long requests wait for a session, so that none is lost by
# that alone.
_CUT_S, _GONE_S, _RECOVERY_S = (1, 130), (1, 60), 180
_FAULTS = ("cut", "killed", "iscsid", "target", "digest")


class Writer:
    """The program that writes and fsyncs all the time, from its start to `end`."""

    def __init__(self) -> None:
        self._place = Path(tempfile.mkdtemp())
        program, told = str(_TOP / "tests/vm/fsync_writer.py"), str(self._place / "told")
        self._process = subprocess.Popen([sys.executable, program, "/m/steps", str(self._place / "stop"), told])
        while not (self._place / "told.steps").exists():
            time.sleep(0.1)

    def end(self) -> dict[str, Any]:
        """Return what it met with."""
        (self._place / "stop").touch()
        self._process.wait()
        told: dict[str, Any] = json.loads((self._place / "told").read_text())
        shutil.rmtree(self._place)
        return told


def _mb_per_s(operation: str) -> float:
    words = ["--direct=1", "--ioengine=libaio", f"--rw={operation}", "--bs=256k", "--iodepth=32", "--size=64m"]
    timed = ["--time_based", "--runtime=8", "--ramp_time=4", "--output-format=json"]
    told = json.loads(output_of("fio", "--name=speed", f"--filename={_FILE}", *words, *timed))
    return float(told["jobs"][0][operation]["bw_bytes"]) / 1e6


def _both() -> dict[str, float]:
    return {operation: _mb_per_s(operation) for operation in ("read", "write")}


def _verified() -> "subprocess.Popen[bytes]":
    """Start a fio that writes with checksums and reads all of it back."""
    words = ["--rw=write", "--bs=64k", "--iodepth=4", "--size=8m", "--ioengine=libaio", "--direct=1"]
    words += ["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--loops=2", "--filename=/m/verified"]
    return subprocess.Popen(["fio", "--name=verified", *words], stdout=subprocess.DEVNULL)


def cases(rtt_ms: str, filesystem: str) -> None:
    """Print one CASE each for reads and writes at this round trip."""
    path = ("--rtt", f"{rtt_ms}ms", "--rate", _RATE)
    guest("up", *path, "--size-mib", "512", "--keeps-data")
    disk = f"/dev/{guest('login')}"
    output_of(*_MAKE[filesystem], disk)
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
        }  # fmt: skip
        print("CASE", json.dumps(case), flush=True)


def _set_forwarding(on: bool) -> None:
    output_of("ip", "netns", "exec", "shaper", "sysctl", "-qw", f"net.ipv4.ip_forward={int(on)}")


def _wait_until(what: str, ready: Callable[[], bool], limit_s: float = 200) -> None:
    end_s = time.monotonic() + limit_s
    while not ready():
        if time.monotonic() > end_s:
            raise SystemExit(f"still not: {what}")
        time.sleep(0.2)


def _restart_iscsid() -> None:
    """Kill iscsid, and start it a moment later, as its keeper would."""
    if daemon := iscsid.running():
        subprocess.run(["kill", "-9", str(daemon.pid)], check=False)
        time.sleep(1.0)
        # One that still finds the old one's socket ends at once.
        while iscsid.running() is None:
            # In a process group of its own, which its end ends, and nobody's child.
            subprocess.run(["sh", "-c", "setsid iscsid -f >/dev/null 2>&1 &"], check=True)
            time.sleep(2.0)


def _spoil() -> None:
    """Change what leaves for the target: veth computes no checksum, so that nothing but a digest can notice."""
    output_of("tc", "qdisc", "add", "dev", "i0", "clsact")
    # Behind the headers of IP and TCP and an answer's 48 bytes: in the data, or in the next PDU's header.
    changed = ("action", "pedit", "munge", "offset", "200", "u32", "set", "0xdeadbeef")
    to_target = ("u32", "match", "ip", "dport", "3260", "0xffff")
    output_of("tc", "filter", "add", "dev", "i0", "egress", "protocol", "ip", *to_target, *changed)
    time.sleep(0.3)
    output_of("tc", "qdisc", "del", "dev", "i0", "clsact")


def _strike(kind: str, draw: random.Random, victim: "subprocess.Popen[str]") -> None:
    time.sleep(draw.uniform(0.2, 5.0))
    if kind == "cut":
        _set_forwarding(False)
        time.sleep(draw.uniform(*_CUT_S))
        _set_forwarding(True)
    elif kind == "target":
        (portal_group,) = Path("/sys/kernel/config/target/iscsi").glob("iqn.*/tpgt_1/enable")
        portal_group.write_text("0")
        time.sleep(draw.uniform(*_GONE_S))
        portal_group.write_text("1")
    elif kind == "digest":
        _spoil()
    elif kind == "killed":
        victim.send_signal(signal.SIGKILL)
    else:
        _restart_iscsid()


def _is_up() -> bool:
    return [one.state for one in live_sessions()] == ["LOGGED_IN"] and iscsid.running() is not None


def faults(count: int, seed: int) -> None:
    """Print one FAULT for each retune that something happens to; it is lost where the session, a byte or a value is.

    The session has both digests.
    """
    guest("up", "--rtt", "10ms", "--rate", _RATE, "--size-mib", "128", "--keeps-data")
    asked = {f"node.conn[0].iscsi.{part}Digest": "CRC32C" for part in ("Header", "Data")}
    for name, value in {**asked, "node.session.timeo.replacement_timeout": str(_RECOVERY_S)}.items():
        output_of("iscsiadm", "-m", "node", "-o", "update", "-n", name, "-v", value)
    disk = f"/dev/{guest('login')}"
    output_of(*_MAKE["ext4"], disk)
    Path("/m").mkdir(exist_ok=True)
    output_of("mount", disk, "/m")
    profile = Path("/tmp/bursts.toml")
    profile.write_text(
        'summary = "a test"\n[initiator."iscsi.max_burst"]\nvalue = 131072\nwhy = "a test"\n'
        '[initiator."iscsi.time2wait"]\nvalue = 0\nwhy = "a test"\n'
    )
    records = output_of("iscsiadm", "-m", "node", "-o", "show")
    draw = random.Random(seed)
    for number in range(count):
        kind = draw.choice(_FAULTS)
        writer = Writer()
        words = [sys.executable, "-m", "fabtune", "apply", str(profile), "--role", "initiator", "--reconnect"]
        victim = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        _strike(kind, draw, victim)
        said = victim.communicate()[0][-300:]
        _wait_until("the session is back", _is_up)
        fabtune("revert", "--reconnect", allowed=(0, 4))
        _wait_until("the session is back", _is_up)
        told = writer.end()
        same = output_of("iscsiadm", "-m", "node", "-o", "show") == records
        burst = live_sessions()[0].negotiated["MaxBurstLength"]
        lost = bool(told["errors"] or told["bytes_wrong"] or not same or burst != "262144")
        fault = {"seed": seed, "number": number, "fault": kind, "status": victim.returncode, "lost": lost,
                 "pause_s": told["pause_s"], "same_record": same, "max_burst": burst, "said": said}  # fmt: skip
        print("FAULT", json.dumps(fault), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "cases":
        cases(*sys.argv[2:])
    else:
        faults(*map(int, sys.argv[2:]))
