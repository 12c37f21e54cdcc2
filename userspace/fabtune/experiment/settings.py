# SPDX-License-Identifier: GPL-2.0-or-later
"""What one combination of an experiment is: every factor's name, its meaning and its bounds."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from fabtune.errors import InputError
from fabtune.lab.disks import LEAST_MB_PER_S
from fabtune.lab.fabrics import FABRICS, NOT_HERE
from fabtune.measure import workload
from fabtune.model import units


@attrs.frozen
class Factor:
    """One thing an experiment may vary or fix: how its text becomes a value, and its default as text."""

    parse: Callable[[str, str], Any]
    default: str
    summary: str


def _integer(low: int, high: int) -> Callable[[str, str], int]:
    def parse(text: str, what: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise InputError(f"{what} = '{text}': expected a whole number from {low} to {high}")
        return int(text)

    return parse


def _one_of(*words: str) -> Callable[[str, str], str]:
    def parse(text: str, what: str) -> str:
        if text not in words:
            raise InputError(f"{what} = '{text}': expected one of {', '.join(words)}")
        return text

    return parse


def _name(text: str, what: str) -> str:
    if not text or not all(letter.isalnum() or letter in "-_." for letter in text):
        raise InputError(f"{what} = '{text}': expected a name of letters, digits, '-', '_' and '.'")
    return text


def _seconds(text: str, what: str) -> float:
    return units.parse_ms(text, what) / 1e3


def _target_rate(text: str, what: str) -> int:
    """Less is no rate that the disk can hold: see `null_block`."""
    if text.isdecimal() and (int(text) == 0 or LEAST_MB_PER_S <= int(text) <= 1000):
        return int(text)
    raise InputError(f"{what} = '{text}': expected 0 for no limit, or a whole number from {LEAST_MB_PER_S} to 1000")


FACTORS: dict[str, Factor] = {
    "profile": Factor(_name, "default", "a fabtune profile, or the name of another tuner to compare with"),
    "known": Factor(_one_of("given", "measured"), "given", "whether a profile is told the path's round trip and rate"),
    "rtt": Factor(units.parse_ms, "0ms", "round trip of the emulated path"),
    "rate": Factor(units.parse_bit_per_s, "1gbit", "rate of its slowest link"),
    "loss": Factor(units.parse_percent, "0%", "packets lost in each direction"),
    "loss_model": Factor(_one_of("random", "gemodel"), "random", "single losses, or bursts of three on average"),
    "mtu": Factor(_integer(576, 9216), "1500", "MTU of every link"),
    "workload": Factor(_name, "xdd", "a fabtune workload"),
    "size": Factor(units.parse_bytes, "256KiB", "bytes of one request"),
    "depth": Factor(_integer(1, 1024), "32", "requests kept outstanding"),
    "op": Factor(
        _one_of("both", "read", "write", "mixed"), "both", "direction, each on its own, or as the workload mixes them"
    ),
    "fabric": Factor(_one_of(*FABRICS, *NOT_HERE), "iscsi", "how the host reaches its disk"),
    "clients": Factor(_integer(1, 128), "1", "initiators, each with a name, a session and a load of its own"),
    "lun": Factor(_one_of("shared", "own"), "shared", "whether the clients share a LUN or have one each"),
    "sessions": Factor(_integer(1, 8), "1", "sessions of one initiator, a portal each, joined by dm-multipath"),
    "cut": Factor(_seconds, "0s", "time after which one of two sessions' paths is cut, 0s for never"),
    "targets": Factor(_integer(1, 8), "1", "targets, striped by md RAID-0"),
    "target_rate": Factor(_target_rate, "0", "MiB/s that one target's disk gives, 0 for no limit"),
    "stall": Factor(_seconds, "0s", "time after which the target stalls for good, 0s for never"),
    "cmds_max": Factor(_integer(0, 2048), "0", "commands of the initiator's session, 0 for its default"),
    "cmdsn_depth": Factor(_integer(0, 4096), "0", "command window that the target grants, 0 for its default"),
    "unsolicited": Factor(_one_of("default", "none", "immediate", "all"), "default", "write data sent unasked"),
    "security": Factor(
        _one_of("none", "chap", "digests", "ipsec", "wireguard"),
        "none",
        "what protects the login, the data or the path",
    ),
    "task_set_full": Factor(
        _integer(0, 100000), "0", "reads in a row that scsi_debug answers with TASK SET FULL, after 2 s of load"
    ),
    "streams": Factor(_integer(1, 128), "1", "streams of a workload that has them: TCP connections of net"),
    "window": Factor(
        units.parse_bytes, "0B", "socket buffer of each TCP connection of net, 0B for the kernel's choice"
    ),
    "threads": Factor(_integer(1, 128), "1", "threads of a workload that has them"),
    "stream_rate": Factor(units.parse_bytes, "1MB", "bytes per second of each stream of daq"),
    "ramp": Factor(_seconds, "4s", "load before the measured part, slow start included"),
    "runtime": Factor(_seconds, "3s", "the measured part"),
    "kernel": Factor(_one_of("trixie", "bookworm", "sid"), "trixie", "Debian suite of the guest's kernel"),
    "seed": Factor(_integer(1, 2**31 - 1), "1", "seed of every random choice: the replicate's number"),
}
# Under these names a point carries its settings, with the unit in the name where there is one.
KEYS = {
    "rtt": "rtt_ms", "rate": "rate_bit_per_s", "size": "size_bytes", "depth": "queue_depth",
    "ramp": "ramp_s", "runtime": "runtime_s", "cut": "cut_s", "stall": "stall_s", "window": "window_bytes",
    "stream_rate": "stream_bytes_per_s", "target_rate": "target_mib_per_s",
}  # fmt: skip
# The factors that set a workload's parameters of these names.
OF_WORKLOAD = {
    "block_bytes": "size", "queue_depth": "depth", "streams": "streams", "threads": "threads",
    "processes": "threads", "stream_bytes_per_s": "stream_rate",
}  # fmt: skip
# What only an iSCSI session over TCP can be given.
_ISCSI_ONLY = ("clients", "sessions", "targets", "cmds_max", "cmdsn_depth", "unsolicited", "security")

Settings = dict[str, Any]


def parse_settings(texts: Mapping[str, str], where: str) -> Settings:
    """Return the full settings of one combination: `texts` parsed, everything else by default.

    Where its workload has one value of its own (`stress128` its 128 streams), that is the default.
    `where` names the file for errors.  Raises InputError for an unknown factor or a bad value.
    """
    for name in texts:
        if name not in FACTORS:
            raise InputError(f"{where}: unknown factor '{name}'; known are {', '.join(FACTORS)}")
    texts = _own_values(texts.get("workload", FACTORS["workload"].default)) | dict(texts)
    return {
        KEYS.get(name, name): factor.parse(texts.get(name, factor.default), f"{where}: {name}")
        for name, factor in FACTORS.items()
    }


@functools.cache
def _own_values(name: str) -> dict[str, str]:
    """Return as texts, by factor, what the workload has exactly one value for; nothing for one that is none of ours."""
    if name not in workload.names():
        return {}
    parameters = workload.load(name).parameters
    directions = [str(op).removeprefix("rand") for op in parameters.get("op", ["mixed"])]
    return {"op": directions[0] if len(directions) == 1 else "both"} | {
        factor: f"{values[0]}B" if parameter.startswith(("block_bytes", "stream_bytes")) else str(values[0])
        for parameter, factor in OF_WORKLOAD.items()
        if len(values := parameters.get(parameter, [])) == 1
    }


def ops_of(settings: Settings) -> tuple[str, ...]:
    """Return what is measured one after another: both directions, or the one thing asked for."""
    return ("read", "write") if settings["op"] == "both" else (settings["op"],)


def ways_of(op: str) -> tuple[str, ...]:
    """Return the directions that measuring `op` may move data in."""
    return ("read", "write") if op == "mixed" else (op,)


def check_settings(settings: Settings, where: str) -> None:
    """Raise InputError when a combination cannot be measured at all."""
    if settings["runtime_s"] <= 0:
        raise InputError(f"{where}: runtime = 0: expected more than zero, such as 3s")
    if settings["size_bytes"] % 512 or not 512 <= settings["size_bytes"] <= 16 * 2**20:
        raise InputError(f"{where}: size = {settings['size_bytes']} bytes: expected a multiple of 512 up to 16MiB")
    if settings["loss"] > 0.5:
        raise InputError(f"{where}: loss = {settings['loss']:.0%}: no login survives more than 50%")
    if settings["fabric"] != "iscsi":
        for name in _ISCSI_ONLY:
            if settings[KEYS.get(name, name)] != FACTORS[name].parse(FACTORS[name].default, name):
                raise InputError(f"{where}: {name} with fabric = {settings['fabric']}: only iscsi can be given that")
    many = [name for name in ("clients", "sessions", "targets") if settings[name] > 1]
    if len(many) > 1:
        raise InputError(f"{where}: {' and '.join(many)} are more than one: a combination can have only one of them so")
    if settings["cut_s"] and settings["sessions"] < 2:
        raise InputError(
            f"{where}: cut with sessions = {settings['sessions']}: expected at least 2, or nothing is left"
        )
    if settings["task_set_full"] and settings["fabric"] != "scsi_debug":
        raise InputError(f"{where}: task_set_full with fabric = {settings['fabric']}: only scsi_debug answers as told")
    if settings["lun"] == "own" and settings["clients"] < 2:
        raise InputError(f"{where}: lun = own with clients = 1: expected more clients")
