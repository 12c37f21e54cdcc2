# SPDX-License-Identifier: GPL-2.0-or-later
"""The tables of Documentation that show kept results, by experiment."""

from collections.abc import Callable, Sequence
from typing import Any

from kept_file import Point

from fabtune.experiment.summary import rounded_of
from fabtune.model.factors import FACTORS
from fabtune.model.path import SANDIAS
from fabtune.model.statistics import one_apart

# What Sandia's formula gives, as points have it.
_MATHIS = "mathis_mb_per_s"


def row(cells: Sequence[str]) -> str:
    """Return one row of a Markdown table."""
    return f"| {' | '.join(cells)} |\n"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return row(titles) + "|" + "---|" * len(titles) + "\n" + "".join(map(row, rows))


def between_marks(text: str, name: str, made: str) -> str:
    """Return a page with what is `made` between the marks of `name`.  Raises ValueError unless they are there, once."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found or begin in after or end in before + after:
        raise ValueError(f"expected the lines {begin.strip()} and {end.strip()}, in this order and once each")
    return f"{before}{begin}{made}{end}{after}"


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


def bound(points: Sequence[Point]) -> str:
    """Return the bound of most of a row's points, the first one where as many have another, and who has another."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(middle(point, "bound_mb_per_s"), []).append(point)
    most = max(found, key=lambda shown: len(found[shown]))
    others = [f"{_whose(mine, points)} {shown}" for shown, mine in found.items() if shown != most]
    return f"{most} ({', '.join(others)})" if others else most


def _whose(mine: Sequence[Point], points: Sequence[Point]) -> str:
    """Return in words whose points of a row these are: by profile and direction, and target where not of all."""
    ops, said = {point["op"] for point in points}, []
    for profile, op in dict.fromkeys((point["profile"], point["op"]) for point in mine):
        alike, these = (
            [str(one.get("target")) for one in some if (one["profile"], one["op"]) == (profile, op)]
            for some in (points, mine)
        )
        targets = "" if len(these) == len(alike) else f"{', '.join(these)}, "
        said.append(f"{targets}`{profile}`{f' {op}s' if len(ops) > 1 else ''}")
    return " and ".join(said)


def gains(points: Sequence[Point]) -> str:
    """A row a round trip and direction: untouched, `wan`, the bound, the gain and the verdict."""
    titles = (
        "RTT ms", "direction", "untouched MB/s", "`wan` MB/s", "bound MB/s", "of the bound", "gain", "verdict",
        "`wan` p50 / p99 ms",
    )  # fmt: skip
    rows = []
    for rtt, op in sorted({(point["rtt_ms"], point["op"]) for point in points}):
        base, wan = (by(points, rtt_ms=rtt, op=op, profile=name) for name in ("untouched", "wan"))
        limit = bound([one for one in (wan, base) if one])
        rows.append((
            f"{rtt:g}", op, told(base), told(wan), limit, f"{wan['fraction_of_bound']:.1%}",
            told(wan, "gain") + "x", str(wan.get("verdict", "–")), f"{told(wan, 'p50_ms')} / {told(wan, 'p99_ms')}",
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
        mine = [point for point in points if point["rtt_ms"] == rtt]
        rows.append((f"{rtt:g}", *(both(mine, profile=name) for name in names), bound(mine)))
    return table(("RTT ms", *(f"`{name}`" for name in names), "bound"), rows)


def losses(points: Sequence[Point]) -> str:
    """A row a loss, a column a profile, read / write; then Sandia's line, where points tell it."""
    names = list(dict.fromkeys(point["profile"] for point in points))
    lines = {point["loss"]: middle(point, _MATHIS) for point in points}
    is_told = set(lines.values()) != {middle({}, _MATHIS)}
    rows = [
        (f"{loss * 100:g} %", *(both(points, loss=loss, profile=name) for name in names), *([line] if is_told else []))
        for loss, line in sorted(lines.items())
    ]
    last = [f"one Reno connection (Mathis, {SANDIAS:g})"] if is_told else []
    return table(("loss", *(f"`{name}`" for name in names), *last), rows)


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
        mine = [point for point in points if point["rtt_ms"] == rtt]
        cells = [both(mine, target=target, profile=profile) for target, profile in columns]
        rows.append((f"{rtt:g}", *cells, bound(mine)))
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
            mine = [point for point in points if point[factor] == value]
            cells.append((
                f"{value:g}" if isinstance(value, float) else str(value),
                *(both(mine, profile=name) for name in names),
                bound(mine),
                *(both(mine, key, profile=name) for key in more for name in names),
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
# What of them a table shows that is no experiment's own.
_FIGURES = ("fraction_of_bound", "p50_ms", "p99_ms", "cpu_s_per_gb")


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


def varied(points: Sequence[Point]) -> str:
    """Return the table of an experiment that has none of its own: what varies, then the figures that there are.

    Fabrics without figures stand below it, each with the reason.
    """
    sound = [point for point in points if "missing" not in point]
    keys = dict.fromkeys(key for name, factor in FACTORS.items() for key in (name, factor.key, f"{name}_mbit"))
    varying = [key for key in keys if key not in ("op", "seed") and len({str(point.get(key)) for point in sound}) > 1]
    figures = [key for key in _FIGURES if any(point.get(key) is not None for point in sound)]
    reasons = dict.fromkeys(f"\n{point['fabric']}: {point['missing']}.\n" for point in points if "missing" in point)
    return listed(*varying, "mb_per_s", *figures)(sound) + "".join(reasons)


def of(name: str, points: Sequence[Point]) -> str:
    """Return the table of the experiment `name`."""
    return TABLES.get(name, varied)(points)


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
