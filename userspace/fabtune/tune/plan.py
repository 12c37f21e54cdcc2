# SPDX-License-Identifier: GPL-2.0-or-later
"""Turns a profile and the facts of a host into rows: now, wanted, why, effect.  Reads only; writes nothing."""

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter

from fabtune.catalog.profile import Entry, Profile, needs
from fabtune.catalog.tunable import MOST, UNITS, Tunable, Value
from fabtune.errors import InputError
from fabtune.facts.collect import Facts, Reading
from fabtune.host import targets
from fabtune.model import formula
from fabtune.model.device import Device
from fabtune.model.document import Json
from fabtune.model.observation import INITIATOR
from fabtune.model.path import NetworkPath, header_bytes
from fabtune.tune.lines import EndsField
from fabtune.tune.path_choice import what_is_missing

# What a row is: to be written, right already, better already, not possible here, not readable,
# wanted only under a condition that does not hold, without a device to hold it, or left alone for somebody's sake.
CHANGE, SAME, KEPT, UNSUPPORTED, UNREADABLE, NOT_NEEDED, NO_DEVICE, REFUSED = (
    "change", "same", "kept", "unsupported", "unreadable", "not-needed", "no-device", "refused",
)  # fmt: skip
# The note of what a plan from `why` leaves alone, as nobody needs it: of a thousand sessions one may be limited.
NOT_LIMITED = "of no session that is limited by it"


@dataclass(frozen=True)
class Row:
    """One tunable of one device: what it holds, what it should hold and why."""

    tunable: Tunable
    role: str
    device: Device | None
    now: str | None
    wanted: str | None
    state: str
    why: str
    note: str = ""
    form: str = "value"
    # Of a file that several profiles write: the lines that this one wants in it.
    share: str = ""
    # Of what is given to connections: the other ends of those that live, by address; None for all else.
    peers: tuple[str, ...] | None = None
    # Whether it is for sessions of the planned path alone.
    own_path: bool = False

    @property
    def touches(self) -> str:
        """Whom the change concerns; a ceiling that is lowered takes something from everybody."""
        if self.tunable.ceiling and self.state == CHANGE and not self.rises:
            return self.tunable.widest
        return self.tunable.touches

    @property
    def rises(self) -> bool:
        """Whether the wanted value is known to be no less than that of now."""
        if self.now is None or self.wanted is None:
            return False
        before, after = (self.tunable.amount(self.tunable.parse(text)) for text in (self.now, self.wanted))
        return before is not None and after is not None and after >= before

    def as_json(self) -> dict[str, Json]:
        """Return the row with stable keys."""
        return {
            "tunable": self.tunable.name,
            "role": self.role,
            "device": self.device.label if self.device else None,
            "identity": self.device.identity if self.device else None,
            "scope": self.tunable.scope,
            "unit": self.tunable.unit,
            "now": self.now,
            "wanted": self.wanted,
            "state": self.state,
            "effect": self.tunable.effect,
            "touches": self.touches,
            "why": self.why,
            "note": self.note,
        }


@dataclass
class Plan:
    """Every row of a profile on this host, those to write in the order they must be written."""

    profile: str
    roles: tuple[str, ...]
    netns: str
    path: NetworkPath | None
    parameters: dict[str, float]
    rows: list[Row] = field(default_factory=list)
    # Whoever asks for it, in his own words.
    note: str = ""
    # Whether it is all that the profile says, with no parameter set.
    whole: bool = False
    # Whether it stays only if somebody confirms it when he has seen that it helps.
    on_trial: bool = False
    # The transaction for which fabtune itself writes it, '' where somebody asked.
    written_for: str = ""
    # The parameters by which the user answers for others whom it concerns.
    overrides: tuple[str, ...] = ()
    # The connections that it is for, where it is for these alone.
    ends: tuple[EndsField, ...] = ()

    @property
    def changes(self) -> list[Row]:
        """The rows to write, in order."""
        return [row for row in self.rows if row.state == CHANGE]

    @property
    def io_bytes(self) -> float | None:
        """The request that its queue is sized for, None without a queue."""
        return self.parameters.get("io_size") if "queue" in self.parameters else None


def tunables_of(profile: Profile) -> list[Tunable]:
    """Return each tunable the profile speaks of, once."""
    return list({e.tunable.name: e.tunable for entries in profile.entries.values() for e in entries.values()}.values())


def make_plan(
    profile: Profile, roles: tuple[str, ...], facts: Facts, path: NetworkPath | None, overrides: Mapping[str, float]
) -> Plan:
    """Return the plan of `profile` for `roles` on the host `facts` describe.

    Raises InputError when a formula needs a path that is neither given nor measured.
    """
    variables: dict[str, float] = {
        "memory": float(facts.host.memory_bytes),
        "cpus": float(facts.host.cpus),
        "page": float(facts.host.page_bytes),
        "sessions": float(facts.session_count),
        "mtu": float(path.mtu if path else 1500),
        "headers": float(path.header_bytes if path else header_bytes("")),
        "by_connection": float(_by_connection(facts)),
        # A target does not see what its initiators build on its disks.
        "striped": float(facts.striped if roles == (INITIATOR,) else 1),
    }
    if path:
        variables |= {"rtt": path.rtt_s, "rate": path.rate_bytes_per_s, "bdp": path.bdp_bytes}
        variables["estimated"] = float(path.estimated)
    parameters = profile.values(overrides, variables)
    variables |= parameters
    plan = Plan(profile.name, roles, facts.netns, path, parameters)
    rows: dict[tuple[str, tuple[str, str] | None], Row] = {}
    for role in roles:
        for entry in profile.entries[role].values():
            try:
                found = list(_rows(entry, role, facts, variables))
            except _PathNeededError as error:
                raise PathUnknownError(
                    f"{_what_is_missing(facts)} (profile '{profile.name}' needs it for {error})"
                ) from None
            except InputError as error:
                raise profile.blamed(error, [entry.when, str(entry.wanted)], overrides) from None
            for row in found:
                key = row.tunable.name, row.device.key if row.device else None
                rows[key] = _stricter(rows[key], row) if key in rows else row
    plan.rows = ordered(rows.values())
    return plan


def _by_connection(facts: Facts) -> bool:
    """Tell whether this host can give single portals' connections options of their own, as far as can be told."""
    return any(one.device.scope == "connection" and not one.unsupported for one in facts.readings)


# What belongs to the storage path alone.
_OF_THE_PATH = ("connection", "session", "disk", "login", "nobody else")


def narrowed(plan: Plan) -> None:
    """Refuse each row of `plan` that would concern others on this host than the storage path's own sessions."""
    for index, row in enumerate(plan.rows):
        if row.state == CHANGE and row.touches not in _OF_THE_PATH:
            note = f"concerns the whole {row.touches}, and --scope connection was given"
            plan.rows[index] = replace(row, state=REFUSED, note=note)


def _stricter(first: Row, second: Row) -> Row:
    """Where two roles want the same value, keep the wish that changes more."""
    if first.wanted == second.wanted or second.state != CHANGE:
        return first
    if first.state != CHANGE or first.wanted is None or second.wanted is None:
        return second
    mine, others = (first.tunable.amount(first.tunable.parse(text)) for text in (first.wanted, second.wanted))
    return first if mine is not None and others is not None and mine > others else second


def _rows(entry: Entry, role: str, facts: Facts, variables: Mapping[str, float]) -> Iterable[Row]:
    tunable = entry.tunable
    row = Row(tunable, role, None, None, None, NOT_NEEDED, entry.why, form=entry.form, own_path=entry.own_path)
    if entry.when and not _evaluate(entry.when, entry, variables):
        yield replace(row, note=f"only when {entry.when}")
        return
    # A portal is an initiator's or a target's.
    readings = [one for one in facts.of(tunable.name) if one.device.where.get("role", role) == role]
    if not readings and _of_another_kind(tunable, facts):
        return
    if not readings:
        blank = Reading(tunable.name, Device(tunable.scope, "", ""), None)
        wanted, note = wanted_value(entry, blank, facts.host.kernel, variables)
        default = tunable.default_for(facts.host.kernel)
        if wanted is not None and default is not None and better(tunable, entry.form, default, wanted):
            # A device of the future starts with the default.
            wanted = default
        native = None if wanted is None else tunable.native(wanted)
        yield replace(row, wanted=native, state=NO_DEVICE, note=note)
    for reading in readings:
        yield _row(row, entry, reading, facts.host.kernel, variables)


def _of_another_kind(tunable: Tunable, facts: Facts) -> bool:
    """Tell whether `tunable` belongs to a kind of target that this host has no need of."""
    mine = targets.of_scope(tunable.scope)
    if mine is None or not mine.group:
        return False
    others = [kind for kind in targets.serving() if kind is not mine]
    groups = [kind.group for kind in others]
    if any(reading.device.scope in groups for reading in facts.readings):
        return True
    return any(kind.lacking() for kind in others) if mine.usual else not mine.lacking()


def _row(row: Row, entry: Entry, reading: Reading, kernel: str, variables: Mapping[str, float]) -> Row:
    tunable = entry.tunable
    wanted, note = wanted_value(entry, reading, kernel, variables)
    row = replace(row, device=reading.device, now=reading.value, note=note or reading.problem)
    if reading.value is None:
        native = None if wanted is None else tunable.native(wanted)
        return replace(row, state=UNSUPPORTED if reading.unsupported else UNREADABLE, wanted=native)
    if wanted is None:
        return replace(row, state=UNSUPPORTED)
    now = tunable.parse(reading.value)
    if better(tunable, entry.form, now, wanted):
        note = "off, and a bound switches nothing on" if tunable.is_off(now) else row.note
        return replace(row, wanted=reading.value, state=KEPT, note=note)
    native = tunable.native(wanted)
    if tunable.same(reading.value, native):
        return replace(row, wanted=native, state=SAME)
    if reading.refusal and not variables.get(reading.unless):
        return replace(row, wanted=native, state=REFUSED, note=reading.refusal)
    return replace(row, wanted=native, state=CHANGE)


def better(tunable: Tunable, form: str, now: Value, wanted: Value) -> bool:
    """Tell whether the present value is already beyond a bound, or is off, which no bound changes."""
    have, bound = tunable.amount(now), tunable.amount(wanted)
    if form == "value" or have is None or bound is None:
        return False
    if tunable.is_off(now):
        return not tunable.is_off(wanted)
    return have > bound if form == "at_least" else have < bound


def wanted_value(
    entry: Entry, reading: Reading, kernel: str, variables: Mapping[str, float]
) -> tuple[Value | None, str]:
    """Return the value `entry` asks for on one device, None if it cannot be told, and a remark on how it came about."""
    tunable, wanted = entry.tunable, entry.wanted
    if wanted == "auto" and tunable.auto is not None:
        return tunable.auto, ""
    if wanted == "default":
        return _default(tunable, kernel, variables["memory"])
    if wanted == "max":
        limit = reading.limit if reading.limit is not None else tunable.maximum
        return limit, "" if limit is not None else "the device does not tell its maximum"
    if tunable.type != "int":
        return wanted, ""
    exact = (
        float(wanted) if isinstance(wanted, int) else _evaluate(wanted, entry, variables) * _unit(tunable, variables)
    )
    if entry.form == "value" and exact in (*tunable.off, *tunable.unlimited):
        return int(exact), ""
    number = _rounded(exact, tunable, down=entry.form == "at_most")
    if tunable.is_off(number) and exact != number:
        # Rounded down to off: the least that is still on.
        number += tunable.multiple_of
    low = number if tunable.minimum is None else tunable.minimum
    high = min(limit for limit in (number, tunable.maximum, reading.limit, MOST) if limit is not None)
    if number > high:
        return _rounded(high, tunable, down=True), f"limited to {high}"
    return (low, f"raised to the least allowed, {low}") if number < low else (number, "")


def has_default(row: Row, facts: Facts) -> bool:
    """Tell whether a value is known to be the kernel's own: nobody has set it, or to nothing else."""
    default, _ = _default(row.tunable, facts.host.kernel, float(facts.host.memory_bytes))
    return default is not None and row.now is not None and row.tunable.parse(row.now) == default


def _default(tunable: Tunable, kernel: str, memory_bytes: float) -> tuple[Value | None, str]:
    default = tunable.default_for(kernel)
    if default is None:
        return None, f"its default is not the same everywhere: {tunable.default_note or 'it depends on the device'}"
    amount = tunable.amount(default)
    share = tunable.default_memory_share
    # What was free at boot, of which the kernel took its share, is somewhat less than all memory.
    if share and amount is not None and memory_bytes / share < 1.1 * amount:
        return (
            None,
            f"the kernel's default is a share ({share}th) of what memory was free at boot, which it does not tell",
        )
    return default, ""


def _unit(tunable: Tunable, variables: Mapping[str, float]) -> float:
    """Return how many of the tunable's unit make one byte, second or thing; a page is as large as the host's."""
    return 1 / variables["page"] if tunable.unit == "pages" else UNITS[tunable.unit]


def _rounded(value: float, tunable: Tunable, down: bool) -> int:
    """Return a whole number that the tunable's step allows, rounded so that it does not do too little."""
    if tunable.power_of_two:
        power = math.log2(max(value, 1))
        return 1 << (math.floor(power) if down else math.ceil(power))
    step = tunable.multiple_of
    steps = math.floor(value / step) if down else math.ceil(value / step)
    return int(steps) * step


class PathUnknownError(InputError):
    """A profile needs a path, and round trip or rate of it are neither given nor told by this host."""


class _PathNeededError(InputError):
    """A formula needs a path that is neither given nor measured."""


def _what_is_missing(facts: Facts) -> str:
    """Return which half of the path this host does not tell, and how to give it."""
    # Where both are unknown here, one of them may have been given: asking for both is never wrong.
    has_rtt = bool(facts.sockets)
    lacks = what_is_missing(has_rtt, any(nic.speed_bit_per_s for nic in facts.nics))
    return f"{lacks}, or let --rate measure find it" if has_rtt else lacks


def _evaluate(text: str, entry: Entry, variables: Mapping[str, float]) -> float:
    if needs(text, variables):
        # A parameter is missing when its own default needs the path.
        raise _PathNeededError(f"{entry.tunable.name} = {text}")
    return formula.evaluate(text, variables, entry.where)


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Return rows so that each stands after those its tunable depends on.

    A pair bound by `not_above` (FirstBurst <= MaxBurst) is written limit first when the limit
    rises and limit last when it falls, so that no moment breaks the rule.
    """
    items = list(rows)
    by_name: dict[str, list[int]] = {}
    by_device: dict[tuple[str, Device | None], list[int]] = {}
    for index, row in enumerate(items):
        by_name.setdefault(row.tunable.name, []).append(index)
        by_device.setdefault((row.tunable.name, row.device), []).append(index)
    sorter: TopologicalSorter[int] = TopologicalSorter({index: [] for index in range(len(items))})
    for index, row in enumerate(items):
        for name in row.tunable.after:
            for before in by_name.get(name, []):
                sorter.add(index, before)
        for other in by_device.get((row.tunable.not_above, row.device), []):
            sorter.add(*((index, other) if _rises(items[other]) else (other, index)))
        for other in by_name[row.tunable.name] if row.tunable.backend == "mtu" else []:
            # A layer carries no more than what it lies on.
            if lies_on(row, items[other]):
                sorter.add(*((index, other) if _rises(row) else (other, index)))
    try:
        sorter.prepare()
    except CycleError as error:
        names = ", ".join(sorted({items[index].tunable.name for index in error.args[1]}))
        raise InputError(f"tunables depend on each other in a circle: {names}") from None
    # Of all rows that may come next, the one the profile names first: a person reads this order.
    ready = list(sorter.get_ready())
    heapq.heapify(ready)
    result = []
    while ready:
        index = heapq.heappop(ready)
        result.append(items[index])
        sorter.done(index)
        for following in sorter.get_ready():
            heapq.heappush(ready, following)
    return result


def lies_on(upper: Row, lower: Row) -> bool:
    """Tell whether the device of `upper` is a layer on that of `lower`."""
    if upper.device is None or lower.device is None:
        return False
    return lower.device.where.get("name", "") in upper.device.where.get("below", "").split()


def _rises(row: Row) -> bool:
    wanted, now = (row.tunable.amount(row.tunable.parse(text or "0")) for text in (row.wanted, row.now))
    return wanted is None or now is None or wanted >= now
