# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: what happens to a host while it is retuned in place, and proof that it did happen at that moment."""

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guest_words import output_of

from fabtune.host import iscsid

FAULTS = ("cut", "killed", "iscsid", "target", "digest")
# For how long the line is cut or the target gone.
CUT_S, GONE_S = (1, 130), (1, 60)
# open-iscsi's own replacement_timeout lets a fault pass that is so much shorter: a login follows it.  For one that is
# longer requests wait for long enough that none is lost by the fault alone.
DEFAULT_TIMEOUT_S, LONG_TIMEOUT_S, LOGIN_S = 120, 180, 10
_TO_TARGET, _FROM_TARGET = ("ip", "dport", "3260", "0xffff"), ("ip", "sport", "3260", "0xffff")
# For how long commands reach the target before it is gone, and their answers nobody.
_UNANSWERED_S, _SPOIL_S = 0.5, 2.0
# LIO, iscsi_target.c: of a command's header, of data sent along with it, and of data asked for.
_DIGEST_ERROR = re.compile(r"DataDigest 0x\S+\s+does not match computed|HeaderDigest CRC32C failed")


class NotStruckError(Exception):
    """It came too late, or did nothing: no fault to count."""


def drawn(kind: str, draw: random.Random, usual_s: float) -> dict[str, Any]:
    """Return when such a fault strikes, of an apply that takes `usual_s`, for how long, and how long requests wait."""
    lasts_s = draw.uniform(*{"cut": CUT_S, "target": GONE_S}.get(kind, (0, 0)))
    timeout_s = DEFAULT_TIMEOUT_S if lasts_s + LOGIN_S < DEFAULT_TIMEOUT_S else LONG_TIMEOUT_S
    # Before the first of its own steps Python starts, for a quarter of it.
    after_s = draw.uniform(0.25, 0.98) * usual_s
    return {"fault": kind, "after_s": round(after_s, 3), "lasts_s": round(lasts_s, 1), "timeout_s": timeout_s}


def strike(fault: dict[str, Any], victim: "subprocess.Popen[str]") -> dict[str, Any]:
    """Let `fault` happen to an apply that has just begun; return what proves it.  Raises NotStruckError."""
    before = _journal()
    time.sleep(fault["after_s"])
    must_run(victim)
    found = {"step": _step(before)}
    return found | _KINDS[fault["fault"]](fault["lasts_s"], victim)


def must_run(victim: "subprocess.Popen[str]") -> None:
    """Raise NotStruckError where `victim` has ended already."""
    if victim.poll() is not None:
        raise NotStruckError(f"apply had ended with {victim.returncode}")


def _journal() -> set[Path]:
    return set(Path("/var/lib/fabtune/journal").glob("*.jsonl"))


def _step(before: set[Path]) -> str:
    """Return how far apply was: the kind of the newest line of its journal, "plan" while it has none."""
    lines = [line for file in _journal() - before for line in file.read_text().splitlines()]
    found = re.search(r'"kind": "([\w-]+)"', lines[-1]) if lines else None
    return found[1] if found else "plan"


def _cut(lasts_s: float, _victim: "subprocess.Popen[str]") -> dict[str, Any]:
    set_forwarding(False)
    time.sleep(lasts_s)
    set_forwarding(True)
    return {}


def _target(lasts_s: float, _victim: "subprocess.Popen[str]") -> dict[str, Any]:
    """Lose the answers, then all packets, then the target; commands that it has executed are not answered."""
    (portal_group,) = Path("/sys/kernel/config/target/iscsi").glob("iqn.*/tpgt_1/enable")
    _filter("ingress", *_FROM_TARGET, then=("drop",))
    before = _commands()
    time.sleep(_UNANSWERED_S)
    set_forwarding(False)
    unanswered = _commands() - before
    portal_group.write_text("0")
    _no_filter()
    time.sleep(lasts_s)
    portal_group.write_text("1")
    set_forwarding(True)
    return {"unanswered": unanswered}


def _commands() -> int:
    """Return how many commands the target's disk has taken: one of memory, which executes each of them at once."""
    (file,) = Path("/sys/kernel/config/target/core").glob("rd_mcp_*/*/statistics/scsi_lu/num_cmds")
    return int(file.read_text())


def _digest(_lasts_s: float, victim: "subprocess.Popen[str]") -> dict[str, Any]:
    """Change what leaves for the target until it has noticed.

    veth computes no checksum, so that nothing but a digest can notice.  This kernel counts no digest error, neither
    for iscsiadm -s nor in LIO's statistics: its log has them.
    """
    before = digest_errors()
    # Not what is short: of a login's words no digest takes care.
    _filter("egress", "u16", "0x0000", "0xfc00", "at", "2", then=("pass",))
    # Behind the headers of IP and TCP and a command's 48 bytes: in the data, or in the next PDU's header.
    changed = ("pedit", "munge", "offset", "200", "u32", "set", "0xdeadbeef")
    _filter("egress", *_TO_TARGET, then=changed, order="2")
    end_s = time.monotonic() + _SPOIL_S
    try:
        while not (seen := digest_errors() - before) and victim.poll() is None and time.monotonic() < end_s:
            time.sleep(0.02)
    finally:
        _no_filter()
    if not seen:
        raise NotStruckError("the target noticed no digest error")
    must_run(victim)
    return {"digest_errors": seen}


def digest_errors() -> int:
    """Return how many digest errors the target has met with, by the kernel's log."""
    return len(_DIGEST_ERROR.findall(output_of("dmesg")))


def _filter(way: str, *match: str, then: tuple[str, ...], order: str = "1") -> None:
    if order == "1":
        output_of("tc", "qdisc", "add", "dev", "i0", "clsact")
    where = ("dev", "i0", way, "pref", order, "protocol", "ip", "u32", "match")
    output_of("tc", "filter", "add", *where, *match, "action", *then)


def _no_filter() -> None:
    output_of("tc", "qdisc", "del", "dev", "i0", "clsact")


def _killed(_lasts_s: float, victim: "subprocess.Popen[str]") -> dict[str, Any]:
    victim.send_signal(signal.SIGKILL)
    if victim.wait() != -signal.SIGKILL:
        raise NotStruckError(f"apply had ended with {victim.returncode}")
    return {}


def _iscsid(_lasts_s: float, _victim: "subprocess.Popen[str]") -> dict[str, Any]:
    """Kill iscsid, and start it a moment later, as its keeper would."""
    daemon = iscsid.running()
    if daemon is None:
        # Apply itself has ended it just now.
        raise NotStruckError("no iscsid ran")
    try:
        os.kill(daemon.pid, signal.SIGKILL)
    except ProcessLookupError as error:
        raise NotStruckError("iscsid ended just then") from error
    time.sleep(1.0)
    # One that still finds the old one's socket ends at once.
    while iscsid.running() is None:
        # In a process group of its own, which its end ends, and nobody's child.
        subprocess.run(["sh", "-c", "setsid iscsid -f >/dev/null 2>&1 &"], check=True)
        time.sleep(2.0)
    return {"iscsid": daemon.pid}


def set_forwarding(on: bool) -> None:
    """Open the line, or cut it: not by a link that goes down, which takes its routes along."""
    output_of("ip", "netns", "exec", "shaper", "sysctl", "-qw", f"net.ipv4.ip_forward={int(on)}")


_KINDS: dict[str, Callable[[float, "subprocess.Popen[str]"], dict[str, Any]]] = {
    "cut": _cut, "killed": _killed, "iscsid": _iscsid, "target": _target, "digest": _digest,
}  # fmt: skip
