# SPDX-License-Identifier: GPL-2.0-or-later
"""What stands beside an experiment's runs and is made of them, XML and summary: it is held against them."""

import json
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from fabtune.errors import InputError
from fabtune.experiment import left_out
from fabtune.experiment.places import whose_place
from fabtune.experiment.settings import decided
from fabtune.experiment.summary import Summary, summarise
from fabtune.host import userfile
from fabtune.measure import resulttree
from fabtune.measure.recordfile import seen_below
from fabtune.measure.resulttree import INDEX, Complaint
from fabtune.model.results import ExperimentIndex, Point, RunEntry
from fabtune.model.runrecord import Value

SUMMARY = "summary.json"
XML = "testrun.xml"
_MAX_BYTES = 64 << 20
# An element with all that is in it, whatever the order.
_Canonical = tuple[str, tuple[tuple[str, str], ...], str, tuple[object, ...]]


def complaints(directory: Path) -> list[Complaint]:
    """Return all that is wrong with the results at and below `directory`, with what was made of them as well."""
    return sorted([*resulttree.check(directory), *remarks(directory)], key=lambda one: one.place)


def remarks(directory: Path) -> list[Complaint]:
    """Return what was made of the runs at and below `directory` and is not what they give."""
    found = []
    for path in seen_below(directory, INDEX):
        try:
            index = resulttree.read_index(path)
        except InputError:
            # Whoever checks the runs says so.
            continue
        if isinstance(index, ExperimentIndex):
            whys = [*xml_apart(index, path.parent), *summary_apart(index, path.parent)]
            found += [Complaint(str(path.parent.relative_to(directory)), why, usable=True) for why in whys]
    return found


def xml_apart(index: ExperimentIndex, top: Path) -> list[str]:
    """Return that an index and its XML do not say the same: of the two, one was changed."""
    path = top / XML
    if not path.exists():
        return []
    try:
        there = ElementTree.fromstring(userfile.read_bytes(path, _MAX_BYTES))
    except ElementTree.ParseError:
        return [f"{path}: damaged or cut short: not whole XML"]
    ours = ElementTree.fromstring(to_xml(index))
    if _canonical(there) == _canonical(ours):
        return []
    parts = dict.fromkeys(_label(one) for one in _apart(ours, there) or [ours])
    return [f"{path}: does not say of {', '.join(parts)} what {INDEX} does: one of the two was changed"]


def _apart(ours: ElementTree.Element, theirs: ElementTree.Element) -> list[ElementTree.Element]:
    """Return the parts that either has and the other has not."""
    sides = [[(_canonical(one), one) for one in side] for side in (ours, theirs)]
    known = [{told for told, _ in side} for side in sides]
    return [one for side, other in zip(sides, reversed(known), strict=True) for told, one in side if told not in other]


def _canonical(element: ElementTree.Element) -> _Canonical:
    inner = sorted((_canonical(one) for one in element), key=repr)
    return element.tag, tuple(sorted(element.attrib.items())), (element.text or "").strip(), tuple(inner)


def _label(element: ElementTree.Element) -> str:
    name = element.get("name")
    return f"the {element.tag} '{name}'" if name else f"the {element.tag}"


def summary_in(index: ExperimentIndex) -> list[Summary]:
    """Return one row a combination and direction, of the runs as the index has them."""
    runs = [(cell.factors, run) for cell in index.combinations for run in cell.runs]
    # What decides is what the workload declares now.
    rows = [
        (factors, point | decided(str(run.settings.get("workload")))) for factors, run in runs for point in run.points
    ]
    return summarise(rows)


def summary_apart(index: ExperimentIndex, top: Path) -> list[str]:
    """Return that a summary is not what the runs beside it give; nothing where there is none.

    Beside runs that failed, that are left out, or that lack what others tell, the index alone does not give it.
    """
    path, runs = top / SUMMARY, [run for cell in index.combinations for run in cell.runs]
    untold = any(run.status == "failed" or left_out.sifted(top / run.directory, run.points)[1] for run in runs)
    untold = untold or _are_uneven(runs)
    if not path.exists() or untold or _says(path, [one.published for one in summary_in(index)]):
        return []
    return [f"{path}: not what its runs give by today's rules: not used"]


def _are_uneven(runs: Sequence[RunEntry]) -> bool:
    """Tell whether a run tells nothing of a direction that another of the same load tells."""
    told: dict[tuple[Value | None, ...], set[frozenset[object]]] = {}
    for run in (one for one in runs if one.status == "measured"):
        load = run.settings.get("workload"), run.settings.get("op"), run.settings.get("fabric")
        told.setdefault(load, set()).add(frozenset(map(whose_place, run.points)))
    return any(len(kinds) > 1 for kinds in told.values())


def _says(summary: Path, points: Sequence[Point]) -> bool:
    """Tell whether a summary says the same as `points`, but for what sets a bound: that is not from the runs."""
    beside = ("line_mb_per_s", "bound_by")
    try:
        told = json.loads(userfile.read_bytes(summary, _MAX_BYTES))
        said = [{key: one[key] for key in one if key not in beside} for one in told]
    except (ValueError, TypeError, RecursionError):
        return False
    return said == [dict(one) for one in points]


def to_xml(index: ExperimentIndex) -> str:
    """Return an experiment's index as XML: options with their values, then combinations, runs and their figures."""
    root = ElementTree.Element("testrun", name=index.name, clock=index.clock, schema="1")
    for key in ("summary", "source"):
        ElementTree.SubElement(root, key).text = getattr(index, key)
    for command in index.commands:
        ElementTree.SubElement(root, "command").text = command
    for name, values in (*index.factors.items(), *((name, (value,)) for name, value in index.fixed.items())):
        option = ElementTree.SubElement(root, "option", name=name)
        for value in values:
            ElementTree.SubElement(option, "value").text = str(value)
    for cell in index.combinations:
        combination = ElementTree.SubElement(root, "combination", name=cell.name)
        for name, value in cell.factors.items():
            ElementTree.SubElement(combination, "option", name=name).text = str(value)
        for run in cell.runs:
            _run(combination, run)
    ElementTree.indent(root)
    # Plain ASCII, other letters as references: the file reads the same whatever locale writes it.
    text: bytes = ElementTree.tostring(root, encoding="us-ascii", xml_declaration=True)
    return text.decode() + "\n"


def _run(parent: ElementTree.Element, run: RunEntry) -> None:
    element = ElementTree.SubElement(parent, "run", number=str(run.number), directory=run.directory, status=run.status)
    for name, value in run.settings.items():
        ElementTree.SubElement(element, "setting", name=name).text = _text(value)
    for file in run.files:
        ElementTree.SubElement(element, "file").text = file
    for point in run.points:
        result = ElementTree.SubElement(element, "result")
        for name, value in point.items():
            ElementTree.SubElement(result, "figure", name=name).text = _text(value)


def _text(value: Value | None) -> str:
    return value if isinstance(value, str) else json.dumps(value)
