# SPDX-License-Identifier: GPL-2.0-or-later
"""Directories may have any name: in QEMU's words, where a comma begins the next option, it is doubled."""

import os
from pathlib import Path

import pytest

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.lab import qemu_words, uml, vm
from fabtune.lab.image import Image


def test_a_comma_in_a_path_begins_no_option_of_qemus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guests did not start: QEMU looked for an option of the name that stood behind the comma."""
    image = Image(tmp_path / "cache,with", "trixie")
    (image.directory / "root/boot").mkdir(parents=True)
    (image.directory / "root.squashfs").touch()
    (image.directory / "image.json").write_text('{"kernel_release": "6.0-test"}')
    asked: list[str] = []

    def start(machine: vm.Machine, _job: Path, ttys: list[str], _log: Path) -> None:
        asked.extend(vm.qemu_command(machine, ttys))
        raise KeyboardInterrupt

    monkeypatch.setattr(vm, "start", start)
    with pytest.raises(KeyboardInterrupt):
        vm.run_guest(vm.Machine(image), tmp_path / "job", tmp_path / "rtt=5,loss=1")
    words = [word for word in asked if str(tmp_path) in word and "," in word]
    # A kernel's path is a word of its own.
    options = [word for word in words if word.startswith(("file,", "memory-backend-file,"))]
    assert len(options) == 4
    for word in options:
        assert all("=" in part for part in word.replace(",,", "").split(",")[1:])
    assert f"file,path={tmp_path}/rtt=5,,loss=1/console.log,id=tty0" in options
    assert f"mem-path={tmp_path}/cache,,with/root.squashfs," in next(one for one in options if "mem-path" in one)


def test_user_mode_linux_opens_the_file_that_the_line_names(tmp_path: Path) -> None:
    path = tmp_path / "a,b,,c"
    opened: list[int] = []
    uml._channel(qemu_words.file_line(path), opened)
    os.close(*opened)
    assert path.exists()


@pytest.mark.parametrize("name", ["a,b", "a:b", "a b"])
def test_a_state_that_user_mode_linux_would_read_as_two_words_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / name
    assert main(["lab", "run", "--accel", "uml", "--state", str(state), "/bin/true"]) == ExitCode.USAGE
    assert f"--state {state}: the name of the file" in capsys.readouterr().err
    assert not state.exists()
