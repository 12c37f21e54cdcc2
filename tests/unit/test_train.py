# SPDX-License-Identifier: GPL-2.0-or-later
"""The path's rate from reads of two sizes, and what stands in its way."""

import itertools
import os
from pathlib import Path

import hosttree
import pytest

from fabtune.errors import FabtuneError, InputError
from fabtune.facts import train
from fabtune.facts.collect import collect
from fabtune.tune import path_choice as tune_path


def test_two_sizes_tell_the_rate_whatever_the_round_trip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.touch()
    # Two of three reads of either size wait behind other traffic.
    queueing_s = itertools.cycle([0.003, 0.0, 0.007])
    monkeypatch.setattr(train, "_read_s", lambda _, memory: 0.05 + len(memory) / 100e6 + next(queueing_s))
    monkeypatch.setattr(os, "open", lambda *_: 99)
    monkeypatch.setattr(os, "close", lambda _: None)
    assert train.rate_bytes_per_s(disk) == pytest.approx(100e6)


def test_a_disk_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FabtuneError, match="gone"):
        train.rate_bytes_per_s(tmp_path / "gone")


def test_without_a_session_a_rate_must_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosttree.enter(hosttree.make(tmp_path, 0, 1), monkeypatch)
    with pytest.raises(InputError, match="--rate 1gbit"):
        tune_path.measure_rate_bit_per_s(collect([]))
