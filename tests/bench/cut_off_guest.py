# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest with systemd: hosts that an apply with a time limit cuts off, while something else goes wrong as well.

    cut_off_guest.py SEED FIRST COUNT

Cut-offs FIRST to FIRST + COUNT - 1 of the sequence that SEED makes.  Each is a line STRUCK {...} at the moment of the
strike, and a line JUDGED {...} once the host is as before or can no longer be expected to be.  A power cut starts this
program anew, and what was struck before it is judged then.  Nothing here mends anything: after a host that did not come
back this ends, and the next one needs another guest.
"""

import contextlib
import json
import os
import pty
import random
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import cut_off_seen as seen
from guest_words import guest, output_of

from fabtune.errors import FabtuneError
from fabtune.tune.transaction import Transaction

# What goes wrong beside the link that the values themselves cut; the last ones before any value is written.
_COUNTING = (
    "none", "hangup", "apply killed", "checkpoint", "watcher terminated", "watcher killed", "both killed", "stopped",
    "power", "revert killed",
)  # fmt: skip
STRIKES = (*_COUNTING, "arming killed", *_COUNTING, "power", "arming checkpoint", "power while arming")
_POWER, _CHECKPOINT = ("power", "power while arming"), ("checkpoint", "arming checkpoint")
# Each cuts off who comes over the NIC: its packets are too small to bring a request in; too large for the path's next
# hop, which says nothing; or a packet a second.
_CUTTERS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "mtu too small": lambda draw: {"nic.mtu": draw.randint(68, 82)},
    "mtu too large": lambda draw: {"nic.mtu": draw.randint(5000, 9000)},
    "rate too low": lambda draw: {"qdisc.kind": "fq", "qdisc.maxrate": draw.randint(1, 300)},
}
_BESIDE = {"tcp.slow_start_after_idle": False, "net.netdev_max_backlog": 4321}
_HOME, _PROFILE = Path("/root/cut-off"), Path("/root/cut-off/cut-off.toml")
# How long after its time a host may take, a boot included.
_BACK_S, _BACK_AFTER_BOOT_S = 60.0, 120.0
_FAR_MTU, _FAR_MSS, _ALONE = "9000", "8960", ("tso", "off", "gso", "off", "gro", "off")


@attrs.define
class Draw:
    """One cut-off, as it is drawn."""

    number: int
    strike: str
    cutter: str
    values: dict[str, Any]
    moment: str
    persist: bool
    within_s: int
    # From the moment on, and which checkpoint or write of the apply.
    delay_s: float
    place: int
    fault: str
    twice: bool


def drawn(seed: int, number: int) -> Draw:
    """Return cut-off `number` of the sequence."""
    draw = random.Random(f"{seed} {number}")
    strike, cutter = STRIKES[number % len(STRIKES)], draw.choice(sorted(_CUTTERS))
    moments = {
        "none": ["ended"], "hangup": ["ended", "ended", "ended", "writing"], "apply killed": ["writing"],
        "checkpoint": ["checkpoint"], "arming checkpoint": ["checkpoint"], "revert killed": ["late"],
        "arming killed": ["arming"], "power while arming": ["arming"], "stopped": ["writing"],
        "power": ["writing", "ended", "late"],
    }.get(strike, ["writing", "ended"])  # fmt: skip
    moment = draw.choice(moments)
    longest_s = {
        "arming": 4.0,
        "writing": 0.05,
        "ended": 1.5,
        "late": draw.choice([0.6, 0.6, 0.6, 6.0]),
        "checkpoint": 0.0,
    }
    # The first one at which the value that cuts is written, and some more.
    first, first_checkpoint = (4, 12) if cutter == "rate too low" else (1, 6)
    if strike == "arming checkpoint":
        place = draw.randint(1, 4)
    else:
        place = first + draw.randint(0, 2) if moment == "writing" else first_checkpoint + draw.randint(0, 5)
    return Draw(
        number, strike, cutter, _CUTTERS[cutter](draw), moment, draw.random() < 0.5, draw.randint(6, 9),
        draw.uniform(0, longest_s[moment]), place, draw.choice(["kill", "kill", "torn"]), draw.random() < 0.5,
    )  # fmt: skip


class Terminal:
    """An apply in a terminal's session, as ssh starts it; what it says is kept."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self._pid_file, self._status_file = _HOME / "pid", _HOME / "status"
        for file in (self._pid_file, self._status_file):
            file.unlink(missing_ok=True)
        inner = f'echo $$ > {self._pid_file}; exec "$@"'
        outer = f"sh -c '{inner}' sh \"$@\"; echo $? > {self._status_file}; exec sleep 3600"
        self._master, slave = pty.openpty()
        self._leader = subprocess.Popen(
            ["sh", "-c", outer, "sh", *words],
            env={**os.environ, **environment},
            preexec_fn=lambda: os.login_tty(slave),
        )
        os.close(slave)
        self.said, self._dropped = "", False
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            # Whoever reads a terminal keeps it open.
            while not self._dropped:
                if select.select([self._master], [], [], 0.05)[0]:
                    data = os.read(self._master, 4096)
                    self.said += data.decode(errors="replace")

    @property
    def pid(self) -> int | None:
        """The apply's process, once it runs."""
        text = self._pid_file.read_text() if self._pid_file.exists() else ""
        return int(text) if text.endswith("\n") else None

    @property
    def status(self) -> int | None:
        """How the apply ended, None while it runs."""
        text = self._status_file.read_text() if self._status_file.exists() else ""
        return int(text) if text.endswith("\n") else None

    def signal(self, number: int) -> None:
        """Send a signal to the apply, if it is there still."""
        if self.status is None and self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def hang_up(self) -> None:
        """Let the line drop: the kernel tells the session."""
        self._dropped = True
        self._listener.join()
        os.close(self._master)

    def end(self) -> None:
        """End what is left of the session."""
        self.signal(signal.SIGKILL)
        self._leader.kill()
        self._leader.wait()


def _tell(kind: str, content: dict[str, Any]) -> None:
    print(kind, json.dumps(content), flush=True)
    with contextlib.suppress(termios.error):
        termios.tcdrain(sys.stdout.fileno())


def _until(ready: Callable[[], bool], limit_s: float, every_s: float = 0.002) -> bool:
    deadline = time.monotonic() + limit_s
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


def _write_profile(values: dict[str, Any]) -> None:
    text = 'summary = "cuts this host off"\n'
    for name, value in (values | _BESIDE).items():
        text += f'[initiator."{name}"]\nvalue = {json.dumps(value)}\nwhy = "a test"\n'
    _PROFILE.write_text(text)


class CutOff:
    """One of them, from the apply to the verdict."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._known = seen.names()
        self._before = seen.state()

    def run(self) -> bool:
        """Let it happen, and tell whether the host is as before; a power cut does not return."""
        draw = self._draw
        _write_profile(draw.values)
        # What the path told when an earlier one was cut off would mend this one's.
        output_of("ip", "route", "flush", "cache")
        output_of("ip", "-n", "target", "route", "flush", "cache")
        kept = {"draw": attrs.asdict(draw), "known": sorted(self._known), "before": self._before}
        seen.write_through(_HOME / "struck", json.dumps(kept))
        self._session = seen.Session()
        if not _until(self._session.answers, 10):
            raise SystemExit(f"{draw}: the administrator is cut off before anything is applied")
        words = [sys.executable, "-m", "fabtune", "apply", "--yes", str(_PROFILE), "--role", "initiator"]
        words += ["--confirm-within", f"{draw.within_s}s", *(["--persist"] if draw.persist else [])]
        fault = {"FABTUNE_FAULT": f"{draw.fault}:{draw.place}"} if draw.strike in _CHECKPOINT else {}
        self._terminal = Terminal(words, fault)
        came = self._await_moment()
        # A power cut leaves no time to look afterwards.
        early = draw.moment == "late" or (draw.strike in _POWER and draw.moment == "ended")
        cut = self._is_cut() if early else None
        if draw.moment == "late":
            self._await_limit()
        time.sleep(draw.delay_s)
        self._strike(came, cut)
        cut = self._is_cut() if cut is None else cut
        return judge(kept, {"client_cut": cut, "status": self._terminal.status, "said": self._terminal.said[-600:]},
                     self._terminal)  # fmt: skip

    def _await_moment(self) -> bool:
        """Wait until the apply has come to where it is to be struck; tell whether it has."""
        moment = self._draw.moment
        if moment == "arming":
            return _until(lambda: seen.has_begun(self._known), 60)
        if moment == "writing":
            place = self._draw.place
            return _until(lambda: self._terminal.status is not None or self._written() >= place, 60)
        return _until(lambda: self._terminal.status is not None, 60, 0.02)

    def _new(self) -> Transaction | None:
        with contextlib.suppress(FabtuneError, OSError):
            return seen.newest(self._known)
        return None

    def _written(self) -> int:
        return seen.writes_journalled(self._known)

    def _await_limit(self) -> None:
        one = self._new()
        if one and one.unconfirmed:
            time.sleep(max(0.0, one.unconfirmed.until_s - time.clock_gettime(time.CLOCK_BOOTTIME)))

    def _is_cut(self) -> bool:
        """Tell whether the administrator is cut off, in his old session and for a new one."""
        old: list[bool] = []
        asking = threading.Thread(target=lambda: old.append(self._session.answers()))
        asking.start()
        new = seen.is_served()
        asking.join()
        return not (new or old[0])

    def _strike(self, came: bool, cut: bool | None) -> None:
        draw, apply = self._draw, self._terminal
        # While it is looked at, an apply under way goes no further.
        if draw.moment in ("writing", "arming"):
            apply.signal(signal.SIGSTOP)
        one = self._new()
        struck: dict[str, Any] = {"came": came, "status": apply.status, "written": self._written(), "client_cut": cut}
        struck |= {"in_force": seen.in_force(self._before), "state": one.state if one else "none"}
        _tell("STRUCK", attrs.asdict(draw) | struck)
        if draw.strike in _POWER:
            Path("/proc/sysrq-trigger").write_text("b")
            time.sleep(60)
        if draw.strike in ("apply killed", "arming killed", "both killed"):
            apply.signal(signal.SIGKILL)
        if draw.strike in ("watcher killed", "watcher terminated", "both killed", "revert killed"):
            self._strike_watcher(signal.SIGTERM if draw.strike == "watcher terminated" else signal.SIGKILL)
        if draw.strike == "hangup":
            apply.hang_up()
        if draw.strike != "stopped":
            apply.signal(signal.SIGCONT)

    def _strike_watcher(self, number: int) -> None:
        """Signal who waits to take the values back, and perhaps whoever takes its place."""
        watchers = seen.watchers()
        _kill(watchers, number)
        if self._draw.twice and self._draw.strike != "both killed":
            _until(lambda: bool(set(seen.watchers()) - set(watchers)), 4, 0.05)
            _kill(seen.watchers(), number)


def _has_ended(terminal: Terminal) -> bool:
    return terminal.status is not None


def _kill(processes: list[int], number: int) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def judge(kept: dict[str, Any], told: dict[str, Any], terminal: Terminal | None = None) -> bool:
    """Wait until the host is as before, print the verdict, and tell whether it is."""
    draw, known, before = Draw(**kept["draw"]), set(kept["known"]), kept["before"]
    one = seen.newest(known)
    now_s, booted = time.clock_gettime(time.CLOCK_BOOTTIME), terminal is None
    until_s = one.unconfirmed.until_s if one and one.unconfirmed and not booted else now_s
    last_s = max(now_s, until_s) + (_BACK_AFTER_BOOT_S if booted else _BACK_S)
    missing, served_s = _come_back(known, before, last_s)
    back_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    verdict = {"number": draw.number, **told, "missing": missing}
    verdict |= {"served_late_s": round(served_s - until_s, 1), "late_s": round(back_s - until_s, 1)}
    one = seen.newest(known)
    verdict["history"] = one.state if one else "none"
    verdict["awaited"] = bool(one and one.unconfirmed and not one.confirmed and not one.closed)
    if missing:
        verdict["evidence"] = seen.evidence(one)
    elif terminal and draw.strike == "stopped":
        # Whoever wakes it up finds a host that has gone on without it.
        terminal.signal(signal.SIGCONT)
        _until(partial(_has_ended, terminal), 30, 0.1)
        verdict["after_waking"] = _come_back(known, before, time.clock_gettime(time.CLOCK_BOOTTIME) + 30)[0]
        verdict["woken_status"], verdict["woken_said"] = terminal.status, terminal.said[-600:]
    if terminal:
        terminal.end()
    _tell("JUDGED", verdict)
    return not (missing or verdict.get("after_waking"))


def _come_back(known: set[str], before: dict[str, str], last_s: float) -> tuple[dict[str, list[str]], float]:
    """Return what is still not as before at `last_s`, as soon as nothing is, and since when it serves.

    Times are those of CLOCK_BOOTTIME.
    """
    served_s = 0.0
    while True:
        missing = {} if seen.is_served() else {"administrator": ["served", "cut off"]}
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        served_s = 0.0 if missing else served_s or now_s
        missing |= seen.differences(before, seen.state())
        one = seen.newest(known)
        if one and one.open_steps:
            missing["journal"] = ["taken back", f"{one.state}, {len(one.open_steps)} steps open"]
        if not missing or now_s > last_s:
            return missing, served_s
        time.sleep(0.3)


def _bring_up() -> None:
    """Make path, target and session; the far end takes large packets, and the path between does not."""
    guest("up", "--rtt", "2ms", "--size-mib", "64")
    for namespace, device in (("shaper", "s1"), ("wan", "w0"), ("wan", "w1"), ("target", "t0")):
        output_of("ip", "-n", namespace, "link", "set", device, "mtu", _FAR_MTU)
    # Whatever a router has told the far end of the way to here.
    output_of("ip", "-n", "target", "route", "replace", "10.1.0.0/24", "via", "10.2.0.254", "advmss", _FAR_MSS)
    # A super-packet passes for one that fits, and a router would tell of it: then nobody is cut off.
    output_of("ethtool", "-K", seen.NIC, *_ALONE)
    for namespace, device in (("shaper", "s0"), ("shaper", "s1"), ("wan", "w0"), ("wan", "w1"), ("target", "t0")):
        output_of("nsenter", f"--net=/run/netns/{namespace}", "ethtool", "-K", device, *_ALONE)
    guest("login")
    # What iscsiadm wrote just now is no part of what a power cut is to show.
    os.sync()
    seen.serve()
    if not _until(seen.is_served, 30, 0.2):
        raise SystemExit("the administrator is not served by an untouched host")


def main() -> None:
    """Judge what a power cut interrupted, and go on."""
    seed, first, count = map(int, sys.argv[1:])
    _HOME.mkdir(exist_ok=True)
    _bring_up()
    struck, number = _HOME / "struck", first
    if struck.exists():
        kept = json.loads(struck.read_text())
        number = kept["draw"]["number"] + 1
        if not judge(kept, {}):
            return
    while number < first + count:
        if not CutOff(drawn(seed, number)).run():
            return
        number += 1


if __name__ == "__main__":
    main()
