# SPDX-License-Identifier: GPL-2.0-or-later
"""What one combination of an experiment is: every factor's name, its meaning, its bounds and its default, once."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from fabtune.errors import InputError
from fabtune.model import units
from fabtune.model.untouched import UNTOUCHED, refuse_default

Parse = Callable[[str, str], float | str]
# Less is no rate that a disk with a limit can hold: see `host.targets.null_blk.make`.
LEAST_TARGET_MIB_PER_S = 13
_MOST_DIGITS = 20
_MOST_BDPS = 100
_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")


@attrs.frozen
class Factor:
    """One thing an experiment may vary or fix: how its text becomes a value, and its default as text.

    `key` is the attribute of Settings, with the unit in its name where there is one.
    """

    key: str
    parse: Parse
    default: str
    summary: str


def _integer(low: int, high: int) -> Parse:
    def parse(text: str, what: str) -> int:
        if not text.isdecimal() or len(text) > _MOST_DIGITS or not low <= int(text) <= high:
            raise InputError(f"{what} = '{text}': expected a whole number from {low} to {high}")
        return int(text)

    return parse


def _one_of(*words: str) -> Parse:
    def parse(text: str, what: str) -> str:
        if text not in words:
            raise InputError(f"{what} = '{text}': expected one of {', '.join(words)}")
        return text

    return parse


def _name(text: str, what: str) -> str:
    if not text or not all(letter.isalnum() or letter in "-_." for letter in text):
        raise InputError(f"{what} = '{text}': expected a name of letters, digits, '-', '_' and '.'")
    return text


def _profile(text: str, what: str) -> str:
    refuse_default(text, f"{what} = '{text}'")
    return _name(text, what)


def _seconds(text: str, what: str) -> float:
    return units.parse_ms(text, what) / 1e3


def _rate_or_zero(text: str, what: str) -> float:
    return 0.0 if text == "0" else units.parse_bit_per_s(text, what)


def _bdps(text: str, what: str) -> float:
    if not _DECIMAL.fullmatch(text) or not (value := float(text)) <= _MOST_BDPS:
        raise InputError(f"{what} = '{text}': expected 0 for a queue that never drops, or a share up to {_MOST_BDPS}")
    return value


def _target_rate(text: str, what: str) -> int:
    least = LEAST_TARGET_MIB_PER_S
    if text.isdecimal() and len(text) <= _MOST_DIGITS and (int(text) == 0 or least <= int(text) <= 1000):
        return int(text)
    raise InputError(f"{what} = '{text}': expected 0 for no limit, or a whole number from {least} to 1000")


def _factor(parse: Parse, default: str, summary: str, name: str = "") -> Any:
    """Return the attribute of a factor; `name` where that is not the attribute's own."""
    return attrs.field(default=parse(default, name), metadata={"factor": (name, parse, default, summary)})


@attrs.frozen(kw_only=True)
class Settings:
    """One combination, everything parsed; what nobody asked for has its default."""

    profile: str = _factor(
        _profile, UNTOUCHED, "a fabtune profile, 'untouched', 'tune', or another tuner to compare with"
    )
    known: str = _factor(
        _one_of("given", "measured"), "given", "whether a profile is told the path's round trip and rate"
    )
    rtt_ms: float = _factor(units.parse_ms, "0ms", "round trip of the emulated path", "rtt")
    rate_bit_per_s: float = _factor(units.parse_bit_per_s, "1gbit", "rate of its slowest link", "rate")
    loss: float = _factor(units.parse_percent, "0%", "packets lost in each direction")
    loss_model: str = _factor(_one_of("random", "gemodel"), "random", "single losses, or bursts of three on average")
    jitter_ms: float = _factor(
        units.parse_ms, "0ms", "how far a lone packet's round trip varies to either side; all stay in order", "jitter"
    )
    reorder: float = _factor(units.parse_percent, "0%", "packets of each direction that overtake all others on the way")
    duplicate: float = _factor(units.parse_percent, "0%", "packets of each direction that arrive twice")
    rate_back_bit_per_s: float = _factor(
        _rate_or_zero, "0", "rate towards the initiator where it is another one, 0 for the same", "rate_back"
    )
    nic_rate_bit_per_s: float = _factor(
        _rate_or_zero, "0", "rate at which each end's NIC sends, 0 for as fast as its CPU can", "nic_rate"
    )
    buffer_bdp: float = _factor(
        _bdps, "0", "queue of the slowest link as a share of the path's BDP, 0 for one that never drops", "buffer"
    )
    cross: str = _factor(
        _one_of("none", "cubic", "bbr", "short"),
        "none",
        "traffic of other hosts over the same line: a bulk flow with that congestion control, or short flows in turn",
    )
    mtu: int = _factor(_integer(576, 9216), "1500", "MTU of every link")
    offloads: str = _factor(
        _one_of("on", "off"), "on", "whether super-packets cross the path; off where packets are lost"
    )
    workload: str = _factor(_name, "xdd", "a fabtune workload")
    size_bytes: int = _factor(units.parse_bytes, "256KiB", "bytes of one request", "size")
    queue_depth: int = _factor(_integer(1, 1024), "32", "requests kept outstanding", "depth")
    op: str = _factor(
        _one_of("both", "read", "write", "mixed"), "both", "direction, each on its own, or as the workload mixes them"
    )
    # Which there are is the lab's to say.
    fabric: str = _factor(_name, "iscsi", "how the host reaches its disk")
    clients: int = _factor(_integer(1, 128), "1", "initiators, each with a name, a session and a load of its own")
    lun: str = _factor(_one_of("shared", "own"), "shared", "whether the clients share a LUN or have one each")
    sessions: int = _factor(_integer(1, 8), "1", "sessions of one initiator, a portal each, joined by dm-multipath")
    cut_s: float = _factor(_seconds, "0s", "time after which one of two sessions' paths is cut, 0s for never", "cut")
    targets: int = _factor(_integer(1, 8), "1", "targets, striped by md RAID-0")
    # Which there are is the host layer's to say.
    target: str = _factor(_name, "lio", "what serves it")
    target_mib_per_s: int = _factor(
        _target_rate, "0", "MiB/s that one target's disk gives, 0 for no limit", "target_rate"
    )
    stall_s: float = _factor(_seconds, "0s", "time after which the target stalls for good, 0s for never", "stall")
    cmds_max: int = _factor(_integer(0, 2048), "0", "commands of the initiator's session, 0 for its default")
    cmdsn_depth: int = _factor(_integer(0, 4096), "0", "command window that the target grants, 0 for its default")
    unsolicited: str = _factor(_one_of("default", "none", "immediate", "all"), "default", "write data sent unasked")
    security: str = _factor(
        _one_of("none", "chap", "digests", "ipsec", "wireguard"),
        "none",
        "what protects the login, the data or the path",
    )
    task_set_full: int = _factor(
        _integer(0, 100000), "0", "reads in a row that scsi_debug answers with TASK SET FULL, after 2 s of load"
    )
    streams: int = _factor(_integer(1, 128), "1", "streams of a workload that has them: TCP connections of net")
    window_bytes: int = _factor(
        units.parse_bytes, "0B", "socket buffer of each TCP connection of net, 0B for the kernel's choice", "window"
    )
    threads: int = _factor(_integer(1, 128), "1", "threads, processes or jobs of a workload that has them")
    page_cache_bytes: int = _factor(
        units.parse_bytes, "0B", "memory that a load on files may fill with them, 0B for no limit", "page_cache"
    )
    read_ahead_bytes: int = _factor(
        units.parse_bytes, "0B", "read-ahead of the disk below the files, 0B for the kernel's choice", "read_ahead"
    )
    stream_bytes_per_s: int = _factor(units.parse_bytes, "1MB", "bytes per second of each writer of daq", "stream_rate")
    ramp_s: float = _factor(_seconds, "4s", "load before the measured part, slow start included", "ramp")
    runtime_s: float = _factor(_seconds, "3s", "the measured part", "runtime")
    cpu: str = _factor(
        _one_of("whole", "ends"),
        "whole",
        "whether a second load tells whose the CPU's time is: the initiator's, the target's, the path's",
    )
    kernel: str = _factor(_one_of("trixie", "bookworm", "sid"), "trixie", "Debian suite of the guest's kernel")
    seed: int = _factor(_integer(1, 2**31 - 1), "1", "seed of every random choice: the replicate's number")


def _factors() -> dict[str, Factor]:
    found = {}
    for one in attrs.fields(Settings):
        name, parse, default, summary = one.metadata["factor"]
        found[name or one.name] = Factor(one.name, parse, default, summary)
    return found


# By the names that definitions use.
FACTORS = _factors()


def parse(texts: Mapping[str, str], where: str) -> Settings:
    """Return the settings that `texts` state, by factor.  Raises InputError, naming `where`, for one that is bad."""
    for name in texts:
        if name not in FACTORS:
            raise InputError(f"{where}: unknown factor '{name}'; known are {', '.join(FACTORS)}")
    found: dict[str, Any] = {
        FACTORS[name].key: FACTORS[name].parse(text, f"{where}: {name}") for name, text in texts.items()
    }
    return Settings(**found)


def shown_profile(profile: str, known: str) -> str:
    """Return how a profile is called in results: one that measures its path itself is held against one that is told."""
    return f"{profile}-measured" if known == "measured" else profile


def differs(settings: Settings, factor: str) -> bool:
    """Tell whether `settings` ask for something else than the default of `factor`."""
    return bool(getattr(settings, FACTORS[factor].key) != getattr(Settings(), FACTORS[factor].key))
