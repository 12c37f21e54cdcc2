# SPDX-License-Identifier: GPL-2.0-or-later
"""The settings of a combination as an experiment states them: a workload's own values, and what goes together."""

import functools
from collections.abc import Container, Mapping

from fabtune.errors import InputError
from fabtune.experiment.tuners import HANDS_OFF
from fabtune.lab import fabrics, topology
from fabtune.measure import workload
from fabtune.measure.workload import Workload
from fabtune.model import factors
from fabtune.model.factors import FACTORS, Settings, shown_profile
from fabtune.model.results import DECIDED_BY, THROUGHPUT, Point

# The factors that set a workload's parameters of these names.
OF_WORKLOAD = {
    "block_bytes": "size", "queue_depth": "depth", "streams": "streams", "threads": "threads",
    "processes": "threads", "jobs": "threads", "stream_bytes_per_s": "stream_rate",
}  # fmt: skip


def parse_settings(texts: Mapping[str, str], where: str) -> Settings:
    """Return the full settings of one combination: `texts` parsed, everything else by default.

    Where its workload has one value of its own (`stress128` its 128 streams), that is the default.
    `where` names the file for errors.  Raises InputError for an unknown factor or a bad value.
    """
    own = _own_values(texts.get("workload", FACTORS["workload"].default))
    return factors.parse(own | dict(texts), where)


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


@functools.cache
def figure_of(name: str) -> str:
    """Return the figure that decides a comparison of a workload, throughput for one that is none of ours."""
    return workload.load(name).primary if name in workload.names() else THROUGHPUT


def decided(name: str) -> Point:
    """Return what the points of a workload say of the figure that decides; nothing where that is throughput."""
    figure = figure_of(name)
    return Point({} if figure == THROUGHPUT else {DECIDED_BY: figure})


def ops_of(settings: Settings) -> tuple[str, ...]:
    """Return what is measured one after another: both directions, or the one thing asked for."""
    return ("read", "write") if settings.op == "both" else (settings.op,)


def ways_of(op: str) -> tuple[str, ...]:
    """Return the directions that measuring `op` may move data in."""
    return ("read", "write") if op == "mixed" else (op,)


def parameters_of(
    load: Workload, settings: Settings, op: str, told: Container[str] = FACTORS
) -> dict[str, int | float | str]:
    """Return what measuring `op` sets of the parameters of `load`: of the factors, those that are `told`.

    A workload whose own requests go to random places keeps that; the factor says which way its data goes.
    """
    at_random = str(load.parameters.get("op", [""])[0]).startswith("rand")
    wanted: dict[str, int | float | str] = {"op": f"rand{op}" if at_random else op}
    wanted |= {name: getattr(settings, FACTORS[factor].key) for name, factor in OF_WORKLOAD.items() if factor in told}
    return {name: value for name, value in wanted.items() if name in load.parameters}


def common(settings: Settings, op: str) -> Point:
    """Return what every point says of its settings."""
    return Point({
        "profile": shown_profile(settings.profile, settings.known),
        "fabric": settings.fabric,
        "rtt_ms": settings.rtt_ms,
        "loss": settings.loss,
        "rate_mbit": settings.rate_bit_per_s / 1e6,
        "queue_depth": settings.queue_depth,
        "size_bytes": settings.size_bytes,
        "seed": settings.seed,
        "op": op,
    })  # fmt: skip


def check_settings(settings: Settings, where: str) -> None:
    """Raise InputError when a combination cannot be measured at all."""
    if settings.runtime_s <= 0:
        raise InputError(f"{where}: runtime = 0: expected more than zero, such as 3s")
    if settings.size_bytes % 512 or not 512 <= settings.size_bytes <= 16 * 2**20:
        raise InputError(f"{where}: size = {settings.size_bytes} bytes: expected a multiple of 512 up to 16MiB")
    if settings.loss > 0.5:
        raise InputError(f"{where}: loss = {settings.loss:.0%}: expected at most 50%, since no login survives more")
    if why := topology.impossible(settings):
        raise InputError(f"{where}: {why}")
    _check_fabric(settings, where)
    if settings.workload not in (known := ("net", *workload.names())):
        raise InputError(f"{where}: no workload '{settings.workload}': known are {', '.join(known)}")
    if figure_of(settings.workload) == "files_per_s":
        raise InputError(
            f"{where}: workload = {settings.workload}: found files that are made and removed, expected data that is "
            f"moved, of which points are; `fabtune measure {settings.workload}` measures it on one host"
        )
    many = [name for name in ("clients", "sessions", "targets") if factors.differs(settings, name)]
    if len(many) > 1:
        raise InputError(
            f"{where}: {' and '.join(many)} are all above 1: a combination can have only one of them above 1"
        )
    if settings.workload == "net" and settings.cross != "none":
        raise InputError(
            f"{where}: cross with workload = net: other hosts' traffic is measured beside a disk's load only"
        )
    if settings.cpu == "ends" and (many or settings.workload == "net"):
        raise InputError(
            f"{where}: cpu = ends with {many[0] if many else 'workload = net'}: only of a load on one disk"
        )
    if settings.profile == HANDS_OFF and (why := _why_not_hands_off(settings)):
        raise InputError(f"{where}: profile = {HANDS_OFF} with {why}")
    if settings.cut_s and settings.sessions < 2:
        raise InputError(
            f"{where}: cut with sessions = {settings.sessions}: expected at least 2, so that a path is left"
        )


def _why_not_hands_off(settings: Settings) -> str:
    """Return beside which factor nothing can be tuned by itself, '' where it can."""
    if settings.workload == "net":
        return "workload = net: it tunes sessions under a disk's load"
    if not fabrics.known()[settings.fabric].TUNED_BY_ITSELF:
        takers = [name for name, one in fabrics.known().items() if one.TUNED_BY_ITSELF]
        return f"fabric = {settings.fabric}: it tunes sessions of {', '.join(takers)}"
    return "known = measured: it is told nothing" if settings.known == "measured" else ""


def _check_fabric(settings: Settings, where: str) -> None:
    """Raise InputError for a factor that is for some fabrics alone, and not for the one of `settings`."""
    if settings.fabric not in (known := fabrics.known()):
        raise InputError(f"{where}: fabric = '{settings.fabric}': expected one of {', '.join(known)}")
    chosen = known[settings.fabric]
    for name in FACTORS:
        takers = [one.NAME for one in known.values() if name in one.FACTORS]
        if takers and chosen.NAME not in takers and not chosen.MISSING and factors.differs(settings, name):
            raise InputError(f"{where}: {name} with fabric = {chosen.NAME}: it is only for {', '.join(takers)}")
    try:
        why = chosen.refusal(settings)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if why:
        raise InputError(f"{where}: fabric = {chosen.NAME}: {why}")
