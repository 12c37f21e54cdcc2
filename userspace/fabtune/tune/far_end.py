# SPDX-License-Identifier: GPL-2.0-or-later
"""The target's end on another host, tuned by the fabtune there, through ssh: its own journal, and its own switch.

A plan is made there, judged here, and written there as it was read, unless that host has changed meanwhile.  Others may
tune that host, too: each apply from here carries a mark, nothing else is confirmed or taken back, and what others have
not decided yet is waited for.
"""

import os
import secrets
import shlex
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace

import attrs

from fabtune import __version__
from fabtune.catalog.tunable import ROLES, shipped_catalog
from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.host.run import Ended, TimeLimitError, finish, require
from fabtune.model import typed
from fabtune.model.document import printed, without_banner
from fabtune.tune import saved_plan, signals
from fabtune.tune.plan import PathUnknownError, Row
from fabtune.tune.saved_plan import HostChangedError, SavedPlan
from fabtune.tune.switch import SSH_OPTIONS

# What ssh and the shell that it starts say where they come no further.
_UNREACHABLE, _NOT_THERE = 255, 127
# A target's values wait for the logins that follow.
_APPLIED = (ExitCode.DONE, ExitCode.NEEDS_ACTION)
# Words of a transaction's state.
_UNCONFIRMED, _TAKEN_BACK, _INTERRUPTED = "unconfirmed", "taken back", "interrupted"
# What plans and writes may take: gigabytes of swap and a full path under it included.
_LONGEST_S = 120.0
# So long, about as long as a step may take, what others have not decided is waited for, and asked for so often.
OTHERS_WAIT_S, _ASKED_EVERY_S = 600.0, 5.0


class RefusedThereError(FabtuneError):
    """The fabtune there did not write what it was asked to: nothing of it stays."""


class _LostError(FabtuneError):
    """The host does not answer: what became of the last command there is not known."""


@attrs.frozen
class _Written:
    """What is needed of a row that was written."""

    tunable: str
    identity: str
    now: str
    wanted: str


@attrs.frozen
class _Wrote:
    """What is needed of what `fabtune apply --json` prints."""

    transaction: str | None
    written: tuple[_Written, ...]

    def of(self, plan: SavedPlan) -> list[Row]:
        """Return the rows of `plan` that were written, as they were found: a driver may have refused others."""
        found = {(one.tunable, one.identity): one for one in self.written}
        keys = [(row, (row.tunable.name, row.device.identity)) for row in plan.rows if row.device]
        return [replace(row, now=found[key].now, wanted=found[key].wanted) for row, key in keys if key in found]


@attrs.frozen
class _Past:
    """What is needed of a transaction in what `fabtune history --json` prints."""

    transaction: str
    state: str
    note: str = ""

    @property
    def named(self) -> str:
        """What it is called, and whoever asked for it."""
        return f"{self.transaction} ({self.note})" if self.note else self.transaction


@attrs.frozen
class _History:
    transactions: tuple[_Past, ...]


class FarEnd:
    """The target on `host`, whose fabtune is this one."""

    def __init__(self, host: str) -> None:
        if not host or host.startswith("-"):
            raise InputError(f"--target-host {host}: expected the name or address of a host")
        require("ssh", "openssh-client")
        self.host = host
        # Whether initiators must log in, or connect, anew before what was taken back there is felt.
        self.owes_logins = False
        self._mark = f"from {os.uname().nodename}, {secrets.token_hex(8)}"
        # The transactions of that mark that were seen, and whether the last apply there may be at work unseen.
        self._seen = set[str]()
        self._lost = False

    def check(self) -> None:
        """Raise FabtuneError where the host is not reached, has no fabtune or another one."""
        found = self._ask(["--version"]).split()[-1:]
        if found != [__version__]:
            raise FabtuneError(
                f"{self.host}: found fabtune {' '.join(found)}, expected {__version__} as here; nothing was changed"
            )

    def wait_for_others(self, progress: Callable[[str], None]) -> dict[str, str]:
        """Wait until nothing there waits to be confirmed; who is waited for is said, and at most how long.

        Return what `others` would now.  Raises FabtuneError where that takes too long; Ctrl-C ends it at once.
        """
        deadline_s, told = time.monotonic() + OTHERS_WAIT_S, ""
        past = self._past(at_once=True)
        while waiting := [one.named for one in past if one.state == _UNCONFIRMED]:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise FabtuneError(
                    f"{self.host}: transaction {waiting[0]} waits to be confirmed there, after {OTHERS_WAIT_S:g} s "
                    "still: whoever wrote it decides, or it goes back when its time is up; then tune again"
                )
            if waiting[0] != told:
                told = waiting[0]
                progress(
                    f"{self.host}: transaction {told} waits to be confirmed there: waiting, {left_s:.0f} s at most ..."
                )
            time.sleep(_ASKED_EVERY_S)
            past = self._past(at_once=True)
        return self._others_of(past)

    def others(self) -> dict[str, str]:
        """Return the state of each transaction there that is not of this end.  Raises FabtuneError."""
        return self._others_of(self._past())

    def _others_of(self, past: Sequence[_Past]) -> dict[str, str]:
        return {one.transaction: one.state for one in past if one.note != self._mark}

    def plan(
        self, profile: str, only: Collection[str], path: Sequence[str], settings: Sequence[str], estimated: bool
    ) -> SavedPlan:
        """Return the plan of `only` these tunables for that host as it is now; `path` tells of the network.

        Raises FabtuneError, PathUnknownError where that tells no round trip and none is known there.
        """
        words = ["plan", profile, "--role", ROLES[1], "--out", "-", *path, *(["--estimated"] if estimated else [])]
        words += [word for one in sorted(only) for word in ("--only", one)]
        words += [word for one in settings for word in ("--set", one)]
        done = self._run(words)
        if done.status == ExitCode.USAGE and "--rtt" not in path:
            # Nothing else of what this fabtune asks of itself there is missing.
            raise PathUnknownError(f"{self.host}: {_why(done)}")
        try:
            said = without_banner(self._said(done, (ExitCode.DONE,)))
            return saved_plan.parse(said.encode(), self.host, shipped_catalog())
        except HostChangedError as error:
            raise FabtuneError(f"{error}: install the same fabtune on both hosts") from None

    def apply(self, plan: SavedPlan, within_s: float) -> tuple[str, list[Row]]:
        """Write `plan`; return what was written, and its transaction: it goes back after `within_s` unless confirmed.

        Raises FabtuneError, after which `take_back` sees to what may have been written: where the host has answered
        RefusedThereError, HostChangedError where it is not as planned for.
        """
        words = ["apply", "--plan", "-", "--yes", "--json", "--confirm-within", f"{within_s:.0f}s"]
        self._lost = False
        try:
            done = self._run([*words, "--note", self._mark], saved_plan.plan_text(plan))
        except (_LostError, KeyboardInterrupt):
            self._lost = True
            raise
        except FabtuneError as error:
            raise RefusedThereError(str(error)) from error
        if done.status not in _APPLIED:
            refused = HostChangedError if done.status == ExitCode.DRIFT else RefusedThereError
            # On stdout stands the same as a document.
            raise refused(f"{self.host}: {_why(replace(done, stdout=''))}")
        said = done.stdout
        wrote = typed.TOLERANT.read(_Wrote, printed(said, self.host), self.host)
        name = wrote.transaction or ""
        self._seen.add(name)
        return name, wrote.of(plan)

    def confirm(self, name: str) -> None:
        """Keep transaction `name`, which `apply` wrote.  Raises FabtuneError."""
        self._ask(["confirm", "--transaction", name])

    def waits(self, name: str) -> bool:
        """Tell whether transaction `name` still waits there to be confirmed.  Raises FabtuneError."""
        return any(one.transaction == name and one.state == _UNCONFIRMED for one in self._past())

    def take_back(self, name: str = "") -> None:
        """Take back transaction `name` and what waits there to be confirmed by this end, and see it gone.

        What an apply wrote whose answer did not come waits to be confirmed, too, or is being written yet.  Raises
        FabtuneError.
        """
        marked = [one for one in self._past() if one.note == self._mark]
        if any(one.transaction not in self._seen for one in marked):
            self._lost = False
        self._seen |= {one.transaction for one in marked}
        ours = [one for one in marked if one.state in (_UNCONFIRMED, _INTERRUPTED)]
        wanted = [one.transaction for one in ours if one.transaction != name] + ([name] if name else [])
        done = {one: self._run(["revert", "--transaction", one]) for one in wanted}
        self.owes_logins = any(one.status == ExitCode.NEEDS_ACTION for one in done.values())
        left = [one.transaction for one in self._past() if one.state != _TAKEN_BACK] if wanted else []
        for one in wanted:
            if one in left:
                raise FabtuneError(f"{self.host}: {one} is not taken back: {_why(done[one])}")

    def given_back(self, name: str, within_s: float, perhaps_kept: bool) -> str:
        """Take back as `take_back` does; return what is to be said where that is not seen to be done.

        `perhaps_kept` where `confirm` was asked for already.
        """
        which = f"transaction {name}" if name else "the last transaction"
        by_hand = f"`fabtune revert{f' --transaction {name}' if name else ''}` there takes it back"
        try:
            self.take_back(name)
        except _LostError as error:
            if perhaps_kept:
                return f"{error}; whether {which} stays there is not known: see `fabtune history` there; {by_hand}"
            return f"{error}; what was written there goes back by itself within {within_s:g} s"
        except FabtuneError as error:
            return f"{error}; see `fabtune history` there; {by_hand}, with --force over what somebody else has set"
        if self._lost:
            # Nothing of it stands in the journal there: it may have ended before, or plan yet.
            return (
                f"{self.host}: nothing was written there so far; what may still be goes back by itself within "
                f"{within_s:g} s"
            )
        return ""

    def _past(self, *, at_once: bool = False) -> tuple[_Past, ...]:
        """Return each transaction of that host; `at_once` where Ctrl-C does not wait for the answer."""
        said = printed(self._ask(["history", "--json"], at_once=at_once), self.host)
        return typed.TOLERANT.read(_History, {"transactions": said}, self.host).transactions

    def _ask(
        self,
        words: Sequence[str],
        allowed: Collection[int] = (ExitCode.DONE,),
        stdin: str = "",
        *,
        at_once: bool = False,
    ) -> str:
        """Run fabtune there and return its stdout.  Raises FabtuneError, where it ends otherwise as well."""
        return self._said(self._run(words, stdin, at_once=at_once), allowed)

    def _said(self, done: Ended, allowed: Collection[int]) -> str:
        """Return the stdout of what was run there.  Raises FabtuneError where it did not end as is allowed."""
        if done.status not in allowed:
            raise FabtuneError(f"{self.host}: {_why(done)}")
        return done.stdout

    def _run(self, words: Sequence[str], stdin: str = "", *, at_once: bool = False) -> Ended:
        """Run fabtune there.  Raises FabtuneError where it is not there to be run.

        Ctrl-C waits for its end, or ends it `at_once`, as what only reads may be.
        """
        command = ["ssh", *SSH_OPTIONS, "--", self.host, shlex.join(["fabtune", *words])]
        try:
            with nullcontext(signals.Stop()) if at_once else signals.noted(second_raises=True) as stop:
                done = finish(command, own_session=True, stdin=stdin, timeout_s=_LONGEST_S)
        except TimeLimitError:
            stop.check()
            raise _LostError(f"{self.host}: `fabtune {words[0]}` had not ended after {_LONGEST_S:g} s") from None
        stop.check()
        words_of_ssh = _last_words(done.stderr or done.stdout)
        if done.status == _UNREACHABLE:
            raise _LostError(f"{self.host}: not reached by ssh: {words_of_ssh or 'no word'}")
        if done.status == _NOT_THERE:
            why = words_of_ssh or "not found"
            raise FabtuneError(f"{self.host}: no fabtune there: {why}; install it on that host, too")
        return done


def _last_words(text: str) -> str:
    return " ".join(" ".join(text.strip().splitlines()[-3:]).split())


def _why(done: Ended) -> str:
    # What it reports goes to stdout, beside what it was doing on stderr.
    words = _last_words(done.stdout if done.status == ExitCode.DRIFT and done.stdout.strip() else done.stderr)
    words = words or _last_words(done.stdout)
    return words.removeprefix("fabtune: ") or f"fabtune ended with {done.status}"
