# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: each case as it is, then with each of its limiters lifted alone, then with all of them.

    why_guest.py CASE...        CASE is FILE:NAME of tests/bench/why

Every run is a login of its own on a path that was set before it, with the same seed.  A case is one line:
CASE NAME and its runs as JSON, compressed, in base64.
"""

import base64
import json
import os
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from why_cases import GOOD, Case, Settings, load_cases

from fabtune.backends import record
from fabtune.host import targets
from fabtune.host.run import finish, launch, run
from fabtune.host.targets import null_blk
from fabtune.lab import fabrics, iperf3, iscsi_initiator, topology
from fabtune.lab.disks import Disk
from fabtune.lab.shell import nsenter, tc_batch, write_sysctl
from fabtune.lab.waiting import until
from fabtune.measure.look import Look
from fabtune.model import factors, typed, units
from fabtune.model.observation import WAYS

# What of a load and a target is written where; a value in {} may come with several words.
_RECORD = {
    "iscsi.tcp_window": "node.conn[0].tcp.window_size",
    "iscsi.cmds_max": "node.session.cmds_max",
    "iscsi.queue_depth": "node.session.queue_depth",
    "iscsi.initial_r2t": "node.session.iscsi.InitialR2T",
    "iscsi.immediate_data": "node.session.iscsi.ImmediateData",
    "iscsi.first_burst": "node.session.iscsi.FirstBurstLength",
    "iscsi.max_burst": "node.session.iscsi.MaxBurstLength",
    "iscsi.max_outstanding_r2t": "node.session.iscsi.MaxOutstandingR2T",
    "iscsi.header_digest": "node.conn[0].iscsi.HeaderDigest",
    "iscsi.data_digest": "node.conn[0].iscsi.DataDigest",
}
_LIO = {
    "lio.initial_r2t": "param/InitialR2T",
    "lio.immediate_data": "param/ImmediateData",
    "lio.first_burst": "param/FirstBurstLength",
    "lio.max_burst": "param/MaxBurstLength",
    "lio.max_outstanding_r2t": "param/MaxOutstandingR2T",
    "lio.header_digest": "param/HeaderDigest",
    "lio.data_digest": "param/DataDigest",
    "lio.default_cmdsn_depth": "attrib/default_cmdsn_depth",
}
_TRIPLES = {"tcp.rmem_max": "net.ipv4.tcp_rmem", "tcp.wmem_max": "net.ipv4.tcp_wmem"}
_SYSCTLS = {
    "tcp.slow_start_after_idle": "net.ipv4.tcp_slow_start_after_idle",
    "tcp.no_metrics_save": "net.ipv4.tcp_no_metrics_save",
    "tcp.congestion_control": "net.ipv4.tcp_congestion_control",
    "tcp.notsent_lowat": "net.ipv4.tcp_notsent_lowat",
}
_BLOCK = {"block.scheduler": "scheduler", "block.nr_requests": "nr_requests", "block.read_ahead_kb": "read_ahead_kb"}
_ENDS = {"initiator": (None, "i0"), "target": (topology.TARGET, "t0")}
_DISK, _SIZE_MIB = "lab-disk0", 1024
# A limit that nothing reaches keeps requests of 256 KiB whole.
_FAST_MIB = 1000
_LONG_S = 100_000
# Who competes has this window, at iperf3's own port.
_OTHERS_WINDOW, _OTHERS_PORT = "2M", 5201
# How often a cause with a duty comes and goes within a look.
_PERIODS = 3
_LIVE_GOOD = {"block.queue_depth": "113"}


class Bed:
    """The guest's path, target and initiator, given the settings of one run after another."""

    def __init__(self) -> None:
        self._now: dict[str, str] = {}
        self._remembered: list[str] = []
        settings = factors.parse({}, "why")
        # A mapped disk: its table may change while nobody is logged in.
        self._fabric = fabrics.find("iscsi")(settings, Disk(_SIZE_MIB, mb_per_s=_FAST_MIB, stalls=True))
        self._kind = targets.named(settings.target)
        topology.up(topology.EmulatedPath(0.0))
        self._fabric.start_target()
        self._fabric.start_initiator()
        self._slow: Path | None = None
        run(["modprobe", "tcp_bbr"], what="loading bbr")
        run(["insmod", "/fabtune/kmod/fabstat.ko"], what="loading fabstat")

    @contextmanager
    def session(self, wanted: Settings, seed: int) -> Iterator[str]:
        """Set everything to `wanted`, log in, yield the disk, and log out."""
        changed = {key: value for key, value in wanted.items() if self._now.get(key) != value}
        families = {key.rpartition(":")[2].partition(".")[0] for key in changed}
        if "path" in families:
            self._path(wanted, seed)
        for key, value in changed.items():
            self._write(key, value)
        if families & {"path", "qdisc"}:
            self._qdiscs(wanted)
        if "disk" in families:
            self._backstore(wanted)
        self._now = dict(wanted)
        if "lio" in families:
            # A window of commands is for initiators that the target does not remember.
            self._kind.forget(self._remembered)
        self._fabric.login()
        try:
            disk = self._fabric.disks()[0]
            for key, file in _BLOCK.items():
                if wanted[key] != "default":
                    Path(f"/sys/block/{disk}/queue/{file}").write_text(wanted[key])
            yield disk
        finally:
            self._remembered = self._kind.remembered()
            # Nothing is remembered of the path: tcp_no_metrics_save is on in every case.
            self._fabric.logout()

    def _path(self, wanted: Settings, seed: int) -> None:
        loss, buffer = units.parse_percent(wanted["path.loss"]), wanted["path.buffer"]
        self.path = topology.EmulatedPath(
            units.parse_ms(wanted["path.rtt"]), units.parse_bit_per_s(wanted["path.rate"]), loss, seed=seed,
            buffer_bytes=None if buffer == "deep" else units.parse_bytes(buffer),
        )  # fmt: skip
        topology.shape(self.path)

    def _write(self, key: str, value: str) -> None:
        end, _, name = key.rpartition(":")
        if name in _RECORD:
            iscsi_initiator.update_node(_RECORD[name], value)
        elif name in _LIO:
            self._kind.set_everywhere(_LIO[name], value)
        elif name in _TRIPLES:
            write_sysctl(_ENDS[end][0], _TRIPLES[name], f"4096 {min(1 << 20, int(value))} {value}")
        elif name in _SYSCTLS:
            write_sysctl(_ENDS[end][0], _SYSCTLS[name], value)

    def _qdiscs(self, wanted: Settings) -> None:
        for end, (namespace, nic) in _ENDS.items():
            rate = wanted[f"{end}:qdisc.maxrate"]
            if rate == "none":
                # As an untouched interface of this kind is; there may be none to delete.
                finish([*nsenter(namespace), "tc", "qdisc", "del", "dev", nic, "root"])
                continue
            most = f"{self.path.rate_bit_per_s:.0f}bit" if rate == "path" else rate
            tc_batch(namespace, [f"qdisc replace dev {nic} root fq maxrate {most}"])

    def now(self, changed: Settings, disk: str) -> None:
        """Change what takes effect at once, under load."""
        for key, value in changed.items():
            if key == "block.queue_depth":
                Path(f"/sys/block/{disk}/device/queue_depth").write_text(value)
            else:
                self._qdiscs({**self._now, key: value})

    def _backstore(self, wanted: Settings) -> None:
        """Change the table below the target's disk: fast, so many ms late, or so many MiB/s."""
        delay_ms, rate = units.parse_ms(wanted["disk.delay"]), int(wanted["disk.mib_per_s"])
        sectors = _SIZE_MIB * 2048
        device = Path("/dev/nullb0")
        if rate:
            # The device's limit is part of its making.
            place = Path("/sys/kernel/config/nullb/nullb1")
            if not place.exists():
                null_blk.make(1, _SIZE_MIB, False, rate)
            device = Path("/dev/nullb1")
        table = f"0 {sectors} linear {device} 0"
        if delay_ms:
            table = f"0 {sectors} delay {device} 0 {delay_ms:.0f}"
        run(["dmsetup", "suspend", _DISK], what="changing the disk")
        run(["dmsetup", "reload", _DISK, "--table", table], what="changing the disk")
        run(["dmsetup", "resume", _DISK, "--noudevsync"], what="changing the disk")


@contextmanager
def competing(wanted: Settings) -> Iterator[None]:
    """Run the bulk flows that share the path with the session, beside its data or against it."""
    flows = int(wanted["path.competing"])
    with ExitStack() as stack:
        if flows:
            sender, receiver = ("target", "initiator") if wanted["load.op"] != "write" else ("initiator", "target")
            address = topology.INITIATOR_ADDRESS if receiver == "initiator" else topology.TARGET_ADDRESS
            words = ["--client", address, "--time", "3600", "--parallel", str(flows), "--window", _OTHERS_WINDOW]
            stack.enter_context(iperf3.listening(_ENDS[receiver][0], _OTHERS_PORT))
            with _wide_buffers():
                stack.enter_context(process([*nsenter(_ENDS[sender][0]), "iperf3", *words]))
                ask = [*nsenter(_ENDS[sender][0]), "ss", "-Htn", "state", "established", f"dport = :{_OTHERS_PORT}"]
                # One more connection is for control.
                until(lambda: len(finish(ask).stdout.splitlines()) > flows, "the competing flows to begin")
        yield


@contextmanager
def _wide_buffers() -> Iterator[None]:
    """Let whoever asks have the buffers that iperf3 asks for, and ends without."""
    limits = [Path(f"/proc/sys/net/core/{name}mem_max") for name in "rw"]
    before = [one.read_text() for one in limits]
    try:
        for one in limits:
            one.write_text("8388608")
        yield
    finally:
        for one, text in zip(limits, before, strict=True):
            one.write_text(text)


@contextmanager
def process(words: list[str]) -> Iterator[None]:
    """Run a program until the end of the block."""
    running = launch(words)
    try:
        yield
        if running.poll() is not None:
            raise SystemExit(f"{' '.join(words)}: ended with {running.returncode}")
    finally:
        running.terminate()
        running.wait()


@contextmanager
def on_and_off(bed: Bed, case: Case, disk: str, seconds: float) -> Iterator[None]:
    """Let the cause of a case with a duty be there for that share of each third of the look."""
    away = {key: _LIVE_GOOD.get(key, GOOD.get(key, "")) for key in case.duty_set}

    def switch() -> None:
        for _ in range(_PERIODS):
            bed.now(case.duty_set, disk)
            time.sleep(case.duty * seconds / _PERIODS)
            bed.now(away, disk)
            time.sleep((1 - case.duty) * seconds / _PERIODS)

    switching = threading.Thread(target=switch)
    if case.duty:
        switching.start()
    yield
    if case.duty:
        switching.join()


def fio(disk: str, wanted: Settings, seed: int) -> list[str]:
    """Return the command of the load, whose requests come in the order of `seed`."""
    operation = {"mixed": "rw"}.get(wanted["load.op"], wanted["load.op"])
    words = ["fio", "--name=load", f"--filename=/dev/{disk}", f"--bs={wanted['load.size']}", "--size=900m"]
    words += ["--time_based", f"--runtime={_LONG_S}", f"--randseed={seed}"]
    if wanted["load.kind"] == "buffered":
        words += [f"--rw={operation}", "--ioengine=psync", "--invalidate=1"]
    else:
        # Not in order: what waits for its turn would be merged, and the load be another with each limit.
        words += [f"--rw=rand{operation}", "--ioengine=libaio", "--direct=1", f"--iodepth={wanted['load.depth']}"]
    if wanted["load.pause"] != "0":
        pause_us = round(units.parse_ms(wanted["load.pause"]) * 1000)
        words += [f"--thinktime={pause_us}", f"--thinktime_blocks={wanted['load.burst']}"]
    return words


def measured(bed: Bed, wanted: Settings, case: Case, seconds: float) -> dict[str, Any]:
    """Return what one run of `wanted` gives: MB/s and ms of each direction, and the observation."""
    with bed.session(wanted, case.seed) as disk, competing(wanted), process(fio(disk, wanted, case.seed)):
        time.sleep(case.ramp_s)
        topology.lose_anew(bed.path)
        # This process has changed the records since it read them.
        record.BACKEND.forget()
        with on_and_off(bed, case, disk, seconds):
            seen = Look([disk], topology.TARGET).over(seconds)[0]
    found: dict[str, Any] = {"observation": typed.STRICT.write(seen)}
    for way, one in seen.disk.ways.items():
        found[f"{way}_mb_per_s"] = one.moved_bytes / seen.disk.elapsed_s / 1e6
        found[f"{way}_ms"] = one.total_ms
    return found


def total(found: Mapping[str, Any]) -> float:
    """Return MB/s of both directions."""
    return float(sum(found.get(f"{way}_mb_per_s", 0.0) for way in WAYS))


def busy_s() -> float:
    """Return the seconds in which the guest's CPU has worked: what a run costs its host."""
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def runs(bed: Bed, case: Case) -> list[dict[str, Any]]:
    """Return the runs of a case: as it is, each limiter lifted alone, all of them, and the world where none helps."""
    found: list[dict[str, Any]] = []

    def add(name: str, values: Mapping[str, str]) -> None:
        begun_s = busy_s()
        seconds = case.lifted_s if name else case.look_s
        one = {"lift": name, "settings": dict(values), **measured(bed, {**case.settings, **values}, case, seconds)}
        cost = f"{busy_s() - begun_s:.1f} s of the CPU"
        print(f"  {case.name}: {name or 'as it is'}: {total(one):.2f} MB/s; {cost}", flush=True)
        found.append(one)

    add("", {})
    if case.duty:
        return found
    for name, values in case.lifts.items():
        add(name, values)
    best = max((total(one) for one in found[1:]), default=0.0)
    if len(case.lifts) > 1:
        add("all", {key: value for values in case.lifts.values() for key, value in values.items()})
    if best < (1 + case.threshold) * total(found[0]):
        for name, values in case.world.items():
            add(name, values)
    return found


def main() -> None:
    """Run the cases that are named."""
    bed = Bed()
    for word in sys.argv[1:]:
        file, _, name = word.partition(":")
        case = next(one for one in load_cases(Path(__file__).parent / "why" / file) if one.name == name)
        found = runs(bed, case)
        packed = base64.b64encode(zlib.compress(json.dumps(found).encode())).decode()
        print("CASE", name, packed, flush=True)


if __name__ == "__main__":
    main()
