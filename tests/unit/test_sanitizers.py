# SPDX-License-Identifier: GPL-2.0-or-later
"""What the runs on debug kernels make of what kernels write."""

import sys
from pathlib import Path
from typing import Any

from fabtune.installed import PACKAGE

sys.path.insert(0, str(PACKAGE.parents[1] / "tests/vm"))

from sanitizers import KERNELS, digest_of, failed_tests, files_of, job_of, reports_in, summary_of, to_run  # noqa: E402

LOG = """\
[    1.000000] fabstat: loading out-of-tree module taints kernel.
[   10.000000] ==================================================================
[   10.000001] BUG: KASAN: slab-use-after-free in fabstat_probe_issue+0x10/0x20 [fabstat]
[   10.000002] Read of size 8 at addr ffff888 by task fio/12
[   10.000003] ==================================================================
[   11.000000][ T12] ==================================================================
[   11.000001][ T12] BUG: KCSAN: data-race in tick_nohz_stop_tick / tick_sched_timer
[   11.000002][ T12] ==================================================================
[   12.000000] UBSAN: array-index-out-of-bounds in fabstat/block.c:12:3
unreferenced object 0xffff888 (size 64):
  backtrace:
    fabstat_alloc+0x1/0x2 [fabstat]
"""


def test_reports_that_name_fabstat_are_told_from_the_kernels_own() -> None:
    ours, foreign = reports_in(LOG)
    assert [report.split()[0] for report in ours] == ["BUG:", "UBSAN:", "unreferenced"]
    assert len(foreign) == 1 and "tick_nohz" in foreign[0]


def test_a_quiet_log_has_no_report() -> None:
    assert reports_in("[    1.0] fabstat: timing with the cycle counter\n") == ([], [])


def result(digest: str, failed: int = 0, reports: int = 0) -> dict[str, Any]:
    return {"digest": digest, "failed": failed, "reports": ["BUG: "] * reports, "foreign": ["BUG: tick"]}


DIGESTS = {"kasan": {"a.bats": "1", "b.bats": "2"}, "rt": {"a.bats": "3", "b.bats": "4"}}


def test_sanitizers_go_on_where_they_stopped_and_measure_anew_what_is_of_other_code() -> None:
    kept = {
        "kasan": {"a.bats": result("1"), "b.bats": result("of a module before")},
        "rt": {"a.bats": result("3", failed=1)},
    }
    assert to_run(kept, DIGESTS) == [("kasan", "b.bats"), ("rt", "b.bats")]
    assert len(to_run({}, DIGESTS)) == 4


def test_the_summary_is_of_all_that_is_kept_and_says_what_is_missing() -> None:
    kept = {
        "kasan": {"a.bats": result("1", failed=2, reports=2), "b.bats": result("2", reports=1), "c.bats": result("9")},
        "rt": {"a.bats": result("of a module before", failed=1)},
    }  # fmt: skip
    assert summary_of(kept, DIGESTS) == {
        "kasan": {"suites": 2, "failed": 1, "reports": 3, "foreign": 2},
        "rt": {"suites": 0, "failed": 0, "reports": 0, "foreign": 0, "missing": ["a.bats", "b.bats"]},
    }


def test_a_result_hangs_on_all_that_its_suite_loads_starts_and_imports(tmp_path: Path) -> None:
    texts = {
        "run-bats": "#!/bin/bash", "fabstat_x.bats": "setup() {\n\tload fabstat\n}\nguest loops.py 3\n",
        "fabstat.bash": "", "loops.py": "import os\nfrom books import unbalanced\n", "books.py": "", "model.py": "",
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    suite = tmp_path / "fabstat_x.bats"
    assert {file.name for file in files_of(suite)} == set(texts) - {"model.py"}
    jobs = {kernel: job_of(suite, kernel, 2)[0] for kernel in KERNELS}
    before = {kernel: digest_of(kernel, job) for kernel, job in jobs.items()}
    assert len(set(before.values())) == len(KERNELS)
    assert digest_of("kasan", job_of(suite, "kasan", 8)[0]) != before["kasan"]
    (tmp_path / "books.py").write_text("# mended")
    assert digest_of("kasan", jobs["kasan"]) != before["kasan"]


def test_a_suite_says_which_guest_it_has_on_the_debug_kernels_and_runs_at_full_length_there(tmp_path: Path) -> None:
    suite = tmp_path / "fabstat_x.bats"
    suite.write_text("# guest: --suite trixie\n# guest-sanitizers: --suite trixie --clock virtual\n")
    job, length = job_of(suite, "kasan", 2)
    assert (job.options, length) == (("--suite", "trixie", "--clock", "virtual", "--kernel-suite", "kasan"), "full")
    suite.write_text("# guest: --suite trixie\n")
    job, length = job_of(suite, "kasan", 2)
    assert (job.options[2:6], length) == (("--clock", "real", "--smp", "2"), "short")


def test_a_report_is_not_a_failed_test_besides() -> None:
    complaint = "not ok - the kernel complained (see above and dmesg.txt)\n"
    assert failed_tests(1, f"1..1\nok 1 a\n{complaint}") == 0
    assert failed_tests(2, f"1..1\nnot ok 1 a\n{complaint}") == 1
    assert failed_tests(1, "1..1\nnot ok 1 a\n") == 1
