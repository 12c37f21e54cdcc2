# SPDX-License-Identifier: GPL-2.0-or-later
"""The target's end on another host, tuned by the fabtune there, through ssh: its own journal, and its own switch.

A plan is made there, judged here, and written there as it was read, unless that host has changed meanwhile.
"""

import shlex
from collections.abc import Collection, Sequence

import attrs

from fabtune import __version__
from fabtune.catalog.tunable import ROLES, shipped_catalog
from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.host.run import Ended, finish, require
from fabtune.model import typed
from fabtune.model.document import printed
from fabtune.tune import saved_plan, signals
from fabtune.tune.saved_plan import HostChangedError, SavedPlan
from fabtune.tune.switch import SSH_OPTIONS

# What ssh and the shell that it starts say where they come no further.
_UNREACHABLE, _NOT_THERE = 255, 127
# A target's values wait for the logins that follow.
_APPLIED = (ExitCode.DONE, ExitCode.NEEDS_ACTION)
# Words of a transaction's state.
_UNCONFIRMED, _TAKEN_BACK = "unconfirmed", "taken back"
# What plans and writes may take: gigabytes of swap and a full path under it included.
_LONGEST_S = 120.0


@attrs.frozen
class _Wrote:
    """What is needed of what `fabtune apply --json` prints."""

    transaction: str | None


@attrs.frozen
class _Past:
    """What is needed of a transaction in what `fabtune history --json` prints."""

    transaction: str
    state: str


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

    def check(self) -> None:
        """Raise FabtuneError where the host is not reached, has no fabtune or another one, or waits for a word."""
        found = self._ask(["--version"]).split()[-1:]
        if found != [__version__]:
            raise FabtuneError(
                f"{self.host}: found fabtune {' '.join(found)}, expected {__version__} as here; nothing was changed"
            )
        if waiting := [one for one, state in self._past().items() if state == _UNCONFIRMED]:
            raise FabtuneError(
                f"{self.host}: transaction {waiting[0]} waits to be confirmed there: `fabtune confirm` keeps it, "
                "`fabtune revert` takes it back; nothing was changed"
            )

    def plan(
        self, profile: str, only: Collection[str], path: Sequence[str], settings: Sequence[str], estimated: bool
    ) -> SavedPlan:
        """Return the plan of `only` these tunables for that host as it is now; `path` tells of the network."""
        words = ["plan", profile, "--role", ROLES[1], "--out", "-", *path, *(["--estimated"] if estimated else [])]
        words += [word for one in sorted(only) for word in ("--only", one)]
        words += [word for one in settings for word in ("--set", one)]
        try:
            return saved_plan.parse(self._ask(words).encode(), self.host, shipped_catalog())
        except HostChangedError as error:
            raise FabtuneError(f"{error}: install the same fabtune on both hosts") from None

    def apply(self, plan: SavedPlan, within_s: float) -> str:
        """Write `plan` and return its transaction, which goes back after `within_s` unless it is confirmed.

        Raises FabtuneError, after which `take_back` sees to what may have been written.
        """
        words = ["apply", "--plan", "-", "--yes", "--json", "--confirm-within", f"{within_s:.0f}s"]
        said = self._ask(words, _APPLIED, saved_plan.plan_text(plan))
        return typed.TOLERANT.read(_Wrote, printed(said, self.host), self.host).transaction or ""

    def confirm(self) -> None:
        """Keep what `apply` wrote.  Raises FabtuneError."""
        self._ask(["confirm"])

    def take_back(self, name: str = "") -> None:
        """Take back transaction `name` and what waits to be confirmed there, and see it gone.  Raises FabtuneError.

        What an apply wrote whose answer did not come waits to be confirmed, too.
        """
        wanted = [one for one, state in self._past().items() if state == _UNCONFIRMED or one == name]
        for one in wanted:
            self._ask(["revert", "--transaction", one], _APPLIED)
        left = [one for one, state in self._past().items() if one in wanted and state != _TAKEN_BACK] if wanted else []
        if left:
            raise FabtuneError(f"{self.host}: {left[0]} is not taken back; see `fabtune history` there")

    def _past(self) -> dict[str, str]:
        """Return the state of each transaction of that host."""
        said = printed(self._ask(["history", "--json"]), self.host)
        past = typed.TOLERANT.read(_History, {"transactions": said}, self.host).transactions
        return {one.transaction: one.state for one in past}

    def _ask(self, words: Sequence[str], allowed: Collection[int] = (ExitCode.DONE,), stdin: str = "") -> str:
        """Run fabtune there and return its stdout.  Raises FabtuneError; Ctrl-C waits for its end."""
        command = ["ssh", *SSH_OPTIONS, "--", self.host, shlex.join(["fabtune", *words])]
        with signals.noted(second_raises=True) as stop:
            done = finish(command, own_session=True, stdin=stdin, timeout_s=_LONGEST_S)
        stop.check()
        if done.status not in allowed:
            raise FabtuneError(f"{self.host}: {_why(done)}")
        return done.stdout


def _why(done: Ended) -> str:
    words = " ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
    if done.status == _UNREACHABLE:
        return f"not reached by ssh: {words or 'no word'}"
    if done.status == _NOT_THERE:
        return f"no fabtune there: {words or 'not found'}; install it on that host, too"
    return words.removeprefix("fabtune: ") or f"fabtune ended with {done.status}"
