# SPDX-License-Identifier: GPL-2.0-or-later
"""tests/bench/figures.py for tests, with a copy of the pages, and with results that may be kept."""

import importlib.util
import shutil
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import attrs
import pytest

from fabtune.experiment import batch, definition, present, results
from fabtune.model.results import Point
from fabtune.model.runrecord import Value

TOP = Path(__file__).resolve().parents[2]


@cache
def load() -> ModuleType:
    """Return tests/bench/figures.py."""
    spec = importlib.util.spec_from_file_location("bench_figures", TOP / "tests/bench/figures.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def copied(top: Path) -> Path:
    """Put the pages, pictures and results of this tree below `top` and return it."""
    for name in (
        "README.md",
        load().kept_pictures.STYLE,
        *(str(path.relative_to(TOP)) for path in TOP.glob("Documentation/**/*")),
    ):
        if (TOP / name).is_file():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TOP / name, top / name)
    return top


def check(top: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run figures.py on the pages below `top`, with --check unless `words` say otherwise; return how it ends."""
    monkeypatch.setattr(sys, "argv", ["figures.py", "--top", str(top), *(words or ("--check",))])
    code: int = load().main()
    return code


def measured(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return results of two profiles with three seeds each, from a lab with an image, whatever this machine has."""
    known = present.origin_now
    monkeypatch.setattr(batch, "origin_now", lambda *asked: attrs.evolve(known(*asked), packages="p" * 64, kernel="6"))
    (place / "exp.toml").write_text('seeds = 3\n[factors]\nprofile = ["untouched", "wan"]\n')
    wanted = definition.load(str(place / "exp.toml"))
    runs = batch.runs_of(wanted, wanted.combinations(), place / "exp")
    for run in runs:
        rate = 20.0 if run.settings.profile == "wan" else 10.0
        told: dict[str, Value | None] = {"profile": run.settings.profile, "op": "read", "seed": run.settings.seed}
        run.keep([Point(told | {"mb_per_s": rate + run.settings.seed / 10, "bound_mb_per_s": 119.5})])
    results.keep_index(wanted, place / "exp", "fabtune run exp")
    results.keep_points([one.published for one in batch.summary_of(runs)], place / "exp")
    return place / "exp"
