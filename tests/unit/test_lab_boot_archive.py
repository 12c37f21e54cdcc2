# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest's first process is the one that this tree has, whatever an image was built with."""

import subprocess
from pathlib import Path

import pytest

from fabtune.lab import initramfs, vm
from fabtune.lab.image import Image


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> vm.Machine:
    """A guest of an image that another tree has built."""
    image = Image(tmp_path / "image", "trixie")
    (image.root / "usr/bin").mkdir(parents=True)
    (image.root / "usr/bin/busybox").write_text("busybox\n")
    (image.root / "modules").mkdir()
    (image.directory / "image.json").write_text('{"kernel_release": "6.0-test"}')
    (image.directory / "initramfs.cpio").write_text("another tree's")
    (image.directory / "root.squashfs").touch()
    (tmp_path / "guestfs").mkdir()
    (tmp_path / "guestfs/init").write_text("mount\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(initramfs, "GUEST_DIR", tmp_path / "guestfs")
    monkeypatch.setattr(initramfs, "run", _run)
    monkeypatch.setattr(vm, "launch", lambda *_, **__: None)
    monkeypatch.setattr(vm, "require", lambda program, _: program)
    (tmp_path / "job").write_bytes(b"the job")
    return vm.Machine(image)


def _run(command: list[str], *, what: str, stdin: str = "") -> str:
    if "--show-depends" in command:
        module = Path(command[2]) / "modules" / f"{command[-1]}.ko"
        module.write_text(f"code of {command[-1]}\n")
        return f"insmod {module} \n"
    return subprocess.run(command, input=stdin, text=True, check=True, stdout=subprocess.PIPE).stdout


def _given(machine: vm.Machine, place: Path) -> bytes:
    vm.start(machine, place / "job", [], place / "qemu.log")
    return (place / "initramfs.cpio").read_bytes()


def test_an_edited_first_process_is_the_one_that_boots(tmp_path: Path, machine: vm.Machine) -> None:
    """Until the recipe's packages changed, each guest went on with the first process of whoever built its image."""
    first = _given(machine, tmp_path)
    assert b"mount\n" in first and b"another tree's" not in first and first.endswith(b"the job")
    (tmp_path / "guestfs/init").write_text("mount more\n")
    assert b"mount more\n" in _given(machine, tmp_path)
    # Trees that take turns find their own, of the same bytes.
    (tmp_path / "guestfs/init").write_text("mount\n")
    (machine.image.root / "usr/bin/busybox").unlink()
    assert _given(machine, tmp_path) == first


def test_a_module_that_is_needed_now_is_there(
    tmp_path: Path, machine: vm.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert b"code of virtio_rng" not in _given(machine, tmp_path)
    monkeypatch.setattr(initramfs, "_BOOT_MODULES", (*initramfs._BOOT_MODULES, "virtio_rng"))
    assert b"code of virtio_rng" in _given(machine, tmp_path)


def test_an_archive_that_was_cut_short_is_not_kept(
    tmp_path: Path, machine: vm.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_short(_: Path, target: Path) -> None:
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(initramfs, "pack", cut_short)
        _given(machine, tmp_path)
    before = {path.name for path in machine.image.directory.iterdir()}
    assert before == {"image.json", "initramfs.cpio", "root", "root.squashfs"}
    assert b"mount\n" in _given(machine, tmp_path)
