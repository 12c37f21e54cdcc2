# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs one sequence on one machine and holds every rule against it after each step."""

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import check
import command
import initiator
import network
import readers
import target
from check import Expected, Failure
from command import Done
from machine import PLACES, STATE, Machine
from shell import HostError, run

_BORN_WITH_OURS = re.compile(r"sysctl target net\.ipv4\.tcp_|lio .*/acls/[^/]*/cmdsn_depth$")
# The first namespace's, and shown in the others.
_SHOWN = re.compile(r"sysctl target net\.core\.[rw]mem_")
_FAULT = re.compile(r"(kill|torn|interrupt|full):\d+")


class _OverError(Exception):
    """This host is beyond use; what follows would only repeat the failure."""


class Sequence:
    """One sequence of steps under way."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.host = machine, machine.host
        self.failures: list[Failure] = []
        self.log: list[str] = []
        self.step = -1
        self.now = readers.snapshot()
        self.expected = Expected(
            dict(self.now), wild=["file /etc/rtslib-fb-target/backup", "file /etc/multipath/", "link .* operstate"]
        )
        self.damaged = False
        self.devices_wild = False

    def fail(self, rule: str, detail: str) -> None:
        """Note a broken rule."""
        self.failures.append(Failure(self.step, rule, detail))

    def run(self, steps: list[str]) -> None:
        """Run all steps, then take everything back and compare."""
        for number in range(len(self.host.targets)):
            self.machine.use(number)
        self.now = readers.snapshot()
        for self.step, line in enumerate(steps):
            try:
                self._one(line.split())
            except _OverError:
                return
            self._users()
            if any(failure.rule in ("session ended", "hang") for failure in self.failures):
                break
        self.step = len(steps)
        self._end()

    def _one(self, words: list[str]) -> None:
        verb = next(word for word in words if not _FAULT.fullmatch(word) and not word.startswith("after:")
                    and word not in _PREFIXES)  # fmt: skip
        place = words.index(verb)
        if verb in ("apply", "revert", "verify"):
            self._command(words[:place], words[place:])
            return
        try:
            getattr(self, f"_do_{verb}")(words[place + 1 :])
        except subprocess.SubprocessError as error:
            raise HostError(str(error)) from None

    def _users(self) -> None:
        for user in self.machine.users.values():
            wrong = user.lost()
            if wrong:
                self.fail("session ended", wrong)

    # Commands under test.

    def _command(self, prefix: list[str], argv: list[str]) -> None:
        argv = self._named(argv)
        fault = next((word for word in prefix if _FAULT.fullmatch(word)), "")
        after = next((float(word[6:]) for word in prefix if word.startswith("after:")), None)
        output = next((word for word in prefix if word in _OUTPUTS), "")
        with self._broken(prefix) as broken:
            done = command.fabtune(
                argv, fault=fault, after_s=None if after is None else after * self._usual_s, output=output
            )
        if after is None and not fault:
            self._usual_s = max(done.seconds, 0.05)
        started = time.monotonic()
        before, self.now = self.now, readers.snapshot()
        self.reading_s += time.monotonic() - started
        self.fabtune_s += done.seconds
        if argv[0] == "verify" and done.code == 3:
            self.log.append("  " + " / ".join(line.strip() for line in done.out.splitlines()[:6])[:400])
        said = (done.err.strip().splitlines() or done.out.strip().splitlines() or [""])[-1][:150]
        self.log.append(f"{' '.join([*prefix, *argv])}: exit {done.code} in {done.seconds:.2f} s: {said}")
        for rule, detail in check.manners(done, may_die=fault.startswith(("kill", "torn")) or after is not None):
            self.fail(rule, detail)
        if done.seconds > command.TIMEOUT_S:
            self.fail("hang", " ".join(argv))
        self._kept_track(before)
        if argv[0] == "revert" and "must log in again" in done.out + done.err:
            # It is said this once; the last revert has nothing left to take back.
            self.devices_wild = True
        if argv[0] == "verify":
            self._told_truth(done)
        elif argv[0] == "apply" and done.code in (1, 2, 130) and output != "errfull":
            self._took_back(done, before, broken)

    _usual_s = 1.0
    reading_s = fabtune_s = 0.0

    def _named(self, argv: list[str]) -> list[str]:
        """Return `argv` with LAST and FIRST replaced by a transaction's name."""
        names = sorted(path.stem for path in (STATE / "journal").glob("*.jsonl"))
        shown = {"LAST": names[-1] if names else "none", "FIRST": names[0] if names else "none"}
        return [shown.get(word, word) for word in argv]

    @contextlib.contextmanager
    def _broken(self, prefix: list[str]) -> Iterator[bool]:
        """Make the place that `prefix` names read-only or full while a command runs."""
        word = next((word for word in prefix if word.partition("-")[0] in ("ro", "full") and "-" in word), "")
        if not word:
            yield False
            return
        how, _, name = word.partition("-")
        place = PLACES[name]
        ballast = place / ".ballast"
        if how == "ro":
            run("mount", "-o", "remount,ro", str(place))
        else:
            free = os.statvfs(place)
            with contextlib.suppress(OSError), ballast.open("wb") as stream:
                # A page is left, for a journal that grows by lines.
                stream.write(b"\0" * max(0, (free.f_bavail - 1) * free.f_frsize))
        try:
            yield True
        finally:
            if how == "ro":
                run("mount", "-o", "remount,rw", str(place))
            ballast.unlink(missing_ok=True)

    def _kept_track(self, before: readers.Snapshot) -> None:
        """Whatever is not as it was must be in the journal as ours."""
        claims = check.claims(STATE)
        if claims is None:
            return
        lost = [
            name for name in self.expected.wrong(self.now) if check.settled(name) and not check.claimed(name, claims)
        ]
        lost = [name for name in lost if before.get(name) != self.now.get(name)]
        if lost:
            self.fail("lost track", self.expected.told(lost, self.now))

    def _told_truth(self, done: Done) -> None:
        claims = check.claims(STATE)
        if claims is None or self.damaged:
            return
        wrong = check.untrue(done, claims, self.now, self.machine.missing(), check.interrupted(STATE))
        if wrong:
            self.fail("untrue verify", wrong)

    def _took_back(self, done: Done, before: readers.Snapshot, broken: bool) -> None:
        """An apply that failed must have changed nothing."""
        if broken and "could not be taken back" in done.err:
            return
        if "could not be printed" in done.err:
            # It is the result's words that failed.
            return
        names = [name for name in readers.differing(before, self.now) if check.settled(name)]
        if names:
            told = "; ".join(f"{name}: {before.get(name)} -> {self.now.get(name)}"[:160] for name in names[:5])
            self.fail(
                "half applied",
                f"exit {done.code}, yet {len(names)} values changed: {told}; it said: {done.err.strip()[-200:]}",
            )
        if self.machine.missing():
            self.fail("half applied", f"exit {done.code}, and the session of {self.machine.missing()} is away")

    # What others do to the host.

    def _do_foreign(self, words: list[str]) -> None:
        before = readers.snapshot()
        _Foreigner(self).write(words)
        self.now = readers.snapshot()
        self.expected.allow(before, self.now)
        if words[0] == "route":
            # The kernel's own route is seen only now that it is another's, with what is ours of it.
            for name in readers.differing(before, self.now):
                if before.get(name) is None and not name.endswith(f" {words[1]}"):
                    self.expected.others[name].add(None)

    def _do_discover(self, _: list[str]) -> None:
        with contextlib.suppress(HostError):
            before = readers.records()
            initiator.discover(self.host)
            initiator.set_records(self.host)
            after = readers.records()
            self.expected.also(before, after)
            # Where ours stands in iscsid.conf it comes over a stranger's value too, and goes with revert.
            claims = check.claims(STATE) or []
            for name in readers.differing(before, after):
                if check.claimed(name, claims):
                    self.expected.others[name].add(self.expected.base.get(name))
        self.devices_wild = True
        self.now = readers.snapshot()

    def _do_logout(self, words: list[str]) -> None:
        number = int(words[0])
        if (
            number < len(self.host.targets)
            and number not in self.machine.users
            and number not in self.machine.logged_out
        ):
            with contextlib.suppress(HostError):
                initiator.logout(number)
                self.machine.logged_out.add(number)
        self.now = readers.snapshot()

    def _do_login(self, words: list[str]) -> None:
        number = int(words[0])
        if number in self.machine.logged_out:
            self._login(number)
        self.now = readers.snapshot()

    def _login(self, number: int | None) -> None:
        try:
            initiator.login(self.host, number)
            self.machine.logged_out.clear() if number is None else self.machine.logged_out.discard(number)
        except HostError as error:
            if not self.damaged:
                self.fail("login fails", str(error))

    def _do_use(self, words: list[str]) -> None:
        self.machine.use(int(words[0]))
        self.now = readers.snapshot()

    def _do_release(self, words: list[str]) -> None:
        self.machine.release(int(words[0]))
        self.now = readers.snapshot()

    def _do_reboot(self, _: list[str]) -> None:
        self._mend()
        try:
            plain = self.machine.reboot()
        except HostError as error:
            self.fail("boot fails", str(error))
            raise _OverError from None
        for name, value in plain.items():
            self.expected.others[name] = {value}
        for name in [
            name for name in self.expected.others if name.startswith(("qdisc", "link", "route", "sysctl target"))
        ]:
            # What somebody set by hand is gone too.
            del self.expected.others[name]
        for name in filter(_SHOWN.match, self.expected.base):
            self.expected.others[name] = {plain[name.replace("target", "init", 1)]}
        for number in range(len(self.host.targets)):
            self.machine.use(number)
        self.now = readers.snapshot()
        for name in [name for name in self.expected.others if name.startswith("lio ")]:
            # What somebody set by hand came back only if it was saved.
            self.expected.others[name].add(self.expected.base.get(name))
        # A namespace is born with the first one's buffers, an ACL with its TPG's default: ours if persistent.
        born = {name: value for name, value in self.now.items() if _BORN_WITH_OURS.match(name)}
        self.expected.also({name: self.expected.base.get(name, "") for name in born}, born)
        self._told_sysctl_addresses()

    def _told_sysctl_addresses(self) -> None:
        """New links have new addresses."""
        for name, value in self.now.items():
            if name.startswith("link ") and name.endswith(" address"):
                self.expected.base[name] = value

    def _do_saveconfig(self, _: list[str]) -> None:
        # A backstore on a session's disk would be saved as well, and no boot can restore it before the login.
        lent = [number for number, user in self.machine.users.items() if user.kind == "lio"]
        for number in lent:
            self.machine.release(number)
        target.targetcli(["saveconfig"])
        for number in lent:
            self.machine.use(number)
        self.expected.wild.append("file /etc/rtslib-fb-target/saveconfig.json")
        self.expected.also(self.expected.base, {**self.expected.base, **readers.targets()})
        self.now = readers.snapshot()

    def _do_restoreconfig(self, _: list[str]) -> None:
        if self.machine.users or not Path("/etc/rtslib-fb-target/saveconfig.json").exists() or self.damaged:
            return
        initiator.logout()
        target.targetcli(["restoreconfig clear_existing=true"])
        self.expected.also(self.expected.base, {**self.expected.base, **readers.targets()})
        for number in range(len(self.host.targets)):
            if number not in self.machine.logged_out:
                self._login(number)
        self.now = readers.snapshot()

    # The end.

    def _mend(self) -> None:
        """Take away what makes open-iscsi itself unable to work."""
        # An update of all records makes one without a name of a damaged one.
        for pattern in ("*stray*", ",*"):
            for stray in (readers.RECORDS / "nodes").glob(pattern):
                run("rm", "-rf", str(stray))
        self.damaged = False
        for name in [name for name in self.expected.others if "stray" in name or name.startswith("record ,")]:
            del self.expected.others[name]

    def _end(self) -> None:
        """Let go of the disks, bring back what others logged out, revert, and compare with the beginning."""
        for number in list(self.machine.users):
            self.machine.release(number)
        self._mend()
        for number in list(self.machine.logged_out):
            self._login(number)
        self.now = readers.snapshot()
        self._command([], ["verify"])
        done = command.fabtune(["revert", "--allow-relogin", "--end-sessions", "--json"])
        self.now = readers.snapshot()
        self.log.append(f"last revert: exit {done.code} in {done.seconds:.2f} s: {done.err.strip()[-150:]}")
        for rule, detail in check.manners(done, may_die=False):
            self.fail(rule, detail)
        wrong = [name for name in self.expected.wrong(self.now) if check.settled(name)]
        if wrong:
            self.fail("not as before", f"exit {done.code}: {self.expected.told(wrong, self.now)}; {_unsettled(done)}")
        if done.code in (1, 2, 5, 130):
            self.fail("last revert", f"exit {done.code}: {done.err.strip()[-300:]}; {_unsettled(done)}")
        if done.code == 3 and not self.expected.others:
            self.fail("last revert", f"exit 3, but nobody else changed a value; {_unsettled(done)}")
        missing = self.machine.missing()
        if missing:
            self.fail("session missing", f"after the last revert: {', '.join(missing)}")
        left = check.claims(STATE)
        if left and done.code == 0:
            self.fail("last revert", f"exit 0, but the journal still has {left[0]}")
        if done.code == 0 and not missing:
            # A session that the last writes ended is back by now.
            self.now = readers.snapshot()
            self._devices()

    def _devices(self) -> None:
        """Sessions and disks too must be as before: revert said that no re-login is due."""
        if self.devices_wild or any(name.startswith(("record", "disk", "lio")) for name in self.expected.others):
            return
        wrong = [name for name in self.expected.wrong(self.now) if name.startswith(("session ", "disk "))]
        if wrong:
            self.fail("devices not as before", self.expected.told(wrong, self.now))


def _unsettled(done: Done) -> str:
    """Return what revert said it could not settle."""
    try:
        steps = json.loads(done.out)["steps"]
    except (ValueError, KeyError, TypeError):
        return done.out.strip()[:200]
    left = [one for one in steps if one.get("state") not in ("restored", "already")]
    return "; ".join(f"{one['tunable']} {one['device']}: {one['state']} ({one.get('note', '')})" for one in left[:3])


class _Foreigner:
    """Somebody else who writes: an administrator or another tool."""

    def __init__(self, sequence: Sequence) -> None:
        self.sequence, self.host = sequence, sequence.host

    def write(self, words: list[str]) -> None:
        """Do what `words` say, as far as this host has it."""
        kind, rest = words[0], words[1:]
        name = network.device(self.host, "i")
        if kind == "sysctl":
            self._sysctl(*rest)
        elif kind == "record":
            run(
                "iscsiadm", "-m", "node", "-T", target.iqn(0), "-o", "update", "-n", rest[0], "-v", rest[1], check=False
            )
        elif kind == "lio":
            place = readers.CONFIGFS / "iscsi" / target.iqn(0) / "tpgt_1" / rest[0]
            place.write_text(rest[1])
        elif kind == "qdisc":
            network.tree(" ".join(rest), name)
        elif kind == "mtu":
            run("ip", "link", "set", name, "mtu", rest[0], check=False)
        elif kind == "txqueuelen":
            run("ip", "link", "set", name, "txqueuelen", rest[0])
        elif kind == "file":
            Path(rest[0]).write_text(" ".join(rest[1:]) + "\n")
        elif kind == "unlink":
            Path(rest[0]).unlink(missing_ok=True)
        elif kind == "disk":
            self._disk(*rest)
        elif kind == "route":
            self._route(rest)
        elif kind == "record-damage":
            self._stray("\0 damaged")
            self.sequence.damaged = True
        elif kind == "record-stray":
            self._stray("")

    def _sysctl(self, key: str, value: str) -> None:
        name, _, index = key.partition("[")
        path = Path("/proc/sys", *name.split("."))
        if index:
            fields = path.read_text().split()
            fields[int(index.rstrip("]"))] = value
            value = "\t".join(fields)
        path.write_text(value)

    def _disk(self, key: str, value: str) -> None:
        for name, _, directory in readers.sessions():
            for disk in readers.disks_of(directory):
                with contextlib.suppress(OSError):
                    Path("/sys/block", disk, key).write_text(value)
                self.sequence.expected.wild.append(re.escape(f"disk {name},"))

    def _route(self, words: list[str]) -> None:
        family = "-6" if self.host.family == 6 else "-4"
        net = "fd00:2::/64" if self.host.family == 6 else "10.2.0.0/24"
        line = next(iter(run("ip", family, "route", "show", net, check=False).splitlines()), "")
        line = re.sub(rf"expires \d+sec|{words[0]} \S+|proto \S+|scope \S+", "", line)
        if line and "nhid" not in line:
            run("ip", family, "route", "change", *line.split(), *words, check=False)

    def _stray(self, text: str) -> None:
        base = readers.RECORDS / "nodes" / "iqn.2026-01.lab.stray:x" / "10.9.9.9,3260,1"
        base.mkdir(parents=True, exist_ok=True)
        record = next((path for path in (readers.RECORDS / "nodes").glob("*harm*/*/*") if path.is_file()), None)
        if not text and record is not None:
            text = re.sub(r"node\.name = .*", "node.name = iqn.2026-01.lab.stray:x", record.read_text())
            text = re.sub(r"(node\.conn\[0\]\.address) = .*", r"\1 = 10.9.9.9", text)
        (base / "default").write_text(text)


_OUTPUTS = ("head", "head-err", "devfull", "errfull", "closed")
_PREFIXES = (*_OUTPUTS, *(f"{how}-{name}" for how in ("ro", "full") for name in PLACES))
