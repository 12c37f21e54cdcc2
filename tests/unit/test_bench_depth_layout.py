# SPDX-License-Identifier: GPL-2.0-or-later
"""The model of both layouts of the depth (`make bench-depth-layout`): it compiles and counts, and its rows are told."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import depth_layout  # noqa: E402


def test_the_model_compiles_and_prints_each_layout_in_turn(tmp_path: Path) -> None:
    program = str(tmp_path / "depth_layout")
    subprocess.run(["gcc", *depth_layout.FLAGS, "-o", program, str(depth_layout.SOURCE)], check=True)
    ran = subprocess.run([program, "1", "80", "3"], check=True, capture_output=True, text=True)
    assert [line.split()[0] for line in ran.stdout.splitlines()] == 3 * ["none", "own", "shared"]
    assert all(float(line.split()[1]) > 0 for line in ran.stdout.splitlines())
    # Not so many CPUs, requests that fill no window.
    for words in (["4096", "80", "3"], ["1", "81", "3"], ["1"]):
        assert subprocess.run([program, *words], check=False).returncode == 2


def test_costs_are_each_run_s_medians_without_the_loop_s_own(capsys: pytest.CaptureFixture[str]) -> None:
    def text(shared: float) -> str:
        rounds = [(2.0, 10.0, shared + number) for number in (-1, 0, 900)]
        return "".join(f"none {bare}\nown {own}\nshared {both}\n" for bare, own, both in rounds)

    own, shared = depth_layout.measured([text(one) for one in (42.0, 44.0, 82.0)], 2)
    assert (own.cycles, own.least, own.most) == (8.0, 8.0, 8.0)
    assert (shared.cycles, shared.least, shared.most) == (42.0, 40.0, 80.0)
    depth_layout.show([own, shared])
    assert capsys.readouterr().out.splitlines()[1].split() == ["2", "8.0", "8.0..8.0", "42.0", "40.0..80.0", "5.2"]


def test_it_is_measured_on_the_powers_of_two_and_on_all_cpus() -> None:
    assert [depth_layout.counts(cpus) for cpus in (1, 2, 6, 64)] == [
        [1],
        [1, 2],
        [1, 2, 4, 6],
        [1, 2, 4, 8, 16, 32, 64],
    ]
