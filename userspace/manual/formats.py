# SPDX-License-Identifier: GPL-2.0-or-later
"""The lists in the pages of file formats: from the classes that read the files, with a word on each key of a record."""

from collections.abc import Callable

import attrs

from fabtune.catalog.tunable import EFFECTS, shipped_catalog
from fabtune.model.factors import FACTORS
from fabtune.model.runrecord import RunRecord, StepResult
from fabtune.tune import lines
from roff import items, sentence

RECORD = {
    "schema": "the version of this format",
    "workload": "name, summary, source and primary figure of the workload",
    "workload_text": "the workload's file as it was",
    "target": "what was loaded: path, kind, size, disk, WWID, model, sessions, queue settings",
    "host": "name, kernel, architecture, boot, CPUs and their governors",
    "versions": "of fabtune and fio",
    "environment": "every tunable as it was read back, or the settings of an experiment",
    "path": "what was told of the path: round-trip time, rate, MTU",
    "label": "a name for these settings in reports",
    "runtime_s": "how long each step is measured, null where it ends by itself",
    "ramp_s": "how long the load runs before that",
    "started_unix_s": "when the run began",
    "ended_unix_s": "when it ended",
    "complete": "whether the run went to its end",
    "problem": "why there are no figures, or what went wrong",
    "command": "the command line",
    "steps": "what was asked and what came of it, step by step; see below",
    "pcp_archive": "the archive that pmlogger wrote beside the record",
    "session": "the place of the run in an interleaved session: pair, side, rules of the judgement",
    "proof": "claims held against the captured packets",
    "capture": "how many writes the capture saw, their size and R2Ts",
    "round_trips_ms": "round trips as ping saw them",
    "path_mtu_bytes": "the largest packet that crosses the path",
    "interface_mtu_bytes": "the interface's own",
    "path_mtu_verdict": "what follows from the two",
    "events": "what was done to the path or the target meanwhile",
}
STEP = {
    "name": "the step's name, with its parameters",
    "phase": "its name without them",
    "parameters": "what this step sets",
    "cache": "what was done to the page cache before",
    "depth": "requests that are outstanding at once",
    "closed_loop": "whether each request waits for another to end",
    "must_fail": "the kind of failure without which the step has not passed",
    "failed_as_expected": "what went wrong as it had to",
    "skipped": "why it was not run",
    "problem": "why there are no figures",
    "job": "the job as fio read it",
    "command": "the command line of what ran",
    "fio": "what fio printed",
    "before_drain": "what fio had counted before it waited for what was outstanding",
    "iperf3": "what iperf3 printed",
    "fabstat": "the module's readings before and after",
    "samples": "counters of CPUs, disks, NICs and TCP, each second",
    "idle": "two samples before the load",
    "begun_unix_s": "when the load began",
    "before": "negotiated keys, sockets, queueing disciplines and NICs before",
    "after": "the same after",
    "offered": "when requests left, where that was given",
    "replayed": "what was replayed",
    "cpu_shares": "whom the CPU time of a second load served",
    "stuck": "requests that were outstanding for too long",
    "limits": "what held back a disk of an iSCSI session meanwhile: verdict, shares of the time, what shows them",
}


def fields(kind: type) -> list[str]:
    """Return the keys that a class of records has in its file."""
    # Where it was read from, by which clock and as which replicate that says it was made, and what a later fabtune
    # wrote, stand in no file.
    return [one.name for one in attrs.fields(kind) if one.name not in ("others", "file", "clock", "replicate")]


def _told(kind: type, meanings: dict[str, str]) -> str:
    return items((name, sentence(meanings[name])) for name in fields(kind))


def _lines() -> str:
    found = []
    for one in lines.KINDS.values():
        keys = " , ".join(field.name for field in attrs.fields(one))
        summary = (one.__doc__ or "").partition("\n")[0]
        found.append((one.kind, sentence(summary.rstrip(".")) + (f"\nKeys:\n.Cm {keys}" if keys else "")))
    return items(found)


def _tunables() -> str:
    return items(
        (one.name, sentence(f"{one.summary} ({one.scope}; felt: {EFFECTS[one.effect]})"))
        for one in shipped_catalog().tunables.values()
    )


def _factors() -> str:
    return items((name, sentence(f"{one.summary} (default: {one.default or 'none'})")) for name, one in FACTORS.items())


def _effects() -> str:
    return items((name, sentence(told)) for name, told in EFFECTS.items())


LISTS: dict[str, Callable[[], str]] = {
    "tunables": _tunables,
    "factors": _factors,
    "effects": _effects,
    "lines": _lines,
    "record": lambda: _told(RunRecord, RECORD),
    "step": lambda: _told(StepResult, STEP),
}
