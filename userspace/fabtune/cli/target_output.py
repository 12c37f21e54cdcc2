# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints what this host has served as a target: one row a session's LUN and kind of command, JSON."""

from typing import Any

from fabtune.cli.percentiles import of_histogram, three_digits, times_json
from fabtune.cli.table import paragraph, print_json, table
from fabtune.cli.unseen_output import COUNTED_BEFORE, NOTHING_COUNTED, not_all_counted, time_of_rates
from fabtune.stat import LunInterval, ServedOp, TargetInterval, TargetSnapshot
from fabtune.stat.snapshot import OPS

_SWITCH = "/sys/module/fabstat/parameters/target"
_PARTS = "/sys/module/fabstat/parameters/target_parts"
_NOTE = (
    "Times are in ms from a command's coming to its answer, at most 3.2 % off; a write's have the wait for its data."
)
_TOLD = "Of the mean, R2T is the wait for a write's data, store what the backstore took."
_UNTOLD = f"What of them was the backstore's, and what the wait for data (R2T), is told after echo Y > {_PARTS}."
_FROM_NOW_ON = (
    "What of them was the backstore's, and what the wait for data (R2T), was not seen of nearly all: it is told for "
    "a time in which it was (--watch, or --save and --diff)."
)


def print_served(interval: TargetInterval, latest: TargetSnapshot, *, everything: bool) -> None:
    """Print one row for each kind of command of each LUN of each session; idle ones too if `everything`."""
    used = interval.windows_used()
    rows = [row for one in interval.luns for row in _rows(one, used[one.lun.id], everything)]
    if why := _why_none(latest):
        paragraph(why)
        if rows:
            paragraph(COUNTED_BEFORE)
    elif not interval.counting:
        paragraph(not_all_counted(interval.counted_ns, "a target's commands were not being counted yet when it began"))
    lost = _lost(interval, latest)
    if not rows:
        print("no commands counted" if lost else "no commands seen")
        for sentence in lost:
            paragraph(sentence)
        return
    headers = (
        "LUN", "op", "IOPS", "MB/s", "mean", "R2T", "store", "p50", "p99", "at target", "window", "not good",
        "initiator, target",
    )  # fmt: skip
    table(headers, rows, wrapped=headers[-1])
    for sentence in lost:
        paragraph(sentence)
    told = any(op.ready_ms is not None for one in interval.luns for op in one.ops.values())
    parts = _TOLD if told else _FROM_NOW_ON if latest.module.get("parts") == "1" else _UNTOLD
    own = {
        f"LUN {one.lun.lun} of {one.lun.initiator or 'unknown'}": one.elapsed_ns
        for one in interval.luns
        if any(op.completed for op in one.ops.values())
    }
    paragraph(f"{time_of_rates(interval.elapsed_ns, own)} {_NOTE} {parts}")


def _why_none(latest: TargetSnapshot) -> str:
    """Say why no command is being counted now; nothing where they are."""
    if latest.module["enabled"] != "1":
        return NOTHING_COUNTED
    if latest.module["wanted"] != "1":
        return f"a target's commands are not being counted: echo Y > {_SWITCH}"
    if latest.module["target"] != "1":
        return (
            "a target's commands are not being counted now: the kernel's target (LIO, target_core_mod) is not loaded, "
            "or its tracepoints could not be attached, which the kernel's log says and which is tried again"
        )
    return ""


def _rows(one: LunInterval, window_used: int, everything: bool) -> list[tuple[str, ...]]:
    lun = one.lun
    isid = f" (session {lun.isid})" if lun.isid else ""
    path = f"{lun.initiator or 'unknown'}{isid}, {lun.target} {lun.tpg}".rstrip()
    busy = [name for name in OPS if name in one.ops and (one.ops[name].completed or one.ops[name].started)]
    if not busy and not (everything or lun.at_target):
        return []
    rows: list[tuple[str, ...]] = []
    for name in busy or ["-"]:
        window = "-" if lun.window is None else f"{window_used} of {lun.window}"
        whole = (str(lun.at_target), window, str(sum(one.answers.values())), path)
        whole = ("", "", "", "") if rows else whole
        rows.append(("" if rows else str(lun.lun), name, *_figures(one, name), *whole))
    return rows


def _figures(one: LunInterval, name: str) -> tuple[str, ...]:
    seconds, op = one.elapsed_ns / 1e9, one.ops.get(name, ServedOp())
    if not op.completed or not seconds:
        return ("-",) * 7
    mean = three_digits(op.target_ns / op.completed / 1e6)
    rates = f"{op.completed / seconds:.0f}", f"{op.bytes / seconds / 1e6:.1f}"
    parts = ("-" if ms is None else three_digits(ms) for ms in (_r2t_wait_ms(name, op), op.backstore_ms))
    return (*rates, mean, *parts, of_histogram(op.histogram, 50), of_histogram(op.histogram, 99))


def _r2t_wait_ms(name: str, op: ServedOp) -> float | None:
    """Return the mean wait for a write's data; other commands have none to wait for."""
    return op.ready_ms if name == "write" else None


def _lost(interval: TargetInterval, latest: TargetSnapshot) -> list[str]:
    """Say what is not in the table."""
    module = latest.module
    untracked = int(module["untracked"]) + sum(one.lun.untracked for one in interval.luns)
    forgotten = sum(op.forgotten for one in interval.luns for op in one.ops.values())
    oldest = max((one.lun.oldest_ns for one in interval.luns), default=0)
    lacking = sum(op.histogram.lacking for one in interval.luns for op in one.ops.values())
    said = []
    if lacking:
        said.append(f"no percentiles (?) where there was no room for all histograms; in none are {lacking} times")
    if untracked:
        said.append(f"{untracked} commands since the module was loaded are not counted: no memory, or no room")
    if forgotten:
        said.append(f"{forgotten} commands ended without an answer that was seen: aborted, or before a switch-off")
    if oldest > 10e9:
        said.append(
            f"the oldest command at the target came {oldest / 1e9:.0f} s ago; one that was aborted in silence counts "
            "as at the target until its memory is used again, an hour at most"
        )
    return said


def print_served_json(interval: TargetInterval, latest: TargetSnapshot, *, one_line: bool) -> None:
    """Print the same with stable keys, times in ms; on one line for a stream of them."""
    module, used = latest.module, interval.windows_used()
    data = {
        "interval_s": interval.elapsed_ns / 1e9,
        "counted": interval.counting,
        "counted_s": None if interval.counted_ns is None else interval.counted_ns / 1e9,
        "module": {
            "version": module["version"],
            "enabled": module["enabled"] == "1",
            "wanted": module["wanted"] == "1",
            "target": module["target"] == "1",
            # Older modules do not tell.
            "parts": module.get("parts") == "1",
            "untracked": int(module["untracked"]),
            "crowded": int(module["crowded"]),
        },
        "luns": [_lun_json(one, used[one.lun.id]) for one in interval.luns],
    }
    print_json(data, one_line=one_line)


def _lun_json(one: LunInterval, window_used: int) -> dict[str, Any]:
    lun = one.lun
    return {
        "id": lun.id,
        "fabric": lun.fabric,
        "initiator": lun.initiator or None,
        "isid": lun.isid or None,
        "target": lun.target or None,
        "tpg": lun.tpg or None,
        "lun": lun.lun,
        "interval_s": one.elapsed_ns / 1e9,
        "at_target": lun.at_target,
        "oldest_ms": lun.oldest_ns / 1e6 if lun.at_target else None,
        # Of the session, all of its LUNs together; iSCSI alone has a window.
        "window_granted": lun.window,
        "window_used": None if lun.window is None else window_used,
        "unmatched": lun.unmatched,
        "untracked": lun.untracked,
        "answers": dict(one.answers),
        "ops": {name: _op_json(one, name) for name in OPS if name in one.ops},
    }


def _op_json(one: LunInterval, name: str) -> dict[str, Any]:
    seconds, op = one.elapsed_ns / 1e9, one.ops[name]
    return {
        "started": op.started,
        "completed": op.completed,
        "forgotten": op.forgotten,
        "bytes": op.bytes,
        "iops": op.completed / seconds if seconds else 0.0,
        "bytes_per_s": op.bytes / seconds if seconds else 0.0,
        "mean_at_target": op.target_ns / one.elapsed_ns if one.elapsed_ns else 0.0,
        "target_ms": times_json(op.target_ns, op.completed, op.histogram),
        # Means, where the parameter target_parts has them seen.
        "backstore_ms": op.backstore_ms,
        "r2t_wait_ms": _r2t_wait_ms(name, op),
    }
