# SPDX-License-Identifier: GPL-2.0-or-later
"""The tree of results: every link leads somewhere, wherever the tree stands; nothing that failed is left out."""

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from run_records import make_record

from fabtune.cli.main import main
from fabtune.errors import ExitCode, InputError
from fabtune.experiment import batch, definition, results
from fabtune.measure import recordfile, resulttree
from fabtune.model.results import FORMAT, ExperimentIndex, Point, SuiteIndex
from fabtune.report import results_pages as pages

POINT: dict[str, float | str | None] = {"profile": "wan", "rtt_ms": 50.0, "op": "read", "mb_per_s": 119.5}


def _tree(suite: Path, name: str) -> Path:
    """Make an experiment of two combinations in `suite`: one measured and once failed, one never run."""
    suite.mkdir(exist_ok=True)
    text = 'summary = "a <b> & ü"\nseeds = 2\n[factors]\nprofile = ["wan", "#1"]\n[fixed]\nrtt = "50ms"\n'
    (suite / f"{name}.toml").write_text(text.replace("#1", "lan"))
    wanted = definition.load(str(suite / f"{name}.toml"))
    out = suite / name
    runs = batch.runs_of(wanted, wanted.combinations(), out)
    measured, failed = runs[0].directory, runs[2].directory
    recordfile.write(make_record(119.5), measured / f"read{recordfile.SUFFIX}")
    runs[0].keep([Point(POINT)])
    failed.mkdir(parents=True)
    (failed / "console.log").write_text("Kernel panic\n")
    index = results.of_experiment(wanted, runs, out, [f"fabtune run {name}"])
    results.write(index, out)
    pages.write_experiment(index, out, in_suite=True)
    return out


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag == "a" and href and not href.startswith(("#", "data:")):
            self.found.append(href)


def _links(page: Path) -> list[str]:
    parser = _Links()
    parser.feed(page.read_text())
    return parser.found


def test_every_page_is_reached_from_the_top_and_every_link_holds_after_a_move(tmp_path: Path) -> None:
    first = _tree(tmp_path / "suite", "one")
    _tree(tmp_path / "suite", "two")
    suite, _ = results.of_suite(first.parent)
    results.write(suite, first.parent)
    pages.write_suite(suite, first.parent)
    shutil.move(first.parent, tmp_path / "moved, elsewhere")
    top = tmp_path / "moved, elsewhere"
    reached, waiting = set(), [top / "index.html"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".html":
            continue
        reached.add(page)
        for href in _links(page):
            target = (page.parent / unquote(href)).resolve()
            assert target.is_file(), f"{page.relative_to(top)} links to {href}"
            waiting.append(target)
    assert reached == set(top.rglob("*.html"))
    # Suite, two experiments, a combination each (the other never ran), two runs each.
    assert len(reached) == 1 + 2 + 2 + 4


def test_the_index_tells_measured_failed_and_not_run_apart(tmp_path: Path) -> None:
    out = _tree(tmp_path / "suite", "one")
    index = resulttree.read_experiment(out / "index.json")
    states = {(cell.name, run.number): run.status for cell in index.combinations for run in cell.runs}
    assert states == {
        ("profile=wan", 1): "measured", ("profile=wan", 2): "failed",
        ("profile=lan", 1): "not run", ("profile=lan", 2): "not run",
    }  # fmt: skip
    measured = index.combinations[0].runs[0]
    assert [dict(one) for one in measured.points] == [POINT]
    assert measured.files == ("points.json", "read.run.json.gz")
    assert (out / measured.directory / "points.json").exists()
    suite, _ = results.of_suite(out.parent)
    assert suite.experiments[0].runs == {"measured": 1, "failed": 1, "refused": 0, "not run": 2}


def test_an_index_is_read_as_it_was_written_and_one_that_is_damaged_is_refused_by_its_key(tmp_path: Path) -> None:
    out = _tree(tmp_path / "suite", "one")
    written = json.loads((out / "index.json").read_text())
    keys = "schema name summary source clock seeds factors fixed commands combinations"
    assert written.keys() == set(keys.split()) and written["combinations"][0]["runs"][0]["points"] == [POINT]
    assert json.loads(json.dumps(FORMAT.write(resulttree.read_experiment(out / "index.json")))) == written
    written["combinations"][0]["runs"][1]["status"] = "lost"
    (out / "index.json").write_text(json.dumps(written))
    with pytest.raises(InputError, match=r"key 'combinations\[0\].runs\[1\].status': found 'lost' \(text\)"):
        resulttree.read_experiment(out / "index.json")


def test_the_xml_holds_options_runs_and_figures(tmp_path: Path) -> None:
    root = ElementTree.parse(_tree(tmp_path / "suite", "one") / "testrun.xml").getroot()
    assert root.findtext("summary") == "a <b> & ü"
    assert [value.text for value in root.findall("option[@name='profile']/value")] == ["wan", "lan"]
    figure = root.find("combination[@name='profile=wan']/run[@number='1']/result/figure[@name='mb_per_s']")
    assert figure is not None and float(figure.text or "") == POINT["mb_per_s"]
    assert [run.get("status") for run in root.iter("run")] == ["measured", "failed", "not run", "not run"]


def test_report_tree_joins_experiments_to_a_suite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = _tree(tmp_path / "suite", "one").parent
    assert main(["report", "--tree", str(suite)]) == 0
    assert capsys.readouterr().out.strip() == str(suite / "index.html")
    assert "one/index.html" in _links(suite / "index.html")
    with pytest.raises(InputError, match="no directory below it holds an experiment"):
        results.of_suite(tmp_path)
    (suite / "one/index.json").write_text('{"schema": "other"}')
    assert main(["report", "--tree", str(suite)]) == 2
    assert "one/index.json: schema is 'other'" in capsys.readouterr().err


def test_a_suite_is_made_of_one_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes were read once more for what is wrong: one written meanwhile was both shown and called damaged."""
    suite = _tree(tmp_path / "suite", "one").parent
    _tree(suite, "two")
    (suite / "two/index.json").write_text("{")
    asked: list[str] = []
    real = resulttree.read_index

    def read(path: Path) -> ExperimentIndex | SuiteIndex:
        asked.append(path.parent.name)
        return real(path)

    monkeypatch.setattr(resulttree, "read_index", read)
    index, wrong = results.keep_suite(suite)
    assert asked == ["one", "two"]
    assert [one.name for one in index.experiments] == ["one"] and [one.place for one in wrong] == ["two/index.json"]


def test_points_stand_beside_the_factors_that_they_do_not_name_themselves(tmp_path: Path) -> None:
    path = tmp_path / "crowd.toml"
    path.write_text('[factors]\nclients = [2, 4]\nrtt = ["50ms"]\n')
    wanted = definition.load(str(path))
    runs = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    for run in runs:
        run.keep([Point(POINT)])
    index = results.of_experiment(wanted, runs, tmp_path / "out", [])
    page = pages.write_experiment(index, tmp_path / "out", in_suite=False).read_text()
    assert ">clients" in page and ">rtt ms" in page and ">rtt<" not in page.split("How this was made")[0]
    assert page.count("119.5") >= 2


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        (("directory",), "../../site"),
        (("directory",), "{}/site"),
        (("directory",), "."),
        (("runs", 1, "directory"), "profile=wan/.."),
        (("runs", 1, "directory"), "../../site/run-1"),
        (("runs", 0, "files", 0), "../../../../site/read.run.json.gz"),
    ],
)
def test_an_index_that_leads_out_of_its_tree_is_refused(
    keys: tuple[str | int, ...], place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results of somebody else's said "../../site", and its pages were replaced."""
    out = _tree(tmp_path / "suite", "one")
    for page in ("site/index.html", "site/run-1/index.html", "site/run-2/index.html"):
        (tmp_path / page).parent.mkdir(exist_ok=True)
        (tmp_path / page).write_text("mine")
    index = json.loads((out / "index.json").read_text())
    inner = index["combinations"][0]
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = place.format(tmp_path)
    (out / "index.json").write_text(json.dumps(index))
    before = (out / "index.html").read_text()
    assert main(["report", "--tree", str(out.parent)]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "one/index.json: key 'combinations[0]." in said and f"found '{inner[keys[-1]]}'"[:40] in said
    assert {page.read_text() for page in (tmp_path / "site").rglob("*.html")} == {"mine"}
    assert (out / "index.html").read_text() == before


@pytest.mark.parametrize("linked", ["profile=wan", "profile=wan/run-2"])
def test_no_page_is_written_through_a_link(linked: str, tmp_path: Path) -> None:
    out = _tree(tmp_path / "suite", "one")
    site = tmp_path / "site"
    shutil.move(out / linked, site)
    (out / linked).symlink_to(site)
    for page in site.rglob("*.html"):
        page.write_text("mine")
    main(["report", "--tree", str(out.parent)])
    assert {page.read_text() for page in site.rglob("*.html")} == {"mine"}
    for page in (out / "index.html", *((out / "profile=wan/index.html",) if linked.endswith("run-2") else ())):
        assert not [href for href in _links(page) if unquote(href) in (f"{linked}/index.html", "run-2/index.html")]
