# SPDX-License-Identifier: GPL-2.0-or-later
"""What an interrupt leaves of the lab's own work is not taken for whole the next time, and is in nobody's way."""

import subprocess
from pathlib import Path

import pytest

from fabtune.lab import own_kernel


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
