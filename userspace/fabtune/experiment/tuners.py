# SPDX-License-Identifier: GPL-2.0-or-later
"""Other tuners, put in force inside a guest so that profiles can be held against them."""

import configparser
import signal
import time
from collections.abc import Callable
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host.run import launch, require, run
from fabtune.host.targets.lio import KIND
from fabtune.lab import iscsi_initiator
from fabtune.lab.shell import nsenter, write_sysctl
from fabtune.lab.topology import TARGET
from fabtune.model.untouched import UNTOUCHED

# Not a state that is put in force beforehand, but `fabtune tune` beside each direction's load (hands_off.py).
HANDS_OFF = "tune"
_TUNED_PROFILES = Path("/usr/lib/tuned/profiles")
# ESnet's fasterdata advice for a data transfer node with a 10 Gb/s NIC.
_FASTERDATA = {
    "net.core.rmem_max": "67108864",
    "net.core.wmem_max": "67108864",
    "net.ipv4.tcp_rmem": "4096 87380 33554432",
    "net.ipv4.tcp_wmem": "4096 65536 33554432",
    "net.core.netdev_max_backlog": "250000",
    "net.ipv4.tcp_no_metrics_save": "1",
    "net.ipv4.tcp_mtu_probing": "1",
    "net.core.default_qdisc": "fq",
}
# Sandia, iSCSI over WAN, 2.3.2 (TCP Tuning, iSCSI Tuning): what it published, in today's words.
_SANDIA_WINDOW = "10485760"
_SANDIA = {
    "net.core.rmem_max": _SANDIA_WINDOW,
    "net.core.wmem_max": _SANDIA_WINDOW,
    "net.core.rmem_default": _SANDIA_WINDOW,
    "net.core.wmem_default": _SANDIA_WINDOW,
    "net.ipv4.tcp_rmem": f"4096 {_SANDIA_WINDOW} {_SANDIA_WINDOW}",
    "net.ipv4.tcp_wmem": f"4096 {_SANDIA_WINDOW} {_SANDIA_WINDOW}",
    "net.core.netdev_max_backlog": "2500",
}
_SANDIA_QUEUE, _SANDIA_COMMANDS, _SANDIA_REQUEST = "1000", "64", "262144"
# ImmediateData=Yes and InitialR2T=No, with a first burst that holds the largest request ("most unsolicited").
_SANDIA_ISCSI = {
    "ImmediateData": "Yes", "InitialR2T": "No",
    "FirstBurstLength": _SANDIA_REQUEST, "MaxBurstLength": _SANDIA_REQUEST,
}  # fmt: skip
_BPFTUNE_LOG = Path("/results/bpftune.log")
_BPFTUNE_WAIT_S = 120.0


def apply_tuner(name: str) -> None:
    """Put the guest into the state that the tuner `name` (one of TUNERS) leaves; `untouched` touches nothing.

    Raises FabtuneError when the tuner is not there or does not start.
    """
    TUNERS[name]()


def tuned_sysctls(profile: str, directory: Path = _TUNED_PROFILES) -> dict[str, str]:
    """Return the sysctls of a tuned profile and of those it includes, as its own files state them.

    Raises FabtuneError when a file is missing.
    """
    path = directory / profile / "tuned.conf"
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=False)
    parser.optionxform = str  # type: ignore[assignment]  # sysctls keep their case
    if not parser.read(path):
        raise FabtuneError(f"{path}: no such file; is tuned installed in the guest?")
    found: dict[str, str] = {}
    for included in filter(None, parser.get("main", "include", fallback="").split(",")):
        found |= tuned_sysctls(included.strip(), directory)
    if parser.has_section("sysctl"):
        found |= {key: value.strip().strip('"') for key, value in parser.items("sysctl")}
    return found


def _tuned() -> None:
    """What ``tuned-adm profile network-throughput`` writes that a network or a disk can feel: its sysctls."""
    for key, value in tuned_sysctls("network-throughput").items():
        # tuned's ">" raises only and "<" lowers only; none of this profile's is beyond a fresh kernel's default.
        _write_everywhere(key, value.lstrip("<>"))


def _fasterdata() -> None:
    for key, value in _FASTERDATA.items():
        _write_everywhere(key, value)
    # A NIC that comes up under default_qdisc=fq has it; veth never takes the default.
    for namespace, device in ((None, "i0"), (TARGET, "t0")):
        run([*nsenter(namespace), "tc", "qdisc", "replace", "dev", device, "root", "fq"], what=f"giving {device} fq")


def _sandia() -> None:
    """What Sandia published for its WAN: 10 MB windows, 64 commands, no R2T, on both ends.

    Its initiator left the window to TCP; today's locks one unless told its size, so it is told the same as the target.
    """
    for key, value in _SANDIA.items():
        _write_everywhere(key, value)
    for namespace, device in ((None, "i0"), (TARGET, "t0")):
        words = ["ip", "link", "set", device, "txqueuelen", _SANDIA_QUEUE]
        run([*nsenter(namespace), *words], what=f"setting the queue of {device}")
    KIND.set_everywhere("attrib/default_cmdsn_depth", _SANDIA_COMMANDS)
    iscsi_initiator.update_node("node.session.queue_depth", _SANDIA_COMMANDS)
    iscsi_initiator.update_node("node.conn[0].tcp.window_size", _SANDIA_WINDOW)
    for name, value in _SANDIA_ISCSI.items():
        KIND.set_everywhere(f"param/{name}", value)
        iscsi_initiator.update_node(f"node.session.iscsi.{name}", value)


def _bpftune() -> None:
    """Start the daemon as its package's unit does and wait until its tuners are loaded."""
    program = require("bpftune", "bpftune")
    _BPFTUNE_LOG.parent.mkdir(exist_ok=True)
    with _BPFTUNE_LOG.open("wb") as log:
        daemon = launch([program, "-s"], log=log)
    deadline = time.monotonic() + _BPFTUNE_WAIT_S
    while not _catches(daemon.pid, signal.SIGTERM):
        if daemon.poll() is not None or time.monotonic() > deadline:
            tail = _BPFTUNE_LOG.read_text(errors="replace").strip().splitlines()[-3:]
            raise FabtuneError("\n  ".join(["bpftune did not start", *tail]))
        time.sleep(0.1)


def _catches(pid: int, number: int) -> bool:
    """Tell whether a process handles a signal: bpftune does so once its last tuner is loaded, just before its loop."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _write_everywhere(key: str, value: str) -> None:
    """Write one sysctl on both ends; what a namespace lacks, or may only read, is global and written once."""
    write_sysctl(None, key, value)
    path = f"/proc/sys/{key.replace('.', '/')}"
    run([*nsenter(TARGET), "sh", "-c", f"test ! -w {path} || echo '{value}' > {path}"], what=f"writing {key}")


TUNERS: dict[str, Callable[[], None]] = {
    UNTOUCHED: lambda: None,
    "network-throughput": _tuned,
    "fasterdata": _fasterdata,
    "bpftune": _bpftune,
    "sandia": _sandia,
}
# What tunes no other hosts than guests of the lab.
LABS_OWN = frozenset({*TUNERS, HANDS_OFF}) - {UNTOUCHED}
