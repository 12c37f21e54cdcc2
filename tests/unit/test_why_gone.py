# SPDX-License-Identifier: GPL-2.0-or-later
"""A disk that goes away while it is looked at: what limited it cannot be told, and its requests were not stuck."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from kept_looks import kept
from test_why_hung import _stuck
from tuned_looks import gone_after

from fabtune.autotune import view
from fabtune.cli import why
from fabtune.cli.main import main
from fabtune.errors import CannotTellError
from fabtune.host import blocks
from fabtune.measure.disk_look import DiskLook
from fabtune.model.observation import DiskSeen, Observation

_STAT = "{done} 0 {sectors} 9 0 0 0 0 32 9 9 0 0 0 0 0 0"


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Observation], None]:
    """Return what lets every look see this one disk."""

    def put(seen: Observation) -> None:
        class Looked:
            def __init__(self, *_: object) -> None:
                pass

            def over(self, *_: object, **__: object) -> list[Observation]:
                return [seen]

        monkeypatch.setattr(why, "Look", Looked)
        monkeypatch.setattr(view, "Look", Looked)
        monkeypatch.setattr(view, "with_known_rate", lambda found, _: found)

    return put


def went_away(*, waiting: int = 32) -> Observation:
    found = gone_after(kept("wan-read", 7), 2.0)
    samples = tuple(attrs.evolve(one, in_flight=waiting) for one in found.disk.samples)
    return attrs.evolve(found, disk=attrs.evolve(found.disk, samples=samples))


@pytest.mark.parametrize("waiting", [32, 0])
def test_why_says_that_it_went_away(
    looked: Callable[[Observation], None], capsys: pytest.CaptureFixture[str], waiting: int
) -> None:
    """It was said to be stuck, or idle: its counters could not be read at the end, and looked like none."""
    looked(went_away(waiting=waiting))
    assert main(["why", "sd7"]) == 5
    said = capsys.readouterr().out
    assert "sd7: went away while it was looked at: cannot tell what limited it" in " ".join(said.split())
    assert not any(word in said for word in ("idle", "came back", "blocked", "limited to"))
    assert main(["why", "sd7", "--json"]) == 5
    (told,) = json.loads(capsys.readouterr().out)["devices"]
    assert (told["gone"], told["idle"], told["ways"]) == (True, False, [])


def test_tune_says_so_as_well(looked: Callable[[Observation], None]) -> None:
    looked(went_away())
    with pytest.raises(CannotTellError, match=r"^sd7: went away while it was looked at"):
        view.see((), None, "", 4.0, None)


def test_tune_of_writes_that_are_stuck_says_what_holds_them(looked: Callable[[Observation], None]) -> None:
    """It ended with a Python traceback: of two directions that move nothing it took the one that has no request."""
    looked(_stuck(kept("wan-read", 7), {"write": 32}))
    assert view.see((), None, "", 4.0, None).main.way == "write"


def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Path], None]) -> DiskSeen:
    """Look at a disk with requests under way to which that happens meanwhile."""
    place = tmp_path / "block/sda"
    place.mkdir(parents=True)
    (place / "stat").write_text(_STAT.format(done=90, sectors=9000))
    monkeypatch.setattr(blocks, "directory", lambda name: tmp_path / "block" / name)
    found = DiskLook("sda")
    found.begin()
    found.sample(0.0)
    meanwhile(place)
    found.sample(0.1)
    found.stop()
    return found.seen({}, 0.2)


def test_a_look_at_a_disk_whose_counters_are_gone_at_its_end_tells_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert look(tmp_path, monkeypatch, shutil.rmtree).went_away


def test_what_has_come_in_its_place_is_not_that_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters of another one that got its name were less: a rate below zero."""

    def replace(place: Path) -> None:
        (place / "stat").write_text(_STAT.format(done=3, sectors=24))

    found = look(tmp_path, monkeypatch, replace)
    assert found.went_away


def test_one_that_stays_did_not_go_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not look(tmp_path, monkeypatch, lambda _: None).went_away
