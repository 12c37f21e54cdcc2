# SPDX-License-Identifier: GPL-2.0-or-later
"""Cells that are measured in a guest each, and again only where they, fabtune or the measurement have changed."""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace")]

import attrs  # noqa: E402
import cells_kept  # noqa: E402
from lab_run import ACCELS, lab_run  # noqa: E402

from fabtune.errors import ExitCode  # noqa: E402
from fabtune.experiment.present import code_digest, look_anew  # noqa: E402


class Cell(Protocol):
    """What is measured in a guest of its own."""

    @property
    def name(self) -> str:
        """A name for files."""

    def digest(self, code: str) -> str:
        """What makes its figures what they are, with the digest `code` of what measures."""


_C = TypeVar("_C", bound=Cell)


def options(description: str | None, first: str) -> argparse.ArgumentParser:
    """Return what a bench of cells may be asked; `first` says of the first cells what they are good for alone."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=TOP / "out/bench")
    parser.add_argument("--suite", default="trixie", help="which Debian's kernel and open-iscsi")
    parser.add_argument(
        "--accel", default="uml", choices=ACCELS,
        help="uml: User Mode Linux, a minute for a cell, without what needs BPF trampolines; tcg: an emulated CPU",
    )  # fmt: skip
    parser.add_argument("--cells", type=int, help=f"the first so many cells alone: {first}")
    parser.add_argument("--only", action="append", help="cells of these names alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="guests at a time")
    then = parser.add_mutually_exclusive_group()
    then.add_argument("--judge-only", action="store_true", help="measure nothing: judge what is kept, however old")
    then.add_argument("--keep", action="store_true", help="once all cells are measured, keep them for Documentation")
    return parser


def code(files: Sequence[str], *words: str) -> str:
    """Return the digest of what measures, as it is now: fabtune, the guest's part in `files` here, and `words`."""
    look_anew()
    parts = [code_digest(), *((Path(__file__).parent / name).read_text() for name in files), *words]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def digest(cell: "attrs.AttrsInstance", measuring: str) -> str:
    """Return what makes a cell's figures what they are, with the digest `measuring` of what measures."""
    return hashlib.sha256(json.dumps([attrs.asdict(cell), measuring], sort_keys=True).encode()).hexdigest()[:16]


def measure_all(wanted: Sequence[_C], measure: Callable[[_C], None], jobs: int) -> list[str]:
    """Measure so many at a time and return which guests failed, and how; Ctrl-C keeps what is done."""
    failures = []
    with ThreadPoolExecutor(jobs) as guests:
        try:
            for one, run in [(one, guests.submit(measure, one)) for one in wanted]:
                try:
                    run.result()
                    print(f"{one.name}: measured", flush=True)
                except RuntimeError as error:
                    failures.append(str(error))
        except BaseException:
            # The guests that run were interrupted, too; no further one starts.
            guests.shutdown(wait=False, cancel_futures=True)
            raise
    return failures


def measure_ways(
    place: Path, cell: Cell, digest: str, script: str, told: Mapping[str, Any], words: Sequence[str], **lab: Any
) -> None:
    """Run `script` in a guest, `told` the cell, and keep in `place` what it says of each way: of those in `words`.

    `lab` is what `lab_run` is asked.  Raises RuntimeError for a guest that fails, or leaves a way out.
    """
    said = place / f"{cell.name}.log"
    with said.open("w") as log:
        done = lab_run(script, json.dumps(dict(told)), *words, log=log, **lab)
    lines = (line.partition(" ") for line in said.read_text(errors="replace").splitlines())
    ways = {one["way"]: one for kind, _, content in lines if kind == "WAY" and (one := json.loads(content))}
    if done.returncode or set(ways) != set(words):
        raise RuntimeError(f"{cell.name}: exit {done.returncode}; what its guest said is in {said}")
    document = {"digest": digest, "cell": dict(told), "ways": ways}
    (place / f"{cell.name}.json").write_text(json.dumps(document) + "\n")


def read(place: Path, cell: Cell) -> dict[str, Any]:
    """Return what is kept of a cell, however old; nothing without it."""
    file = place / f"{cell.name}.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def kept(place: Path, cell: Cell, now: str) -> bool:
    """Tell whether a cell is there as it would be measured now, which is what its digest `now` says."""
    return bool(read(place, cell).get("digest") == now)


def gather(
    asked: argparse.Namespace,
    cells: Sequence[_C],
    directory: str,
    code_now: str,
    measure: Callable[..., None],
    part: str,
) -> tuple[list[_C], dict[_C, Any], list[str]]:
    """Measure what is missing of the chosen cells in OUT/`directory`, with `measure(place, suite, accel, cell)`.

    Returns the chosen cells; `part` of what is kept of any cell as it is now, or however old to be judged only; and how
    guests failed.
    """
    place = asked.out / directory
    place.mkdir(parents=True, exist_ok=True)
    chosen = [one for one in cells[: asked.cells] if not asked.only or one.name in asked.only]
    missing = [] if asked.judge_only else [one for one in chosen if not kept(place, one, one.digest(code_now))]
    print(f"{len(chosen)} cells, {len(missing)} to measure", flush=True)
    failures = measure_all(missing, partial(measure, place, asked.suite, asked.accel), asked.jobs)
    current = [one for one in cells if asked.judge_only or kept(place, one, one.digest(code_now))]
    return chosen, {one: document[part] for one in current if (document := read(place, one))}, failures


def verdicts(
    missed: Callable[[_C, Any], list[str]], chosen: Sequence[_C], found: Mapping[_C, Mapping[str, Any]]
) -> list[str]:
    """Return a sentence for each bar that is `missed`, or that nothing was measured for."""
    told = [text for one in chosen if one in found for text in missed(one, found[one])]
    return told + not_measured(chosen, found)


def conclude(
    told: Sequence[str], held: Callable[[int], str] = lambda count: f"{count} cells, all bars held", *, judged: int
) -> int:
    """Print each bar that was missed, or that so many cells hold them all; return the exit code."""
    print("\n".join(told) or held(judged))
    return int(bool(told))


def keep_rows(
    asked: argparse.Namespace,
    bench: str,
    row: Callable[..., Mapping[str, Any]],
    missed: Callable[..., list[str]],
    found: Mapping[Any, Any],
    cells: int,
) -> None:
    """Write a row of each cell that was `found`, with the bars that it `missed`, into BENCH.json.

    With --keep also for Documentation, where all `cells` are there.  Raises SystemExit where they are not.
    """
    rows = [{**row(*one), "missed": missed(*one)} for one in found.items()]
    (asked.out / f"{bench}.json").write_text(json.dumps(rows, indent=1) + "\n")
    if asked.keep:
        try:
            cells_kept.keep(bench, rows, cells, cells_kept.measured_by(asked.suite, asked.accel))
        except ValueError as error:
            raise SystemExit(str(error)) from None


def not_measured(chosen: Sequence[_C], found: Collection[_C]) -> list[str]:
    """Return a sentence for each chosen cell that nothing is kept of, or for there being none."""
    return [f"{one.name}: not measured" for one in chosen if one not in found] or ["no cell was chosen"] * (not chosen)


def not_ended_well(tuned: Mapping[str, Any]) -> list[str]:
    """Return a sentence for a `fabtune tune` that failed: what it left as it was holds many a bar.

    Of what cannot be told the other bars are judged as of all else.
    """
    if tuned["exit"] in (ExitCode.DONE, ExitCode.CANNOT_TELL):
        return []
    told = tuned["told"]
    return [f"tune ended with {tuned['exit']}: {told.get('ended') or told.get('error', {}).get('message', '')}"]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of words as lines with columns, the first row their headings."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(word.rjust(width) for word, width in zip(row, widths, strict=True)) for row in rows)
