#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables and pictures of README and Documentation, made from the results that are kept in Documentation/results/.

Without options everything is made anew; --check says what is stale, edited by hand or lost, and changes nothing, and
warns of results that are not, or no more, those that definitions ask for; --keep takes an experiment's tree of results
over, which must be whole.
"""

import argparse
import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace"), str(Path(__file__).resolve().parent)]

import kept_against  # noqa: E402

from fabtune.errors import FabtuneError  # noqa: E402
from fabtune.experiment import derived, left_out  # noqa: E402
from fabtune.experiment.summary import rounded_of  # noqa: E402
from fabtune.measure import resulttree  # noqa: E402
from fabtune.model import results  # noqa: E402
from fabtune.model.statistics import one_apart  # noqa: E402
from fabtune.report import chart, demo  # noqa: E402

Point = dict[str, Any]
SCHEMA = "fabtune-kept-results/1"
MARKS = re.compile(r"(<!-- figures: ([a-z0-9-]+) -->\n).*?(<!-- end of figures -->\n)", re.DOTALL)
BEGIN = re.compile(r"<!-- figures: ([a-z0-9-]+) -->\n")
PAGES = ("README.md", "Documentation/*.md")
STYLE = "userspace/fabtune/report/templates/page.css"


@dataclass(frozen=True)
class Kept:
    """The results of one experiment: its rows as summary.json has them, and what they came from, in words."""

    points: list[Point]
    origin: str

    @property
    def seeds(self) -> str:
        """What is said of the number of draws behind each figure."""
        counts = sorted({int(point["seeds"]) for point in self.points})
        if counts == [1]:
            return "One seed: a single draw, without intervals"
        return f"Medians of {' or '.join(map(str, counts))} seeds, with 95 % intervals"


def digest_of(document: dict[str, Any]) -> str:
    """Return the digest of kept results, that key itself left out."""
    rest = {key: value for key, value in document.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read(path: Path) -> Kept:
    """Return kept results.  Raises ValueError when they are not what was kept."""
    document = json.loads(path.read_text())
    if document.get("schema") != SCHEMA or digest_of(document) != document.get("digest"):
        raise ValueError(f"{path}: edited by hand: its digest does not fit; measure, then keep it with --keep")
    return Kept(document["points"], document["origin"])


def write(path: Path, points: Sequence[Point], origin: str) -> None:
    """Keep results with their digest."""
    known = [{key: value for key, value in point.items() if value is not None} for point in points]
    document: dict[str, Any] = {"schema": SCHEMA, "origin": origin, "points": known}
    head = json.dumps({**document, "points": [], "digest": digest_of(document)}, indent=1, sort_keys=True)
    # A line a point: small, and a change is to be seen.
    lines = ",\n".join("  " + json.dumps(point, sort_keys=True) for point in known)
    path.parent.mkdir(exist_ok=True)
    path.write_text(head.replace('"points": []', f'"points": [\n{lines}\n ]') + "\n")


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
    write(path, [dict(one.published) for one in derived.summary_in(index)], f"{origin}, made {made}")
    return path


def row(cells: Sequence[str]) -> str:
    """Return one row of a Markdown table."""
    return f"| {' | '.join(cells)} |\n"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return row(titles) + "|" + "---|" * len(titles) + "\n" + "".join(map(row, rows))


def told(point: Point, key: str = "mb_per_s", digits: int = 1) -> str:
    """Return a figure with its interval; where its seeds fall into two groups both, and one that differs alone too."""
    if point.get(key) is None:
        return "–"
    if groups := point.get(f"{key}_groups"):
        return str(groups).replace(", ", " or ")
    low, high = point.get(f"{key}_low"), point.get(f"{key}_high")
    middle = f"{point[key]:.{digits}f}"
    if (rounded := rounded_of(key)) and low is not None and high is not None:
        # Earlier results know nothing of buckets: no interval is narrower than one.
        low, high = min(low, point[key] / (1 + rounded)), max(high, point[key] * (1 + rounded))
    ends = "" if low is None or high is None else f"{low:.{digits}f}..{high:.{digits}f}"
    alone = point.get(f"{key}_apart")
    if alone is not None and one_apart((point[key], point[key], alone), rounded) is None:
        alone = None
    said = "" if alone is None else f", one seed {alone:.{digits}f}"
    return middle if ends in ("", f"{middle}..{middle}") else f"{middle} ({ends}{said})"


def middle(point: Point, key: str) -> str:
    """Return a figure alone."""
    return "–" if point.get(key) is None else f"{point[key]:.1f}"


def by(points: Sequence[Point], **wanted: Any) -> Point:
    """Return the one point with these values, an empty one where it was not measured."""
    found = [point for point in points if all(point.get(key) == value for key, value in wanted.items())]
    return found[0] if found else {}


def gains(points: Sequence[Point]) -> str:
    """A row a round trip and direction: untouched, `wan`, the bound, the gain and the verdict."""
    titles = (
        "RTT ms", "direction", "untouched MB/s", "`wan` MB/s", "bound MB/s", "of the bound", "gain", "verdict",
        "`wan` p50 / p99 ms",
    )  # fmt: skip
    rows = []
    for rtt, op in sorted({(point["rtt_ms"], point["op"]) for point in points}):
        base, wan = (by(points, rtt_ms=rtt, op=op, profile=name) for name in ("untouched", "wan"))
        rows.append((
            f"{rtt:g}", op, told(base), told(wan), f"{wan['bound_mb_per_s']:.1f}", f"{wan['fraction_of_bound']:.1%}",
            told(wan, "gain") + "x", str(wan.get("verdict", "–")), f"{middle(wan, 'p50_ms')} / {middle(wan, 'p99_ms')}",
        ))  # fmt: skip
    return table(titles, rows)


def both(points: Sequence[Point], key: str = "mb_per_s", **wanted: Any) -> str:
    """Return read / write of one combination."""
    reads, writes = (told(by(points, op=op, **wanted), key) for op in ("read", "write"))
    return "–" if reads == writes == "–" else f"{reads} / {writes}"


def profiles(points: Sequence[Point]) -> str:
    """A row a round trip, a column a profile, read / write."""
    names = list(dict.fromkeys(point["profile"] for point in points))
    rows = []
    for rtt in sorted({point["rtt_ms"] for point in points}):
        bound = by(points, rtt_ms=rtt)["bound_mb_per_s"]
        rows.append((f"{rtt:g}", *(both(points, rtt_ms=rtt, profile=name) for name in names), f"{bound:.1f}"))
    return table(("RTT ms", *(f"`{name}`" for name in names), "bound"), rows)


def losses(points: Sequence[Point]) -> str:
    """A row a loss, a column a profile, read / write."""
    names = list(dict.fromkeys(point["profile"] for point in points))
    rows = [
        (f"{loss * 100:g} %", *(both(points, loss=loss, profile=name) for name in names))
        for loss in sorted({point["loss"] for point in points})
    ]
    return table(("loss", *(f"`{name}`" for name in names)), rows)


def shares(points: Sequence[Point]) -> str:
    """A row a round trip and direction with the share of the bound."""
    rows = [
        (f"{p['rtt_ms']:g}", p["op"], told(p), f"{p['bound_mb_per_s']:.1f}", f"{p['fraction_of_bound']:.1%}")
        for p in sorted(points, key=lambda p: (p["rtt_ms"], p["op"]))
    ]
    return table(("RTT ms", "op", "MB/s", "bound", "share"), rows)


def kinds(points: Sequence[Point]) -> str:
    """A row a round trip, a column a kind of target and profile, read / write."""
    columns = list(dict.fromkeys((point["target"], point["profile"]) for point in points))
    rows = []
    for rtt in sorted({point["rtt_ms"] for point in points}):
        cells = [both(points, rtt_ms=rtt, target=target, profile=profile) for target, profile in columns]
        rows.append((f"{rtt:g}", *cells, f"{by(points, rtt_ms=rtt)['bound_mb_per_s']:.1f}"))
    return table(("RTT ms", *(f"{target}, `{profile}`" for target, profile in columns), "bound"), rows)


def over(factor: str, *more: str) -> Callable[[Sequence[Point]], str]:
    """Return the table with a row for each value of `factor`, a column for each profile, read / write.

    The bound's column follows, then for each of the figures `more` a column for each profile as well.
    """

    def rows(points: Sequence[Point]) -> str:
        names = list(dict.fromkeys(point["profile"] for point in points))
        values = list(dict.fromkeys(point[factor] for point in points))
        cells = []
        for value in values:
            row = {factor: value}
            cells.append((
                f"{value:g}" if isinstance(value, float) else str(value),
                *(both(points, profile=name, **row) for name in names),
                f"{by(points, **row)['bound_mb_per_s']:.1f}",
                *(both(points, key, profile=name, **row) for key in more for name in names),
            ))  # fmt: skip
        titles = (f"`{name}` {COLUMNS[key][0]}" for key in more for name in names)
        return table((COLUMNS.get(factor, (factor,))[0], *(f"`{name}`" for name in names), "bound", *titles), cells)

    return rows


# Figures of a table with a row a combination: what heads the column, and how many digits follow the point.
COLUMNS = {
    "mb_per_s": ("MB/s", 1), "fraction_of_bound": ("of the bound", 3), "cpu_s_per_gb": ("CPU s/GB", 1),
    "oldest_s": ("longest wait, s", 2), "queue_full": ("refused as full", 0), "depth_after": ("depth afterwards", 0),
    "paths_failed": ("paths failed", 0), "p50_ms": ("p50 ms", 2), "p99_ms": ("p99 ms", 2),
    "rtt_ms": ("RTT ms", 0), "size_bytes": ("request", 0),
    "slowest_share": ("slowest client's share", 3),
}  # fmt: skip


def size(count_bytes: int) -> str:
    """Return a size as definitions give it."""
    return f"{count_bytes >> 20} MiB" if count_bytes >= 1 << 20 else f"{count_bytes >> 10} KiB"


def listed(*names: str) -> Callable[[Sequence[Point]], str]:
    """Return the table with a row a combination: the factors among `names`, the direction, then figures."""

    def cell(point: Point, name: str) -> str:
        if name == "size_bytes":
            return size(int(point[name]))
        if name in COLUMNS and isinstance(point.get(name), int | float):
            # Of less than 1 MB/s the first digit alone says little.
            return told(point, name, COLUMNS[name][1] + (name == "mb_per_s" and point[name] < 1))
        return str(point.get(name, "–"))

    def rows(points: Sequence[Point]) -> str:
        columns = list(names)
        if len({point["op"] for point in points}) > 1:
            columns.insert(columns.index("mb_per_s"), "op")
        titles = [COLUMNS[name][0] if name in COLUMNS else name.replace("_", " ") for name in columns]
        return table(titles, [[cell(point, name) for name in columns] for point in points])

    return rows


TABLES: dict[str, Callable[[Sequence[Point]], str]] = {
    "demo": gains, "wan-rtt": profiles, "wan-loss": losses, "wan-far": shares,
    "target-kinds": kinds, "wan-jitter": over("jitter"), "wan-shared": over("buffer"),
    "wan-buffer": over("buffer", "cpu_s_per_gb"),
    "wan-cross": over("cross"), "wan-deep": shares, "wan-known": over("rtt_ms"),
    "path-cut": listed("cut", "mb_per_s", "paths_failed", "oldest_s"),
    "queue-full": listed("task_set_full", "mb_per_s", "queue_full", "oldest_s", "depth_after"),
    "multipath": listed("sessions", "mb_per_s"), "mptio": listed("workload", "threads", "mb_per_s"),
    "lun-stress-128": listed("clients", "mb_per_s", "oldest_s"),
    "stripe-targets": listed("targets", "mb_per_s", "fraction_of_bound"),
    "pileup": listed("threads", "mb_per_s", "p50_ms", "p99_ms"),
    "r2t-cost": listed("unsolicited", "rtt_ms", "mb_per_s", "p50_ms"),
    "security-cost": listed("security", "mb_per_s", "cpu_s_per_gb"),
    "window-streams": listed("window", "streams", "mb_per_s"),
    "command-window": listed("cmds_max", "cmdsn_depth", "mb_per_s", "queue_full"),
    "daq": listed("stream_rate", "mb_per_s", "slowest_share", "p99_ms"),
    "lan-frames": listed("mtu", "size_bytes", "mb_per_s", "cpu_s_per_gb"),
    "kernels": listed("kernel", "size_bytes", "mb_per_s"),
    "read-ahead": listed("workload", "read_ahead", "mb_per_s"),
}  # fmt: skip
# Experiments whose curves are a picture of the documentation.
PICTURES = ("demo", "wan-rtt")


def style(css: str) -> str:
    """Return the page's rules for drawings in light colours, without variables: not every viewer knows them."""
    known = dict(re.findall(r"(--[a-z0-9]+): ([^;]+);", re.findall(r":root \{(.*?)\}", css, re.DOTALL)[0]))
    rules = re.findall(r"^(\.chart [^{]+?) \{ (.*) \}$", css, re.MULTILINE)
    looks = {selector: dict(re.findall(r"(--[cd]): ([^;]+);", body)) for selector, body in rules if "--c:" in body}
    found = []
    for selector, body in rules:
        if selector in looks:
            continue
        wanted = looks if "var(--c)" in body else {".chart": {}}
        for look, own in wanted.items():
            text = body
            for name in ("--c", "--d"):
                text = re.sub(rf"var\({name}(?:, none)?\)", own.get(name, "none"), text)
            text = re.sub(r"var\((--[a-z0-9]+)\)", lambda match: str(known[match[1]]), text)
            found.append(f"{look}{selector.removeprefix('.chart')} {{ {text} }}")
    return "\n".join(found)


def picture(points: Sequence[Point], css: str) -> str:
    """Return reads and writes over the round trip side by side, as a drawing that needs nothing else."""
    width, height = chart.WIDTH, chart.HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * width} {height}" width="{2 * width}" '
        f'height="{height}" font-family="sans-serif" font-size="13">',
        "<!-- SPDX-License-Identifier: GPL-2.0-or-later -->",
        f'<style>\n{style(css)}\n</style>\n<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for place, (op, heading) in enumerate(demo.OPS.items()):
        drawn = demo.chart(heading, op, [results.Point(point) for point in points])
        parts.append(drawn.replace("<svg ", f'<svg x="{place * width}" width="{width}" height="{height}" ', 1))
    return "\n".join([*parts, "</svg>\n"])


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


def made(top: Path) -> dict[Path, str]:
    """Return every page and picture as it must be.  Raises ValueError for results that cannot be believed."""
    kept = {name: read(path) for name, path in results_of(top).items()}
    found: dict[Path, str] = {}

    def table_of(match: re.Match[str]) -> str:
        if match[2] not in kept:
            raise ValueError(f"no results are kept for the table '{match[2]}'")
        mine = kept[match[2]]
        lacks = "".join(f" {why}." for why in kept_against.points_apart(match[2], mine.points))
        return f"{match[1]}{TABLES[match[2]](mine.points)}\n{mine.seeds}.{lacks} {mine.origin}.\n{match[3]}"

    shown: set[str] = set()
    for path in sorted(path for pattern in PAGES for path in top.glob(pattern)):
        text = path.read_text()
        shown |= set(_whole_tables(path.relative_to(top), text))
        if (new := MARKS.sub(table_of, text)) != text or MARKS.search(text):
            found[path] = new
    if lost := kept.keys() - shown:
        marks = "its lines `<!-- figures: NAME -->` and `<!-- end of figures -->`"
        raise ValueError(f"the results of {', '.join(sorted(lost))} are shown on no page; a table needs {marks}")
    css = (top / STYLE).read_text()
    for name in PICTURES:
        found[top / f"Documentation/{name}.svg"] = picture(kept[name].points, css)
    return found


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
            for why in kept_against.said({name: read(path).points for name, path in results_of(args.top).items()}):
                print(f"figures: warning: {why}", file=sys.stderr)
    except (ValueError, FabtuneError) as error:
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
