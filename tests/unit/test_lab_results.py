# SPDX-License-Identifier: GPL-2.0-or-later
"""What `lab run --out DIR` leaves is this job's: nothing of an earlier one's, and all of what is somebody else's."""

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from fabtune.errors import FabtuneError
from fabtune.lab import left, vm
from fabtune.lab.image import Image


class Guest:
    """A guest that hands over what it is told to, and runs no longer than that takes."""

    def __init__(self, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._out = out
        self._left: dict[str, str] = {}
        self._targets: dict[str, str] = {}
        monkeypatch.setattr(vm, "start", self._start)

    def leaves(self, files: dict[str, str], links: dict[str, str] | None = None) -> vm.GuestOutcome:
        self._left, self._targets = files, links or {}
        return vm.run_guest(vm.Machine(Image(self._out, "trixie")), self._out / "job", self._out, on_output=print)

    def _start(self, *_: object) -> "subprocess.Popen[bytes]":
        with tarfile.open(self._out / "results.tar.gz", "w:gz") as archive:
            for name, target in self._targets.items():
                link = tarfile.TarInfo(f"./{name}")
                link.type, link.linkname = tarfile.SYMTYPE, target
                archive.addfile(link)
            for place in dict.fromkeys(str(up) for name in self._left for up in reversed(Path(name).parents)):
                directory = tarfile.TarInfo(f"./{place}")
                directory.type, directory.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(directory)
            for name, text in self._left.items():
                member = tarfile.TarInfo(f"./{name}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
        return subprocess.Popen(["true"])


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guest:
    (tmp_path / "out").mkdir()
    return Guest(tmp_path / "out", monkeypatch)


def _names(out: Path) -> set[str]:
    return {str(path.relative_to(out)) for path in out.rglob("*") if not path.name.startswith(".")}


def test_results_of_an_earlier_job_are_not_taken_for_this_ones(tmp_path: Path, guest: Guest) -> None:
    out = tmp_path / "out"
    (out / "tap.log").write_text("whose directory it is")
    (out / "kept").mkdir()
    (out / "kept/notes").write_text("by hand")
    one = {".exit-status": "0", "one.run.json.gz": "1", "deep/er/two": "2", "kept/three": "3"}
    assert guest.leaves(one).exit_status == 0
    assert {"one.run.json.gz", "deep/er/two", "kept/three"} <= _names(out)
    guest.leaves({".exit-status": "0", "four": "4"})
    assert _names(out) == {"tap.log", "kept", "kept/notes", "four"}
    # Nor do those of one that ended well stand beside the words of one that died.
    with pytest.raises(FabtuneError, match="without handing over its results"):
        guest.leaves({"half": "5"})
    assert "four" not in _names(out)
    guest.leaves({".exit-status": "3"})
    assert _names(out) == {"tap.log", "kept", "kept/notes"}


def test_what_a_guest_left_a_link_to_is_not_removed_through_it(tmp_path: Path, guest: Guest) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("not the lab's")
    guest.leaves({".exit-status": "0", "link/precious": "x", "here": "y"})
    # Somebody put a link in the place of a directory that the guest left.
    (out / "link/precious").unlink()
    (out / "link").rmdir()
    (out / "link").symlink_to(elsewhere)
    guest.leaves({".exit-status": "0"}, {"away": str(elsewhere)})
    assert (elsewhere / "precious").read_text() == "not the lab's"
    assert _names(out) == {"link", "away"}
    guest.leaves({".exit-status": "0"})
    assert (elsewhere / "precious").exists() and _names(out) == {"link"}


def test_a_list_of_what_was_left_that_names_other_places_removes_nothing_there(tmp_path: Path, guest: Guest) -> None:
    precious = tmp_path / "precious"
    precious.touch()
    guest.leaves({".exit-status": "0"})
    (tmp_path / "out" / left.LIST).write_text(f"../precious\n{precious}\n./../out/../precious\n.\n\n")
    guest.leaves({".exit-status": "0"})
    assert precious.exists()
