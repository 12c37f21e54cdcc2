# SPDX-License-Identifier: GPL-2.0-or-later
"""What SCSI drivers and targets answered, counted by the kernel itself, in the guest: histograms of its tracepoints."""

import re
from collections import Counter
from pathlib import Path

from model_stacks import run

_EVENTS = Path("/sys/kernel/tracing/events/scsi")
# A histogram has three keys at most; each host here has one target.
_DEVICE = "host_no,lun"
# Where each answer is told, and the field that tells it.  What went well is not counted.
_HISTOGRAMS = {
    "scsi_dispatch_cmd_error": (f"{_DEVICE},rtn", ""),
    "scsi_dispatch_cmd_done": (f"{_DEVICE},result", " if result != 0"),
    "scsi_dispatch_cmd_timeout": (_DEVICE, ""), "scsi_eh_wakeup": ("host_no", ""),
}  # fmt: skip
_BY_DRIVER = {0x1055: "host_busy", 0x1056: "device_busy", 0x1057: "eh_retry", 0x1058: "target_busy"}
_BY_STATUS = {0x28: "task_set_full", 0x08: "busy"}
_ENTRY = re.compile(r"\{([^}]*)\} hitcount: *(\d+)")


def begin() -> None:
    """Have the kernel count from now on."""
    if not _EVENTS.is_dir():
        run("modprobe", "scsi_mod")
        run("mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing")
    for event, (keys, condition) in _HISTOGRAMS.items():
        (_EVENTS / event / "trigger").write_text(f"hist:keys={keys}{condition}\n")


def read() -> dict[str, str]:
    """Return the text of each histogram."""
    return {event: (_EVENTS / event / "hist").read_text() for event in _HISTOGRAMS}


def answers(before: dict[str, str], after: dict[str, str], hctl: str) -> Counter[str]:
    """Return how often the device got each answer between two readings, by the module's names."""
    found = _counts(after, hctl)
    found.subtract(_counts(before, hctl))
    return found


def _counts(texts: dict[str, str], hctl: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for event, text in texts.items():
        if not re.search(r"^ *Dropped: 0$", text, re.MULTILINE):
            raise ValueError(f"the kernel's histogram of {event} has lost some, or has no end")
        for words, count in _ENTRY.findall(text):
            fields = {
                key.strip(): int(value.split()[0]) for key, value in (word.split(":") for word in words.split(","))
            }
            host, _, _, lun = (int(word) for word in hctl.split(":"))
            if (fields["host_no"], fields.get("lun", lun)) == (host, lun):
                counts[_name(event, fields)] += int(count)
    return counts


def _name(event: str, fields: dict[str, int]) -> str:
    if event == "scsi_dispatch_cmd_error":
        return _BY_DRIVER.get(fields["rtn"], "driver_other")
    if event == "scsi_dispatch_cmd_done":
        return _BY_STATUS.get(fields["result"] & 0xFF, "other answers")
    return "timeout" if event == "scsi_dispatch_cmd_timeout" else "eh_wakeups"
