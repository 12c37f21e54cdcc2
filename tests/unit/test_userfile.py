# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that a user names: whatever they are, the answer comes at once."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import InputError
from fabtune.experiment import definition
from fabtune.facts import saved_facts
from fabtune.measure import recordfile, resulttree, workload
from fabtune.stat.snapshot import load as load_snapshot

READERS: dict[str, Callable[[Path], object]] = {
    "profile": lambda path: load_profile(str(path), shipped_catalog()),
    "facts": saved_facts.load,
    "experiment": lambda path: definition.load(str(path)),
    "workload": lambda path: workload.load(str(path)),
    "record": recordfile.read,
    "index": resulttree.read_experiment,
    "snapshot": load_snapshot,
}


def sparse(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(10 << 30)
    return path


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def link(path: Path) -> Path:
    path.symlink_to("/dev/zero")
    return path


def directory(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("make", "words"),
    [(sparse, "10737418240 bytes; at most"), (fifo, "a FIFO; expected a regular file"),
     (link, "a character device"), (directory, "a directory")],
)  # fmt: skip
def test_what_is_no_plain_small_file_is_refused_unread(
    reader: str, make: Callable[[Path], Path], words: str, tmp_path: Path
) -> None:
    path = make(tmp_path / "odd.toml")
    started = time.process_time()
    with pytest.raises(InputError, match=words) as caught:
        READERS[reader](path)
    assert str(path) in str(caught.value)
    assert time.process_time() - started < 1


def profile(path: Path, include: list[str]) -> Path:
    path.write_text(f'summary = "x"\ninclude = {include!r}\n')
    return path


def test_an_include_bomb_ends_at_once_by_its_number_of_files(tmp_path: Path) -> None:
    for level in range(7):
        for place in range(12):
            profile(tmp_path / f"p{level}-{place}.toml", [f"p{level + 1}-{one}" for one in range(12) if level < 6])
    started = time.process_time()
    with pytest.raises(InputError, match="more than 16 files"):
        load_profile(str(tmp_path / "p0-0.toml"), shipped_catalog())
    assert time.process_time() - started < 2


def test_a_circle_of_includes_is_named(tmp_path: Path) -> None:
    profile(tmp_path / "one.toml", ["two"])
    profile(tmp_path / "two.toml", ["three"])
    (tmp_path / "three.toml").symlink_to(tmp_path / "one.toml")
    with pytest.raises(InputError, match="in a circle: one -> two -> one"):
        load_profile(str(tmp_path / "one.toml"), shipped_catalog())


def test_includes_too_deep_are_named(tmp_path: Path) -> None:
    for level in range(12):
        profile(tmp_path / f"p{level}.toml", [f"p{level + 1}"])
    with pytest.raises(InputError, match=r"included 9 profiles deep, allowed: 8: p0 -> p1"):
        load_profile(str(tmp_path / "p0.toml"), shipped_catalog())


def test_a_profile_included_twice_is_read_once(tmp_path: Path) -> None:
    profile(tmp_path / "top.toml", ["left", "right"])
    profile(tmp_path / "left.toml", ["wan"])
    profile(tmp_path / "right.toml", ["wan"])
    assert "tcp.rmem_max" in load_profile(str(tmp_path / "top.toml"), shipped_catalog()).entries["target"]


@pytest.mark.parametrize("text", ["a" + ".a" * 60000 + " = 1", "[x]\n" * 30000, "a = " + "[" * 60000])
def test_text_that_is_slow_to_parse_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "slow.toml"
    path.write_text(text)
    for reader in ("profile", "experiment", "workload"):
        # Of CPU time: a busy machine is not slow to parse.
        started = time.process_time()
        with pytest.raises(InputError, match="more than|not valid TOML"):
            READERS[reader](path)
        assert time.process_time() - started < 2


def test_an_integer_that_toml_does_not_have_is_refused(tmp_path: Path) -> None:
    # Python reads it, but cannot print it.
    path = tmp_path / "large.toml"
    path.write_text(f"[[x]]\ny = [1, 0x{'f' * 5000}]\n")
    for reader in ("profile", "experiment", "workload"):
        with pytest.raises(InputError, match=r"large.toml: not valid TOML: an integer of more than 64 bits"):
            READERS[reader](path)
