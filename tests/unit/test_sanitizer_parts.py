# SPDX-License-Identifier: GPL-2.0-or-later
"""What is done very often is split over the debug kernels: nothing is lost, and what sees defects does the most."""

import re
import subprocess
import sys

import pytest

from fabtune.installed import PACKAGE
from fabtune.lab.own_kernel import wanted_options

VM = PACKAGE.parents[1] / "tests/vm"
sys.path.insert(0, str(VM))

from sanitizers import APPENDED, KERNELS, job_of  # noqa: E402

ENDURANCE = VM / "fabstat_endurance.bats"
# What is to be done in all, by the words of the suite.
WHOLE = {"loads": 1000, "deletions": 10000, "fail-overs": 200, "resets": 200}


def part(kernel: str, whole: int) -> int:
    """Return what `kernel` does of `whole`, by the suite's own function."""
    function = re.search(r"^part\(\) \{\n.*?^\}\n", ENDURANCE.read_text(), re.MULTILINE | re.DOTALL)
    assert function
    script = f"uname() {{ echo 6.12.1-{kernel}; }}\nLENGTH=full\n{function[0]}part {whole} 1"
    return int(subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True).stdout)


def options(kernel: str) -> set[str]:
    return {key.removeprefix("CONFIG_") for key, value in wanted_options(kernel).items() if value == "y"}


def test_the_suite_has_each_part() -> None:
    wholes = re.findall(r"\$\(part (\d+) \d+\)", ENDURANCE.read_text())
    assert set(map(int, wholes)) == set(WHOLE.values())


@pytest.mark.parametrize("whole", sorted(set(WHOLE.values())))
def test_the_parts_make_the_whole_and_locks_or_memory_are_watched_in_nine_tenths_of_it(whole: int) -> None:
    parts = {kernel: part(kernel, whole) for kernel in KERNELS}
    assert sum(parts.values()) == whole and min(parts.values()) > 0
    assert sum(done for kernel, done in parts.items() if options(kernel) & {"KASAN", "PROVE_LOCKING"}) >= 0.9 * whole
    # And in as much of it leaks are looked for.
    assert sum(done for kernel, done in parts.items() if "DEBUG_KMEMLEAK" in options(kernel)) >= 0.9 * whole


def test_memory_that_is_used_after_it_was_freed_is_seen_wherever_much_is_done() -> None:
    for kernel in set(KERNELS) - {"kcsan"}:
        assert "KASAN" in options(kernel) or "SLUB_DEBUG" in options(kernel) and "slub_debug" in APPENDED[kernel]


def test_two_cpus_at_once_where_their_races_are_seen_and_the_clock_of_one_where_most_is_done() -> None:
    cpus = {kernel: "--smp" in job_of(ENDURANCE, kernel, 2)[0].options for kernel in KERNELS}
    assert cpus == {"kasan": True, "kcsan": True, "rt": False, "scsi-builtin": False}
    assert all(job_of(ENDURANCE, kernel, 2)[1] == "full" for kernel in KERNELS)


def test_an_hour_of_failing_allocations_has_the_virtual_clock() -> None:
    job, length = job_of(VM / "fabstat_failslab.bats", "kasan", 2)
    assert "virtual" in job.options and length == "full" and "FAILSLAB" in options("kasan")


def test_the_lifetime_of_a_targets_commands_is_tried_at_full_length_on_every_debug_kernel() -> None:
    assert {job_of(VM / "fabstat_target.bats", kernel, 2)[1] for kernel in KERNELS} == {"full"}
