# SPDX-License-Identifier: GPL-2.0-or-later
"""Who builds into the lab's cache or runs guests from it keeps it from being deleted, and is named to who waits."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.lab import cache, image, left, vm
from fabtune.progress import Progress


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with an image in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (cache.cache_dir() / "sid-0/root").mkdir(parents=True)
    return cache.cache_dir()


def test_clean_deletes_nothing_under_a_build(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The half of a root went while the other half was installed."""
    codes = []

    def install(_: object, root: Path, base: Path | None) -> None:
        assert base is None
        codes.append(main(["lab", "clean"]))
        assert root.parent.exists() and (lab / "sid-0").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(image, "install_root", install)
    monkeypatch.setattr(image, "require_space", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        image.build_image("trixie", Progress(quiet=True))
    assert codes == [ExitCode.FAILED]
    assert f"in use by process {os.getpid()}" in capsys.readouterr().err
    assert main(["lab", "clean"]) == ExitCode.DONE
    assert [path.name for path in lab.iterdir() if path.suffix != ".lock"] == []


def test_clean_deletes_nothing_under_a_guest(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*_: object) -> None:
        assert main(["lab", "clean"]) == ExitCode.FAILED
        raise KeyboardInterrupt

    monkeypatch.setattr(vm, "start", start)
    with pytest.raises(KeyboardInterrupt):
        vm.run_guest(vm.Machine(image.Image(lab / "sid-0", "sid")), tmp_path / "job", tmp_path / "out")
    assert "nothing was deleted" in capsys.readouterr().err
    assert (lab / "sid-0/root").exists() and not (tmp_path / "out" / left.LIST).exists()


def test_guests_and_builds_of_different_things_do_not_wait_for_each_other(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with cache.using_cache(), cache.locked("image-one"), cache.locked("image-two"):
        pass
    assert capsys.readouterr().err == ""


def test_who_waits_for_another_build_is_told(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Minutes went by without a word."""
    monkeypatch.setattr(cache, "_SAID_AFTER_S", 0.0)
    told, over = threading.Event(), threading.Event()

    def second() -> None:
        with cache.locked("image-trixie"):
            over.set()

    def say(text: str) -> None:
        assert text == f"waiting for another build of image-trixie (process {os.getpid()}) ..."
        told.set()

    monkeypatch.setattr(cache, "Progress", lambda: SimpleNamespace(say=say))
    with cache.locked("image-trixie"):
        waiting = threading.Thread(target=second)
        waiting.start()
        assert told.wait(10) and not over.is_set()
    waiting.join(10)
    assert over.is_set()


def test_a_build_that_waits_for_clean_says_so(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_SAID_AFTER_S", 0.0)
    said: list[str] = []
    monkeypatch.setattr(cache, "Progress", lambda: SimpleNamespace(say=said.append))
    with cache.whole_cache():
        waiting = threading.Thread(target=lambda: cache.using_cache().__enter__())
        waiting.start()
        while not said:
            waiting.join(0.01)
    waiting.join(10)
    assert said == [f"waiting for `fabtune lab clean` (process {os.getpid()}) ..."]
