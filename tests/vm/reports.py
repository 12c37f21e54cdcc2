# SPDX-License-Identifier: GPL-2.0-or-later
"""Finds what a kernel's log and its sanitizers complain of, and whom each report names."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_BEGINS = re.compile(
    r"BUG: |BUG \S+ \(|WARNING: |UBSAN: |INFO: (task|rcu|possible|trying)|INVALID|kernel BUG at|unreferenced object|"
    r"Oops|ODEBUG: |general protection fault|list_(add|del) corruption|\[ cut here \]|"
    r"debugfs: .*fabstat.*already present"
)
# What may stand below a report's first lines and would begin one elsewhere.
_SECOND = re.compile(r"\[ cut here \]|WARNING: CPU|kernel BUG at|Oops|general protection fault")
_FIRST_LINES = 6
# A blank line ends none: KASAN has one above its call trace, and lockdep several.
_ENDS = re.compile(r"={20}|---\[ end trace")
_STAMP = re.compile(r"^\[ *\d+\.\d+\](\[ *[TC]\d+\])? ?")
# Lines that name the module whatever the report is about: its own messages, the list of what is loaded, and what a
# worker of the kernel's has to do, whose functions stand in a backtrace where they are concerned.
_NAMES_NOBODY = re.compile(r"^(fabstat: |Modules linked in:|Workqueue: )")
# Where the module was when it was unloaded (run-bats), and a place in a backtrace that has no name any more.
_PLACE = re.compile(r"^fabstat: was at 0x([0-9a-f]+), (\d+) bytes$", re.MULTILINE)
_NAMELESS = re.compile(r"^ +0x([0-9a-f]+)$", re.MULTILINE)

# Reports that name no function of fabstat's and decide nothing, each with its reason.
KNOWN = (
    # Linux has more data races of its own than can be listed.
    re.compile(r"BUG: KCSAN: "),
    # LIO takes tpg_state_lock with interrupts' halves on, and holds it below session_lock, which the timer of a session
    # that lost its connection takes in one (iscsit_start_time2retain_handler, iscsit_handle_time2retain_timeout; 6.12).
    re.compile(
        r"^WARNING: possible irq lock inversion dependency detected\n(?=.*&se_tpg->session_lock.* at: "
        r"iscsit_handle_time2retain_timeout)(?=.*&sess->conn_lock --> &tpg->tpg_state_lock)",
        re.DOTALL,
    ),
)

# Reports that decide nothing though fabstat is in a backtrace: the first line says what raced, and fabstat only asked.
ASKED = (
    # Whoever reads the clock looks again where it was being written (a latch); KCSAN knows that from Linux 6.13 on.
    re.compile(r"^BUG: KCSAN: data-race in ktime_get_mono_fast_ns / timekeeping_update$", re.MULTILINE),
    # Whoever sleeps for microseconds asks without a lock whether its timer has woken it (hrtimer_sleeper.task).
    re.compile(r"^BUG: KCSAN: data-race in hrtimer_wakeup / schedule_hrtimeout_range_clock$", re.MULTILINE),
)


@dataclass(frozen=True)
class Reports:
    """The reports in a log: those that name fabstat, the others, and those of the others that are KNOWN."""

    ours: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)


def reports_in(text: str) -> Reports:
    """Return the reports in a kernel log with kmemleak's behind it."""
    places = [range(int(at, 16), int(at, 16) + int(size)) for at, size in _PLACE.findall(text)]
    lines = [_STAMP.sub("", line) for line in text.splitlines()]
    found = Reports()
    number = 0
    while number < len(lines):
        if not _BEGINS.search(lines[number]):
            number += 1
            continue
        end = _end_of(lines, number)
        report = "\n".join(lines[number:end])
        if any(asked.match(report) for asked in ASKED):
            found.known.append(report)
        elif _is_ours(report, places):
            found.ours.append(report)
        elif any(known.search(report) for known in KNOWN):
            found.known.append(report)
        else:
            found.others.append(report)
        number = end
    return found


def _end_of(lines: Sequence[str], begin: int) -> int:
    end = begin + 1
    while end < len(lines) and not _ENDS.search(lines[end]):
        goes_on = "[ cut here ]" in lines[end - 1] or (end - begin <= _FIRST_LINES and _SECOND.search(lines[end]))
        if _BEGINS.search(lines[end]) and not goes_on:
            break
        end += 1
    return end


def _is_ours(report: str, places: Sequence[range]) -> bool:
    named = any("fabstat" in line for line in report.splitlines() if not _NAMES_NOBODY.search(line))
    return named or any(int(address, 16) in place for address in _NAMELESS.findall(report) for place in places)
