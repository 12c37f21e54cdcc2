# SPDX-License-Identifier: GPL-2.0-or-later
"""What an interrupt leaves of the lab's own work is not taken for whole the next time, and is in nobody's way."""

import os
import subprocess
from pathlib import Path

import pytest

from fabtune.lab import initramfs, own_kernel, uml, vm
from fabtune.lab.image import Image


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with a kernel's source, whose programs run on it from outside."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "made/linux-source-6.12"
    source.mkdir(parents=True)
    (source / "Makefile").write_text("all:\n")
    (source / "Kbuild").write_text("obj-y := kernel/\n")
    place = tmp_path / "root/usr/src"
    place.mkdir(parents=True)
    subprocess.run(["tar", "-cJf", place / "linux-source-6.12.tar.xz", "-C", source.parent, source.name], check=True)
    return tmp_path / "root"


def _run_outside(root: Path, command: tuple[str, ...]) -> None:
    words = [f"{root}{word}" if word.startswith("/usr/src") else word for word in command]
    subprocess.run(words, check=True)


def test_a_kernels_source_that_was_unpacked_in_part_is_unpacked_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Makefile was taken for all of it: every kernel built later lacked files."""

    def interrupted(root: Path, _what: str, *command: str) -> None:
        _run_outside(root, command)
        if command[0] == "tar":
            for half in (root / "usr/src").glob("**/Kbuild"):
                half.unlink()
            raise KeyboardInterrupt

    monkeypatch.setattr(own_kernel, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        own_kernel._unpacked(root)
    monkeypatch.setattr(own_kernel, "step", lambda root, _what, *command: _run_outside(root, command))
    source = own_kernel._unpacked(root)
    assert source == Path("/usr/src/linux-source-6.12")
    here = root / source.relative_to("/")
    assert sorted(path.name for path in here.iterdir()) == ["Kbuild", "Makefile"]
    assert sorted(path.name for path in here.parent.iterdir()) == [here.name, f"{here.name}.tar.xz"]
    # Once there it is used.
    monkeypatch.setattr(own_kernel, "step", lambda *_: pytest.fail("unpacked once more"))
    assert own_kernel._unpacked(root) == source


def test_an_interrupted_start_of_a_uml_guest_leaves_nothing_in_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run with the same --out failed: the directory that its archive is made from was there already."""
    busybox = tmp_path / "image/root/usr/bin/busybox"
    busybox.parent.mkdir(parents=True)
    busybox.touch()
    tools = Image(tmp_path / "image", "trixie")
    job, out = tmp_path / "job.cpio", tmp_path / "out"
    job.write_bytes(b"")
    machine = vm.Machine(tools, clock="real", accelerator="uml", uml=(tmp_path, tools))

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for late in (initramfs, uml):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(late, "pack" if late is initramfs else "launch", interrupted)
            vm.run_guest(machine, job, out, on_output=print)
        assert {path.name for path in out.iterdir()} <= {"console.log", "output.log", "results.tar.gz", "qemu.log"}
