# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``tune``: sessions under their load brought to what the path carries, step by step."""

import argparse
import contextlib
import functools
from collections.abc import Callable

from fabtune.autotune.climb import Climb, climb
from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.autotune.climbed import Climbed
from fabtune.autotune.goal import Goal
from fabtune.autotune.path_found import path_found
from fabtune.cli import console, output, table
from fabtune.cli.published import renewed
from fabtune.errors import ExitCode, InputError
from fabtune.measure import measurement, own_load
from fabtune.measure.measurement import Measurement
from fabtune.model import units
from fabtune.model.document import Json
from fabtune.model.judgement import Judgement
from fabtune.model.runrecord import PathTold
from fabtune.tune import trial

# Of these a step writes to one alone.
_LONE = ("host", "netns")
_REFUSED = "nothing was changed"
# What is printed where nothing was looked at: the keys of `_as_json`.
_UNSEEN: dict[str, Json] = {
    "goal": None, "first_bytes_per_s": None, "last_bytes_per_s": None, "ended": _REFUSED, "verdict": None,
    "at_the_bound": None, "line_shown_bit_per_s": None, "path": None, "steps": [], "take_back": [], "remarks": [],
}  # fmt: skip


def run_tune(args: argparse.Namespace) -> int:
    """Ask on a terminal, tune, and show the steps."""
    load = _own_load(args)
    rate = None if args.rate is None else units.parse_bit_per_s(args.rate, "--rate")
    if console.interactive() and not args.yes:
        console.say(
            "each step, and before the first what a revert has left due, may connect all sessions of this host anew in "
            "place: their requests wait for some seconds"
        )
        if not console.agreed("Tune them? [y/N] "):
            console.say(_REFUSED)
            if args.json:
                with console.reader_may_leave():
                    table.print_json(_UNSEEN | {"goal": args.goal})
            return ExitCode.DONE
    asked = ClimbAsked(
        tuple(args.on),
        args.target_netns,
        rate,
        args.seconds,
        args.steps,
        args.target_host,
        Goal(args.goal),
        not args.unfair,
    )
    whole = list[Climb]()
    with renewed():
        try:
            with trial.alone(), own_load.loaded(load) if load else contextlib.nullcontext():
                found = climb(asked, console.say, whole.append)
                # The load may yet be found dead at its end: what was tuned under it stands all the same.
                whole.append(found)
        except BaseException as error:
            # A document is to be one, so that the error stands in it.
            for one in whole:
                _tell(one, functools.partial(console.show_beside, error), as_json=args.json)
            raise
        _tell(found, table.print_json, as_json=args.json)
    return found.exit_code


def _tell(found: Climb, show_json: Callable[[dict[str, Json]], None], *, as_json: bool) -> None:
    with console.reader_may_leave():
        if as_json:
            show_json(_as_json(found))
        else:
            _show(found)


def _own_load(args: argparse.Namespace) -> Measurement | None:
    """Return the load of its own, after everything that can be refused has been checked.  Raises InputError."""
    if args.workload is None:
        if args.set or args.confirm:
            raise InputError("--set and --confirm are for the load of --with, which is not given")
        return None
    if len(args.on) != 1:
        raise InputError(f"--with {args.workload} needs one --on with the disk to load")
    disk = args.on[0]
    found = measurement.of(args.workload, disk if disk.startswith("/") else f"/dev/{disk}", args.set, PathTold())
    own_load.step_of(found)
    found.check(args.confirm, console.ask_for_name if console.interactive() else None)
    return found


def _as_json(found: Climb) -> dict[str, Json]:
    times: dict[str, Json] = {}
    if found.aim.by_times:
        first, last = (found.aim.p99_ms(one.times) for one in (found.first, found.last))
        times = {"p99_of": sorted(found.aim.disks), "first_p99_ms": first, "last_p99_ms": last}
    return {
        "goal": found.aim.goal.value,
        "first_bytes_per_s": round(found.first.bytes_per_s),
        "last_bytes_per_s": round(found.last.bytes_per_s),
        **times,
        "ended": found.ended,
        "verdict": found.last.verdict,
        "at_the_bound": found.last.at_the_bound,
        "line_shown_bit_per_s": round(found.learnt.line_bit_per_s) or None,
        "path": path_found(found.last, found.first).as_json(),
        "steps": [one.as_json() for one in found.steps],
        "take_back": found.take_back,
        "remarks": list(found.remarks),
    }


def _show(found: Climb) -> None:
    aim = found.aim
    if found.steps:
        times = ("p99 ms", "ratio", "median") if aim.by_times else ()
        headers = ("step", "limited by", "MB/s", "ratio", *times, "pause", "")
        rows = [(str(number), *_row(one, found)) for number, one in enumerate(found.steps, 1)]
        table.table(headers, rows, details=[_values(one) for one in found.steps])
    for remark in filter(None, [path_found(found.last, found.first).in_words, *found.remarks]):
        table.paragraph(remark)
    change = f"{found.first.bytes_per_s / 1e6:.1f} -> {found.last.bytes_per_s / 1e6:.1f} MB/s"
    if aim.by_times:
        change += f", p99 {_from_to(aim.p99_ms(found.first.times), aim.p99_ms(found.last.times))} ms"
    table.paragraph(f"{change}, {found.ended}: {found.last.verdict}")
    if found.take_back:
        table.paragraph("what stays (`fabtune history --json` has it, too) is taken back by")
        for command in found.take_back:
            print(f"    {command}")


def _row(one: Climbed, of: Climb) -> tuple[str, ...]:
    rates = f"{one.before_bytes_per_s / 1e6:.1f} -> {one.after_bytes_per_s / 1e6:.1f}"
    pause = f"{one.pause_s:.1f} s" if one.pause_s else "none"
    found, times = one.outcome, tuple[str, ...]()
    why = "others' share" * one.unfair or "could not be judged" * of.undecided(one)
    if found.p99 and found.p50:
        times = (_from_to(one.before_p99_ms, one.after_p99_ms), _ratio(found.p99), _ratio(found.p50))
    kept = "kept" if one.kept else f"taken back: {why}" if why else "taken back"
    return ", ".join(one.limiters), rates, _ratio(found.throughput), *times, pause, kept


def _values(one: Climbed) -> list[str]:
    """Return a line on each value that a step wrote, once for the devices that had and got the same."""
    devices: dict[str, list[str]] = {}
    for made in one.made:
        where = f"{made.end}, {made.host}" if made.host else made.end
        for row in made.rows:
            was, came = (table.number(value, row.tunable.unit) for value in (row.now, row.wanted))
            labels = devices.setdefault(f"{where}: {row.tunable.name} {was} -> {came}", [])
            labels += [row.device.label] if row.device and row.device.scope not in _LONE else []
    return [f"{line} ({output.some_of(labels)})" if labels else line for line, labels in devices.items()]


def _from_to(before: float | None, after: float | None) -> str:
    return " -> ".join("?" if one is None else f"{one:.1f}" for one in (before, after))


def _ratio(judged: Judgement) -> str:
    if judged.ratio is None or judged.low is None or judged.high is None:
        return "-"
    return f"{judged.ratio:.2f} ({judged.low:.2f}..{judged.high:.2f})"
