# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``why``: what limits each disk of a session, in shares of the time, and what lifts it."""

import argparse
import sys
from collections.abc import Mapping, Sequence

import attrs

from fabtune.cli import console, table
from fabtune.cli.arguments import first_given
from fabtune.errors import ExitCode, InputError
from fabtune.measure.away import LOOKING, EndsSeen
from fabtune.measure.look import Look, target_ends
from fabtune.model import typed, units
from fabtune.model.document import Json
from fabtune.model.foretell import Foretold
from fabtune.model.observation import Observation
from fabtune.tune import lift
from fabtune.tune.unlifted import on_the_target
from fabtune.why import words
from fabtune.why.judging import Judged, judged

_PARTS = {
    "held": "held back on this host", "queue": "in iSCSI's own queues", "path": "round trip",
    "r2t": "round trips for R2Ts", "wire": "on the wire",
    "backstore": "in the target's disk", "target": "at the target otherwise", "queues": "in queues on the way",
    "socket": "waiting in the sender's socket",
}  # fmt: skip
# A part of a request's time that is smaller is not shown.
_NAMED = 0.01


@attrs.frozen
class _Told:
    """One disk: what was seen, what limits it, and the rows that lift that."""

    seen: Observation
    ways: list[Judged]
    advice: lift.Advice
    at_target: list[str]
    brings: Mapping[str, Foretold]

    def verdict(self, way: Judged) -> str:
        """Return the sentence on one direction."""
        return words.verdict(way) + words.gain(self.brings.get(way.way))


def run_why(args: argparse.Namespace) -> int:
    """Look, judge and say; exit 5 where nothing can be told, 1 where the target's host said nothing."""
    if args.end:
        if option := first_given(args, "DEV", "--rate", "--watch", "--target-host", "--fleet"):
            raise InputError(f"--end target looks at all sessions of this target; it cannot be combined with {option}")
        console.say(f"{LOOKING} {args.seconds:g} s ...")
        table.print_json(
            typed.STRICT.write(EndsSeen(tuple(target_ends(args.seconds, args.at, args.target_netns or ""))))
        )
        return ExitCode.DONE
    if args.fleet:
        from fabtune.cli.why_fleet import run_on_fleet

        return run_on_fleet(args)
    rate = None if args.rate is None else units.parse_bit_per_s(args.rate, "--rate")
    code, read = ExitCode.DONE, True
    try:
        while read:
            code, read = _once(args, rate)
            if not args.watch:
                break
    except KeyboardInterrupt:
        # Ctrl-C is how one stops watching.
        if not args.watch:
            raise
    return code


def _once(args: argparse.Namespace, rate_bit_per_s: float | None) -> tuple[ExitCode, bool]:
    """Look once; return the exit code, and whether somebody still reads."""
    look = Look(args.device, args.target_netns, args.target_host)
    if not args.watch:
        console.say(f"{LOOKING} {args.seconds:g} s ...")
    told = _tell(lift.with_known_rate(look.over(args.seconds, at_unix_s=args.at), rate_bit_per_s), args.target_netns)
    read = False
    with console.reader_may_leave():
        if args.json:
            paths = words.lone_paths([one.seen for one in told])
            document = {"devices": [_as_json(one) for one in told], "paths": paths}
            table.print_json(document, one_line=args.watch)
        else:
            _show(told)
        sys.stdout.flush()
        read = True
    if args.target_host and not any(one.seen.target for one in told):
        return ExitCode.FAILED, read
    known = any(lift.is_named(way) for one in told for way in one.ways)
    return ExitCode.DONE if known else ExitCode.CANNOT_TELL, read


def _tell(seen: Sequence[Observation], target_netns: str | None) -> list[_Told]:
    """Judge each disk, and plan for all that are limited together."""
    found = [judged(one) for one in seen]
    advice = lift.advised([lift.limited(*pair) for pair in zip(seen, found, strict=True)], target_netns)
    return [
        _Told(
            one, ways, what, lift.at_the_target(ways) if target_netns is None else [], lift.brought(one, what.rows)
        )
        for one, ways, what in zip(seen, found, advice, strict=True)
    ]  # fmt: skip


def _as_json(one: _Told) -> dict[str, Json]:
    return {
        "device": one.seen.device,
        "target": one.seen.session.target,
        "portal": one.seen.session.portal,
        "idle": not (one.ways or one.seen.disk.went_away),
        "gone": one.seen.disk.went_away,
        "ways": [_way_json(one, way) for way in one.ways],
        "plan": [{**lifted.row.as_json(), "lifts": list(lifted.limiters)} for lifted in one.advice.rows],
        "no_plan": one.advice.no_plan,
        "unlifted": [{**attrs.asdict(rest), "in_words": rest.in_words} for rest in one.advice.unlifted],
        "at_target": list(one.at_target),
        "missing": list(one.seen.missing),
        "observation": typed.STRICT.write(one.seen),
    }


def _way_json(told: _Told, way: Judged) -> dict[str, Json]:
    after = told.brings.get(way.way)
    shares: list[Json] = [
        {
            "limiter": share.limiter,
            "share": round(share.share, 4),
            "subject": share.subject,
            "among": list(share.among),
            "evidence": [{"end": one.end, "counter": one.counter, "value": one.value} for one in share.evidence],
            "advice": share.advice,
        }
        for share in way.shares
    ]
    return {
        "way": way.way,
        "bytes_per_s": round(way.bytes_per_s),
        "line_bytes_per_s": None if way.goodput_bytes_per_s is None else round(way.goodput_bytes_per_s),
        "both_ends": way.both_ends,
        "at_the_bound": way.at_the_bound,
        "verdict": told.verdict(way),
        "lifted_bytes_per_s": None if after is None or after.bytes_per_s is None else round(after.bytes_per_s),
        "lifted_low_bytes_per_s": None if after is None else round(after.low),
        "lifted_limiter": None if after is None else after.first.limiter,
        "shares": shares,
        "rest_behind": way.rest_behind,
        "request_ms": {part.name: round(part.ms, 3) for part in way.request},
        "served": _served_json(way),
    }


def _served_json(way: Judged) -> Json:
    """Return what the target counted of this direction's commands, null where its fabstat does not tell."""
    served, name = way.served, way.way
    if served is None or name not in served.mean_ms:
        return None
    return {
        "commands": served.completed[name],
        "mean_ms": round(served.mean_ms[name], 3),
        "r2t_wait_ms": round(served.r2t_ms[name], 3) if name in served.r2t_ms else None,
        "backstore_ms": round(served.backstore_ms[name], 3) if name in served.backstore_ms else None,
        "window_granted": served.window,
        "window_used": served.window_used,
    }


def _show(told: list[_Told]) -> None:
    for one in told:
        for way in one.ways:
            table.paragraph(one.verdict(way))
        if not one.ways:
            table.paragraph(words.idle(one.seen))
    for one in told:
        for way in one.ways:
            _show_shares(way)
        _show_rows(one)
    for text in words.lone_paths([one.seen for one in told]):
        table.paragraph(text)
    for text in dict.fromkeys(text for one in told for text in one.seen.missing):
        table.labelled("not seen", text, 10)


def _show_shares(way: Judged) -> None:
    ends = "both ends" if way.both_ends else "the initiator's end alone"
    what = f"{way.way}s" if way.way_told else "requests"
    print(f"\n{way.device}, {what}: shares of the time, seen from {ends}")
    rows = []
    for share in way.shares:
        if share.share < 0.005:
            continue
        seen = "; ".join(f"{one.end}: {one.counter} {one.value}" for one in share.evidence)
        apart = f"cannot tell {_listed(share.among)} apart; " if share.among else ""
        rows.append((f"{100 * share.share:.0f} %", words.limiter_name(share), apart + (seen or share.subject)))
    table.table(("share", "limiter", "seen"), rows, wrapped="seen", right=("share",))
    if way.request:
        whole_ms = sum(part.ms for part in way.request)
        names = {**_PARTS, "rest": f"held up by {way.rest_behind}" if way.rest_behind else "not told"}
        named = [f"{part.ms:.1f} ms {names[part.name]}" for part in way.request if part.ms >= _NAMED * whole_ms]
        over_ms = -way.request[-1].ms
        also = [f"which is {over_ms:.1f} ms too much"] if over_ms >= _NAMED * whole_ms else []
        table.paragraph(f"a request takes {whole_ms:.1f} ms: {', '.join([*named, *also])}")
    if text := words.at_target(way):
        table.paragraph(text)


def _listed(names: tuple[str, ...]) -> str:
    said = [name.replace("-", " ") for name in names]
    return " and ".join([", ".join(said[:-1]), said[-1]])


def _show_rows(one: _Told) -> None:
    told = dict.fromkeys(share.advice for way in one.ways for share in way.liftable if share.advice)
    rows, no_plan, unlifted = one.advice.rows, one.advice.no_plan, one.advice.unlifted
    if not any((rows, told, no_plan, unlifted, one.at_target)):
        return
    print(f"\n{one.seen.device}: what to do")
    if rows:
        shown = [
            (found.row.tunable.name, found.row.device.label if found.row.device else "-", found.row.now or "-",
             found.row.wanted or "-", ", ".join(found.limiters).replace("-", " "))
            for found in rows
        ]  # fmt: skip
        table.table(("tunable", "where", "now", "wanted", "lifts"), shown)
    for text in (*told, *(rest.in_words for rest in unlifted)):
        table.paragraph(text)
    if one.at_target:
        table.paragraph(on_the_target(one.at_target))
    if no_plan:
        names = dict.fromkeys(name for way in one.ways for share in way.liftable for name in share.lifts)
        table.paragraph(f"what lifts it is among {', '.join(names)}; no values: {no_plan}")
