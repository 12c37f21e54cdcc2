# SPDX-License-Identifier: GPL-2.0-or-later
"""An image with more than its suite begins with the suite's own, and gets what that lacks."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from fabtune.lab import apt, cache, image
from fabtune.lab.recipe import Recipe, recipe_for
from fabtune.progress import Progress


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path | None]]:
    """What was installed, and onto which root, in a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found: list[tuple[str, Path | None]] = []

    def install(recipe: Recipe, root: Path, base: Path | None) -> None:
        root.mkdir()
        found.append((recipe.digest, base))

    monkeypatch.setattr(image, "install_root", install)
    monkeypatch.setattr(image, "require_space", lambda *_: None)
    monkeypatch.setattr(image, "_compile_library", lambda _: None)
    monkeypatch.setattr(image, "_strip_kernel_modules", lambda _: "6.0-test")
    monkeypatch.setattr(image, "squash", lambda *_: None)
    return found


def test_the_suite_s_own_image_is_built_first_and_once(installed: list[tuple[str, Path | None]]) -> None:
    names = [name for name, _ in image.expected_steps("trixie+tgt")]
    assert [name.split()[-2:] for name in names if "root" in name] == [["trixie", "root"], ["trixie+tgt", "root"]]
    for suite in ("trixie+tgt", "trixie+ops", "trixie"):
        image.build_image(suite, Progress(quiet=True))
    plain = cache.cache_dir() / f"trixie-{recipe_for('trixie').digest}" / "root"
    wanted = [("trixie", None), ("trixie+tgt", plain), ("trixie+ops", plain)]
    assert installed == [(recipe_for(suite).digest, base) for suite, base in wanted]


def test_only_what_it_lacks_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a suite's root has is not brought up to date on the way: another kernel would come beside the first."""
    asked: list[list[str]] = []

    def run(command: Sequence[str | Path], **_: object) -> str:
        asked.append([str(word) for word in command])
        return ""

    monkeypatch.setattr(image, "run", run)
    monkeypatch.setattr(image, "require", lambda program, _: program)
    monkeypatch.setattr(apt, "host_archive", lambda: apt.AptCache("http://archive.invalid", Path("/key"), ()))
    image.install_root(recipe_for("trixie+tgt"), tmp_path / "more", tmp_path / "plain")
    image.install_root(recipe_for("trixie"), tmp_path / "plain")
    more, plain = asked
    assert {"--variant=custom", "--include=tgt", f"LAB_BASE={tmp_path / 'plain'}"} <= set(more)
    assert "--variant=minbase" in plain and not [word for word in plain if word.startswith("--setup-hook")]
