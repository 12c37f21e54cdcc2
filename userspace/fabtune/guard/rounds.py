# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks round after round, tells what has changed since the last one, and heals where it was asked to.

Healing writes nothing but rows that count at once and that hold, or held until something undid them, what fabtune
wrote: each time an ordinary transaction of the journal.  What somebody else has set stays his.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import attrs

from fabtune.catalog.tunable import ROLES
from fabtune.errors import FabtuneError
from fabtune.export import kept, verified
from fabtune.export.gather import runtime_dir
from fabtune.export.guarded import Guarded, WatchedPath
from fabtune.guard.follow import LIVE, follow, planned_for
from fabtune.guard.round_trip import RoundTrip, has_moved
from fabtune.host import sockets, targets, tree
from fabtune.host.sessions import Session, live_sessions
from fabtune.host.sockets import TcpSocket
from fabtune.tune import again, journal
from fabtune.tune.journal import Transaction
from fabtune.tune.verify import Drift, verify

# Values are compared so often, and at once when sessions have come or gone.
VERIFY_EVERY_S = 60.0
# A path that changes oftener than this in an hour is reported and no longer followed: that is no change of path.
_MOST_FOLLOWED, _IN_S = 12, 3600.0
# Of this share of its rate on a line is full.
_FULL = 0.85
# Values need so long until they are felt.
_REST_S = 10.0

# Profile, roles and network namespace of an apply.
Key = tuple[str, tuple[str, ...], str]
WARNING, NOTICE = "warning", "notice"


@attrs.frozen
class Told:
    """One thing that has changed: what kind of, how grave (`warning` or `notice`), and the sentence."""

    kind: str
    grade: str
    text: str


@attrs.define
class Guard:
    """What is known from round to round; `heal` lets it write."""

    heal: bool
    _drifts: frozenset[str] | None = None
    _sessions: tuple[int, ...] = ()
    _verify_at_s: float = 0.0
    _paths: dict[Key, RoundTrip] = attrs.field(factory=dict)
    _moved: dict[Key, float] = attrs.field(factory=dict)
    _followed_at_s: deque[float] = attrs.field(factory=deque)
    _rests_until_s: dict[Key, float] = attrs.field(factory=dict)
    _tried: dict[Key, float] = attrs.field(factory=dict)
    # When the connections were looked at last, and what they had moved by then.
    _flows: dict[Key, tuple[float, int]] = attrs.field(factory=dict)
    _refused: set[str] = attrs.field(factory=set)
    _journal: tuple[tuple[str, int, int], ...] | None = None
    _applied: list[Transaction] = attrs.field(factory=list)
    # What verify found since the last publication.
    _new: Sequence[Drift] | None = None
    _healed: int = 0
    _changes: int = 0

    @property
    def uneasy(self) -> bool:
        """Whether something is not as applied now."""
        return bool(self._drifts or self._moved)

    def look(self, progress: Callable[[str], None]) -> list[Told]:
        """Look once.  Raises FabtuneError where the journal cannot be read."""
        sessions = live_sessions()
        told = [*self._look_at_paths(sessions, progress), *self._look_at_values(sessions, progress)]
        # The metrics are for others; the watch goes on without them.
        try:
            self._publish()
        except OSError as error:
            told += self._once("not-published", f"{runtime_dir()}: {error.strerror}: metrics do not show this watch")
        return told

    def _publish(self) -> None:
        outcome = Guarded.of(time.time(), self.heal, self._healed, self._changes, self._watched())
        kept.save(outcome, runtime_dir() / "guard.json")
        if self._new is not None:
            kept.save(verified.of_drifts(self._new, time.time()), runtime_dir() / "verify.json")
            self._new = None

    def _planned(self) -> list[Transaction]:
        """Return what `planned_for` finds; files that are as they were are not read again."""
        files = [(one.name, one.stat()) for one in sorted((journal.state_dir() / "journal").glob("*.jsonl"))]
        seen = tuple((name, found.st_mtime_ns, found.st_size) for name, found in files)
        if seen != self._journal:
            self._applied, self._journal = planned_for(journal.transactions()), seen
        return self._applied

    def _once(self, kind: str, text: str) -> list[Told]:
        """Return what is to be told, nothing the second time."""
        if text in self._refused:
            return []
        self._refused.add(text)
        return [Told(kind, WARNING, text)]

    def _look_at_values(self, sessions: Sequence[Session], progress: Callable[[str], None]) -> Iterator[Told]:
        present, now_s = tuple(sorted(one.sid for one in sessions)), time.monotonic()
        if self._drifts is not None and present == self._sessions and now_s < self._verify_at_s:
            return
        came = self._drifts is not None and bool(set(present) - set(self._sessions))
        self._sessions, self._verify_at_s = present, now_s + VERIFY_EVERY_S
        drifts = verify(None, ROLES, "")
        if self.heal and any(one.drifted for one in drifts) and not journal.at_work():
            yield from self._write_again(progress)
            drifts = verify(None, ROLES, "")
        self._new = drifts
        yield from self._told_of(drifts, "session-returned" if came else "drift")

    def _told_of(self, drifts: Sequence[Drift], kind: str) -> Iterator[Told]:
        """Yield what has drifted and what is right again since the last comparison."""
        found = {f"{one.tunable} of {one.device}": one for one in drifts if one.drifted}
        before = self._drifts or frozenset()
        for name, one in found.items():
            if name not in before:
                note = f": {one.note}" if one.note else ""
                was = "gone" if one.found is None else one.found
                yield Told(kind, WARNING, f"{name} is {was}, applied was {one.expected}{note}")
        for name in sorted(before - set(found)):
            yield Told("as-applied", NOTICE, f"{name} is as applied again, or no longer in force")
        self._drifts = frozenset(found)

    def _write_again(self, progress: Callable[[str], None]) -> Iterator[Told]:
        try:
            written = again.write_again(progress, only=lambda tunable: tunable.effect == LIVE)
        except FabtuneError as error:
            yield from self._once("cannot-heal", f"values that were undone were not written again: {error}")
            return
        rows = [row for _, result in written.results for row in result.written]
        self._healed += len(rows)
        for row in rows:
            where = f" of {row.device.label}" if row.device else ""
            yield Told("healed", NOTICE, f"{row.tunable.name}{where}: {row.now} -> {row.wanted}, as applied")

    def _look_at_paths(self, sessions: Sequence[Session], progress: Callable[[str], None]) -> Iterator[Told]:
        present = {}
        for applied in self._planned():
            header = applied.header
            assert header.rtt_ms is not None
            key = header.profile, header.roles, header.netns
            present[key] = path = self._paths.get(key) or RoundTrip(header.rtt_ms)
            if path.planned_ms != header.rtt_ms:
                present[key] = path = RoundTrip(header.rtt_ms)
            if found := _connections(applied, sessions):
                self._look(key, path, found, header.rate_bit_per_s)
            yield from self._judged(key, applied, path, progress)
        self._paths = present
        self._moved = {key: rtt_ms for key, rtt_ms in self._moved.items() if key in present}

    def _look(self, key: Key, path: RoundTrip, found: Sequence[TcpSocket], rate_bit_per_s: float | None) -> None:
        """Let `path` see the longest round trip: plans are for the longest.

        Where the line is full a longer one is the queue that fills it, or would change nothing: it is not looked at.
        """
        now_s, moved = time.monotonic(), sum(one.acked_bytes + one.received_bytes for one in found)
        before_s, before = self._flows.get(key, (now_s, moved))
        self._flows[key] = now_s, moved
        rtt_ms = max(one.rtt_ms for one in found)
        full = rate_bit_per_s is not None and 8 * (moved - before) > _FULL * rate_bit_per_s * (now_s - before_s)
        if rtt_ms and not (full and rtt_ms > path.planned_ms):
            path.look(rtt_ms)

    def _judged(
        self, key: Key, applied: Transaction, path: RoundTrip, progress: Callable[[str], None]
    ) -> Iterator[Told]:
        moved_ms, told_ms = path.moved_to_ms, self._moved.get(key)
        name = _name(applied)
        if moved_ms is None:
            if told_ms is not None and path.now_ms is not None:
                del self._moved[key]
                yield Told("path-back", NOTICE, f"{name}: its round trip is {path.now_ms:.1f} ms, as planned, again")
            return
        if not _alike(told_ms, moved_ms):
            self._moved[key] = moved_ms
            planned = f"its values were planned for {path.planned_ms:.1f} ms"
            yield Told("path-moved", WARNING, f"{name}: its round trip is {moved_ms:.1f} ms, {planned}")
        if self.heal:
            yield from self._follow(key, applied, moved_ms, progress)

    def _follow(self, key: Key, applied: Transaction, rtt_ms: float, progress: Callable[[str], None]) -> Iterator[Told]:
        now_s, recent = time.monotonic(), self._followed_at_s
        while recent and now_s - recent[0] > _IN_S:
            recent.popleft()
        if len(recent) >= _MOST_FOLLOWED:
            text = f"paths moved {len(recent)} times in an hour: they are reported and no longer followed"
            yield from self._once("not-followed", text)
            return
        # What had nothing to write for this round trip has nothing at the next look.
        if _alike(self._tried.get(key), rtt_ms) or now_s < self._rests_until_s.get(key, 0.0) or journal.at_work():
            return
        name = _name(applied)
        try:
            result = follow(applied, rtt_ms, progress)
        except FabtuneError as error:
            self._rests_until_s[key] = now_s + _REST_S
            yield from self._once("not-followed", f"{name}: {error}")
            return
        if result is None:
            self._tried[key] = rtt_ms
            yield from self._once("not-followed", f"{name}: nothing that counts at once and is ours depends on it")
            return
        recent.append(now_s)
        self._rests_until_s[key] = now_s + _REST_S
        self._changes += 1
        self._moved.pop(key, None)
        rows = ", ".join(f"{row.tunable.name} {row.now} -> {row.wanted}" for row in result.written)
        yield Told("followed", NOTICE, f"{name} for {rtt_ms:.1f} ms, transaction {result.transaction}: {rows}")

    def _watched(self) -> list[WatchedPath]:
        return [
            WatchedPath(profile, " and ".join(roles), netns, path.planned_ms / 1e3, path.now_ms / 1e3)
            for (profile, roles, netns), path in self._paths.items()
            if path.now_ms is not None
        ]


def _name(applied: Transaction) -> str:
    return f"path of '{applied.profile}' ({', '.join(applied.header.roles)})"


def _alike(told_ms: float | None, now_ms: float) -> bool:
    return told_ms is not None and not has_moved(told_ms, now_ms)


def _connections(applied: Transaction, sessions: Sequence[Session]) -> list[TcpSocket]:
    """Return the connections that an apply was for."""
    present = sockets.established(applied.header.netns)
    found = []
    if ROLES[0] in applied.header.roles:
        found += [mine for one in sessions if (mine := one.socket(present)) is not None]
    if ROLES[1] in applied.header.roles:
        groups = targets.groups()
        ports = {tree.whole(one.rpartition(":")[2]) for group in groups for one in group.where["portals"].split()}
        found += [one for one in present if one.local_port in ports]
    return found
