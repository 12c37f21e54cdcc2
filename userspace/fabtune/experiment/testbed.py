# SPDX-License-Identifier: GPL-2.0-or-later
"""Inside a lab guest: one combination's path, targets and sessions, brought up as its settings say."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import ExitCode, FabtuneError
from fabtune.experiment.tuners import HANDS_OFF, TUNERS, apply_tuner
from fabtune.host.run import launch, run
from fabtune.lab import fabrics, topology
from fabtune.lab.disks import Disk
from fabtune.lab.fabrics import Injection
from fabtune.measure import workload
from fabtune.model.factors import Settings
from fabtune.model.runrecord import Event

_MOUNT = "/mnt"
# The disk below a file system: memory of the guest.
_FILES_MIB = 512
# How often the limit of the page cache is moved, of the guest's clock.
_FOLLOW_S = 0.1
_GROUPS = Path("/sys/fs/cgroup")


class Testbed:
    """One combination's path, target and sessions."""

    def __init__(self, settings: Settings) -> None:
        """Bring path and target up; nobody is logged in yet.

        The path comes first: a connection remembers the round trip that it began with.
        """
        self.settings = settings
        self.path = topology.emulated_path(settings)
        self.fabric = fabrics.find(settings.fabric)(settings, _disk(settings))
        topology.up(self.path, one_namespace=self.fabric.ONE_NAMESPACE)
        self.fabric.start_target()
        self.fabric.start_initiator()

    def tune(self) -> list[str]:
        """Log in with the combination's profile in force on both ends and return the devices to load.

        No device joins the disks until then: a session that one uses is not logged in again.  What tunes beside the
        load begins untouched.
        """
        profile = self.settings.profile
        if profile == HANDS_OFF:
            return self.login()
        if profile in TUNERS:
            apply_tuner(profile)
            return self.login()
        self.fabric.login()
        rtt_ms, rate_bit_per_s = self.path.rtt_ms, self.path.rate_bit_per_s
        if self.settings.known == "measured":
            rtt_ms, rate_bit_per_s = _measured(profile)
        path = ["--rtt", f"{rtt_ms:.3f}ms"]
        if "wire_overhead" in load_profile(profile, shipped_catalog()).parameters:
            # The emulated link counts a packet as Linux does, without an Ethernet's gaps.
            path += ["--set", "wire_overhead=0"]
        namespace = topology.target_namespace()
        # Each end is told the rate of the direction that it sends in.
        ours = [*path, "--rate", f"{rate_bit_per_s:.0f}bit"]
        theirs = [*path, "--rate", f"{self.settings.rate_back_bit_per_s or rate_bit_per_s:.0f}bit"]
        # The target's new parameters wait for the login that the initiator's apply brings about.
        waits = (ExitCode.DONE, ExitCode.NEEDS_ACTION)
        fabtune(waits, "apply", profile, "--role", "target", *(["--netns", namespace] if namespace else []), *theirs)
        self.fabric.renew()
        if self.fabric.RELOGIN_BY_FABTUNE:
            fabtune((ExitCode.DONE,), "apply", profile, "--role", "initiator", "--allow-relogin", *ours)
            return self.fabric.join(self.fabric.disks())
        # Logins of other fabrics are the administrator's, here ours.
        fabtune(waits, "apply", profile, "--role", "initiator", *ours)
        self.fabric.logout()
        return self.login()

    def login(self) -> list[str]:
        """Log in and return the devices to load: several with several clients only."""
        return self.fabric.join(self.fabric.login())

    def logout(self) -> None:
        """Log out and forget what TCP learnt, so that nothing shapes the next login."""
        self.fabric.part()
        self.fabric.logout()
        topology.forget_paths()

    def renew(self) -> list[str]:
        """Log out and in, and return the devices to load: for another direction, with connections of its own.

        What TCP learnt of the one must not shape the other; nor must what was tuned beside its load.
        """
        if self.settings.profile == HANDS_OFF:
            # Nobody may use the sessions that the values of the next login are given back to.
            self.fabric.part()
            fabtune((ExitCode.DONE, ExitCode.NEEDS_ACTION), "revert", "--allow-relogin")
        self.logout()
        return self.login()

    @contextmanager
    def faults(self) -> Iterator[list[Event]]:
        """Inject the faults that the settings ask for while the load runs: a cut path, a stalled or a full target.

        Yields the list of those that have begun.
        """
        injections = self.fabric.injections()
        begun: list[Event] = []

        def begin(one: Injection) -> None:
            begun.append(Event(time.time(), one.what))
            one.begin()

        timers = [threading.Timer(self.settings.ramp_s + one.after_s, begin, [one]) for one in injections]
        for timer in timers:
            timer.start()
        try:
            yield begun
        finally:
            for timer in timers:
                timer.cancel()
                timer.join()
            for one in injections:
                if one.undo is not None:
                    one.undo()


def _measured(profile: str) -> tuple[float, float]:
    """Return round trip (ms) and rate (bit/s) as fabtune sees them from the session that is there."""
    words = ["fabtune", "plan", profile, "--role", "initiator", "--rate", "measure", "--json"]
    seen = json.loads(run(words, what="measuring the path"))["path"]
    return float(seen["rtt_ms"]), float(seen["rate_bit_per_s"])


def _disk(settings: Settings) -> Disk:
    """Return the target's disk: one that keeps what is written only where a file system will need it."""
    keeps = settings.workload != "net" and workload.load(settings.workload).target == "directory"
    limit, stalls = settings.target_mib_per_s, settings.stall_s > 0
    return Disk(_FILES_MIB if keeps else Disk.size_mib, keeps, limit, stalls)


def mount(disk: str, settings: Settings) -> str:
    """Make a file system on `disk`, mount it and return where; its page cache and read-ahead are as asked for."""
    options = ["-q", "-i", "131072", "-E", "nodiscard,lazy_itable_init=0"]
    run(["mkfs.ext4", *options, f"/dev/{disk}"], what="making a file system")
    run(["mount", f"/dev/{disk}", _MOUNT], what="mounting it")
    if settings.read_ahead_bytes:
        Path(f"/sys/block/{disk}/queue/read_ahead_kb").write_text(str(settings.read_ahead_bytes // 1024))
    if settings.page_cache_bytes:
        _limit_page_cache(settings.page_cache_bytes)
    return _MOUNT


def _limit_page_cache(size_bytes: int) -> None:
    """Let files fill `size_bytes` of memory at most for this process and those it will start, until it ends.

    A group's limit counts what its processes hold themselves, too: it is moved with that.  A fixed one would leave
    a load of many threads no page of a file at all, and the kernel would look for one for ever.
    """
    if not (_GROUPS / "cgroup.controllers").exists():
        run(["mount", "-t", "cgroup2", "none", _GROUPS], what="mounting cgroups")
    (_GROUPS / "cgroup.subtree_control").write_text("+memory")
    group = _GROUPS / "lab-files"
    group.mkdir(exist_ok=True)
    (group / "cgroup.procs").write_text(str(os.getpid()))
    threading.Thread(target=_follow, args=(group, size_bytes), daemon=True).start()


def _follow(group: Path, files_bytes: int) -> None:
    """Keep the group's limit at `files_bytes` above what is no page of a file.

    Above it the kernel takes clean pages back; nothing fails.
    """
    while True:
        held = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        own_bytes = sum(int(held[kind]) for kind in ("anon", "shmem", "kernel"))
        (group / "memory.high").write_text(str(files_bytes + own_bytes))
        time.sleep(_FOLLOW_S)


def fabtune(allowed: tuple[ExitCode, ...], *words: str) -> None:
    """Run the command as an administrator would, its output to ours.  Raises FabtuneError for another exit code."""
    status = launch(["fabtune", *words], on_terminal=True).wait()
    if status not in allowed:
        raise FabtuneError(f"fabtune {' '.join(words)}: exit {status}")
