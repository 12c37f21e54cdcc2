# SPDX-License-Identifier: GPL-2.0-or-later
"""The simulation of the verdicts in short, its bars, and the table that Documentation has of the long one."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import attrs
import pytest
from length import FULL

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def power() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_power", TOP / "tests/bench/power.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    # Worker processes look the module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_sessions_of_each_kind_are_judged_alike_by_all_verbs(power: ModuleType) -> None:
    names = ["5-2-10", "0-2-10", "5-2-10-outliers", "0-10-seeds", "0-2-unpaired", "5-5-decided"]
    # Sides that vary, and are as many, as they like.
    names += ["0-10-1-10", "0-10-1-8-30", "5-3-1-unpaired", "5-3-1-unpaired-outliers"]
    result = power.simulate(names, 100 if FULL else 40)
    assert power.missed(result) == []
    said = result.verbs
    assert said["report"] == said["compare"] == said["report"] | said["ab"]
    assert said["ab"]["5-5-decided"]["pairs"] < 30


def test_of_a_family_the_one_figure_that_differs_is_found_and_the_others_seldom_called_different(
    power: ModuleType,
) -> None:
    """That Holm's method holds for a family was said, and every case had one primary figure."""
    name = "5-2-10-family"
    case = power.CASES[name]
    assert case.equal == 3
    # What each verb judges: four figures, the different one first, at the levels that Holm's method leaves them.
    one = power.session(case, 0)
    for verb in power.VERBS:
        family = [one.said[verb], *one.equal[verb]]
        assert len(family) == 4 and one.said[verb].verdict.value == "better"
        assert min(said.level for said in family) == pytest.approx(0.05 / 4)
        assert all(0.05 / 4 <= said.level <= 0.05 for said in family)
        # Figures of their own: none varies as another does.
        assert len({said.ratio for said in family}) == 4
    result = power.simulate([name], 100 if FULL else 40)
    assert power.missed(result) == []
    assert result.verbs["ab"] == result.verbs["report"] == result.verbs["compare"]
    said = result.verbs["ab"][name]
    assert said["power"] > 0.8 and said["false_different"] <= 0.15 and said["wrong_way"] == 0
    # Shown beside the power is the t test of that figure; of the others there is none.
    row = power.table(result).splitlines()[-1]
    assert row.count("(") == 1 and f"| {power.share(said['false_different'])} |" in row
    worse = {name: said | {"false_different": 0.3}}
    (missed,) = power.missed(attrs.evolve(result, verbs=result.verbs | {"ab": worse}))
    assert missed.startswith(f"ab {name}: called different")


def test_each_bar_can_be_missed(power: ModuleType) -> None:
    kept = power.read(power.KEPT)
    assert power.missed(kept) == []
    for verb, name, figure, value in (
        ("ab", "5-2-10", "coverage", 0.9),
        ("ab", "5-2-6", "coverage", 0.99),
        ("ab", "0-2-10", "false_different", 0.07),
        ("ab", "3-2-16", "power", 0.9),
        ("ab", "5-2-10-outliers", "power", 0.6),
        ("report", "0-10-1-8-30", "false_different", 0.22),
        ("report", "0-20-1-7-40", "coverage", 0.9),
        ("compare", "3-2-unpaired", "power", 0.9),
        ("compare", "5-3-1-unpaired-outliers", "power", 0.6),
    ):
        cases = kept.verbs[verb] | {name: kept.verbs[verb][name] | {figure: value}}
        (said,) = power.missed(attrs.evolve(kept, verbs=kept.verbs | {verb: cases}))
        assert said.startswith(f"{verb} {name}: ")


def test_a_kept_result_that_was_edited_is_refused(power: ModuleType, tmp_path: Path) -> None:
    edited = tmp_path / "power.json"
    edited.write_text(power.KEPT.read_text().replace('"power": 0.9', '"power": 0.95', 1))
    with pytest.raises(ValueError, match="edited by hand"):
        power.read(edited)


def test_each_case_of_the_file_has_each_figure_or_says_that_it_has_none(power: ModuleType, tmp_path: Path) -> None:
    """A case with an effect had no `false_different`, one without no `power`: whoever read them got a KeyError."""
    (tmp_path / "power.json").write_text(
        power.as_json(power.simulate(["5-2-6", "0-2-10", "5-5-decided", "5-2-10-family"], 2))
    )
    for path in (power.KEPT, tmp_path / "power.json"):
        kept = json.loads(path.read_text())
        for verb in power.VERBS:
            for name, said in kept[verb].items():
                case = power.CASES[name]
                of_effect, of_none = case.effect > 0, case.effect == 0 or case.equal > 0
                assert (said["power"] is not None) == (said["wrong_way"] is not None) == of_effect, (verb, name)
                assert (said["false_different"] is not None) == of_none, (verb, name)
                assert said["coverage"] is not None and "textbook" in said
        assert power.as_json(power.read(path)) == path.read_text()


def test_documentation_has_the_table_of_the_kept_result(power: ModuleType) -> None:
    text = power.PAGE.read_text()
    assert power.with_table(text, power.read(power.KEPT)) == text, "tests/bench/power.py --document makes it anew"
    assert power.with_table(text.replace("| 5 % effect", "| 6 % effect"), power.read(power.KEPT)) == text
