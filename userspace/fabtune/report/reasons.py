# SPDX-License-Identifier: GPL-2.0-or-later
"""What limited each load while it ran, as its run record has it: a sentence a side first, then shares and evidence."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

import attrs

from fabtune.measure import verdicts
from fabtune.model.document import Json
from fabtune.model.limits import KeptShare, Limits
from fabtune.model.runrecord import RunRecord, Value
from fabtune.model.typed import STRICT
from fabtune.model.units import counted
from fabtune.model.untouched import baseline
from fabtune.report.answers import shortened
from fabtune.report.apart import point_of, said_setting, telling_apart
from fabtune.report.page import Answer, Section
from fabtune.report.table import Column, Table, decimals, percent
from fabtune.why import words

_QUESTION, _SECTION = "What limits?", "What limited"
# So many lines of the answer are on the first screen.
_LINES = 4
_COLUMNS = (
    Column("run", "run"),
    Column("step", "step"),
    Column("way", "way"),
    Column("rate", "mb_per_s", "MB/s", decimals(1)),
    Column("share", "share", "of the time", percent),
    Column("limiter", "limiter"),
    Column("seen", "seen"),
)


# More names than these are counted.
_FEW = 4


@attrs.frozen
class _Seen:
    """What limited one direction of one disk in one step of one run; `point` is '' where all are of one."""

    point: str
    step: str
    limits: Limits
    bytes_per_s: float

    @property
    def verdict(self) -> str:
        """The verdict with the rate that tables have."""
        return words.at_rate(self.limits.verdict, self.limits.bytes_per_s, self.bytes_per_s)

    @property
    def limiter(self) -> str:
        """What limited most, as tables call it."""
        return words.limiter_name(self.limits.shares[0])


def of_limiters(records: Sequence[RunRecord], workload: str) -> list[Answer]:
    """Return one answer with a line for each label, direction and limiter; none where nothing was looked at.

    Those that others are held against are first, what limited most looks before what limited fewer; of many lines
    the page's section has the rest.
    """
    labels = dict.fromkeys(one.label for one in records)
    lines: list[tuple[int, str]] = []
    for label in sorted(labels, key=lambda one: one != baseline(labels)):
        mine = [one for one in records if one.label == label]
        found, unseen = _looks(mine)
        for way in dict.fromkeys(one.limits.way for one in found):
            told = _by_limiter([one for one in found if one.limits.way == way], unseen[way])
            lines += [(rank, f"{label or workload}{text}") for rank, text in enumerate(told)]
    if len(lines) > _LINES:
        lines.sort(key=lambda line: line[0])
    return [shortened(_QUESTION, [text for _, text in lines], _LINES, _SECTION)] if lines else []


def _looks(records: Sequence[RunRecord]) -> tuple[list[_Seen], Mapping[str, Counter[str]]]:
    """Return what was seen in all runs, and by direction at which points it was not looked how often.

    Each look has its point: one rate stands for no other round trip or size.
    """
    steps = [(record, step) for record in records for step in record.steps]
    names = telling_apart(("", step.name, record, step) for record, step in steps if step.limits)
    found: list[_Seen] = []
    unseen: dict[str, Counter[str]] = defaultdict(Counter)
    for record, step in steps:
        mine = point_of(record, step)
        point = ", ".join(_in_words(name, mine[name]) for name in names if name in mine)
        found += [_Seen(point, step.name, one, verdicts.own_bytes_per_s(step, one)) for one in step.limits]
        ways = step.fio.directions if step.fio and not step.must_fail else ()
        for way in ways:
            unseen[way][point] += all(one.way != way for one in step.limits)
    return found, unseen


def _in_words(name: str, value: Value) -> str:
    return f"{value:g} ms" if name == "rtt_ms" else said_setting(name, value)


def _by_limiter(found: Sequence[_Seen], unseen: Counter[str]) -> list[str]:
    """Return a sentence for each limiter, the most frequent first, with its point where there are several."""
    alike: dict[str, list[_Seen]] = {}
    for one in found:
        alike.setdefault(one.limiter, []).append(one)
    return [_sentence(group, found, unseen) for group in sorted(alike.values(), key=len, reverse=True)]


def _sentence(group: Sequence[_Seen], found: Sequence[_Seen], unseen: Counter[str]) -> str:
    """Return what is said of the looks that name one limiter: a look in the middle of the first point, then others."""
    points = list(dict.fromkeys(one.point for one in group))
    here, mine = ([one for one in looks if one.point == points[0]] for looks in (found, group))
    disks, steps = (list(dict.fromkeys(names)) for names in zip(*map(_place, here), strict=True))
    middle = _middle(mine)
    said = f"{middle.step}: {middle.verdict}" if len(steps) > 1 else middle.verdict
    names = [set(names) for names in zip(*map(_place, mine), strict=True)]
    where = [_listed(disks, names[0], "disks"), _listed(steps, names[1], "steps")]
    place = f" ({'; '.join(filter(None, where))})" if any(where) else ""
    blind = _blind(unseen[points[0]])
    said += f"; so in {len(mine)} of {len(here)} looks{place}{blind}" if len(found) > 1 or blind else ""
    others = [_at_another(point, group, found, unseen) for point in points[1:]]
    said += f"; by the same {', '.join(others[:_FEW])}" if others else ""
    said += f"; and at {counted(len(others) - _FEW, 'more point')}" if len(others) > _FEW else ""
    return f", {points[0]}: {said}." if points[0] else f": {said}."


def _at_another(point: str, group: Sequence[_Seen], found: Sequence[_Seen], unseen: Counter[str]) -> str:
    here, mine = ([one for one in looks if one.point == point] for looks in (found, group))
    rate = f"{_middle(mine).bytes_per_s / 1e6:.1f} MB/s"
    return f"at {point}, {rate}, in {len(mine)} of {len(here)} looks{_blind(unseen[point])}"


def _blind(unseen: int) -> str:
    return f", {counted(unseen, 'more run')} {'was' if unseen == 1 else 'were'} not looked at" if unseen else ""


def _middle(group: Sequence[_Seen]) -> _Seen:
    return sorted(group, key=lambda one: one.bytes_per_s)[len(group) // 2]


def _place(one: _Seen) -> tuple[str, str]:
    return one.limits.device, one.step


def _listed(names: Sequence[str], mine: Collection[str], kind: str) -> str:
    """Return those of `names` that are `mine`, '' where there is but one."""
    found = [name for name in names if name in mine] if len(names) > 1 else []
    return ", ".join(found) if len(found) <= _FEW else f"{len(found)} {kind}"


def sentences(record: RunRecord) -> list[str]:
    """Return the verdicts of one run, with the step's name where it has several."""
    several = len(record.steps) > 1
    told = [(step.name, verdicts.limited_by(step, one)) for step in record.steps for one in step.limits]
    return [f"{name}: {said}" if several else said for name, said in told]


def section(records: Sequence[RunRecord]) -> Section | None:
    """Return one row for each share of the time; None where nothing was looked at."""
    rows = [
        (
            record.file,
            step.name,
            one.way,
            verdicts.own_bytes_per_s(step, one) / 1e6,
            share.share,
            words.limiter_name(share),
            _seen(share),
        )
        for record in records
        for step in record.steps
        for one in step.limits
        for share in one.shares
    ]
    if not rows:
        return None
    looks = [one for record in records for step in record.steps for one in step.limits]
    alone = not all(one.both_ends for one in looks)
    text = "Shares of the time of the measured part, as `fabtune why` gives them. "
    text += "Where the initiator's end alone was seen, what it cannot tell apart is said. " if alone else ""
    missing = tuple(dict.fromkeys(f"Not seen: {text}" for one in looks for text in one.missing))
    return Section(_SECTION, text, tables=(Table("What limited each load", _COLUMNS, tuple(rows), 2),), notes=missing)


def _seen(share: KeptShare) -> str:
    apart = f"cannot tell {', '.join(share.among).replace('-', ' ')} apart; " if share.among else ""
    return apart + ("; ".join(f"{one.end}: {one.counter} {one.value}" for one in share.evidence) or share.subject)


def as_json(found: Sequence[Limits]) -> list[Json]:
    """Return what limited a step under stable keys."""
    return [STRICT.write(one) for one in found]
