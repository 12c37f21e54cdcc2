# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks round after round, tells what has changed since the last one, and heals where it was asked to.

Healing writes nothing but rows that count at once and that hold, or held until something undid them, what fabtune
wrote, or that a path that moved needs by now and nobody has set: each time an ordinary transaction of the journal.
What somebody else has set stays his.
"""

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from fabtune.backends import record
from fabtune.catalog.tunable import ROLES
from fabtune.errors import FabtuneError
from fabtune.export import kept, verified
from fabtune.export.guarded import Guarded, WatchedPath
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.guard.follow import LIVE, follow, place_of
from fabtune.guard.least import kept_s
from fabtune.guard.news import NOTICE, WARNING, Figure, Told, of_drift, of_path, of_rows, path_name
from fabtune.guard.rate_news import of_pace, of_rate
from fabtune.guard.remedy import put_right_by
from fabtune.guard.round_trip import has_moved
from fabtune.guard.seen_path import SeenPath
from fabtune.guard.watched import of_watched
from fabtune.host.sessions import Session
from fabtune.host.sockets import TcpSocket
from fabtune.model.listing import first_of
from fabtune.tune import again, journal
from fabtune.tune.journal import Step, Transaction
from fabtune.tune.plan import Row
from fabtune.tune.planned_paths import left_out, lifted_by, planned_for
from fabtune.tune.verify import Drift, verify

# Values are compared so often, and at once when sessions have come or gone; none is told of oftener.
VERIFY_EVERY_S = 60.0
# A session's disks are there, and have what a unit writes to them, so long after it.
_DISKS_S = 10.0
# What was not so for this long has passed: when it is so again, that is news.
_PASSED_S = 600.0
# A path that changes oftener than this in an hour is reported and no longer followed: that is no change of path.
_MOST_FOLLOWED, _IN_S = 12, 3600.0
# A value that is undone oftener than this in an hour is somebody's who goes on: it is reported and left to him.  So is
# one that is undone as often in a day, as by Puppet each half hour, but for what goes whenever a session comes back.
_MOST_HEALED, _IN_A_DAY_S = 12, 24 * 3600.0
# Values need so long until they are felt.
_REST_S = 10.0

_UNSURE = (
    "; less arrives, and TCP's least of minutes is as planned: a longer path, or the queue of a slower line or of "
    "others' traffic, cannot be told apart yet"
)

# What tells a value from others.
_ITS_NAME = ("tunable", "device", "identity")
_NOTHING: Mapping[str, Figure] = {}

# Profile, roles and network namespace of an apply.
Key = tuple[str, tuple[str, ...], str]
# Tunable, and what tells its device from every other one.
Value = tuple[str, str]
# Backend, key, and the device's scope and identity.
Place = tuple[str, str, str, str]


@attrs.define
class Guard:
    """What is known from round to round; `heal` lets it write."""

    heal: bool
    _drifts: frozenset[Value] | None = None
    # Each value that has drifted as it was when it was told of last, and when what was told.
    _told: dict[Value, Drift] = attrs.field(factory=dict)
    _told_at_s: dict[tuple[Value, str], float] = attrs.field(factory=dict)
    _sessions: tuple[int, ...] = ()
    _came: bool = False
    _verify_at_s: float = 0.0
    _paths: dict[Key, SeenPath] = attrs.field(factory=dict)
    _followed_at_s: deque[float] = attrs.field(factory=deque)
    # When each obstacle was met last.
    _met_at_s: dict[str, float] = attrs.field(factory=dict)
    # When each value was written again, and those that no longer are.
    _healed_at_s: dict[Place, deque[float]] = attrs.field(factory=dict)
    # The same without those times at which a session had come back.
    _undone_at_s: dict[Place, deque[float]] = attrs.field(factory=dict)
    _weary: set[Place] = attrs.field(factory=set)
    _journal: frozenset[tuple[str, int, int]] | None = None
    _applied: list[Transaction] = attrs.field(factory=list)
    # Of steps alone which paths are watched, and which are not.
    _watch: list[Told] = attrs.field(factory=list)
    # What verify found since the last publication.
    _new: Sequence[Drift] | None = None
    _healed: int = 0
    _changes: int = 0

    @property
    def uneasy(self) -> bool:
        """Whether something is not as applied now."""
        moved = any(one.told_ms is not None or one.rate.moved for one in self._paths.values())
        return bool(self._drifts) or moved

    def look(self, progress: Callable[[str], None]) -> list[Told]:
        """Look once.  Raises FabtuneError where the journal cannot be read."""
        # A discovery resets records, and tells nobody.
        record.BACKEND.forget()
        around = HostSnapshot()
        told = [*self._look_at_paths(around, progress), *self._look_at_values(around.sessions, progress)]
        # The metrics are for others; the watch goes on without them.
        try:
            self._publish()
        except OSError as error:
            told += self._once("not-published", f"{kept.runtime_dir()}: {error.strerror}: no metric shows it")
        return told

    def end(self) -> None:
        """Withdraw the watch from the metrics.  Of one that fails they stay, and grow old."""
        with contextlib.suppress(OSError):
            kept.unpublish(Guarded)

    def _publish(self) -> None:
        outcome = Guarded.of(time.time(), self.heal, self._healed, self._changes, self._watched())
        kept.save(outcome)
        if self._new is not None:
            verified.publish(self._new)
            self._new = None

    def _planned(self) -> list[Transaction]:
        """Return what `planned_for` finds; files that are as they were are not read again."""
        seen = journal.files_as_they_are()
        if seen != self._journal:
            known = journal.transactions()
            self._applied, self._journal = planned_for(known), seen
            self._watch = [of_watched(one, others) for one in self._applied if (others := left_out(one, known))]
        return self._applied

    def _once(self, kind: str, text: str, about: Mapping[str, Figure] = _NOTHING, grade: str = WARNING) -> list[Told]:
        """Return what is to be told, nothing as long as it goes on."""
        now_s = time.monotonic()
        self._met_at_s = {one: at_s for one, at_s in self._met_at_s.items() if now_s - at_s < _PASSED_S}
        goes_on = text in self._met_at_s
        self._met_at_s[text] = now_s
        return [] if goes_on else [Told(kind, grade, text, about)]

    def _look_at_values(self, sessions: Sequence[Session], progress: Callable[[str], None]) -> Iterator[Told]:
        present, now_s = tuple(sorted(one.sid for one in sessions)), time.monotonic()
        if self._drifts is not None and present == self._sessions and now_s < self._verify_at_s:
            return
        came = self._drifts is not None and bool(set(present) - set(self._sessions))
        kind = "session-returned" if came or self._came else "drift"
        self._sessions, self._came = present, came
        self._verify_at_s = now_s + (_DISKS_S if came else VERIFY_EVERY_S)
        drifts = verify(None, ROLES, "")
        if self.heal and any(one.drifted for one in drifts) and not journal.at_work():
            yield from self._write_again(progress, returned=kind != "drift")
            drifts = verify(None, ROLES, "")
        self._new = drifts
        yield from self._told_of(drifts, kind)

    def _told_of(self, drifts: Sequence[Drift], kind: str) -> Iterator[Told]:
        """Yield what has drifted and what is right again since the last comparison."""
        found = {(one.tunable, one.identity or one.device): one for one in drifts if one.drifted}
        now_s = time.monotonic()
        self._told_at_s = {one: at_s for one, at_s in self._told_at_s.items() if now_s - at_s < VERIFY_EVERY_S}
        for value, one in found.items():
            was, before = _found(one), self._told.get(value)
            if (before is None or _found(before) != was) and (value, was) not in self._told_at_s:
                notes = [one.note, put_right_by(one, journal.transactions()) if self.heal else ""]
                note = "".join(f"{mark}{text}" for mark, text in zip((": ", "; "), notes, strict=True) if text)
                text = f"{one.tunable} of {one.device} is {was}, applied was {one.expected}{note}"
                yield Told(kind, WARNING, text, of_drift(one))
                self._told[value], self._told_at_s[value, was] = one, now_s
        for value in sorted(self._told.keys() - found.keys()):
            one = self._told.pop(value)
            text = f"{one.tunable} of {one.device} is as applied again, or no longer in force"
            about = {key: found for key, found in of_drift(one).items() if key in _ITS_NAME}
            yield Told("as-applied", NOTICE, text, about)
        self._drifts = frozenset(found)

    def _write_again(self, progress: Callable[[str], None], *, returned: bool) -> Iterator[Told]:
        try:
            written = again.write_again(progress, only=self._may_heal)
        except FabtuneError as error:
            text = f"values that were undone were not written again: {error}"
            yield from self._once("cannot-heal", text, {"why": str(error)})
            return
        rows = [(row, result.transaction) for _, result in written.results for row in result.written]
        self._healed += len(rows)
        for row, transaction in rows:
            about = {"values": of_rows([row]), "transaction": transaction}
            yield Told("healed", NOTICE, f"{_value(row)}: {row.now} -> {row.wanted}, as applied", about)
            if within := self._too_often(place_of(row), returned):
                text = f"{_value(row)} was undone {_MOST_HEALED} times in {within}: something else goes on"
                text += " setting it; it is reported and no longer written until guard is started anew"
                yield from self._once("not-healed", text, {"values": of_rows([row])})
        yield from self._refused(written.refused, returned)

    def _refused(self, rows: Sequence[tuple[Row, str]], returned: bool) -> Iterator[Told]:
        """Tell what could not be written again, in one line for all that share a reason."""
        found: dict[str, list[Row]] = {}
        for row, why in rows:
            found.setdefault(why, []).append(row)
        for why, which in found.items():
            text = f"not written again: {_listed(which)}: {why}"
            yield from self._once("cannot-heal", text, {"values": of_rows(which), "why": why})
        # Each trial is a transaction, and may write values that go back with the one that was refused.
        weary: dict[str, list[Row]] = {}
        for row, _ in rows:
            if within := self._too_often(place_of(row), returned):
                weary.setdefault(within, []).append(row)
        for within, which in weary.items():
            text = f"tried {_MOST_HEALED} times in {within}, and refused: {_listed(which)}"
            text += "; reported and no longer tried until guard is started anew"
            yield from self._once("not-healed", text, {"values": of_rows(which)})

    def _may_heal(self, step: Step) -> bool:
        return step.effect == LIVE and step.value not in self._weary

    def _too_often(self, place: Place, returned: bool) -> str:
        """Note that the value at `place` was written again, or tried; return within which time it was once too often.

        '' where it is written again next time; `returned`: a session had just come back.
        """
        now_s, found = time.monotonic(), ""
        kept = [(self._healed_at_s, _IN_S, "an hour")]
        kept += [] if returned else [(self._undone_at_s, _IN_A_DAY_S, "a day")]
        for noted, limit_s, within in kept:
            times = noted.setdefault(place, deque(maxlen=_MOST_HEALED))
            times.append(now_s)
            if len(times) == _MOST_HEALED and now_s - times[0] <= limit_s:
                self._weary.add(place)
                found = found or within
        return found

    def _look_at_paths(self, around: HostSnapshot, progress: Callable[[str], None]) -> Iterator[Told]:
        planned = {_key(one): one for one in self._planned()}
        for watched in self._watch:
            yield from self._once(watched.kind, watched.text, watched.about, watched.grade)
        self._paths = {key: self._path_of(key, one) for key, one in planned.items()}
        found = dict[Key, list[TcpSocket]]()
        for key, applied in planned.items():
            try:
                found[key] = _connections(applied.header.netns, around)
                self._paths[key].know(found[key])
            except FabtuneError as error:
                yield from self._once("not-seen", f"{path_name(applied)}: {error}", of_path(applied))
        for key, applied in planned.items():
            path = self._paths[key]
            # Profile, roles, network namespace.
            others = [one for other, one in self._paths.items() if other != key and other[2] == key[2]]
            # None at all tells as much: what is gone has no round trip any more.
            least_kept_s = kept_s(applied.header.netns) if key in found else math.inf
            path.look(path.mine(found.get(key, []), others), applied.header.rate_bit_per_s, least_kept_s)
            yield from self._judged(applied, path, progress)
            yield from of_rate(applied, path)
            yield from of_pace(applied, path)

    def _path_of(self, key: Key, applied: Transaction) -> SeenPath:
        """Return what was seen of the path that `applied` was planned for, begun anew where it is another plan."""
        rtt_ms = applied.header.rtt_ms
        assert rtt_ms is not None
        path = self._paths.get(key) or SeenPath(rtt_ms, root=applied.root)
        followed = path.root == applied.root
        if path.planned_ms != rtt_ms:
            path.plan_for(rtt_ms, followed=followed)
        if not followed:
            path.root = applied.root
            path.rate.begin_anew()
        path.lifted = lifted_by(applied)
        return path

    def _judged(self, applied: Transaction, path: SeenPath, progress: Callable[[str], None]) -> Iterator[Told]:
        moved_ms, now_ms = path.moved_to_ms, path.now_ms
        name, about = path_name(applied), of_path(applied, rtt_ms=now_ms, planned_rtt_ms=path.planned_ms)
        if moved_ms is None:
            if path.told_ms is not None and not path.trips:
                path.told_ms = None
                yield Told("path-back", NOTICE, f"{name}: none of its connections is seen any more", about)
            elif path.told_ms is not None and now_ms is not None:
                path.told_ms = None
                text = f"its round trip is {now_ms:.1f} ms, as planned, again"
                if has_moved(path.planned_ms, now_ms):
                    text = f"the connection that had moved is gone, the longest of the others has {now_ms:.1f} ms"
                yield Told("path-back", NOTICE, f"{name}: {text}", about)
            return
        if not _alike(path.told_ms, moved_ms):
            path.told_ms = moved_ms
            planned = f"its values were planned for {path.planned_ms:.1f} ms"
            text = f"{name}: its round trip is {moved_ms:.1f} ms, {planned}{_UNSURE if path.unsure else ''}"
            yield Told("path-moved", WARNING, text, {**about, "cannot_tell": path.unsure})
        if self.heal:
            yield from self._follow(applied, path, moved_ms, progress)

    def _follow(
        self, applied: Transaction, path: SeenPath, rtt_ms: float, progress: Callable[[str], None]
    ) -> Iterator[Told]:
        now_s, recent = time.monotonic(), self._followed_at_s
        while recent and now_s - recent[0] > _IN_S:
            recent.popleft()
        if len(recent) >= _MOST_FOLLOWED:
            text = (
                f"paths moved {len(recent)} times in an hour: they are reported and no longer followed until fewer did"
            )
            yield from self._once("not-followed", text)
            return
        # What had nothing to write for this round trip has nothing at the next look.
        if _alike(path.tried_ms, rtt_ms) or now_s < path.rests_until_s or journal.at_work():
            return
        name, about = path_name(applied), of_path(applied, rtt_ms=rtt_ms, planned_rtt_ms=path.planned_ms)
        try:
            result = follow(applied, rtt_ms, progress)
        except FabtuneError as error:
            path.rests_until_s = now_s + _REST_S
            yield from self._once("not-followed", f"{name}: {error}", about)
            return
        if result is None:
            path.tried_ms = rtt_ms
            text = f"{name}: nothing that counts at once and is ours is to be changed for it"
            yield from self._once("not-followed", text, about)
            return
        recent.append(now_s)
        path.rests_until_s = now_s + _REST_S
        self._changes += 1
        path.told_ms = None
        rows = ", ".join(f"{row.tunable.name} {row.now} -> {row.wanted}" for row in result.written)
        text = f"{name} for {rtt_ms:.1f} ms, transaction {result.transaction}: {rows}"
        about |= {"values": of_rows(result.written), "transaction": result.transaction}
        yield Told("followed", NOTICE, text, about)

    def _watched(self) -> list[WatchedPath]:
        now_s = time.monotonic()
        return [
            WatchedPath(
                profile,
                " and ".join(roles),
                netns,
                path.planned_ms / 1e3,
                now_ms / 1e3,
                moved=path.told_ms is not None,
                rate_moved=path.rate.moved,
                at_pace=path.at_pace.longest(now_s) is not None,
            )
            for (profile, roles, netns), path in self._paths.items()
            if (now_ms := path.now_ms) is not None
        ]


def _value(row: Row) -> str:
    return f"{row.tunable.name} of {row.device.label}" if row.device else row.tunable.name


def _found(drift: Drift) -> str:
    return "gone" if drift.found is None else drift.found


def _listed(rows: Sequence[Row]) -> str:
    return first_of([_value(row) for row in rows], 3)


def _key(applied: Transaction) -> Key:
    return applied.header.profile, applied.header.roles, applied.header.netns


def _alike(told_ms: float | None, now_ms: float) -> bool:
    return told_ms is not None and not has_moved(told_ms, now_ms)


def _connections(netns: str, around: HostSnapshot) -> list[TcpSocket]:
    """Return storage's connections in `netns`: plans take the longest of their round trips.  Raises FabtuneError."""
    return (HostSnapshot(netns) if netns != around.netns else around).sockets
