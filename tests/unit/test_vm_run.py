# SPDX-License-Identifier: GPL-2.0-or-later
"""Which guests tests/vm/run.py gives a file, in the short run and in the full one."""

import sys
from pathlib import Path

import pytest

from fabtune.installed import PACKAGE

VM = PACKAGE.parents[1] / "tests/vm"
sys.path.insert(0, str(VM))

from run import jobs_of, sharing  # noqa: E402

SEVERAL = """\
# guest: --suite trixie --clock virtual
# guest-full: --suite bookworm --clock virtual
# guest: --suite sid --clock virtual
"""
TRIXIE, BOOKWORM, SID = (("--suite", suite, "--clock", "virtual") for suite in ("trixie", "bookworm", "sid"))


def _file(directory: Path, name: str, text: str) -> Path:
    file = directory / "vm" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def test_the_short_run_has_one_guest_a_file_the_first(tmp_path: Path) -> None:
    file = _file(tmp_path, "one.bats", SEVERAL)
    assert [job.options for job in jobs_of(file, full=False, instead=None)] == [TRIXIE]
    assert [job.options for job in jobs_of(file, full=True, instead=None)] == [TRIXIE, BOOKWORM, SID]
    assert [job.options for job in jobs_of(file, full=False, instead="--clock real")] == [("--clock", "real")]


def test_a_file_of_the_full_run_alone_has_none_in_the_short_one(tmp_path: Path) -> None:
    file = _file(tmp_path, "long.bats", "# guest-full: --suite trixie --clock virtual\n")
    assert jobs_of(file, full=False, instead=None) == []
    with pytest.raises(SystemExit, match="no '# guest: ...' line"):
        jobs_of(_file(tmp_path, "none.bats", "# nothing\n"), full=False, instead=None)


def test_files_share_a_guest_where_they_say_so_and_want_the_same_one(tmp_path: Path) -> None:
    words = "# guest: --suite trixie --clock virtual\n# together: us\n"
    first, second = (_file(tmp_path, f"{name}.bats", words) for name in ("a", "b"))
    third = _file(tmp_path, "c.bats", words.replace("virtual", "real"))
    alone = _file(tmp_path, "d.bats", words.partition("# together")[0])
    jobs = [job for file in (first, second, third, alone) for job in jobs_of(file, full=False, instead=None)]
    assert [(job.file, job.beside) for job in sharing(jobs)] == [(first, (second,)), (third, ()), (alone, ())]


def test_the_short_run_needs_the_images_of_one_release_and_tgt_s() -> None:
    jobs = [job for file in sorted(VM.glob("*.bats")) for job in jobs_of(file, full=False, instead=None)]
    suites = {job.options[job.options.index("--suite") + 1] for job in jobs}
    assert suites == {"trixie", "trixie+tgt"}
