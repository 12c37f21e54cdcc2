# SPDX-License-Identifier: GPL-2.0-or-later
"""What the runs on debug kernels make of what kernels write."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from fabtune.installed import PACKAGE

sys.path.insert(0, str(PACKAGE.parents[1] / "tests/vm"))

import sanitizers_kept  # noqa: E402
from reports import Reports, reports_in  # noqa: E402
from run import counts_in  # noqa: E402
from sanitizers import (  # noqa: E402
    KERNELS,
    complaints_of,
    digest_of,
    digests_of,
    failed_tests,
    files_of,
    job_of,
    jobs_of,
    keep,
    summary_of,
    take_over,
    to_run,
)

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
    found = reports_in(LOG)
    assert [report.split()[0] for report in found.ours] == ["BUG:", "UBSAN:", "unreferenced"]
    assert not found.others and len(found.known) == 1 and "tick_nohz" in found.known[0]


def test_a_quiet_log_has_no_report() -> None:
    assert reports_in("[    1.0] fabstat: timing with the cycle counter\n") == Reports()


# What a guest with KASAN wrote when a use after free, a lost kzalloc and a bare rcu_dereference were planted in the
# module's start; without the lines that any trace has.  Where the module was is run-bats' word.
PLANTED = (Path(__file__).parent / "data/kasan-planted.dmesg").read_text()


def test_reports_of_planted_defects_are_whole_and_the_modules_own() -> None:
    found = reports_in(PLANTED)
    assert not found.others and not found.known
    assert ["Freed by task" in one for one in found.ours] == [False, True, False, False]
    words = ("suspicious RCU", "use-after-free", "list_del corruption", "unreferenced")
    assert all(word in one and "was at" not in one for word, one in zip(words, found.ours, strict=True))


def test_a_leak_that_is_found_after_the_unload_is_told_by_where_the_module_was() -> None:
    found = reports_in(PLANTED.replace("was at 0xffffffffa0090000", "was at 0xffffffffb0090000"))
    assert len(found.ours) == 3 and [one.split()[0] for one in found.others] == ["unreferenced"]


@pytest.mark.parametrize(
    "report",
    [
        # Lockdep has an empty line before each lock.
        "WARNING: possible circular locking dependency detected\n\nbut task is already holding lock:\n"
        "ffffffffc0 (fabstat_lock){+.+.}-{4:4}, at: stats_start+0x10/0x20 [fabstat]",
        "INFO: trying to register non-static key.\n fabstat_make+0x1/0x2 [fabstat]",
        "BUG kmalloc-64 (Tainted: G           O): Object already free\n\n fabstat_free+0x1/0x2 [fabstat]",
        "list_add corruption. next->prev should be prev\n------------[ cut here ]------------\n"
        "kernel BUG at lib/list_debug.c:29!\nOops: invalid opcode: 0000 [#1]\n fabstat_add+0x1/0x2 [fabstat]",
        "BUG: unable to handle page fault for address: ffff\n#PF: supervisor read access\n#PF: error_code(0x0000)\n"
        "PGD 0 P4D 0\nOops: Oops: 0000 [#1]\n fabstat_add+0x1/0x2 [fabstat]",
        "debugfs: Directory 'fabstat' with parent '/' already present!",
    ],
)
def test_each_kind_of_report_is_one_from_its_first_line_to_its_trace(report: str) -> None:
    assert reports_in(f"[    1.0] quiet\n{report}\n---[ end trace 0000000000000000 ]---\n") == Reports(ours=[report])


@pytest.mark.parametrize(("who", "ours"), [("ktime_get_mono_fast_ns", 0), ("fabstat_monotonic_look", 1)])
def test_who_reads_the_kernel_s_clock_while_it_is_written_reads_it_again(who: str, ours: int) -> None:
    found = reports_in(
        f"BUG: KCSAN: data-race in {who} / timekeeping_update\n\nread to 0xffffffff821c8be8 of 8 bytes by task 157:\n"
        " ktime_get_mono_fast_ns+0xc3/0x170\n fabstat_monotonic_look+0x43/0x100 [fabstat]\n"
    )
    assert (len(found.ours), len(found.known), found.others) == (ours, 1 - ours, [])


@pytest.mark.parametrize(("who", "ours"), [("schedule_hrtimeout_range_clock", 0), ("fabstat_sum", 1)])
def test_a_sleep_that_its_own_timer_ends_meanwhile_is_the_kernel_s(who: str, ours: int) -> None:
    found = reports_in(
        f"BUG: KCSAN: data-race in hrtimer_wakeup / {who}\n\nwrite to 0xffff88800345ba80 of 8 bytes by interrupt:\n"
        " hrtimer_wakeup+0x24/0x50\n usleep_range_state+0x6b/0x80\n fabstat_sum+0x2d3/0x3c0 [fabstat]\n"
    )
    assert (len(found.ours), len(found.known), found.others) == (ours, 1 - ours, [])


@pytest.mark.parametrize(
    ("frame", "ours"), [("process_one_work+0x172/0x700", 0), ("fabstat_scan+0x9/0x10 [fabstat]", 1)]
)
def test_what_a_worker_of_the_kernel_has_to_do_is_not_who_raced(frame: str, ours: int) -> None:
    found = reports_in(
        f"BUG: KCSAN: data-race in {frame}\n\nrace at unknown origin, with read to 0xffff888000240fa0 of 8 bytes:\n"
        f" {frame}\n worker_thread+0x389/0x610\nWorkqueue: events fabstat_scan [fabstat] (mm_percpu_wq)\n"
    )
    assert (len(found.ours), len(found.known), found.others) == (ours, 1 - ours, [])


LOCKS_OF_LIO = """\
WARNING: possible irq lock inversion dependency detected
6.12.117-kasan #1 Tainted: G           O
iscsi_trx/524 just changed the state of lock:
ffff888016030150 (&se_tpg->session_lock){+.-.}-{3:3}, at: iscsit_handle_time2retain_timeout+0x3a/0x90 [iscsi_target_mod]
but this lock took another, SOFTIRQ-unsafe lock in the past:
 (&tpg->tpg_state_lock){+.+.}-{3:3}

Chain exists of:
                 &se_tpg->session_lock --> &sess->conn_lock --> &tpg->tpg_state_lock
"""


@pytest.mark.parametrize(
    ("was", "instead", "whose"),
    [
        ("", "", "known"),
        ("&sess->conn_lock -->", "&fabstat_lock -->", "ours"),
        ("iscsit_handle_time2retain_timeout", "core_tmr_abort_task", "others"),
    ],
)
def test_an_order_of_lio_s_own_locks_is_known_and_no_other(was: str, instead: str, whose: str) -> None:
    found = reports_in(f"[    1.0] quiet\n{LOCKS_OF_LIO.replace(was, instead)}")
    assert [len(getattr(found, name)) for name in ("known", "ours", "others")] == [
        int(whose == name) for name in ("known", "ours", "others")
    ]


def test_a_report_that_names_nobody_counts_unless_it_is_a_known_one() -> None:
    report = "WARNING: CPU: 0 PID: 1 at kernel/softirq.c:1\nModules linked in: fabstat(O)\nfabstat: timing"
    assert reports_in(report) == Reports(others=[report])


def result(digest: str, failed: int = 0, skipped: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"digest": digest, "failed": failed, "skipped": list(skipped)}


DIGESTS = {"kasan": {"a.bats": "1", "b.bats": "2"}, "rt": {"a.bats": "3", "b.bats": "4"}}
WROTE = {
    (kernel, suite): Reports(ours=["BUG: "] * (kernel == "kasan"), known=["BUG: tick"])
    for kernel, suites in DIGESTS.items()
    for suite in suites
}


def test_sanitizers_go_on_where_they_stopped_and_measure_anew_what_is_of_other_code() -> None:
    kept = {
        "kasan": {"a.bats": result("1"), "b.bats": result("of a module before")},
        "rt": {"a.bats": result("3", failed=1)},
    }
    assert to_run(kept, DIGESTS, WROTE) == [("kasan", "b.bats"), ("rt", "b.bats")]
    assert len(to_run({}, DIGESTS, WROTE)) == 4
    # Nor is a result whole whose kernel's words are not there.
    assert len(to_run(kept, DIGESTS, {("kasan", "a.bats"): Reports()})) == 3


def test_the_summary_is_of_all_that_is_kept_and_says_what_is_missing() -> None:
    kept = {
        "kasan": {"a.bats": result("1", failed=2), "b.bats": result("2"), "c.bats": result("9")},
        "rt": {"a.bats": result("of a module before", failed=1)},
    }
    assert summary_of(kept, DIGESTS, WROTE) == {
        "kasan": {"suites": 2, "failed": 1, "reports": 2, "foreign": 2},
        "rt": {"suites": 0, "failed": 0, "reports": 0, "foreign": 0, "missing": ["a.bats", "b.bats"]},
    }


def test_what_is_known_of_todays_code_is_kept_and_another_computer_goes_on_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sanitizers_kept, "FILE", tmp_path / "kept/suites.json")
    monkeypatch.setattr(sanitizers_kept, "PAGE", tmp_path / "page.md")
    (tmp_path / "page.md").write_text("before\n<!-- sanitizers -->\nold\n<!-- end of sanitizers -->\nbehind\n")
    assert take_over({}, to_run({}, DIGESTS, {}), DIGESTS) == {}
    found = {"passed": 3, "seconds": 70, "cpu_s": 60}
    measured = {
        "kasan": {"a.bats": result("1", failed=1, skipped=("an hour",)) | found, "b.bats": result("of before") | found},
        "rt": {"b.bats": result("4") | found},
    }
    wrote = {**WROTE, ("rt", "b.bats"): Reports(known=["BUG: KCSAN: tick\n a line", "BUG: KCSAN: tock"])}
    keep(measured, DIGESTS, wrote)
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("before\n") and page.endswith("behind\n") and "old" not in page
    counts = re.findall(r"^\| (\w+) \| 1 of \d+ \| (.*) \|$", page, re.MULTILINE)
    assert counts == [("kasan", "3 | 1 | 1 | 1 | 1 | 1"), ("rt", "3 | 0 | 0 | 0 | 2 | 1")]
    # Elsewhere nothing is known; only what is of the same code is taken over.
    mine: dict[str, dict[str, dict[str, Any]]] = {}
    missing = to_run(mine, DIGESTS, {})
    taken = take_over(mine, missing, DIGESTS)
    assert set(taken) == {("kasan", "a.bats"), ("rt", "b.bats")}
    assert taken["rt", "b.bats"].known == ["BUG: KCSAN: tick", "BUG: KCSAN: tock"]
    assert mine["kasan"]["a.bats"] == measured["kasan"]["a.bats"]
    assert summary_of(mine, DIGESTS, taken)["kasan"] == summary_of(measured, DIGESTS, wrote)["kasan"]
    behind = {kernel: dict.fromkeys(suites, "of a module behind") for kernel, suites in DIGESTS.items()}
    assert take_over({}, missing, behind) == {}


def test_the_page_has_the_table_of_what_is_kept() -> None:
    page = sanitizers_kept.PAGE.read_text()
    today = digests_of(jobs_of())
    made = sanitizers_kept.with_table(page, sanitizers_kept.FILE, today)
    assert made == page, "tests/vm/sanitizers.py --keep makes it anew"


def test_the_table_counts_no_result_of_older_tests(tmp_path: Path) -> None:
    """Twelve of sixty were of tests that had changed since, and "15 of 15" stood there for each kernel."""
    file = tmp_path / "suites.json"
    one = {"passed": 3, "seconds": 70, "cpu_s": 60}
    kept = {
        "kasan": {"a.bats": result("1", failed=1) | one, "b.bats": result("of tests before") | one},
        "rt": {"a.bats": result("3") | one, "b.bats": result("of a module before") | one},
    }
    wrote = {**WROTE, ("rt", "b.bats"): Reports(ours=["BUG: "])}
    sanitizers_kept.write(file, kept, wrote, "0" * 64)
    shown = sanitizers_kept.table(file, DIGESTS)
    counts = re.findall(r"^\| (\w+) \| (\d+) of \d+ \| (\d+) \| .* \| (\d+) \|$", shown, re.MULTILINE)
    assert counts == [("kasan", "1", "3", "1"), ("rt", "1", "3", "1")]
    assert "Not counted" in shown and "`b.bats` (kasan, rt)" in shown and "a.bats" not in shown
    sanitizers_kept.write(file, {"kasan": {"a.bats": kept["kasan"]["a.bats"]}}, wrote, "0" * 64)
    shown = sanitizers_kept.table(file, DIGESTS)
    assert "Not counted" not in shown and "\n| rt | 0 of " in shown


def test_kept_results_that_were_edited_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "suites.json"
    one = result("1", failed=1) | {"passed": 3, "seconds": 70, "cpu_s": 60}
    sanitizers_kept.write(file, {"kasan": {"a.bats": one}}, WROTE, "0" * 64)
    file.write_text(file.read_text().replace('"failed": 1', '"failed": 0'))
    with pytest.raises(ValueError, match="edited by hand"):
        sanitizers_kept.read(file)


def test_the_summary_counts_reports_of_anybodys_and_names_what_was_skipped() -> None:
    kept = {"kasan": {"a.bats": result("1", skipped=("an hour",))}}
    wrote = {("kasan", "a.bats"): Reports(ours=["BUG: "], others=["WARNING: "], known=["BUG: tick"])}
    assert summary_of(kept, {"kasan": {"a.bats": "1"}}, wrote) == {
        "kasan": {"suites": 1, "failed": 0, "reports": 2, "foreign": 1, "skipped": ["a.bats: an hour"]}
    }


def test_what_a_kernel_wrote_is_read_anew_for_each_summary(tmp_path: Path) -> None:
    suite = tmp_path / "fabstat_x.bats"
    suite.write_text("# guest: --suite trixie\n")
    jobs = {"kasan": {"a.bats": job_of(suite, "kasan", 2)}}
    assert complaints_of(jobs, tmp_path) == {}
    directory = tmp_path / jobs["kasan"]["a.bats"][0].name
    directory.mkdir()
    (directory / "dmesg.txt").write_text(LOG)
    assert complaints_of(jobs, tmp_path) == {("kasan", "a.bats"): reports_in(LOG)}


def test_a_result_hangs_on_all_that_its_suite_loads_starts_and_imports(tmp_path: Path) -> None:
    texts = {
        "run-bats": "#!/bin/bash\npython3 reports.py\n", "reports.py": "",
        "fabstat_x.bats": "setup() {\n\tload fabstat\n}\nguest loops.py 3\n",
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
    # What counts as a report does not: logs are kept.
    (tmp_path / "reports.py").write_text("# another")
    assert {kernel: digest_of(kernel, job) for kernel, job in jobs.items()} == before
    (tmp_path / "books.py").write_text("# mended")
    assert digest_of("kasan", jobs["kasan"]) != before["kasan"]


def test_a_suite_says_which_guest_it_has_on_the_debug_kernels_and_runs_at_full_length_there(tmp_path: Path) -> None:
    suite = tmp_path / "fabstat_x.bats"
    suite.write_text(
        "# guest: --suite trixie\n# guest-sanitizers: --suite trixie --clock virtual\n"
        "# guest-sanitizers kasan kcsan: --suite trixie --clock real --smp 2\n"
    )
    job, length = job_of(suite, "rt", 2)
    assert (job.options[:6], length) == (("--suite", "trixie", "--clock", "virtual", "--kernel-suite", "rt"), "full")
    for kernel in ("kasan", "kcsan"):
        job, length = job_of(suite, kernel, 2)
        assert (job.options[2:8], length) == (("--clock", "real", "--smp", "2", "--kernel-suite", kernel), "full")
    suite.write_text("# guest: --suite trixie\n")
    job, length = job_of(suite, "kasan", 2)
    assert (job.options[2:6], length) == (("--clock", "real", "--smp", "2"), "short")


COMPLAINT = "not ok - the kernel complained (see above and dmesg.txt)\n"


@pytest.mark.parametrize(
    ("tap", "failed"),
    [
        (f"1..1\nok 1 a\n{COMPLAINT}", 0),
        (f"1..1\nnot ok 1 a\n{COMPLAINT}", 1),
        ("1..1\nnot ok 1 a\n", 1),
        # One was never reached.
        (f"1..3\nok 1 a\nok 2 b # skip no c\n{COMPLAINT}", 1),
    ],
)
def test_a_report_is_not_a_failed_test_besides_and_hides_none(tap: str, failed: int) -> None:
    assert failed_tests(counts_in(tap).failed, tap) == failed


def test_a_guest_of_kasan_goes_on_reporting_after_its_first_report(tmp_path: Path) -> None:
    suite = tmp_path / "fabstat_x.bats"
    suite.write_text("# guest: --suite trixie\n")
    assert job_of(suite, "kasan", 2)[0].options[-2:] == ("--append", "kasan_multi_shot")
    assert "kasan_multi_shot" not in job_of(suite, "rt", 2)[0].options
