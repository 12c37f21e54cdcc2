#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables and pictures of README and Documentation, made from the results that are kept in Documentation/results/.

Without options everything is made anew; --check says what is stale, edited by hand or lost, and changes nothing, and
warns of results that are not, or no more, those that definitions ask for; --keep takes an experiment's tree of results
over, which must be whole.
"""

import argparse
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace"), str(TOP / "tests/bench"), str(TOP / "tests/vm")]

import cells_kept  # noqa: E402
import connection_kept  # noqa: E402
import kept_against  # noqa: E402
import kept_drawings  # noqa: E402
import kept_file  # noqa: E402
import kept_pictures  # noqa: E402
import kept_tables  # noqa: E402
import module_kept  # noqa: E402
import ops_kept  # noqa: E402
import power  # noqa: E402
import sanitizers  # noqa: E402
import sanitizers_kept  # noqa: E402
import why_page  # noqa: E402

from fabtune.errors import FabtuneError  # noqa: E402
from fabtune.experiment import derived, left_out  # noqa: E402
from fabtune.experiment.present import code_digest  # noqa: E402
from fabtune.measure import resulttree  # noqa: E402

MARKS = re.compile(r"(<!-- figures: ([a-z0-9-]+) -->\n).*?(<!-- end of figures -->\n)", re.DOTALL)
BEGIN = re.compile(r"<!-- figures: ([a-z0-9-]+) -->\n")
PAGES = ("README.md", "Documentation/*.md")
# Experiments whose curves are a picture of the documentation, once their results are kept.
PICTURES = ("demo", "wan-rtt")


def keep(tree: Path, kept: Path) -> Path:
    """Take an experiment's results over, as its runs left them; no summary beside them is believed.

    Raises ValueError when a run is missing, refused, of another origin or left out, or the definition asks for more.
    """
    index = resulttree.read_experiment(tree / resulttree.INDEX)
    runs = [run for cell in index.combinations for run in cell.runs]
    wrong = [one.why for one in resulttree.check(tree)]
    wrong += [f"{run.directory}: {run.status}" for run in runs if run.status != "measured"]
    wrong += [*derived.xml_apart(index, tree), *kept_against.tree_apart(index)]
    wrong += [f"{run.directory}: {why}" for run in runs for why in left_out.sifted(tree / run.directory, ())[2]]
    if wrong:
        raise ValueError(f"{tree}: not kept: " + "; ".join(wrong[:5]))
    for why in derived.summary_apart(index, tree):
        # By an earlier version of the rules, or by hand.
        print(f"figures: {why}", file=sys.stderr)
    origins = [run.origin for run in runs if run.origin]
    kernels = ", ".join(dict.fromkeys(one.kernel for one in origins))
    parts = f"image {origins[0].image}, packages {origins[0].packages[:16]}, module {origins[0].module}"
    origin = f"`{index.commands[0]}`, kernel {kernels}, {parts}, code {origins[0].code[:16]}"
    path = kept / f"{index.name}.json"
    made = time.strftime("%Y-%m-%d", time.gmtime())
    points = [dict(one.published) for one in derived.summary_in(index)]
    # What measured had today's profiles if all that it ran is today's; else nobody knows which it had.
    alike = {one.code for one in origins} == {code_digest()}
    profiles = kept_against.profiles_now(points) if alike else {}
    kept_file.write(path, points, f"{origin}, made {made}", kept_against.asked_by(index), profiles)
    return path


def _whole_tables(page: Path, text: str) -> list[str]:
    """Return the names of a page's tables.  Raises ValueError for one without an end: the text after it is no table."""
    whole = [match[2] for match in MARKS.finditer(text) if len(BEGIN.findall(match[0])) == 1]
    for name in BEGIN.findall(text):
        if name not in whole:
            raise ValueError(f"{page}: the table '{name}' has no end")
    return whole


def results_of(top: Path) -> dict[str, Path]:
    """Return the files of kept results by their experiment's name."""
    return {path.stem: path for path in sorted((top / "Documentation/results").glob("*.json"))}


def _of_benches(top: Path) -> dict[Path, Callable[[str], str]]:
    """Return by page what puts the table there whose results a bench, or the debug kernels' suites, keep themselves."""

    def here(path: Path) -> Path:
        return top / path.relative_to(TOP)

    return {
        here(power.PAGE): lambda text: power.with_table(text, power.read(here(power.KEPT))),
        here(why_page.PAGE): lambda text: why_page.with_tables(text, why_page.read(here(why_page.KEPT))),
        here(connection_kept.PAGE): lambda text: connection_kept.with_tables(text, here(connection_kept.FILE)),
        here(cells_kept.PAGE): lambda text: cells_kept.with_tables(text, here(cells_kept.DIRECTORY)),
        here(ops_kept.PAGE): lambda text: ops_kept.with_tables(text, here(ops_kept.DIRECTORY)),
        here(sanitizers_kept.PAGE): lambda text: module_kept.with_tables(
            sanitizers_kept.with_table(text, here(sanitizers_kept.FILE), sanitizers.digests_of(sanitizers.jobs_of())),
            here(module_kept.FILE),
        ),
    }


def made(top: Path) -> dict[Path, str]:
    """Return every page and picture as it must be.  Raises ValueError for results that cannot be believed."""
    kept = {name: kept_file.read_measured(path) for name, path in results_of(top).items()}
    found: dict[Path, str] = {}
    of_benches = _of_benches(top)

    def table_of(match: re.Match[str]) -> str:
        if match[2] not in kept:
            raise ValueError(f"no results are kept for the table '{match[2]}'")
        mine = kept[match[2]]
        lacks = "".join(f" {why}." for why in kept_against.apart(match[2], mine))
        return f"{match[1]}{kept_tables.of(match[2], mine.points)}\n{mine.seeds}.{lacks} {mine.origin}.\n{match[3]}"

    shown: set[str] = set()
    for path in sorted(path for pattern in PAGES for path in top.glob(pattern)):
        text = path.read_text()
        shown |= set(_whole_tables(path.relative_to(top), text))
        if MARKS.search(text) or path in of_benches:
            found[path] = _with_tables(path.relative_to(top), MARKS.sub(table_of, text), of_benches.get(path))
    if lost := kept.keys() - shown:
        marks = "its lines `<!-- figures: NAME -->` and `<!-- end of figures -->`"
        raise ValueError(f"the results of {', '.join(sorted(lost))} are shown on no page; a table needs {marks}")
    css = (top / kept_pictures.STYLE).read_text()
    for name in PICTURES:
        drawing = top / f"Documentation/{name}.svg"
        if name in kept:
            found[drawing] = kept_pictures.picture(kept[name].points, css)
        elif drawing.exists():
            raise ValueError(f"{drawing.relative_to(top)}: no results are kept for it")
    if edited := kept_drawings.edited(top):
        raise ValueError("; ".join(edited))
    foretold = why_page.read(top / why_page.KEPT.relative_to(TOP))
    found[top / why_page.DRAWING.relative_to(TOP)] = why_page.drawing(foretold)
    return found


def _with_tables(page: Path, text: str, put: Callable[[str], str] | None) -> str:
    try:
        return put(text) if put else text
    except ValueError as error:
        raise ValueError(f"{page}: {error}") from None


def main() -> int:
    """Make, check or keep; return 1 where something is stale or cannot be kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when something is stale")
    parser.add_argument("--keep", type=Path, action="append", default=[], metavar="OUT", help="a tree of results")
    parser.add_argument("--top", type=Path, default=TOP, help=argparse.SUPPRESS)
    args = parser.parse_args()
    try:
        for tree in args.keep:
            print(keep(tree, args.top / "Documentation/results"))
        pages = made(args.top)
        if args.check:
            for why in kept_against.said({name: kept_file.read(path) for name, path in results_of(args.top).items()}):
                print(f"figures: warning: {why}", file=sys.stderr)
    except (ValueError, OSError, FabtuneError) as error:
        print(f"figures: {error}", file=sys.stderr)
        return 1
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        name = path.relative_to(args.top)
        if args.check:
            print(f"figures: {name}: not what the kept results give; run `make figures`", file=sys.stderr)
        else:
            path.write_text(pages[path])
            print(name)
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
