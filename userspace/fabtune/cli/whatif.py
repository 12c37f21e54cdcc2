# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``whatif``: what a profile or single values would bring a session, from one look at it as it is."""

import argparse

import attrs

from fabtune.cli import console, table
from fabtune.errors import ExitCode, InputError
from fabtune.measure.look import Look
from fabtune.model import units
from fabtune.model.capacity import Bound
from fabtune.model.document import Json
from fabtune.model.foretell import UNKNOWN, Foretold, Together, foretell, of_one_line
from fabtune.model.observation import Observation
from fabtune.tune import lift
from fabtune.tune.asked import Asked, asked, check_words, sorted_out
from fabtune.why.judging import Share, judged
from fabtune.why.limiter import CANNOT_TELL

# Of more disks that share a line their number is said.
_NAMED = 8
# What brings less than this brings nothing: then what limits stays.
_AS_NOW = 0.01


@attrs.frozen
class _Told:
    """One disk: what was seen, what was asked for it, and what that would bring in each direction."""

    seen: Observation
    asked: Asked
    ways: list[Foretold]


def run_whatif(args: argparse.Namespace) -> int:
    """Look, foretell and say; exit 5 where a direction has no figure, or nothing moved, 1 as `why` does."""
    rate = None if args.rate is None else units.parse_bit_per_s(args.rate, "--rate")
    changes, devices = sorted_out(args.word)
    # Before a look, which takes its time.
    check_words(changes, devices)
    if not changes:
        raise InputError(f"whatif {' '.join(devices)}: no profile and no NAME=VALUE; what is to be different?")
    look = Look(devices, args.target_netns, args.target_host)
    console.say(f"looking for {args.seconds:g} s ...")
    told = [_tell(seen, changes) for seen in lift.with_known_rate(look.over(args.seconds), rate)]
    with console.reader_may_leave():
        if args.json:
            both: list[Json] = [_together_json(one) for one in _together(told)]
            table.print_json({"devices": [_as_json(one) for one in told], "together": both})
        else:
            _show(told)
    if args.target_host and not any(one.seen.target for one in told):
        return ExitCode.FAILED
    known = [way.bytes_per_s is not None for one in told for way in one.ways]
    return ExitCode.DONE if known and all(known) else ExitCode.CANNOT_TELL


def _tell(seen: Observation, words: list[str]) -> _Told:
    # Of what has no TCP connection no path is known that a profile could be reckoned for.
    wanted = Asked({}, tuple(words)) if seen.session.rdma else asked(words, seen)
    # What the model does not know must not be foretold as if nothing had been asked.
    if not wanted.changes:
        return _Told(seen, wanted, [])
    verdicts = {one.way: one.first for one in judged(seen)}
    return _Told(seen, wanted, [_as_judged(one, verdicts.get(one.way)) for one in foretell(seen, wanted.changes)])


def _as_judged(way: Foretold, verdict: Share | None) -> Foretold:
    """Return `way` with what `why` says limits now: it looks at each moment, the model at the means of all."""
    if verdict is None:
        return way
    (end,) = verdict.ends if len(verdict.ends) == 1 else ("",)
    now = Bound(verdict.limiter, way.now_bytes_per_s, end)
    stays = way.bytes_per_s is not None and abs(way.bytes_per_s / way.now_bytes_per_s - 1) <= _AS_NOW
    return attrs.evolve(way, now=now, first=now if stays else way.first)


def _together(told: list[_Told]) -> list[Together]:
    return of_one_line([(one.seen, one.ways) for one in told])


def _together_json(one: Together) -> dict[str, Json]:
    return {
        "devices": list(one.devices),
        "way": one.way,
        "now_bytes_per_s": round(one.now_bytes_per_s),
        "bytes_per_s": None if one.bytes_per_s is None else round(one.bytes_per_s),
    }


def _as_json(one: _Told) -> dict[str, Json]:
    return {
        "device": one.seen.device,
        "target": one.seen.session.target,
        "changes": [
            {"end": change.end, "tunable": change.tunable, "value": value} for change, value in one.asked.named.items()
        ],
        "not_in_the_model": list(one.asked.unknown),
        "of_another_kind_of_target": list(one.asked.untold),
        "ways": [_way_json(way) for way in one.ways],
        "missing": list(one.seen.missing),
    }


def _way_json(way: Foretold) -> dict[str, Json]:
    return {
        "way": way.way,
        "now_bytes_per_s": round(way.now_bytes_per_s),
        "now_limiter": way.now.limiter,
        "bytes_per_s": None if way.bytes_per_s is None else round(way.bytes_per_s),
        "low_bytes_per_s": round(way.low),
        "high_bytes_per_s": None if way.high is None else round(way.high),
        "in_step_bytes_per_s": None if way.in_step_bytes_per_s is None else round(way.in_step_bytes_per_s),
        "latency_ms": None if way.latency_ms is None else round(way.latency_ms, 3),
        "limiter": way.first.limiter,
        "limiter_end": way.first.end,
        "notes": list(way.notes),
    }


def _show(told: list[_Told]) -> None:
    for one in told:
        for way in one.ways:
            table.paragraph(_sentence(one.seen.device, way))
            for note in way.notes:
                table.labelled("open", note, 10)
        if not one.asked.changes:
            table.paragraph(f"{one.seen.device}: cannot tell: the model knows nothing of what is to be different")
        elif not one.ways:
            table.paragraph(f"{one.seen.device}: idle, nothing to foretell; put it under its load and ask again")
        if one.asked.unknown:
            table.labelled("left out", f"not in the model: {', '.join(one.asked.unknown)}", 10)
        if one.asked.untold:
            names = ", ".join(one.asked.untold)
            table.labelled("left out", f"of one kind of target alone, and nobody tells which it is: {names}", 10)
    for both in _together(told):
        then = "cannot tell" if both.bytes_per_s is None else f"{_mb(both.bytes_per_s)} MB/s"
        names = ", ".join(both.devices) if len(both.devices) <= _NAMED else f"{len(both.devices)} disks"
        table.paragraph(
            f"{both.way.capitalize()}s of {names} together: {_mb(both.now_bytes_per_s)} MB/s now; then {then}"
        )
    for text in dict.fromkeys(text for one in told for text in one.seen.missing):
        table.labelled("not seen", text, 10)


def _sentence(device: str, way: Foretold) -> str:
    begin = f"{way.way.capitalize()}s of {device}: {_mb(way.now_bytes_per_s)} MB/s now ({_named(way.now)})"
    if way.bytes_per_s is None:
        most = "no limit known" if way.high is None else f"{_mb(way.high)} MB/s"
        return f"{begin}; then cannot tell: from {_mb(way.low)} MB/s to {most}, where {_named(way.first)} would limit"
    latency = "" if way.latency_ms is None else f", {way.latency_ms:.0f} ms a request"
    spread = "" if way.high is not None and way.high - way.low < 1e4 else _spread(way)
    return f"{begin}; then {_mb(way.bytes_per_s)} MB/s{spread}{latency}; what limits then: {_named(way.first)}"


def _spread(way: Foretold) -> str:
    return f" ({_mb(way.low)} to {'?' if way.high is None else _mb(way.high)})"


def _named(bound: Bound) -> str:
    # What `why` cannot tell apart has no name of its own here.
    name = UNKNOWN if bound.limiter.startswith(CANNOT_TELL) else bound.limiter.replace("-", " ")
    return f"the {bound.end}'s {name}" if bound.end and bound.limiter != "load" else f"the {name}"


def _mb(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.1f}"
