# SPDX-License-Identifier: GPL-2.0-or-later
"""Every verb, option, file format and key has its place in the manual, and mandoc has nothing to complain of."""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from fabtune.catalog.profile import HOST_VARIABLES, PATH_VARIABLES, _EntryTable, _ProfileTable
from fabtune.catalog.tunable import EFFECTS, Tunable, shipped_catalog
from fabtune.cli.main import VERBS, verb_parser
from fabtune.experiment.definition import Definition
from fabtune.model.factors import FACTORS
from fabtune.model.runrecord import RunRecord, StepResult
from fabtune.tune.lines import KINDS

MANUAL = Path(__file__).resolve().parents[2] / "userspace/manual"
sys.path.insert(0, str(MANUAL))

import formats  # noqa: E402
import pages  # noqa: E402

PAGES = pages.pages()


def _shown(name: str) -> str:
    """Return a page without its markup."""
    return re.sub(r"\\&|\\e", lambda found: "\\" if found[0] == "\\e" else "", PAGES[name])


def test_there_is_a_page_of_each_verb_and_format() -> None:
    assert {f"fabtune-{verb}.8" for verb in VERBS} | {"fabtune.8", "fabtune.7"} <= set(PAGES)
    assert {name for name in PAGES if name.endswith(".5")} == {
        f"fabtune-{name}.5" for name in ("profile", "tunable", "journal", "experiment", "runrecord")
    }


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_s_page_has_all_its_words(verb: str) -> None:
    page = _shown(f"fabtune-{verb}.8")
    parser = verb_parser(verb)
    parsers = [parser, *pages.below(parser).values()]
    for action in (action for one in parsers for action in one._actions):
        if isinstance(action, argparse._SubParsersAction):
            assert all(f'.Ss "fabtune {verb} {name}"' in page for name in action.choices)
            continue
        for flag in action.option_strings:
            assert re.search(rf"^\.It .*\bFl {re.escape(flag[1:])}( |$)", page, re.MULTILINE), flag
        if not action.option_strings:
            assert re.search(rf"^\.It Ar {re.escape(str(action.metavar or action.dest.upper()))}", page, re.MULTILINE)
    # No option stands there that the parser does not take.
    known = {flag[1:] for one in parsers for action in one._actions for flag in action.option_strings}
    items = re.findall(r"^\.It (.*)$", page, re.MULTILINE)
    assert {flag for item in items for flag in re.findall(r"Fl (\S+)", item)} == known
    assert f".It Xr fabtune-{verb} 8" in PAGES["fabtune.8"]


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("fabtune-tunable.5", [*(set(Tunable.__dataclass_fields__) - {"name"}), *EFFECTS, *shipped_catalog().tunables]),
        ("fabtune-profile.5", [*(one.name for kind in (_EntryTable, _ProfileTable) for one in attrs.fields(kind)),
                               *PATH_VARIABLES, *HOST_VARIABLES]),
        ("fabtune-journal.5", [*KINDS]),
        ("fabtune-experiment.5", [*({one.name for one in attrs.fields(Definition)} - {"name", "path"}), *FACTORS]),
        ("fabtune-runrecord.5", [*formats.RECORD, *formats.STEP]),
    ],
)  # fmt: skip
def test_a_format_s_page_has_all_its_keys(page: str, words: list[str]) -> None:
    shown = _shown(page)
    assert words and not [one for one in words if not re.search(rf"(?<![\w.-]){re.escape(one)}(?![\w-])", shown)]


def test_the_keys_of_a_record_are_those_of_its_class() -> None:
    assert list(formats.RECORD.keys() ^ set(formats.fields(RunRecord))) == []
    assert list(formats.STEP.keys() ^ set(formats.fields(StepResult))) == []


def test_what_a_page_refers_to_is_there() -> None:
    for name, page in PAGES.items():
        for title, section in re.findall(r"^\.(?:It )?Xr (\S+) (\d)", page, re.MULTILINE):
            assert f"{title}.{section}" in PAGES and f"{title}.{section}" != name, (name, title)
    assert not [name for name, page in PAGES.items() if "@" in page]


@pytest.mark.parametrize("verb", ["apply", "confirm", "guard", "revert", "tune", "verify"])
def test_where_to_begin_every_verb_is_named_that_writes_or_keeps_values(verb: str) -> None:
    section = PAGES["fabtune.7"].partition(".Ss Tune\n")[2].partition(".Ss Prove\n")[0]
    assert re.search(rf"^\.Xr fabtune-{verb} 8", section, re.MULTILINE)


@pytest.mark.skipif(not shutil.which("mandoc"), reason="mandoc is not installed; make check-ops has it")
def test_mandoc_has_nothing_to_complain_of(tmp_path: Path) -> None:
    for name, page in PAGES.items():
        (tmp_path / name).write_text(page)
    said = subprocess.run(["mandoc", "-T", "lint", *sorted(tmp_path.iterdir())], capture_output=True, text=True,
                          check=False).stdout  # fmt: skip
    # Where the pages are not installed yet, it finds none of those that they refer to.
    assert [line for line in said.splitlines() if "referenced manual not found" not in line] == []


def test_revert_which_shows_no_plan_sends_nobody_to_one() -> None:
    helps = {action.dest: action.help or "" for action in verb_parser("revert")._actions}
    assert not [name for name, text in helps.items() if "plan" in text]
    assert "old values" in helps["reconnect"] and helps["end_sessions"].startswith("also restore")


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_fits_80_columns(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert [line for line in verb_parser(verb).format_help().splitlines() if len(line) > 80] == []


def test_an_upgrade_starts_every_service_anew_that_runs_on() -> None:
    top = MANUAL.parents[1]
    units = {path.name: path.read_text() for path in (top / "userspace/systemd").glob("*.service")}
    running = {name for name, text in units.items() if "Type=oneshot" not in text}
    (line,) = re.findall(r"try-restart ((?:fabtune-\w+\.service ?)+)", (top / "debian/fabtune.postinst").read_text())
    assert set(line.split()) == running != set()


def test_an_interrupted_verb_s_page_does_not_say_that_everything_is_back_where_it_is_not() -> None:
    """Steps of tune that were judged before stay, and a revert goes no further."""
    told = {verb: " ".join(PAGES[f"fabtune-{verb}.8"].split()) for verb in ("tune", "revert", "apply")}
    assert "Interrupted; the step under way was taken back, and those that were judged before stay." in told["tune"]
    assert "Interrupted; the next revert goes on." in told["revert"]
    assert "Interrupted; what apply had written until then is restored." in told["apply"]
