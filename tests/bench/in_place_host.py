# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: a host whose mounted, busy session is retuned in place while something happens to it."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guest_words import guest, output_of
from in_place_faults import LONG_TIMEOUT_S, NotStruckError, strike
from in_place_truth import BURST, DONE, State, untrue_of_apply, untrue_of_state, wrong_after_revert

from fabtune.host import iscsid
from fabtune.host.sessions import live_sessions

MAKE = {"ext4": ["mkfs.ext4", "-q", "-F", "-E", "nodiscard"], "xfs": ["mkfs.xfs", "-q", "-f", "-K"]}
_TOP = Path(__file__).parents[2]
_PROFILE = """summary = "a test"
[initiator."iscsi.max_burst"]
value = 131072
why = "a test"
[initiator."iscsi.time2wait"]
value = 0
why = "a test"
"""
_KEYS = {BURST: "node.session.iscsi.MaxBurstLength", "iscsi.time2wait": "node.session.iscsi.DefaultTime2Wait"}
_NEW = {BURST: "131072", "iscsi.time2wait": "0"}
_TIMEOUT = "node.session.timeo.replacement_timeout"
_FABTUNE = (sys.executable, "-m", "fabtune")
# For how long all must stay as it is before it is looked at, and how long a writer or an apply may take to end.
_SETTLED_S, _BACK_S, _END_S = 2.0, 200.0, 600.0


class _LostError(Exception):
    """The host is not what it was, and nothing more can be told of it."""


class Writer:
    """The program that writes, fsyncs and reads back all the time, from its start to `end`."""

    def __init__(self) -> None:
        self._place = Path(tempfile.mkdtemp())
        files = [str(self._place / name) for name in ("stop", "told", "look")]
        self._process = subprocess.Popen([sys.executable, str(_TOP / "tests/vm/fsync_writer.py"), "/m/steps", *files])
        wait_until("the writer writes", (self._place / "told.steps").exists)

    def look(self) -> None:
        """Let it read all that was acknowledged."""
        look = self._place / "look"
        look.touch()
        wait_until("the writer has read what it wrote", lambda: not look.exists())

    def end(self) -> dict[str, Any]:
        """Return what it met with."""
        (self._place / "stop").touch()
        self._process.wait(_END_S)
        told: dict[str, Any] = json.loads((self._place / "told").read_text())
        shutil.rmtree(self._place)
        return told


def wait_until(what: str, ready: Callable[[], bool], limit_s: float = _BACK_S) -> None:
    """Wait for that long.  Raises _LostError."""
    end_s = time.monotonic() + limit_s
    while not ready():
        if time.monotonic() > end_s:
            raise _LostError(f"not after {limit_s:g} s: {what}")
        time.sleep(0.2)


def _fabtune(*words: str) -> tuple[int, str]:
    """Return how it ended and all that it said."""
    done = subprocess.run([*_FABTUNE, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


class _Says:
    """What fabtune's verbs say, by a process that has loaded them already."""

    def __init__(self) -> None:
        program = [sys.executable, str(Path(__file__).parent / "in_place_says.py")]
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def document(self, *words: str) -> tuple[int, Any]:
        """Return how it ended, and the document that it printed.  Raises _LostError where that is none."""
        assert self._process.stdin and self._process.stdout
        print(json.dumps([*words, "--json"]), file=self._process.stdin, flush=True)
        status, said, told = json.loads(self._process.stdout.readline())
        try:
            return status, json.loads(said)
        except ValueError as error:
            raise _LostError(f"fabtune {words[0]} ended with {status}: {said[-200:]} {told[-500:]}") from error


def _records() -> dict[str, str]:
    lines = output_of("iscsiadm", "-m", "node", "-o", "show").splitlines()
    return dict(line.split(" = ", 1) for line in lines if " = " in line)


def _record_changed_s() -> float:
    """Return when the node record was written last, since the epoch."""
    places = map(Path, ("/etc/iscsi/nodes", "/var/lib/iscsi/nodes"))
    return max(file.stat().st_mtime for place in places for file in place.rglob("*") if file.is_file())


def _look() -> tuple[object, ...]:
    """Return what must not move any more before the host is looked at."""
    return iscsid.since(), *((one.sid, one.state, one.local_port) for one in live_sessions())


def _settle() -> None:
    """Wait until the session is there and nothing makes its connection anew any more.  Raises _LostError."""
    end_s, since_s, before = time.monotonic() + _BACK_S, time.monotonic(), _look()
    while time.monotonic() - since_s < _SETTLED_S:
        if time.monotonic() > end_s:
            raise _LostError(f"the session is not back after {_BACK_S:g} s: {before}")
        time.sleep(0.2)
        if (now := _look()) != before or not _is_up():
            since_s, before = time.monotonic(), now


def _is_up() -> bool:
    return [one.state for one in live_sessions()] == ["LOGGED_IN"] and iscsid.running() is not None


class Host:
    """The host, its session with both digests and a mounted ext4, and what they are when nothing is retuned."""

    def __init__(self) -> None:
        guest("up", "--rtt", "10ms", "--rate", "200mbit", "--size-mib", "128", "--keeps-data")
        for part in ("Header", "Data"):
            self._update(f"node.conn[0].iscsi.{part}Digest", "CRC32C")
        disk = f"/dev/{guest('login')}"
        output_of(*MAKE["ext4"], disk)
        Path("/m").mkdir(exist_ok=True)
        output_of("mount", disk, "/m")
        self._profile = Path("/tmp/bursts.toml")
        self._profile.write_text(_PROFILE)
        records = _records()
        self._old = {name: records[key] for name, key in _KEYS.items()}
        (self._session,) = live_sessions()
        self._mounted = next(line for line in Path("/proc/mounts").read_text().splitlines() if " /m " in line)
        (offer,) = Path("/sys/kernel/config/target/iscsi").glob("iqn.*/tpgt_1/param/MaxBurstLength")
        self._most_burst = int(offer.read_text())
        self._says = _Says()
        # Whether another fault on it would still tell something.
        self.whole = True
        if why := self._changed():
            raise SystemExit("; ".join(why))

    def _update(self, key: str, value: str) -> None:
        output_of("iscsiadm", "-m", "node", "-o", "update", "-n", key, "-v", value)

    def _changed(self) -> list[str]:
        """Return what of session, digests and mount is not as it was at first."""
        told, found = [], live_sessions()
        if [one.sid for one in found] != [self._session.sid]:
            told.append(f"the sessions are {[one.sid for one in found]}, it was {self._session.sid}")
        for one in found:
            if one.luns != self._session.luns:
                told.append(f"the disks are {one.luns}, they were {self._session.luns}")
            if [one.negotiated.get(f"{part}Digest") for part in ("Header", "Data")] != ["CRC32C", "CRC32C"]:
                told.append(f"digests are not negotiated: {one.negotiated}")
        if self._mounted not in Path("/proc/mounts").read_text().splitlines():
            told.append("the file system is not mounted as it was")
        return told

    def _state(self) -> State:
        """Return what is and what fabtune says of it.  Raises _LostError."""
        records, daemon, (session,) = _records(), iscsid.running(), live_sessions()
        verify_status, verify = self._says.document("verify")
        _, plan = self._says.document("plan", str(self._profile), "--role", "initiator")
        _, history = self._says.document("history")
        booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        since_s = booted_s + int(daemon.since) / 100 if daemon else 0.0
        return State(
            {name: records[key] for name, key in _KEYS.items()}, int(session.negotiated["MaxBurstLength"]),
            self._most_burst, _record_changed_s() < since_s, verify_status, verify, history,
            {row["tunable"]: row["now"] for row in plan["rows"] if row["tunable"] in _KEYS},
        )  # fmt: skip

    def retune_undisturbed(self) -> float:
        """Return how long an apply takes to which nothing happens; ends this guest where that is not as it should."""
        begun_s = time.monotonic()
        ended = self.retune({"timeout_s": LONG_TIMEOUT_S})
        if ended["lost"] or ended["status"] != DONE:
            raise SystemExit(f"undisturbed, in {time.monotonic() - begun_s:.1f} s: {json.dumps(ended)}")
        return float(ended["apply_s"])

    def retune(self, fault: dict[str, Any]) -> dict[str, Any]:
        """Let `fault`, with a kind, happen to an apply, take it back, and tell what came of it."""
        self._update(_TIMEOUT, str(fault["timeout_s"]))
        (self._session.directory / "recovery_tmo").write_text(str(fault["timeout_s"]))
        ended: dict[str, Any] = {**fault, "status": None, "missed": "", "why": []}
        before = _records()
        try:
            self._retune(ended, before)
        except (_LostError, OSError, subprocess.TimeoutExpired, ValueError) as error:
            ended["why"].append(f"{type(error).__name__}: {error}")
            self.whole = False
        ended["lost"] = bool(ended["why"])
        if ended["lost"]:
            # However it came about, it counts.
            ended["missed"] = ""
        return ended

    def _retune(self, ended: dict[str, Any], before: dict[str, str]) -> None:
        writer, why = Writer(), ended["why"]
        words = ["apply", str(self._profile), "--role", "initiator", "--reconnect"]
        begun_s = time.monotonic()
        victim = subprocess.Popen([*_FABTUNE, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if "fault" in ended:
            try:
                ended |= strike(ended, victim)
            except NotStruckError as error:
                ended["missed"] = str(error)
        said = victim.communicate(timeout=_END_S)[0]
        ended |= {"status": victim.returncode, "apply_s": round(time.monotonic() - begun_s, 2), "said": said[-400:]}
        _settle()
        writer.look()
        state = self._state()
        ended |= {"record": dict(state.record), "burst": state.burst, "verify": state.verify_status}
        untrue = untrue_of_apply(victim.returncode, said, state, self._old, _NEW) + untrue_of_state(state, self._old)
        status, reverted = _fabtune("revert", "--reconnect")
        _settle()
        state = self._state()
        untrue += untrue_of_state(state, self._old)
        ended |= {"untrue": untrue, "revert": status, "burst_after": state.burst}
        missing = wrong_after_revert(status, reverted, state, self._old)
        if untrue or missing:
            ended |= {"verify_says": state.verify, "revert_said": reverted[-600:]}
        told = writer.end()
        ended |= {name: told[name] for name in ("pause_s", "errors", "bytes_wrong", "records_read", "steps")}
        why += [f"untrue: {one}" for one in untrue] + missing + told["errors"] + self._changed()
        if told["bytes_wrong"]:
            why.append(f"{told['bytes_wrong']} bytes wrong: {told['wrong'][:3]}")
        now = _records()
        why += [f"{key} is {now.get(key)}, it was {value}" for key, value in before.items() if now.get(key) != value]
        if missing:
            self._mend()

    def _mend(self) -> None:
        """Take back what the first revert did not, so that the next fault finds an untouched host."""
        status, said = _fabtune("revert", "--reconnect")
        _settle()
        self.whole = status == DONE and not wrong_after_revert(status, said, self._state(), self._old)
