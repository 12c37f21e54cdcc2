# SPDX-License-Identifier: GPL-2.0-or-later
"""An experiment's figure: its table, its curves, and rows that have no figures."""

import re
from pathlib import Path
from typing import Any

import pytest

from fabtune.experiment import batch, definition, publish
from fabtune.experiment.settings import common
from fabtune.experiment.summary import UNTOLD, summarise
from fabtune.lab import fabrics
from fabtune.model.results import FAILED, LEFT_OUT, Point
from fabtune.report import figure

ROWS = [
    {"fabric": "iscsi", "size": size, "op": "read", "mb_per_s": rate, "p50_ms": 1.0}
    for size, rate in (("4KiB", 2.0), ("64KiB", 30.0))
] + [{"fabric": "fc", "size": "4KiB", "op": "read", "missing": "not available here: no adapter"}]
BOUND: dict[str, Any] = {"bound_mb_per_s": 119.5, "fraction_of_bound": 0.1}
PLOT = figure.Plot("size", "mb_per_s", "fabric", {"4KiB": 4096.0, "64KiB": 65536.0}, log=True)


def test_the_table_shows_what_varies_and_the_figures_there_are() -> None:
    table = figure.table("fabrics", ROWS, ("fabric", "size"))
    assert [column.key for column in table.columns] == ["fabric", "size", "mb_per_s", "p50_ms"]
    assert table.rows[0] == ("iscsi", "4KiB", 2.0, 1.0)
    assert table.rows[2] == ("fc", "4KiB", None, None)


def test_a_missing_fabric_is_said_and_drawn_nowhere(tmp_path: Path) -> None:
    said = [("rises", True, "2 30")]
    html = figure.write(ROWS, ("fabric", "size"), PLOT, said, {"experiment": "fabrics"}, [], tmp_path).read_text()
    assert html.count("<svg") == 1 and "rises" in html and "as expected: 2 30" in html
    assert figure.reasons(ROWS, ("fabric", "size")) == ["fc: not available here: no adapter"]
    shown = [cell for row in figure.table("fabrics", ROWS, ("fabric", "size")).shown() for cell in row]
    assert "30.0" in shown and "0.0" not in shown


def test_seeds_that_differ_are_said_on_the_page(tmp_path: Path) -> None:
    rows = [ROWS[0] | {"seeds": 3, "mb_per_s_apart": 1.5}, ROWS[1] | {"mb_per_s_groups": "20 (2), 30 (3)"}]
    said = [
        "request size 4KiB: one seed differs, 1.5 MB/s, from the other 2; one alone is no group",
        "request size 64KiB: the seeds fall into two groups, 20 (2) and 30 (3) MB/s (number of seeds);"
        " low and high are their ends",
    ]
    assert figure.reasons(rows, ("fabric", "size")) == said
    html = figure.write(rows, ("fabric", "size"), PLOT, [], {"experiment": "fabrics"}, [], tmp_path).read_text()
    assert html.count('<p class="note">') == 2 and "one seed differs" in html


def test_a_failed_run_is_one_of_all_runs_of_its_point() -> None:
    """Beside two that are left out it was "1 of 4 runs failed" there, and "1 of 6" in the verdict."""
    place, untold = {"profile": "wan"}, [Point({UNTOLD: why}) for why in (FAILED, LEFT_OUT, LEFT_OUT)]
    sound = [Point({"mb_per_s": 100.0 + seed, "seed": seed}) for seed in (1, 2, 3)]
    (row,) = summarise([(place, Point({"profile": "wan", "op": "read", "host": "a"}) | one) for one in sound + untold])
    assert figure.reasons([row.row], ("profile",)) == ["all: 1 of 6 runs failed"]
    said = "1 of 6 runs of wan failed; the others are no fair sample"
    assert publish._fleet_notes([row]) == [f"profile wan, read, a: {said}"]
    assert row.unfair("mb_per_s").startswith(said)


def test_rows_of_unlike_numbers_of_seeds_are_not_all_of_the_most() -> None:
    """Of one seed, held against five, it was "Medians of 5 seeds"."""
    judged = {"verdict": "cannot tell", "why": "1 pair; at least 3 are needed", "gain": 5.0}
    rows = [
        {"profile": "untouched", "op": "read", "mb_per_s": 10.0, "seeds": 5},
        {"profile": "wan", "op": "read", "mb_per_s": 50.0, "seeds": 1} | judged,
    ]

    def how_sure(rows: list[dict[str, Any]]) -> str:
        (found,) = [one.text for one in figure.answers(rows, ("profile",), []) if one.question == "How sure?"]
        return found.partition(" Cannot tell")[0]

    assert how_sure(rows) == "Medians of 1 to 5 seeds with 95 % intervals."
    assert how_sure([one | {"seeds": 5} for one in rows]) == "Medians of 5 seeds with 95 % intervals."
    assert how_sure([one | {"seeds": 1} for one in rows]) == "One seed: without intervals."


def test_a_gain_stands_beside_its_cost(tmp_path: Path) -> None:
    def row(profile: str, size: str, rate: float, **more: float | str | None) -> dict[str, float | str | None]:
        return {"profile": profile, "size": size, "op": "write", "mb_per_s": rate, **more}

    verdict: dict[str, float | str | None] = {"gain": 2.0, "gain_low": 1.9, "gain_high": 2.1, "verdict": "better"}
    dear: dict[str, float | str | None] = {"cpu_change": 3.5, "cpu_change_low": 3.4, "cpu_change_high": 3.6}
    rows = [
        row("untouched", "4KiB", 5.0), row("untouched", "64KiB", 6.0),
        row("wan", "4KiB", 10.0, cpu_verdict="worse", **dear) | verdict,
        row("wan", "64KiB", 12.0, cpu_verdict="no practical difference", cpu_change=1.0) | verdict,
    ]  # fmt: skip
    plot = figure.Plot("size", "mb_per_s", "profile", {"4KiB": 1.0, "64KiB": 2.0}, log=True)
    html = figure.write(rows, ("profile", "size"), plot, [], {"experiment": "fabrics"}, [], tmp_path).read_text()
    said = "wan against untouched: CPU time for each GB: more at 1 of 2 points (request size 4KiB), up to "
    assert said in html.replace("\u00a0", " ")


def test_one_point_makes_a_table_but_no_curve(tmp_path: Path) -> None:
    html = figure.write(ROWS[:1], ("fabric", "size"), PLOT, [], {"experiment": "fabrics"}, [], tmp_path).read_text()
    assert "<svg" not in html


def test_the_x_axis_is_marked_with_the_values_as_written_and_words_are_not_joined(tmp_path: Path) -> None:
    rows = [*ROWS, ROWS[0] | {"size": "1MiB", "mb_per_s": 90.0}]
    plot = figure.Plot("size", "mb_per_s", "fabric", {"4KiB": 4096.0, "64KiB": 65536.0, "1MiB": 2.0**20}, log=True)
    html = figure.write(rows, ("fabric", "size"), plot, [], {"experiment": "fabrics"}, [], tmp_path).read_text()
    assert ">4KiB</text>" in html and ">64KiB</text>" in html and ">16k</text>" not in html
    assert html.count('class="line"') == 2
    places = figure.Plot("size", "mb_per_s", "fabric", {"4KiB": 1.0, "64KiB": 2.0}, log=False, words=True)
    html = figure.write(ROWS, ("fabric", "size"), places, [], {"experiment": "fabrics"}, [], tmp_path).read_text()
    assert ">4KiB</text>" in html and html.count('class="mark"') == 3 and 'class="line"' not in html


def test_a_long_word_below_the_last_mark_is_not_cut_off(tmp_path: Path) -> None:
    rows = [{"security": word, "op": "read", "mb_per_s": 1.0} for word in ("none", "wireguard")]
    plot = figure.Plot("security", "mb_per_s", None, {"none": 1.0, "wireguard": 2.0}, log=False, words=True)
    html = figure.write(rows, ("security",), plot, [], {"experiment": "cost"}, [], tmp_path).read_text()
    (place,) = re.findall(r'<text x="([0-9.]+)" y="[0-9.]+">wireguard</text>', html)
    assert float(place) + len("wireguard") * 6 / 2 <= 440


def test_a_law_that_is_a_power_is_drawn_as_its_curve() -> None:
    curve = figure._power_law(((1.0, 8.0), (4.0, 4.0), (16.0, 2.0)))
    assert len(curve) > 40
    assert all(abs(y - 8 / x**0.5) < 1e-9 for x, y in curve)
    assert figure._power_law(((0.0, 9.0), (1.0, 8.0))) == ((0.0, 9.0), (1.0, 8.0))


def test_what_has_no_place_in_a_drawing_has_a_drawing_of_its_own(tmp_path: Path) -> None:
    """Depths 1 and 32 were one curve, through the mean of their medians: 16 MB/s, which neither reached."""
    rows = [
        {"size": size, "depth": depth, "fabric": "iscsi", "op": "read", "mb_per_s": rate}
        | {"mb_per_s_low": rate - 1, "mb_per_s_high": rate + 1}
        for depth, rates in (("1", (2.0, 20.0)), ("32", (30.0, 110.0)))
        for size, rate in zip(("4KiB", "64KiB"), rates, strict=True)
    ]
    factors = ("fabric", "size", "depth")
    html = figure.write(rows, factors, PLOT, [], {"experiment": "fabrics"}, [], tmp_path).read_text()
    titles = re.findall(r"<title>(read, [^<]*)", html)
    assert titles == [f"read, queue depth {depth}: MB/s over request size" for depth in (1, 32)]
    # Intervals were drawn nowhere.
    assert [one.count('class="span"') for one in html.split("<svg")[1:]] == [2, 2]


def test_the_law_of_each_curve_is_its_own_where_they_differ() -> None:
    """With loss as what tells curves apart, Mathis' curve was drawn once, through the mean of both."""
    rows = [
        {"rtt": rtt, "loss": loss, "op": "read", "mb_per_s": 1.0, "mathis_mb_per_s": mathis}
        for loss, laws in (("1%", (4.0, 2.0)), ("4%", (2.0, 1.0)))
        for rtt, mathis in zip(("10ms", "20ms"), laws, strict=True)
    ]
    plot = figure.Plot("rtt", "mb_per_s", "loss", {"10ms": 10.0, "20ms": 20.0}, log=False)
    found = figure._laws(rows, plot)
    assert [(one.name, one.points[0], one.points[-1]) for one in found] == [
        ("one Reno connection (Sandia's 0.7), 1%", (10.0, 4.0), (20.0, 2.0)),
        ("one Reno connection (Sandia's 0.7), 4%", (10.0, 2.0), (20.0, 1.0)),
    ]
    (alike,) = figure._laws(rows[:2], plot)
    assert alike.name == "one Reno connection (Sandia's 0.7)"


def grid(**more: float | str | None) -> list[dict[str, float | str | None]]:
    """Every pair of commands and window, read and written, each at its bound."""
    at_bound: dict[str, float | str | None] = {"bound_mb_per_s": 1.0, "fraction_of_bound": 1.0, "p99_ms": 2.0}
    told = at_bound | {"profile": "untouched"} | more
    return [
        told | {"cmds_max": cmds, "cmdsn_depth": window, "op": op, "mb_per_s": 1.0 + float(cmds) / 100}
        for cmds in ("32", "64", "128") for window in ("4", "16", "64") for op in ("read", "write")
    ]  # fmt: skip


def shown(rows: list[dict[str, float | str | None]], tmp_path: Path, expected: bool = True) -> str:
    plot = figure.Plot("cmdsn_depth", "mb_per_s", "cmds_max", {"4": 4.0, "16": 16.0, "64": 64.0}, log=True)
    said: list[tuple[str, bool | None, str]] = [("rises", True, "2 30")] if expected else []
    factors = ("cmds_max", "cmdsn_depth")
    html = figure.write(rows, factors, plot, said, {"experiment": "windows"}, [], tmp_path).read_text()
    return html.replace("\u00a0", " ")


def test_many_points_are_counted_and_few_are_named_in_words(tmp_path: Path) -> None:
    """The first screen of `command-window` listed 17 of "cmds_max 32 cmdsn_depth 4 read"."""
    html = shown(grid(), tmp_path)
    assert "queue depth and round trip: 18 points (100.0 % of the bound)" in html
    few = [row for row in grid() if row["cmds_max"] == "32" and row["cmdsn_depth"] != "4"]
    html = shown(few, tmp_path)
    assert "queue depth and round trip: read, write at command window 16, command window 64 (100.0 %" in html


def test_captions_and_axes_speak_of_what_is_meant(tmp_path: Path) -> None:
    """They read "mb_per_s over loss"."""
    html = shown(grid(), tmp_path)
    assert "read: MB/s over command window. Marks are" in html and "read: p99 latency, ms over command window" in html
    assert ">command window</text>" in html
    assert not re.search(r"(mb_per_s|p99_ms|cmdsn_depth) over|over (mb_per_s|cmdsn_depth)", html)


def test_a_curve_of_a_number_is_named_after_what_it_counts(tmp_path: Path) -> None:
    """The legend of `command-window` read "32"."""
    drawn = re.findall(r'<g class="legend"><text[^>]*>([^<]*)<', shown(grid(), tmp_path))
    assert set(drawn) == {"session commands 32", "session commands 64", "session commands 128", "bound"}


def test_an_experiment_without_a_contest_says_what_is_compared(tmp_path: Path) -> None:
    html = shown(grid(), tmp_path)
    said = "No profile is held against another: untouched at every point. Compared are session commands and command "
    assert "Did it help?" in html and said + "window, by what is expected of them below." in html
    assert said + "window, by the tables below alone." in shown(grid(), tmp_path, expected=False)


def test_two_points_are_not_joined(tmp_path: Path) -> None:
    two = [row for row in grid(bound_mb_per_s=None) if row["cmds_max"] == "32" and row["cmdsn_depth"] != "4"]
    for row, rate in zip(two, (1.0, 2.0, 3.0, 4.0), strict=True):
        row["mb_per_s"] = rate
    assert 'class="line" d="M' not in re.sub(r'<path class="line" d="M[^"]*h28"/>', "", shown(two, tmp_path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[factors]\nrtt = ["0ms", "20ms"]\n[fixed]\nworkload = "net"\n', "over round trip"),
        ('[factors]\nrtt = ["0ms", "20ms"]\nprofile = ["untouched", "wan"]\n[fixed]\nworkload = "net"\n', "Yes. wan"),
        ('[factors]\ndepth = ["1", "16"]\n[fixed]\nfabric = "scsi_debug"\n', "over queue depth"),
        ('[factors]\nfabric = ["iscsi", "fc"]\n[fixed]\nrtt = "1ms"\n', "no Fibre Channel adapter"),
        ('[fixed]\nworkload = "net"\n', "No profile is held against another"),
    ],
)
def test_points_without_a_bound_have_a_page_without_a_plot(text: str, says: str, tmp_path: Path) -> None:
    """After hours, and again with each --resume, "point 0: no bound_mb_per_s" was all that was said."""
    (tmp_path / "exp.toml").write_text(f'summary = "no bound"\nseeds = 3\n{text}')
    wanted = definition.load(str(tmp_path / "exp.toml"))
    runs = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    for run in runs:
        place = common(run.settings, "read")
        if why := fabrics.find(run.settings.fabric).MISSING:
            run.keep([Point({"fabric": run.settings.fabric, "op": "read", "missing": why})])
            continue
        rate = (5.0 if run.settings.profile == "wan" else 1.0) * (10.0 + run.settings.seed / 10)
        run.keep([place | {"mb_per_s": rate} | (BOUND if "fc" in text else {})])
    shown = publish.of_lab(wanted, batch.summary_of(runs), (), "", "fabtune run exp", tmp_path / "out")
    said = shown.page.read_text() + "\n".join(shown.texts)
    assert says in said and any("10.2" in cell for table in shown.tables for row in table.shown() for cell in row)


def test_a_bound_that_some_seeds_do_not_tell_is_none_of_all(tmp_path: Path) -> None:
    """The share of three seeds of which one has no path is not told: the page ended in a traceback."""
    (tmp_path / "exp.toml").write_text('seeds = 3\n[factors]\nrtt = ["1ms"]\n')
    wanted = definition.load(str(tmp_path / "exp.toml"))
    runs = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    for run in runs:
        share = BOUND if run.number > 1 else {}
        run.keep([common(run.settings, "read") | {"mb_per_s": 12.0 + run.number} | share])
    shown = publish.of_lab(wanted, batch.summary_of(runs), (), "", "fabtune run exp", tmp_path / "out")
    assert "No profile is held" in shown.page.read_text()
