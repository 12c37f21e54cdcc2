# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: what pacing by connection brings storage, costs another flow of the same NIC, and does to 4 sessions.

    connection_guest.py wan RTT_MS RATE [WAY...]      ... beside [WAY...]      ... shared RTT_MS RATE [WAY...]

Each result is one line: CASE {...}.  A WAY is who paces; without one, all of them are measured.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from guest_words import fabtune, guest, output_of

from fabtune.host.sessions import live_sessions
from fabtune.lab import topology

# Who paces: nobody, storage's connections with all of the profile or with what is theirs alone, or the whole NIC.
_WAYS = ("untouched", "wan", "wan --scope connection", "wan by maxrate")
# What several sessions are tried with besides: each paced at its part of the line.
_DIVIDED = "wan --set busy_sessions=4"
_ROUND_TRIPS, _PORT = 4000, 7000
_SHAPER_ADDRESS = "10.1.0.254"


def _fio(disks: Sequence[str], operation: str, *more: str) -> list[float]:
    """Return the MB/s of each disk, all at once."""
    words = ["--direct=1", "--ioengine=libaio", f"--rw={operation}", "--bs=256k", "--iodepth=32", "--time_based"]
    words += ["--runtime=4", "--ramp_time=5", "--output-format=json", *more]
    jobs = [word for disk in disks for word in (f"--name={disk}", f"--filename=/dev/{disk}")]
    told = json.loads(output_of("fio", *words, *jobs))
    return [float(one[operation]["bw_bytes"]) / 1e6 for one in told["jobs"]]


@contextmanager
def _tuned(way: str, path: Sequence[str], *more: str) -> Iterator[None]:
    """Bring both ends to `way` and back, by new logins."""
    guest("logout", *more)
    by_nic = way.endswith("maxrate")
    if by_nic:
        output_of("umount", "/sys/fs/bpf")
    words = ["--set", "share_nic=1"] if by_nic else way.split()[1:]
    if way != "untouched":
        for role, netns in (("target", "target"), ("initiator", "")):
            fabtune("apply", "wan", "--role", role, "--netns", netns, *path, *words)
    topology.forget_paths()
    guest("login", *more)
    try:
        yield
    finally:
        guest("logout", *more)
        fabtune("revert")
        if by_nic:
            output_of("mount", "-t", "bpf", "bpf", "/sys/fs/bpf")
        guest("login", *more)


def _tell(**values: object) -> None:
    print("CASE", json.dumps(values), flush=True)


def wan(rtt_ms: str, rate: str, *ways: str) -> None:
    """Reads and writes of one session, each way."""
    path = ("--rtt", f"{rtt_ms}ms", "--rate", rate)
    guest("up", *path)
    disk = guest("login")
    for way in ways or _WAYS:
        with _tuned(way, path):
            speeds = {f"{operation}_mb_per_s": round(_fio([disk], operation)[0], 2) for operation in ("read", "write")}
            _tell(what="wan", way=way, rtt_ms=float(rtt_ms), rate=rate, **speeds)


def beside(*ways: str) -> None:
    """Another flow over the initiator's NIC, bulk and request-response, while storage is idle and while it is busy."""
    path = ("--rtt", "10ms", "--rate", "1gbit")
    guest("up", *path)
    disk = guest("login")
    in_shaper = ["ip", "netns", "exec", "shaper"]
    servers = [
        subprocess.Popen([*in_shaper, "iperf3", "--server", "--interval", "0"], stdout=subprocess.DEVNULL),
        subprocess.Popen([*in_shaper, sys.executable, str(Path(__file__).resolve()), "answer"]),
    ]
    time.sleep(2)
    for way in ways or _WAYS:
        with _tuned(way, path):
            for busy in (False, True):
                load = _steady_load(disk) if busy else None
                _tell(what="beside", way=way, storage="20 MB/s" if busy else "idle", **_other_flow())
                if load:
                    load.terminate()
                    load.wait()
    for server in servers:
        server.terminate()
        server.wait()


def _steady_load(disk: str) -> "subprocess.Popen[bytes]":
    words = ["--direct=1", "--ioengine=libaio", "--rw=randrw", "--bs=64k", "--iodepth=8", "--rate=10m", "--time_based"]
    load = subprocess.Popen(
        ["fio", "--name=steady", f"--filename=/dev/{disk}", *words, "--runtime=600"], stdout=subprocess.DEVNULL
    )
    time.sleep(2)
    return load


def _other_flow() -> dict[str, Any]:
    """Return its bulk throughput, of at most 1.5 Gb/s, and the percentiles of its round trips."""
    words = ["iperf3", "--client", _SHAPER_ADDRESS, "--time", "3", "--omit", "1", "--bitrate", "1500M", "--json"]
    told = json.loads(output_of(*words))
    times = []
    with socket.create_connection((_SHAPER_ADDRESS, _PORT)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(_ROUND_TRIPS):
            begun = time.perf_counter_ns()
            client.sendall(b"x" * 64)
            client.recv(64)
            times.append(time.perf_counter_ns() - begun)
    times.sort()
    return {
        "bulk_mbit_per_s": round(told["end"]["sum_sent"]["bits_per_second"] / 1e6, 1),
        "p50_us": times[len(times) // 2] / 1e3,
        "p99_us": times[len(times) * 99 // 100] / 1e3,
    }


def answer() -> None:
    """Send back what comes."""
    with socket.create_server(("", _PORT)) as server:
        while True:
            one, _ = server.accept()
            with one:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while data := one.recv(64):
                    one.sendall(data)


def shared(rtt_ms: str, rate: str, *ways: str) -> None:
    """Four sessions on one line whose queue holds a quarter of its BDP: all of them busy, and one alone."""
    path, sessions = ("--rtt", f"{rtt_ms}ms", "--rate", rate), ("--targets", "4")
    guest("up", *path, *sessions, "--buffer", "0.25")
    guest("login", *sessions)
    for way in ways or (*_WAYS, _DIVIDED):
        with _tuned(way, path, *sessions):
            # The device that joins them would deal the requests out evenly.
            disks = [session.luns[0] for session in live_sessions()]
            for operation in ("read", "write"):
                for busy in (disks, disks[:1]):
                    _tell(what="shared", way=way, op=operation, rate=rate, **_at_once(busy, operation))


def _at_once(disks: Sequence[str], operation: str) -> dict[str, Any]:
    """Return what each of `disks` moved, what the line's queue dropped, and how busy this guest's CPU was."""
    before, ticks = topology.qdisc_counters(), _ticks()
    speeds = _fio(disks, operation)
    after, (busy, all_of_it) = topology.qdisc_counters(), map(int.__sub__, _ticks(), ticks)
    return {
        "mb_per_s": [round(one, 2) for one in speeds],
        "sum_mb_per_s": round(sum(speeds), 2),
        "drops": {device: after[device]["drops"] - before[device]["drops"] for device in ("s0", "s1")},
        "cpu_busy": round(busy / all_of_it, 3),
    }


def _ticks() -> tuple[int, int]:
    """Return how long this guest's CPU was not idle, and how long it was there."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
