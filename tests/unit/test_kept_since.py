# SPDX-License-Identifier: GPL-2.0-or-later
"""Kept results against definitions and profiles of today: what they lack, and what is another one since, is said."""

import json
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import kept_results
import pytest
from kept_results import TOP, check

from fabtune.experiment import definition


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    return kept_results.load()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The pages, pictures and results of this tree."""
    return kept_results.copied(tmp_path)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of two profiles with three seeds each."""
    return kept_results.measured(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (
            'seeds = 4\n[factors]\nprofile = ["untouched", "wan"]\n',
            "profile=wan: 3 of 4 seeds of the definition of exp",
        ),
        (
            'seeds = 3\n[factors]\nprofile = ["untouched", "wan", "lan"]\n',
            "profile=lan of the definition of exp is not",
        ),
        ('seeds = 3\n[factors]\nprofile = ["untouched", "wan"]\n[fixed]\nrtt = "5ms"\n', "rtt_ms was 0.0, is 5.0 in"),
    ],
)
def test_less_than_a_definition_asks_for_is_not_kept(
    asked: str, why: str, tree: Path, figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three seeds were kept, when run and entry were gone."""
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped/exp.toml").write_text(asked)
    monkeypatch.setattr(definition, "data_dir", lambda _name: tmp_path / "shipped")
    with pytest.raises(ValueError, match=why):
        figures.keep(tree, tmp_path / "kept")


def test_a_table_says_itself_what_it_lacks_of_its_definition(
    figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of 30 combinations, measured once, passed for that of a definition with 42 and three seeds."""
    path = copy / "Documentation/results/wan-loss.json"
    document = json.loads(path.read_text())
    last = document["points"][-1]
    points = [point | {"seeds": 2} for point in document["points"] if point["loss"] != last["loss"]]
    figures.kept_file.write(path, points, document["origin"])
    assert check(copy, monkeypatch) == 1
    told = capsys.readouterr().err
    assert "warning: wan-loss: 2 of 6 combinations of the definition are not in it" in told
    assert "Documentation/wan.md: not what the kept results give" in told
    monkeypatch.setattr(sys, "argv", ["figures.py", "--top", str(copy)])
    assert figures.main() == 0
    # A page that says so is no failing one.
    assert check(copy, monkeypatch) == 0
    said = "combinations of the definition are not in it. The definition asks for 5 seeds."
    assert said in (copy / "Documentation/wan.md").read_text()


def test_an_experiment_without_kept_results_is_a_warning(
    figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(copy, monkeypatch) == 0
    told = capsys.readouterr().err
    kept = {path.stem for path in (copy / "Documentation/results").glob("*.json")}
    for name in definition.names():
        assert (name in re.findall("no results are kept of (.*)", told)[0].split(", ")) is (name not in kept)


def test_whole_results_are_of_their_definition(figures: ModuleType) -> None:
    """What is kept is recognised as its combination's, whatever its factors: else all of it would be missing."""
    lacks = {
        path.stem: figures.kept_against.points_apart(path.stem, figures.kept_file.read(path).points)
        for path in (TOP / "Documentation/results").glob("*.json")
    }
    # Newer than their results are tuners that are held against wan, and that there are five seeds where chance
    # decides; but of what is kept all is of a combination.
    for name, missing in {"wan-buffer": "8 of 20", "wan-cross": "12 of 20", "wan-jitter": "9 of 15",
                          "wan-shared": "6 of 10"}.items():  # fmt: skip
        fewer = [f"{missing} combinations of the definition are not in it", "The definition asks for 5 seeds"]
        assert lacks.pop(name) == fewer
    # Newer than its results is the size of a read.
    assert sorted(name for name, whys in lacks.items() if whys) == ["read-ahead"]


def test_results_with_another_fixed_setting_are_not_those_of_the_definition(figures: ModuleType) -> None:
    """Only what varies was looked at: a table of another request size passed for the definition's."""
    points = figures.kept_file.read(TOP / "Documentation/results/wan-loss.json").points
    assert figures.kept_against.points_apart("wan-loss", points) == []
    found = figures.kept_against.points_apart("wan-loss", [point | {"size_bytes": 4096} for point in points])
    assert found == [
        "6 of 6 combinations of the definition are not in it",
        "12 of its 12 points are of no combination of the definition",
    ]


def test_a_kept_file_says_what_was_asked_of_its_runs_and_what_its_profiles_were(
    tree: Path, figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = figures.kept_file.read(figures.keep(tree, tmp_path / "kept"))
    assert kept.asked["runtime_s"] == 3.0 and kept.asked["clock"] == "virtual"
    assert "profile" not in kept.asked and "seed" not in kept.asked
    assert list(kept.profiles) == ["wan"] and figures.kept_against.profiles_apart(kept) == []
    # Of what other code measured nobody knows which profiles that code had.
    monkeypatch.setattr(figures, "code_digest", lambda: "another")
    assert figures.kept_file.read(figures.keep(tree, tmp_path / "kept")).profiles == {}


def test_a_definition_that_asks_for_something_else_since_is_said(
    tree: Path, figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long and how a load is run no point says: a table of 3 s passed for one of 10 s."""
    kept = figures.kept_file.read(figures.keep(tree, tmp_path / "kept"))
    (tmp_path / "shipped").mkdir()
    monkeypatch.setattr(definition, "data_dir", lambda _name: tmp_path / "shipped")
    asked = 'seeds = 3\n[factors]\nprofile = ["untouched", "wan"]\n'
    for more, said in (
        ("", []),
        ('[fixed]\nruntime = "10s"\n', ["Since then runtime_s was changed from 3.0 to 10.0 in the definition"]),
    ):
        (tmp_path / "shipped/exp.toml").write_text(asked + more)
        assert figures.kept_against.definition_apart("exp", kept) == said
    (tmp_path / "shipped/exp.toml").write_text('clock = "real"\n' + asked)
    assert figures.kept_against.definition_apart("exp", kept) == [
        "Since then clock was changed from virtual to real in the definition"
    ]


def test_an_edited_definition_is_a_failure_until_its_page_says_so(
    figures: ModuleType, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    shutil.copytree(TOP / "userspace/experiments", tmp_path / "experiments")
    monkeypatch.setattr(definition, "data_dir", lambda _name: tmp_path / "experiments")
    edited = tmp_path / "experiments/wan-loss.toml"
    edited.write_text(edited.read_text().replace('runtime = "10s"', 'runtime = "20s"'))
    assert check(copy, monkeypatch) == 1
    told = capsys.readouterr().err
    assert "warning: wan-loss: Since then runtime_s was changed from 10.0 to 20.0 in the definition" in told
    assert "Documentation/wan.md: not what the kept results give" in told
    monkeypatch.setattr(sys, "argv", ["figures.py", "--top", str(copy)])
    assert figures.main() == 0 and check(copy, monkeypatch) == 0
    assert "from 10.0 to 20.0 in the definition." in (copy / "Documentation/wan.md").read_text()


def test_a_profile_that_is_another_one_since_is_said_beside_the_table(
    figures: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight tables showed a `wan` that had iscsi.recv_from_iscsi_q, days after that was gone, and did not say so."""
    path = copy / "Documentation/results/wan-loss.json"
    kept = figures.kept_file.read(path)
    now = figures.kept_against.profiles_now(kept.points)
    assert sorted(now) == ["wan", "wan-lossy"]
    page = copy / "Documentation/wan.md"
    for known, said in (
        ({}, "Profiles `wan` and `wan-lossy` may have changed since."),
        (now | {"wan": "0" * 16}, "Profile `wan` has changed since."),
        ({"wan": "0" * 16}, "Profile `wan` has changed since. Profile `wan-lossy` may have changed since."),
        (now, "code 39ef1f816388f958, made 2026-11-24.\n"),
    ):
        figures.kept_file.write(path, kept.points, kept.origin, kept.asked, known)
        monkeypatch.setattr(sys, "argv", ["figures.py", "--top", str(copy)])
        assert figures.main() == 0
        block = page.read_text().partition("<!-- figures: wan-loss -->")[2].partition("<!-- end")[0]
        assert said in block and ("changed since" in block) is (known != now)
        assert check(copy, monkeypatch) == 0


def test_what_a_profile_says_of_itself_in_words_is_no_other_profile(figures: ModuleType, tmp_path: Path) -> None:
    text = (TOP / "profiles/lan.toml").read_text()
    was = figures.kept_against.profile_digest(TOP / "profiles/lan.toml")
    for changed, alike in (
        (re.sub(r'(?m)^(why|summary) = ".*"$', r'\1 = "other words"', text), True),
        (re.sub(r"(?m)^(at_least|value) = \d+", r"\1 = 64", text, count=1), False),
    ):
        assert changed != text
        (tmp_path / "lan.toml").write_text(changed)
        assert (figures.kept_against.profile_digest(tmp_path / "lan.toml") == was) is alike
