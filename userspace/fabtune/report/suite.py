# SPDX-License-Identifier: GPL-2.0-or-later
"""The report of a directory of run records: every figure a view, every plotted number in a table."""

import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import attrs

from fabtune.errors import InputError
from fabtune.measure import checks, failedruns, recordfile, resulttree
from fabtune.model import typed
from fabtune.model.judgement import LEAST
from fabtune.model.listing import first_of
from fabtune.model.origin import mixed
from fabtune.model.runrecord import RunRecord
from fabtune.model.units import counted
from fabtune.report import (
    around,
    fabric,
    latency,
    laws,
    openloops,
    overtime,
    page,
    paired,
    reasons,
    runs,
    throughput,
    verdict_table,
)
from fabtune.report import cells as cell_sets
from fabtune.report.answers import (
    CostByPlace,
    Gain,
    Reach,
    bound_by,
    merged,
    of_best,
    of_cost,
    of_gains,
    of_limits,
)
from fabtune.report.apart import said_setting, under_shown_label
from fabtune.report.cells import Cell
from fabtune.report.compare import Comparison, FigureRow
from fabtune.report.looks import looks, natural
from fabtune.report.table import Column, Table

# Raw TCP: its figures stand beside those of the disks that the network leads to.
_NET = "net"


def load(directory: Path) -> tuple[list[RunRecord], list[tuple[str, str]], list[str]]:
    """Return the records below `directory` to be used; for the others place and reason; what else must be said.

    Of a run that failed there is a record without figures.  Raises InputError when there is none to be used.
    """
    found = []
    complaints = resulttree.check(directory)
    unreadable = [(one.place, one.why) for one in complaints if not one.usable]
    for path in failedruns.records_at(directory):
        name = str(path.relative_to(directory))
        if resulttree.refused(name, complaints):
            continue
        try:
            found.append(under_shown_label(attrs.evolve(recordfile.read(path), file=name)))
        except InputError as error:
            unreadable.append((name, str(error)))
    if not found:
        raise InputError(unreadable[0][1])
    stand_ins = failedruns.stand_ins(directory)
    found += [under_shown_label(attrs.evolve(one, file=_within(directory, one.file))) for one in stand_ins]
    found = resulttree.with_clocks(found, directory, directory)
    found.sort(key=lambda one: natural(one.file))
    said = [f"{run}: failed: {why}" for run, why in failedruns.find(directory)]
    said += [f"{run}: failed before it was measured: {why}" for run, why in failedruns.measured_again(directory)]
    origins = resulttree.origins_at(directory)
    if len({run.parent.parent for run in origins}) > 1:
        # Of each experiment by itself this is said already.
        said += [f"{directory}: {why}" for why in mixed(list(origins.values()))]
    return found, unreadable, [*(one.why for one in complaints if one.usable), *said]


def _within(directory: Path, name: str) -> str:
    return str(Path(name).relative_to(directory))


def render(
    records: Sequence[RunRecord],
    unreadable: Sequence[tuple[str, str]],
    remarks: Sequence[str],
    command: Sequence[str],
) -> str:
    """Return the page; the first three are what `load` returns, `command` is the command line that asks for it."""
    sections = []
    answers: list[page.Answer] = []
    limits: list[page.Answer] = []
    look = looks(one.label for one in records)
    names = dict.fromkeys(one.workload.name for one in records)
    for workload in sorted(names, key=lambda name: name == _NET):
        mine = [one for one in records if one.workload.name == workload]
        # What cannot be right is named among the self-checks and shown over time; no curve is drawn through it.
        whole = [one for one in mine if one.complete and not checks.voiding(one)]
        group = cell_sets.cells(whole)
        outcomes = paired.outcomes(mine)
        limits += reasons.of_limiters(mine, workload)
        if outcomes or workload != _NET or len(names) == 1:
            answers += _answers(workload, outcomes, group, whole if workload == _NET else ())
        sections += paired.sections(outcomes, workload, look, paired.held_against(mine))
        if workload == _NET:
            continue
        sections += throughput.sections(group, workload, look)
        for section in (latency.section(group, workload, look), overtime.section(mine, workload)):
            if section:
                sections.append(section)
    sections += [
        one
        for one in (
            reasons.section(records),
            openloops.section(records),
            fabric.section(records),
            around.section(records),
            fabric.proofs(records),
        )
        if one
    ]
    sections += [_validity(records, unreadable, remarks), _runs(records)]
    return page.render(
        "Storage fabric measurements", _lead(records), sections, _facts(records), _commands(records, command),
        zoom=True, answers=[*answers, *limits],
    )  # fmt: skip


def write(
    records: Sequence[RunRecord],
    unreadable: Sequence[tuple[str, str]],
    remarks: Sequence[str],
    command: Sequence[str],
    path: Path,
) -> Path:
    """Write the page that `render` returns for these to `path` and return that.  Raises OSError."""
    return page.write(render(records, unreadable, remarks, command), path)


def _answers(
    workload: str, outcomes: Sequence[tuple[str, Comparison]], group: Sequence[Cell], nets: Sequence[RunRecord] = ()
) -> list[page.Answer]:
    """Return what stands first: each comparison's primary figures together, and what limits the better side now.

    Runs of the network, `nets`, have no cells.
    """
    gains = {outcome.b: _gains(outcome) for _, outcome in outcomes}
    reached = [_reached(cell_sets.cells(outcome.of_b)) for _, outcome in outcomes]
    known = any(_costs(outcome) for _, outcome in outcomes)
    found = []
    contests = [(outcome.a, outcome.b) for _, outcome in outcomes]
    for (heading, outcome), mine in zip(outcomes, reached, strict=True):
        several = contests.count((outcome.a, outcome.b)) > 1
        session = heading.removeprefix(f"{outcome.b} against {outcome.a}") if several else ""
        runs = [row.judgement.n for row in outcome.primary] or [0]
        counts = f"{min(runs)}" if min(runs) == max(runs) else f"{min(runs)} to {max(runs)}"
        plural = "" if counts == "1" else "s"
        what = f"pair{plural}" if outcome.paired else f"run{plural} a side"
        doubts = [*outcome.unlike, *outcome.between, *verdict_table.not_used(outcome)]
        sure = " ".join([_how_sure(outcome, f"{counts} {what} a point"), *doubts])
        found += of_gains(f"{workload}, {outcome.b}{session}", outcome.a, _gains(outcome), sure)
        if known:
            found.append(of_cost(outcome.b, outcome.a, _gains(outcome), _costs(outcome)))
        if any(reached):
            found.append(of_limits(f"{outcome.b}{session}", mine))
    if len(gains) == len(outcomes) > 1 and len({outcome.a for _, outcome in outcomes}) == 1:
        found = [*of_best(outcomes[0][1].a, gains, workload), *merged(found, list(gains))]
    measured = [*(cell.label for cell in group), *(one.label for one in nets)]
    labels = [label or "no label" for label in dict.fromkeys(measured)]
    if not outcomes and not labels:
        found.append(page.Answer("Did it help?", f"{workload}: cannot tell: no run can be used; why is named below."))
    if not outcomes and labels:
        said = f"{labels[0]} alone was measured" if len(labels) == 1 else f"{len(labels)} sets: {', '.join(labels)}"
        said += "; `fabtune compare` holds one set against another"
        found.append(page.Answer("Did it help?", f"{workload}: cannot tell: {said}."))
        if of_all := _reached(group):
            found.append(of_limits(workload, of_all))
    return found


def _gains(outcome: Comparison) -> list[Gain]:
    return [_gain(_in_words(outcome.point(row)), row) for row in outcome.primary]


def _costs(outcome: Comparison) -> CostByPlace:
    """Return what each point costs: reads and writes of one step have its CPU time in common."""
    paid = {row.step: row for row in outcome.rows if row.metric.key == "cpu_s_per_gb"}
    places = [(_in_words(outcome.point(row)), row.step) for row in outcome.primary if row.step in paid]
    return {where: _gain(where, paid[step]) for where, step in places}


def _gain(where: str, row: FigureRow) -> Gain:
    return Gain(
        where=where, verdict=row.judgement.verdict.value, why=row.judgement.why,
        ratio=row.judgement.ratio if row.judgement.ratio is not None else _of_medians(row),
        low=row.judgement.low, high=row.judgement.high, better=row.metric.better,
    )  # fmt: skip


def _in_words(step: str) -> str:
    """Return a step of a comparison as points are called in answers: "read at 20 ms"."""
    return re.sub(r", RTT ([0-9.e+-]+ ms)", r" at \1", step)


def _where(cell: Cell) -> str:
    """Return a point in words."""
    where = cell.step if cell.op in cell.step else f"{cell.step} {cell.op}"
    where += f" at {cell.rtt_ms:g} ms" if cell.rtt_ms is not None else ""
    return where + "".join(f", {said_setting(name, value)}" for name, value in cell.told_apart_by.items())


def _of_medians(row: FigureRow) -> float | None:
    a, b = row.medians
    return b / a if a and b else None


def _how_sure(outcome: Comparison, runs: str) -> str:
    said = f"{runs[0].upper()}{runs[1:]}"
    if any(row.judgement.interval for row in outcome.primary):
        return f"{said}, {100 * (1 - outcome.rules.level):.3g} % intervals, all points judged together."
    most = max((row.judgement.n for row in outcome.primary), default=0)
    if most == 0:
        return "No point has runs on both sides that tell it."
    few = most < LEAST
    return f"{said}: too few for an interval." if few else f"{said}, without an interval."


def _reached(group: Sequence[Cell]) -> list[Reach]:
    found = []
    for cell in group:
        network, bound, rate = cell.runs[0][0].path.network, cell.bound_mb_per_s, cell.median("mb_per_s")
        if network and bound and rate is not None:
            beyond = rate > bound and any(checks.is_beyond_bound(*run) for run in cell.runs)
            by = bound_by(bound, network.goodput_bytes_per_s / 1e6, disk=cell.bound_by_disk, beyond=beyond)
            paced = not all(result.closed_loop for _, result in cell.runs)
            found.append(Reach(where=_where(cell), share=rate / bound, by=by, paced=paced))
    return found


def _lead(records: Sequence[RunRecord]) -> str:
    names = dict.fromkeys(one.workload.name for one in records)
    labels = [label for label in dict.fromkeys(one.label for one in records) if label]
    said = f"{counted(len(records), 'run')} of {', '.join(names)}"
    said += f" with {', '.join(labels)}" if labels else ""
    broken = sum(bool(checks.failed(one)) for one in records)
    partial = sum(not one.complete for one in records)
    left_out = sum(bool(checks.voiding(one)) for one in records)
    if broken or partial:
        return f"{said}. {partial} incomplete, {broken} that break a law, {left_out} of these left out; named below."
    said += "."
    return said


def _validity(
    records: Sequence[RunRecord], unreadable: Sequence[tuple[str, str]], remarks: Sequence[str]
) -> page.Section:
    """Every law held against every record: counted, and each failure in full."""
    counts: dict[str, list[int]] = {}
    failures = []
    for one in records:
        for check in checks.of_record(one):
            verdicts = counts.setdefault(check.law, [0, 0, 0])
            verdicts[(checks.PASS, checks.FAIL, checks.NOT_APPLICABLE).index(check.verdict)] += 1
            if check.verdict == checks.FAIL:
                failures.append((one.file, check.step, check.law, check.found, check.expected))
        if not one.complete:
            failures.append((one.file, "", "the run reached its end", one.problem or "", ""))
    columns = (Column("law", "law"), *(Column(n, n, "", str) for n in ("held", "broken", "not applicable")))
    tables = [Table("Laws held against every run", columns, tuple((law, *found) for law, found in counts.items()))]
    if between := laws.of_records(records):
        titles = {"verdict": "verdict", "step": "runs", "law": "law", "found": "found", "expected": "expected"}
        rows = tuple(tuple(getattr(one, key) for key in titles) for one in between)
        columns = tuple(Column(title, title) for title in titles.values())
        tables.append(Table("Laws held between runs", columns, rows))
    if failures:
        names = ("run", "step", "law", "found", "expected")
        tables.append(Table("Broken", tuple(Column(name, name) for name in names), tuple(failures)))
    if unreadable:
        tables.append(Table("Not used", (Column("file", "file"), Column("why", "why")), tuple(unreadable)))
    text = "A broken law is a note; only a run whose own figures cannot be right takes no part in comparisons. "
    text += "A law between runs that fails says that something else sets the speed: a TCP window, loss, a CPU. "
    text += "The knee is the round trip from which the queue no longer fills the link."
    return page.Section("Self-checks", text, tables=tuple(tables), notes=tuple(remarks))


def _runs(records: Sequence[RunRecord]) -> page.Section:
    columns = (Column("run", "run"), Column("kernel", "kernel"), *runs.figures(records[0]).columns)
    rows = [(one.file, one.host.kernel, *row) for one in records for row in runs.figures(one).rows]
    tables = [Table("All runs", columns, tuple(rows), group_by=2)]
    columns = (Column("run", "run"), *runs.untold_figures(records[0]).columns)
    if untold := tuple((one.file, *row) for one in records for row in runs.untold_figures(one).rows):
        tables.append(Table("What runs do not tell", columns, untold, group_by=2))
    return page.Section("All runs", tables=tuple(tables))


def _facts(records: Sequence[RunRecord]) -> page.Facts:
    """Return what the figures hold for: values that all runs share, and how many there are of others."""

    def said(values: list[str]) -> str:
        return first_of(list(dict.fromkeys(values)), 4)

    digest = hashlib.sha256()
    for one in records:
        digest.update(
            json.dumps([step.fio and typed.STRICT.write(step.fio) for step in one.steps], sort_keys=True).encode()
        )
    return {
        "Hosts": said([one.host.name for one in records]),
        "Kernels": said([one.host.kernel for one in records]),
        "CPUs": said([str(one.host.cpus) for one in records]),
        "fabtune": said([one.versions.fabtune for one in records]),
        "fio": said([one.versions.fio for one in records]),
        "Targets": said([f"{one.target.path} {one.target.wwid}".strip() for one in records]),
        "SHA-256 of the raw fio results": digest.hexdigest(),
    }


def _commands(records: Sequence[RunRecord], command: Sequence[str]) -> list[str]:
    """Return the distinct commands that made the records, then the one that made this page."""
    made = [shlex.join(one.command) for one in records if one.command]
    return [*dict.fromkeys(made), shlex.join(command)]
