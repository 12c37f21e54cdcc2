# SPDX-License-Identifier: GPL-2.0-or-later
"""What limited each load while it ran, as its run record has it: a sentence a side first, then shares and evidence."""

from collections.abc import Sequence

from fabtune.model.document import Json
from fabtune.model.limits import KeptShare, Limits
from fabtune.model.runrecord import RunRecord
from fabtune.model.typed import STRICT
from fabtune.report.page import Answer, Section
from fabtune.report.table import Column, Table, decimals, percent
from fabtune.why import words

_QUESTION = "What limits?"
_COLUMNS = (
    Column("run", "run"),
    Column("step", "step"),
    Column("way", "way"),
    Column("rate", "mb_per_s", "MB/s", decimals(1)),
    Column("share", "share", "of the time", percent),
    Column("limiter", "limiter"),
    Column("seen", "seen"),
)


def of_limiters(records: Sequence[RunRecord], workload: str) -> list[Answer]:
    """Return one answer with a line for each label and direction; none where nothing was looked at."""
    lines = []
    for label in dict.fromkeys(one.label for one in records):
        found = [limits for one in records if one.label == label for step in one.steps for limits in step.limits]
        for way in dict.fromkeys(one.way for one in found):
            lines.append(f"{label or workload}: {_together([one for one in found if one.way == way])}")
    return [Answer(_QUESTION, "\n".join(lines))] if lines else []


def _together(found: Sequence[Limits]) -> str:
    """Return the sentence of the run in the middle of those that name what most do, and of how many it is true."""
    names = [words.limiter_name(one.shares[0]) for one in found]
    most = max(dict.fromkeys(names), key=names.count)
    alike = sorted((one for one, name in zip(found, names, strict=True) if name == most), key=lambda x: x.bytes_per_s)
    said = alike[len(alike) // 2].verdict
    return f"{said}." if len(found) == 1 else f"{said}; so in {len(alike)} of {len(found)} looks."


def sentences(record: RunRecord) -> list[str]:
    """Return the verdicts of one run, with the step's name where it has several."""
    several = len(record.steps) > 1
    return [f"{step.name}: {one.verdict}" if several else one.verdict for step in record.steps for one in step.limits]


def section(records: Sequence[RunRecord]) -> Section | None:
    """Return one row for each share of the time; None where nothing was looked at."""
    rows = [
        (record.file, step.name, one.way, one.bytes_per_s / 1e6, share.share, words.limiter_name(share), _seen(share))
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
    return Section(
        "What limited", text, tables=(Table("What limited each load", _COLUMNS, tuple(rows), 2),), notes=missing
    )


def _seen(share: KeptShare) -> str:
    apart = f"cannot tell {', '.join(share.among).replace('-', ' ')} apart; " if share.among else ""
    return apart + ("; ".join(f"{one.end}: {one.counter} {one.value}" for one in share.evidence) or share.subject)


def as_json(found: Sequence[Limits]) -> list[Json]:
    """Return what limited a step under stable keys."""
    return [STRICT.write(one) for one in found]
