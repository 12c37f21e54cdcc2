# SPDX-License-Identifier: GPL-2.0-or-later
"""Inside a lab guest: one combination's path, targets and sessions, brought up as its settings say."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import ExitCode, FabtuneError
from fabtune.experiment import security
from fabtune.experiment.settings import Settings
from fabtune.experiment.tuners import TUNERS, apply_tuner
from fabtune.host.run import run
from fabtune.host.targets import lio
from fabtune.lab import disks, fabrics, layout, topology
from fabtune.lab.disks import Disk
from fabtune.lab.fabrics import iscsi, scsi_debug
from fabtune.measure import workload

# How long the initiator's transport waits for a cut path before it fails over.
_REPLACEMENT_S = 5
# When a target that is to be full becomes so: after the first reading of the measured part.
_FULL_AFTER_S = 2.0
_MOUNT = "/mnt"
# The disk below a file system: memory of the guest.
_FILES_MIB = 512


class Testbed:
    """One combination's path, target and sessions."""

    def __init__(self, settings: Settings) -> None:
        """Bring path and target up; nobody is logged in yet.

        The path comes first: a connection remembers the round trip that it began with.
        """
        self.settings = settings
        self.path = topology.Path(
            rtt_ms=settings["rtt_ms"], rate_bit_per_s=settings["rate_bit_per_s"], loss=settings["loss"],
            loss_model=settings["loss_model"], mtu=settings["mtu"],
        )  # fmt: skip
        self._fabric = fabrics.find(settings["fabric"])
        topology.up(self.path, one_namespace=self._fabric.ONE_NAMESPACE)
        self.layout = layout.Layout(
            settings["clients"], settings["lun"] == "own", settings["sessions"], settings["targets"],
            _disk(settings),
        )  # fmt: skip
        if settings["fabric"] == "iscsi":
            layout.start(self.layout)
            self._set_up_iscsi()
        else:
            self._fabric.start_target(self.layout.disk)
            self._fabric.start_initiator()

    def _set_up_iscsi(self) -> None:
        settings = self.settings
        nodes, target = security.VALUES[settings["security"]]
        nodes, target = dict(nodes), dict(target)
        if settings["cmds_max"]:
            # The kernel rounds cmds_max down to a power of two; one LUN may use it all.
            nodes |= dict.fromkeys(("node.session.cmds_max", "node.session.queue_depth"), str(settings["cmds_max"]))
        if settings["cmdsn_depth"]:
            target["attrib/default_cmdsn_depth"] = str(settings["cmdsn_depth"])
        if settings["unsolicited"] != "default":
            some, everything = settings["unsolicited"] != "none", settings["unsolicited"] == "all"
            burst = str(settings["size_bytes"] if everything else 65536)
            words = {"InitialR2T": not everything, "ImmediateData": some}
            for name, on in words.items():
                nodes[f"node.session.iscsi.{name}"] = target[f"param/{name}"] = "Yes" if on else "No"
            for name in ("FirstBurstLength", "MaxBurstLength"):
                nodes[f"node.session.iscsi.{name}"] = target[f"param/{name}"] = burst
        if settings["cut_s"]:
            nodes["node.session.timeo.replacement_timeout"] = str(_REPLACEMENT_S)
        for key, value in target.items():
            lio.KIND.set_everywhere(key, value)
        security.path(settings["security"])
        for key, value in nodes.items():
            iscsi.update_node(key, value)

    def tune(self) -> list[str]:
        """Log in with the combination's profile in force on both ends and return the devices to load."""
        profile = self.settings["profile"]
        if profile in TUNERS:
            apply_tuner(profile)
            return self.login()
        self._log_in()
        rtt_ms, rate_bit_per_s = self.path.rtt_ms, self.path.rate_bit_per_s
        if self.settings["known"] == "measured":
            rtt_ms, rate_bit_per_s = _measured(profile)
        path = ["--rtt", f"{rtt_ms:.3f}ms", "--rate", f"{rate_bit_per_s:.0f}bit"]
        if "wire_overhead" in load_profile(profile, shipped_catalog()).parameters:
            # The emulated link counts a packet as Linux does, without an Ethernet's gaps.
            path += ["--set", "wire_overhead=0"]
        namespace = topology.target_namespace()
        # The target's new parameters wait for the login that the initiator's apply brings about.
        waits = (ExitCode.DONE, ExitCode.NEEDS_ACTION)
        fabtune(waits, "apply", profile, "--role", "target", *(["--netns", namespace] if namespace else []), *path)
        if self.settings["fabric"] == "iscsi":
            # The target's new command window is for initiators that it does not remember.
            remembered = lio.KIND.remembered()
            self.logout()
            lio.KIND.forget(remembered)
            self._log_in()
            fabtune((ExitCode.DONE,), "apply", profile, "--role", "initiator", "--allow-relogin", *path)
            return layout.join(self.layout, iscsi.wait_for_disks(self.layout.disks))
        # Logins of other fabrics are the administrator's, here ours.
        fabtune(waits, "apply", profile, "--role", "initiator", *path)
        self._fabric.logout()
        return [self._fabric.login()]

    def login(self) -> list[str]:
        """Log in and return the devices to load: several with several clients only."""
        found = self._log_in()
        return layout.join(self.layout, found) if self.settings["fabric"] == "iscsi" else found

    def logout(self) -> None:
        """Log out and forget what TCP learnt, so that nothing shapes the next login."""
        if self.settings["fabric"] == "iscsi":
            layout.logout(self.layout)
        else:
            self._fabric.logout()
        topology.forget_paths()

    @contextmanager
    def inject_faults(self) -> Iterator[None]:
        """While the load runs: cut a path, stall the target or let it be full when the settings say so."""
        cut_s, stall_s, refusals = (self.settings[name] for name in ("cut_s", "stall_s", "task_set_full"))
        plans: list[tuple[float, Callable[[], None]]] = []
        if cut_s:
            plans.append((cut_s, lambda: layout.cut(1)))
        if stall_s:
            plans.append((stall_s, lambda: disks.stall(0)))
        if refusals:
            plans.append((_FULL_AFTER_S, lambda: scsi_debug.answer_task_set_full(refusals)))
        timers = [threading.Timer(self.settings["ramp_s"] + after_s, act) for after_s, act in plans]
        for timer in timers:
            timer.start()
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()
                timer.join()
            if cut_s:
                layout.mend(1)

    def _log_in(self) -> list[str]:
        return layout.login(self.layout) if self.settings["fabric"] == "iscsi" else [self._fabric.login()]


def _measured(profile: str) -> tuple[float, float]:
    """Return round trip (ms) and rate (bit/s) as fabtune sees them from the session that is there."""
    words = ["fabtune", "plan", profile, "--role", "initiator", "--rate", "measure", "--json"]
    seen = json.loads(run(words, what="measuring the path"))["path"]
    return float(seen["rtt_ms"]), float(seen["rate_bit_per_s"])


def _disk(settings: Settings) -> Disk:
    """Return the target's disk: one that keeps what is written only where a file system will need it."""
    keeps = settings["workload"] != "net" and workload.load(settings["workload"]).target == "directory"
    limit, stalls = settings["target_mib_per_s"], settings["stall_s"] > 0
    return Disk(_FILES_MIB if keeps else Disk.size_mib, keeps, limit, stalls)


def mount(disk: str) -> str:
    """Make a file system on `disk`, mount it and return where."""
    options = ["-q", "-i", "131072", "-E", "nodiscard,lazy_itable_init=0"]
    run(["mkfs.ext4", *options, f"/dev/{disk}"], what="making a file system")
    run(["mount", f"/dev/{disk}", _MOUNT], what="mounting it")
    return _MOUNT


def fabtune(allowed: tuple[ExitCode, ...], *words: str) -> None:
    """Run the command as an administrator would, its output to ours.  Raises FabtuneError for another exit code."""
    status = subprocess.run(["fabtune", *words], check=False).returncode
    if status not in allowed:
        raise FabtuneError(f"fabtune {' '.join(words)}: exit {status}")
