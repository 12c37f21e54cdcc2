# SPDX-License-Identifier: GPL-2.0-or-later
"""What the runs on debug kernels and the model make of what kernels write."""

import sys

from fabtune.installed import PACKAGE

sys.path.insert(0, str(PACKAGE.parents[1] / "tests/vm"))

from model_guest import _CATEGORY, _COMPLETE, _ISSUE, _REQUEUE, _WRITE, Model  # noqa: E402
from sanitizers import reports_in  # noqa: E402

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


def test_the_model_counts_a_request_that_is_sent_back_and_one_that_comes_in_parts() -> None:
    model = Model()
    read, write = 0, _WRITE << _CATEGORY
    for event in (
        (_ISSUE | read, 100, 8, 4096, 0), (_REQUEUE | read, 200, 8, 0, 0), (_ISSUE | read, 300, 8, 4096, 0),
        (_COMPLETE | read, 450, 8, 4096, 0), (_ISSUE | write, 500, 64, 8192, 0), (_COMPLETE | write, 600, 64, 4096, 0),
        (_COMPLETE | write, 900, 64, 4096, 5), (_COMPLETE | read, 950, 800, 4096, 0),
    ):  # fmt: skip
        model.event(*event)
    reads, writes = model.ops["read"], model.ops["write"]
    assert (reads.issued, reads.sent_back, reads.completed, reads.times_ns) == (2, 1, 1, [150])
    assert (writes.issued, writes.completed, writes.bytes, writes.errors, writes.times_ns) == (1, 1, 8192, 1, [400])
    assert (model.depth, model.highest, model.requeued) == (0, 1, 1)
