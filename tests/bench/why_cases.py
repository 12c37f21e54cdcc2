# SPDX-License-Identifier: GPL-2.0-or-later
"""The cases of tests/bench/why: what each one sets, and what may be lifted of it."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabtune.model.units import parse_bit_per_s

Settings = Mapping[str, str]
PLACE = Path(__file__).parent / "why"


def _table(name: str) -> dict[str, Any]:
    with (PLACE / name).open("rb") as file:
        return tomllib.load(file)


_LIFTS = _table("lifts.toml")
# A session that nothing but the path, the disk and the load holds back.
GOOD: Settings = _LIFTS["good"]
UNTOUCHED: Settings = GOOD | _LIFTS["untouched"]
BY_NAME: dict[str, dict[str, Any]] = _LIFTS["lift"]
# A gain below this share is none.
THRESHOLD = 0.05
# With each seed the look begins so much later: not a multiple of any round trip.
_LATER_S = 0.137


@dataclass(frozen=True)
class Case:
    """One configuration: `settings` are whole, `lifts` and `world` what each lifted thing changes of them.

    `seed` decides which packets are lost, the order of the load's requests, and when the look begins.
    """

    name: str
    settings: Settings
    seed: int
    ramp_s: float
    look_s: float
    lifted_s: float
    lifts: Mapping[str, Settings] = field(default_factory=dict)
    world: Mapping[str, Settings] = field(default_factory=dict)
    threshold: float = THRESHOLD
    # A cause that is there for a share of each period of the look, and away for the rest; what it sets.
    duty: float = 0.0
    duty_set: Settings = field(default_factory=dict)
    limiter: str = ""

    @property
    def digest(self) -> str:
        """What makes its runs what they are: kept runs with another digest are measured anew."""
        whole = [self.name, dict(self.settings), self.seed, self.ramp_s, self.look_s, self.lifted_s]
        if self.duty:
            whole += [self.duty, dict(self.duty_set)]
        text = json.dumps([*whole, {k: dict(v) for k, v in self.lifts.items()}], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _changes(settings: Settings, values: Settings) -> Settings:
    """Return what of `values` differs from what `settings` have; `*N` multiplies a number that they have."""
    told = {}
    for key, value in values.items():
        now = settings[key]
        if value.startswith("*"):
            number = now.rstrip("abcdefghijklmnopqrstuvwxyz")
            value = f"{int(number) * int(value[1:])}{now[len(number) :]}"
        if value != now:
            told[key] = value
    return told


def _applies(one: Mapping[str, Any], settings: Settings) -> bool:
    """Tell whether a lift can matter at all: `only` lists the values that a setting may have for it."""
    return all(settings[key] in values for key, values in one.get("only", {}).items()) and not any(
        settings[key] in values for key, values in one.get("unless", {}).items()
    )


def _sized(value: str, settings: Settings, rtt_ms: int) -> str:
    """Return `value` with a share of what the path holds (``0.5bdp``) as bytes."""
    if not value.endswith("bdp"):
        return value
    return str(round(float(value[:-3]) * parse_bit_per_s(settings["path.rate"]) / 8 * rtt_ms / 1e3))


def load_cases(file: Path) -> list[Case]:
    """Return the cases of one file, each once for every round trip and seed that it names."""
    return [
        _case(told, rtt_ms, seed)
        for told in _table(file.name)["case"]
        for rtt_ms in told["rtt_ms"]
        for seed in told.get("seeds", [1])
    ]


def _case(told: Mapping[str, Any], rtt_ms: int, seed: int) -> Case:
    base = UNTOUCHED if told.get("untouched") else GOOD
    unknown = set(told["set"]) - set(GOOD)
    if unknown:
        raise SystemExit(f"{told['name']}: unknown settings {', '.join(sorted(unknown))}")
    settings = {**base, **told["set"], "path.rtt": f"{rtt_ms}ms"}
    settings = {key: _sized(value, settings, rtt_ms) for key, value in settings.items()}
    found: dict[bool, dict[str, Settings]] = {False: {}, True: {}}
    for name, one in BY_NAME.items():
        changed = _changes(settings, one["set"])
        if changed and _applies(one, settings) and name in told.get("lifts", BY_NAME):
            found[bool(one.get("world"))][name] = changed
    name = f"{told['name']}-{rtt_ms}ms-{seed}"
    # Autotuning doubles once a round trip, and a lossy connection needs time to find its rate.
    ramp_s = float(told.get("ramp_s", 3 + rtt_ms / 25)) + _LATER_S * (seed - 1)
    return Case(
        name, settings, seed, ramp_s, told.get("look_s", 6.0), told.get("lifted_s", 5.0), found[False], found[True],
        duty=told.get("duty", 0.0), duty_set=told.get("duty_set", {}),
        limiter=told.get("limiter", ""),
    )  # fmt: skip
