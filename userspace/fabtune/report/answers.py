# SPDX-License-Identifier: GPL-2.0-or-later
"""What a reader wants to know first: did it help, by how much, how sure is that, and what limits now."""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence

import attrs

from fabtune.model.judgement import Verdict
from fabtune.model.path import is_at_bound
from fabtune.model.units import counted
from fabtune.report.page import Answer
from fabtune.report.table import percent, times, times_within

# A bound this near the link's goodput is the link's.
_AT_LINK = 0.98
_LINK, _DISK, _QUEUE = "the link", "the target's disk", "queue depth and round trip"
_UNLIKE_TOLD = "nothing of the path as it was told, which allows less"
# So many groups of places are named; of more, their number.
_NAMED = 6
# A longer list of places is counted.
_MOST_LETTERS = 160


@attrs.frozen(kw_only=True)
class Gain:
    """One primary figure of B against A, judged; `where` is the point, in words.

    `better` is +1 where more of the figure is better, -1 where less is.
    """

    where: str
    verdict: str
    why: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    better: int = 1


@attrs.frozen(kw_only=True)
class Reach:
    """How near its bound a point came, and what sets that bound, as `bound_by` says; `paced` is a load at a given rate.

    Such a one stays below its bound for that alone.
    """

    where: str
    share: float
    by: str
    paced: bool = False


# The CPU time per GB of each point, judged as its gain is, by the point in words.
CostByPlace = Mapping[str, Gain]


# How an experiment's point tells the arguments of `cost_of` behind its place.
COST_KEYS = ("cpu_verdict", "cpu_why", "cpu_change", "cpu_change_low", "cpu_change_high")


def cost_of(
    where: str, verdict: str | None, why: str | None, ratio: float | None, low: float | None, high: float | None
) -> CostByPlace:
    """Return the judged CPU time of an experiment's point, nothing where neither side tells it."""
    if not verdict:
        return {}
    return {where: Gain(where=where, verdict=verdict, why=why or "", ratio=ratio, low=low, high=high)}


def of_costs(a: str, gains: Mapping[str, Sequence[Gain]], costs: Mapping[str, CostByPlace]) -> dict[str, list[Answer]]:
    """Return what each gain over A costs, by name: one answer for each, or none where nothing is known of any."""
    known = any(costs.values())
    return {name: [of_cost(name, a, mine, costs[name])] if known else [] for name, mine in gains.items()}


def of_cost(b: str, a: str, gains: Sequence[Gain], costs: CostByPlace) -> Answer:
    """Return what B's gains cost: the CPU time per GB at each of their points."""
    mine = [costs.get(where) or _UNTOLD_COST(where=where) for where in dict.fromkeys(one.where for one in gains)]
    more, less = (_of_verdict(mine, verdict) for verdict in (Verdict.WORSE, Verdict.BETTER))
    same, unknown = (_of_verdict(mine, verdict) for verdict in (Verdict.SAME, Verdict.CANNOT_TELL))
    said = [f"more {_at(more, mine)}, up to {_ratio(max(more, key=_ratio_of))}"] if more else []
    said += [f"less {_at(less, mine)}, down to {_ratio(min(less, key=_ratio_of))}"] if less else []
    said += [f"no practical difference {_at(same, mine)}"] if same else []
    said += [f"cannot tell {_at(unknown, mine)}"] if unknown else []
    text = f"{b} against {a}: CPU time for each GB: {'; '.join(said) or 'not known'}.{_whys(unknown)}"
    return Answer("At what cost?", text, -1 if more else 0)


_UNTOLD_COST = functools.partial(Gain, verdict=Verdict.CANNOT_TELL.value, why="no run tells it")


def _of_verdict(gains: Sequence[Gain], verdict: Verdict) -> list[Gain]:
    return [one for one in gains if one.verdict == verdict.value]


def _ratio_of(one: Gain) -> float:
    return one.ratio or 0.0


def _gained(one: Gain) -> float:
    """Return a number that is the higher, the more was gained."""
    return one.better * _ratio_of(one)


def _whys(unknown: Sequence[Gain]) -> str:
    """Return a sentence with the reasons for which something cannot be told, each once, '' without one."""
    whys = dict.fromkeys(one.why for one in unknown if one.why)
    return f" Cannot tell: {'; '.join(whys)}." if whys else ""


def of_gains(b: str, a: str, gains: Sequence[Gain], how_sure: str) -> list[Answer]:
    """Return the first three answers: B against A over all points, and what that rests on."""
    found = {verdict: _of_verdict(gains, verdict) for verdict in Verdict}
    better, worse = found[Verdict.BETTER], found[Verdict.WORSE]
    told = {
        Verdict.BETTER: f"better {_at(better, gains)}",
        Verdict.WORSE: f"worse {_at(worse, gains)}",
        Verdict.SAME: f"no practical difference {_at(found[Verdict.SAME], gains)}",
        Verdict.CANNOT_TELL: f"cannot tell {_at(found[Verdict.CANNOT_TELL], gains)}",
    }
    said = "; ".join(text for verdict, text in told.items() if found[verdict])
    word = "In part" if better and worse else "Yes" if better else "No, it harmed" if worse else ""
    word = word or ("Cannot tell" if found[Verdict.CANNOT_TELL] or not gains else "No")
    sense = {"Yes": 1, "No, it harmed": -1, "In part": -1}.get(word, 0)
    return [
        Answer("Did it help?", f"{word}. {b} against {a}: {said or 'nothing to compare'}.", sense),
        Answer("By how much?", _by_how_much(gains)),
        Answer("How sure?", how_sure + _whys(found[Verdict.CANNOT_TELL])),
    ]


def of_best(a: str, gains: Mapping[str, Sequence[Gain]], workload: str = "") -> list[Answer]:
    """Return which of several is best supported, each held against A, and whether it is surely ahead of the others.

    Of one alone there is nothing to say.
    """
    if len(gains) < 2:
        return []
    question, prefix = "Which is best supported?", f"{workload}: " if workload else ""
    better, worse = (
        {name: _of_verdict(mine, verdict) for name, mine in gains.items()}
        for verdict in (Verdict.BETTER, Verdict.WORSE)
    )
    sure = [name for name in gains if better[name] and not worse[name]]
    if not sure:
        same = any(gains.values()) and all(one.verdict == Verdict.SAME.value for mine in gains.values() for one in mine)
        said = "None: no practical difference" if same else "Cannot tell: none is certain to be better"
        told = " without being worse elsewhere" if any(better.values()) else ""
        return [Answer(question, f"{prefix}{said}{told}, each held against {a}.")]
    best = max(sure, key=lambda name: (len(better[name]), min(_nearest(one) for one in better[name])))
    beside = [name for name in sure if name != best and not _ahead(better[best], gains[name])]
    said = f"{prefix}{best}, better than {a} {_at(better[best], gains[best])}."
    said += f" Cannot tell whether it beats {' or '.join(beside)}: their intervals overlap." if beside else ""
    return [Answer(question, said, 1)]


def _nearest(one: Gain) -> float:
    """Return the end of a gain's interval that is nearest to no gain, as a factor above 1."""
    ends = [end for end in (one.low, one.high) if end]
    return min((max(end, 1 / end) for end in ends), default=1.0)


def _ahead(better: Sequence[Gain], others: Sequence[Gain]) -> bool:
    """Tell whether the intervals of gains lie beyond another's at every point that both have."""
    found = {one.where: one for one in others}
    pairs = [(one, found[one.where]) for one in better if one.where in found]
    return bool(pairs) and all(
        one.low is not None and one.high is not None and other.low is not None and other.high is not None
        and (one.low > other.high if one.low > 1 else one.high < other.low)
        for one, other in pairs
    )  # fmt: skip


def _at(some: Sequence[Gain], gains: Sequence[Gain]) -> str:
    if len(some) == len(gains):
        return f"at {some[0].where}" if len(gains) == 1 else f"at all {len(gains)} points"
    places = _places([one.where for one in some])
    return f"at {len(some)} of {len(gains)} points" + (f" ({places})" if places else "")


def _places(wheres: Sequence[str]) -> str:
    """Return points in few words: what holds at the same places is said once, "reads, writes at 0, 20 ms".

    A list that nobody would read is left out: '' then.
    """
    found: dict[str, list[str]] = {}
    for what, _, place in (one.partition(" at ") for one in wheres):
        found.setdefault(what, []).append(place)
    alike: dict[tuple[str, ...], list[str]] = {}
    for what, places in found.items():
        alike.setdefault(tuple(places), []).append(what)
    said = [
        " at ".join(filter(None, [", ".join(whats), _listed(_once([one for one in places if one]))]))
        for places, whats in alike.items()
    ]
    more = len(said) - _NAMED
    text = "; ".join(said) if more < 2 else f"{'; '.join(said[:_NAMED])}; and {more} more"
    return text if len(text) <= _MOST_LETTERS else ""


def _listed(places: Sequence[str]) -> str:
    """Return places in a row; where each is several words with commas, it must be seen where the next begins."""
    return (" and " if any(", " in one for one in places) else ", ").join(places)


def _once(places: Sequence[str]) -> list[str]:
    """Return "0, 20 ms" for "0 ms", "20 ms": a unit that all have in common stands behind the last."""
    units = {place.partition(" ")[2] for place in places}
    return [place.partition(" ")[0] for place in places[:-1]] + list(places[-1:]) if len(units) == 1 else list(places)


def _by_how_much(gains: Sequence[Gain]) -> str:
    """Return the largest and the smallest of the certain changes with their intervals, else of all."""
    sure = [one for one in gains if one.verdict in (Verdict.BETTER.value, Verdict.WORSE.value)]
    certain = [one for one in (sure or gains) if one.ratio is not None]
    ends = {"most": max(certain, key=_gained), "least": min(certain, key=_gained)} if certain else {}
    said = [f"{word} {_ratio(one)}, {one.where}" for word, one in ends.items()]
    if ends and ends["most"] is ends["least"]:
        said = [f"{_ratio(ends['most'])}, {ends['most'].where}"]
    if still := [one for one in sure if one.ratio is None]:
        places = _places([one.where for one in still]) or counted(len(still), "point")
        said.append(f"without a ratio, since one side stood still: {places}")
    return f"{'; '.join(said)}." if said else "Not known."


def _ratio(one: Gain) -> str:
    if one.ratio is None:
        return "without a ratio"
    if one.low is None or one.high is None:
        return f"{times(one.ratio)}, without an interval"
    return times_within(one.ratio, one.low, one.high)


def of_limits(name: str, reached: Sequence[Reach]) -> Answer:
    """Return what holds `name` now, point by point."""
    said = []
    bounds = _LINK, _DISK, _QUEUE, _UNLIKE_TOLD
    held = [one for one in reached if is_at_bound(one.share, 1.0)]
    groups: tuple[tuple[str, list[Reach]], ...] = (
        *((by, [one for one in held if one.by == by]) for by in bounds),
        ("something else, for `fabtune why` to name", [one for one in reached if one not in held and not one.paced]),
    )
    for what, some in groups:
        if some:
            shares = sorted(one.share for one in some)
            span = " to ".join(dict.fromkeys((percent(shares[0]), percent(shares[-1]))))
            said.append(f"{what}: {_where(some)} ({span} of the bound)")
    if untold := [one for one in reached if one not in held and one.paced]:
        said.append(f"not known, as the load sends only what it is told to: {_where(untold)}")
    return Answer("What limits now?", f"{name}: {'; '.join(said)}." if said else "Not known: no bound without a path.")


def _where(some: Sequence[Reach]) -> str:
    return _places([one.where for one in some]) or f"{len(some)} points"


def bound_by(bound_mb_per_s: float, line_mb_per_s: float, *, disk: bool, beyond: bool = False) -> str:
    """Return what sets a bound: the target's disk, a link with this payload (0: not known), or what is outstanding.

    Nothing does where a load went `beyond` it.
    """
    if beyond:
        return _UNLIKE_TOLD
    if disk:
        return _DISK
    return _LINK if line_mb_per_s > 0 and bound_mb_per_s >= _AT_LINK * line_mb_per_s else _QUEUE


def merged(found: Sequence[Answer], names: Sequence[str]) -> list[Answer]:
    """Return each question once, with the answers for all of `names` below one another."""
    if len(names) < 2:
        return list(found)
    kept = []
    for question in dict.fromkeys(one.question for one in found):
        mine = [one for one in found if one.question == question]
        # What is said of several alike stands once, behind all their names.
        alike: dict[str, list[str]] = {}
        for one, name in zip(mine, names, strict=True):
            alike.setdefault(one.text, []).append(name)
        told = [
            text
            if len(alike) == 1 or re.search(rf"(?<!\w){re.escape(whose[0])}(?: against |: )", text)
            else f"{', '.join(whose)}: {text}"
            for text, whose in alike.items()
        ]
        kept.append(Answer(question, "\n".join(told), min(one.sense for one in mine)))
    return kept


def as_lines(answers: Iterable[Answer]) -> list[str]:
    """Return answers as texts for a terminal."""
    return [line for one in answers for line in f"{one.question} {one.text}{_rest(one)}".split("\n")]


def _rest(one: Answer) -> str:
    return f"\nAnd {one.rest} more: {one.whole}, on the page." if one.rest else ""


def shortened(question: str, lines: Sequence[str], most: int, whole: str) -> Answer:
    """Return an answer with the first `most` of the lines; all that they tell is in the section headed `whole`."""
    return Answer(question, "\n".join(lines[:most]), whole=whole, rest=max(0, len(lines) - most))
