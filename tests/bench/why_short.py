# SPDX-License-Identifier: GPL-2.0-or-later
"""The short form of `make bench-why`: its cases are run as they are alone, and judged by truths that the bench found.

A truth is kept with the digest of its case and what the case moved: of a case that was changed since, or that moves
something else by now, nobody knows what limits it.
"""

import json
from collections.abc import Iterable, Iterator

import attrs
from why_cases import PLACE, Case
from why_judge import UNKNOWN, Run, Truth, advises, score

from fabtune.model import typed

CASES, TRUTHS = PLACE / "short.toml", PLACE / "short.json"
AGAIN = "tests/bench/why.py --file short.toml --keep-truths"
# By how much a run may differ from the one whose limiter is known; a limiter raises throughput by more.
_ALIKE = 0.1


@attrs.frozen
class Known:
    """What the bench found of one case: MB/s as it is and with each thing lifted, and which lifts are the truth."""

    digest: str
    mb_per_s: float
    lifted_mb_per_s: dict[str, float]
    lifts: tuple[str, ...]


@attrs.frozen
class Truths:
    """All that is kept, by the case's name."""

    licence: str
    cases: dict[str, Known]


def keep(found: Iterable[tuple[Case, Truth]]) -> None:
    """Keep the truths of the cases whose runs were found."""
    cases = {case.name: _known(case, truth) for case, truth in found}
    whole = Truths("SPDX-License-Identifier: GPL-2.0-or-later", cases)
    TRUTHS.write_text(json.dumps(typed.STRICT.write(whole), indent=1) + "\n")


def _known(case: Case, truth: Truth) -> Known:
    base, *others = (round(run.bytes_per_s / 1e6, 2) for run in truth.runs)
    return Known(case.digest, base, dict(zip((run.lift for run in truth.runs[1:]), others, strict=True)), truth.lifts)


def known(case: Case) -> Known:
    """Return what is kept of a case.  Raises SystemExit where that is of another, or of none."""
    found = typed.STRICT.read(Truths, json.loads(TRUTHS.read_text()), str(TRUTHS)).cases.get(case.name)
    if found is None or found.digest != case.digest:
        raise SystemExit(f"{case.name}: {TRUTHS.name} has no truth of it as it is; {AGAIN} finds it")
    return found


def complaints(run: Run, told: Known) -> Iterator[str]:
    """Yield what is wrong with a run of a case, or with what `why` says of it."""
    mb_per_s = run.bytes_per_s / 1e6
    if abs(mb_per_s - told.mb_per_s) > _ALIKE * told.mb_per_s:
        yield f"{mb_per_s:.2f} MB/s, and its truth is of {told.mb_per_s:.2f}; {AGAIN} finds it anew"
    right = ""
    for name, one_end, least in (("both ends", False, 1.0), ("the initiator alone", True, 0.5)):
        points, right, said = score(told.lifts, run, one_end=one_end)
        if points < least:
            yield f"from {name}: {said}, and {right} limits"
    if right == UNKNOWN:
        yield "nothing that was lifted limits it, and the line is not full"
    if run.at_the_bound and (advises(run) or advises(run, rate_told=False)):
        yield "a change is advised, and the line is full"


def verdict(run: Run, told: Known) -> str:
    """Return the words of a case: what is wrong, or what was said."""
    wrong = list(complaints(run, told))
    _, right, said = score(told.lifts, run)
    return "\n".join(wrong) or f"right: {said} ({right}), {run.bytes_per_s / 1e6:.2f} MB/s"
