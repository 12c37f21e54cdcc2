# SPDX-License-Identifier: GPL-2.0-or-later
"""What else differed between the runs of two sides, and among those of one: a set of unlike runs stands for none."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

import attrs

from fabtune.model import runrecord
from fabtune.model.document import Json
from fabtune.model.listing import first_of
from fabtune.model.runrecord import RunRecord, StepResult

_PARTS = ("environment", "versions", "host", "runtime_s", "ramp_s", "path", "target")
# What no two runs need have in common: the draw and the boot; of these the first of each side are shown.
_OF_EACH_RUN = ("environment.settings.seed", "host.boot_id")
# What the emulated line counted, and what `fabtune tune` saw beside the load before, is no setting.
_COUNTED = ("environment.qdiscs_", "environment.fabtune_tune.")
# What a job says of its place and time, which the record has beside it.
_WHERE_AND_HOW_LONG = ("filename", "directory", "runtime", "ramp_time")
_ABSENT, _LOAD = "absent", "load of "
# So many values of one side are shown, and so many names in a sentence.
_SHOWN = 4

Row = tuple[str, str, str]
Place = Callable[[RunRecord], Hashable]


@attrs.frozen
class Found:
    """Rows of what differed, with the value of either side, and by side the names of what its own runs differ in."""

    rows: tuple[Row, ...]
    unlike: tuple[tuple[str, ...], tuple[str, ...]]


def of_sides(a: Sequence[RunRecord], b: Sequence[RunRecord], place: Place) -> Found:
    """Return what else differed: all that was read back, host, versions, parameters, what fio was told.

    Runs are held against those of their own `place`, such as a round trip: of others they may well differ.
    """
    told = [[(place(one), _told(one)) for one in side] for side in (a, b)]
    groups = {at: [[said for there, said in side if there == at] for side in told] for side in told for at, _ in side}
    rows: dict[str, Row] = {}
    unlike: tuple[dict[str, None], dict[str, None]] = ({}, {})
    for sides in groups.values():
        for key in dict.fromkeys(key for side in sides for said in side for key in said):
            counts = [Counter(said.get(key, _ABSENT) for said in side) for side in sides]
            if key.startswith(_OF_EACH_RUN):
                counts = [Counter(list(one)[:1]) for one in counts]
            mixed = [len(one) > 1 for one in counts]
            for names, is_mixed in zip(unlike, mixed, strict=True):
                names |= {key: None} if is_mixed else {}
            # A place that is unlike in itself says more than one that is not.
            if any(mixed) or (all(counts) and counts[0].keys() != counts[1].keys() and key not in rows):
                shown = _lines_apart(counts) if key.startswith(_LOAD) else counts
                rows[key] = (key, _said(shown[0]), _said(shown[1]))
    if not any(all(sides) for sides in groups.values()) and all(told):
        # No point in common: then what the first two differ in is all that there is to say.
        rows |= {row[0]: row for row in of_sides(a[:1], b[:1], lambda _: None).rows if row[0] not in rows}
    ordered = sorted(rows.values(), key=lambda row: (not row[0].startswith(_LOAD), row[0]))
    return Found(tuple(ordered), (tuple(unlike[0]), tuple(unlike[1])))


def sentence(name: str, keys: Sequence[str]) -> str:
    """Return that the runs of the side `name` are not alike, and in what."""
    return f"The runs of {name} differ among themselves, in {first_of(keys, _SHOWN)}: see what else differed."


def _said(counts: Counter[str]) -> str:
    if len(counts) < 2:
        return next(iter(counts), _ABSENT)
    shown = [f"{value} ({count} of {counts.total()})" for value, count in counts.most_common(_SHOWN)]
    return ", ".join(shown) + (f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else "")


def _told(record: RunRecord) -> dict[str, str]:
    """Return what is known of a run beside its figures, by name."""
    raw = runrecord.as_json(attrs.evolve(record, steps=()))
    every = (pair for part in _PARTS for pair in _flat(part, raw[part]))
    found = {key: value for key, value in every if not key.startswith(_COUNTED)}
    # Each login is a session of its own; the size of a directory is the room that was left in it.
    for key in ("target.sessions", *(["target.size_bytes"] if record.target.kind == "directory" else [])):
        found.pop(key, None)
    return found | {f"{_LOAD}{step.name}": "\n".join(_told_to_fio(step)) for step in record.steps}


def _told_to_fio(step: StepResult) -> list[str]:
    """Return the lines that fio was told, but where and for how long."""
    lines = [line for line in step.job.splitlines() if line.partition("=")[0] not in _WHERE_AND_HOW_LONG]
    if step.offered is None and "iodepth=" not in step.job:
        # Of an open loop it is what came of it.
        lines.append(f"depth={step.depth}")
    return lines


def _lines_apart(counts: Sequence[Counter[str]]) -> list[Counter[str]]:
    """Return loads by those lines alone that not all of them have."""
    loads = {load: list(dict.fromkeys(load.split("\n"))) for side in counts for load in side}
    common = {line for lines in loads.values() for line in lines if all(line in other for other in loads.values())}
    told = {load: ", ".join(line for line in lines if line not in common) or _ABSENT for load, lines in loads.items()}
    return [Counter({told[load]: count for load, count in side.items()}) for side in counts]


def _flat(prefix: str, value: Json) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [pair for key, one in value.items() for pair in _flat(f"{prefix}.{key}", one)]
    return [(prefix, str(value))]
