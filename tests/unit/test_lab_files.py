# SPDX-License-Identifier: GPL-2.0-or-later
"""What `lab run --file` carries into a guest: each file by its name, and nothing that a guest cannot be given."""

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabtune.cli import lab
from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.installed import PACKAGE
from fabtune.lab import job
from fabtune.lab.image import Image
from fabtune.lab.vm import Machine


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the archive of the guest that did not start is unpacked; what it is started with is there as well."""
    unpacked = tmp_path / "guest"

    def run_guest(_: Machine, archive: Path, *__: Any, **___: Any) -> SimpleNamespace:
        unpacked.mkdir()
        subprocess.run(["cpio", "-idm", "--quiet", "-F", archive], cwd=unpacked, check=True)
        return SimpleNamespace(exit_status=0)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(job, "copy_package", lambda _, target: shutil.copytree(PACKAGE / "lab", target / "lab"))
    machine = Machine(Image(tmp_path, "trixie"), memory_mib=256)
    monkeypatch.setattr(lab, "_machine", lambda _: (machine, None))
    monkeypatch.setattr(lab, "run_guest", run_guest)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script").write_text("true\n")
    return unpacked


def test_files_go_into_the_guest_s_job_directory_by_their_names(guest: Path, tmp_path: Path) -> None:
    """A trace could be replayed on a device alone: nothing carried it to where an emulated path is."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there/load.bin").write_bytes(b"\0trace")
    # Of the guest's own names none is taken.
    (tmp_path / "run").write_text("not the script")
    (tmp_path / "link").symlink_to("there/load.bin")
    words = ["--file", "there/load.bin", "--file=run", "--file", str(tmp_path / "link")]
    assert main(["lab", "run", *words, "script", "--file", "nosuch"]) == ExitCode.DONE
    assert {one.name: one.read_bytes() for one in (guest / "job/files").iterdir()} == {
        "load.bin": b"\0trace", "run": b"not the script", "link": b"\0trace",
    }  # fmt: skip
    assert not (guest / "job/files/link").is_symlink()
    assert (guest / "job/run").read_text() == "true\n"
    # What stands behind the script is the script's.
    assert (guest / "job/arguments").read_bytes() == b"--file\0nosuch\0"


def test_a_guest_without_files_has_the_bytes_that_it_had(guest: Path) -> None:
    assert main(["lab", "run", "script"]) == ExitCode.DONE
    assert not (guest / "job/files").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nosuch"], "--file nosuch: no such file"),
        (["there"], "--file there: a directory; expected a regular file"),
        (["pipe"], "--file pipe: a FIFO; expected a regular file"),
        (["one", "one"], "--file one and --file one: both would be called 'one' in the guest"),
        (["one", "there/one"], "--file one and --file there/one: both would be called 'one' in the guest"),
        (["a\nb"], r"--file 'a\nb': expected a name of printable characters"),
        (["large"], "--file: 65 MiB in all, at most a quarter of the guest's memory of 256 MiB; give it more with"),
    ],
)
def test_what_a_guest_cannot_be_given_is_refused_before_an_image_is_made(
    words: list[str], says: str, guest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "there").mkdir()
    for name in ("one", "there/one", "a\nb", "large"):
        (tmp_path / name).write_text("x")
    os.truncate(tmp_path / "large", 65 << 20)
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(lab, "_machine", lambda _: pytest.fail("an image was made"))
    asked = [word for one in words for word in ("--file", one)]
    assert main(["lab", "run", "--memory-mib", "256", *asked, "script"]) == ExitCode.USAGE
    assert says in capsys.readouterr().err
    assert not guest.exists() and not (tmp_path / "cache").exists()
