# SPDX-License-Identifier: GPL-2.0-or-later
"""`why --fleet`: what limits the sessions of all hosts of an inventory, and what the slow ones have in common."""

import argparse
from collections.abc import Sequence

from fabtune.cli import console, table
from fabtune.errors import ExitCode, InputError
from fabtune.experiment import inventory
from fabtune.experiment.fleet_look import over_fleet
from fabtune.model import units
from fabtune.model.document import Json
from fabtune.model.observation import Observation
from fabtune.model.units import counted
from fabtune.why import words
from fabtune.why.in_common import InCommon, Member, in_common, members_of
from fabtune.why.same_time import at_the_same_time
from fabtune.why.summing_up import with_rate


def run_on_fleet(args: argparse.Namespace) -> int:
    """Look on all hosts at once, judge and say; exit 5 where no pattern is told, 1 where a host said nothing."""
    if args.device or args.watch:
        raise InputError("--fleet looks once at all disks of all hosts: give it without DEV and without --watch")
    if args.at is not None:
        raise InputError("--fleet begins when its hosts are ready; it cannot be combined with --at")
    rate = None if args.rate is None else units.parse_bit_per_s(args.rate, "--rate")
    hosts = inventory.load(args.fleet, loaded=False)
    many = f"{counted(len(hosts.initiators), 'initiator')} and {counted(len(hosts.targets), 'target')}"
    console.say(f"looking on {many} for {args.seconds:g} s ...")
    seen = over_fleet(hosts, args.seconds)
    # What is not told is as each host knows it.
    observations = {host: _with_rate(every, rate) for host, every in seen.observations.items()}
    together = at_the_same_time(observations, seen.ends)
    members = members_of(together.observations)
    found = in_common(members)
    missing = (*seen.problems, *together.notes)
    with console.reader_may_leave():
        if args.json:
            table.print_json(_as_json(found, members, missing))
        else:
            _show(found, members, missing)
    if seen.problems:
        return ExitCode.FAILED
    return ExitCode.DONE if members and (found.kind or found.none_is_slow) else ExitCode.CANNOT_TELL


def _with_rate(seen: Sequence[Observation], rate_bit_per_s: float | None) -> Sequence[Observation]:
    return seen if rate_bit_per_s is None else [with_rate(one, rate_bit_per_s / 8) for one in seen]


def _show(found: InCommon, members: list[Member], missing: tuple[str, ...]) -> None:
    table.paragraph(found.sentence)
    print()
    # The slow ones first, the slowest of them at the top.
    rows = [
        (one.initiator, one.judged.device, one.judged.way, f"{one.judged.bytes_per_s / 1e6:.1f}",
         words.limiter_name(one.judged.first), f"{100 * one.judged.first.share:.0f} %", one.target, one.path)
        for one in sorted(members, key=lambda one: (not one.slow, one.judged.bytes_per_s))
    ]  # fmt: skip
    headers = ("initiator", "disk", "way", "MB/s", "limiter", "share", "target", "portal")
    table.table(headers, rows, wrapped="target", right=("MB/s", "share"))
    for text in missing:
        table.labelled("not seen", text, 10)


def _as_json(found: InCommon, members: list[Member], missing: tuple[str, ...]) -> dict[str, Json]:
    return {
        "verdict": found.sentence,
        "limiter": found.limiter or None,
        "common": found.kind or None,
        "names": list(found.names),
        "cannot_tell_apart": list(found.apart),
        "slow": len(found.slow),
        "members": [
            {
                "initiator": one.initiator,
                "device": one.judged.device,
                "way": one.judged.way,
                "target": one.target,
                "portal": one.path,
                "slow": one.slow,
                "bytes_per_s": round(one.judged.bytes_per_s),
                "both_ends": one.judged.both_ends,
                "limiter": one.judged.first.limiter,
                "share": round(one.judged.first.share, 4),
                "verdict": words.verdict(one.judged),
            }
            for one in members
        ],
        "missing": list(missing),
    }
