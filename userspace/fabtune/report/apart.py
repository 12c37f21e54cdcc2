# SPDX-License-Identifier: GPL-2.0-or-later
"""What tells runs apart beside a step's parameters and the path: two of different loss, or hosts, are no two of one."""

from collections.abc import Hashable, Mapping, Sequence

import attrs

from fabtune.measure.workload import said_value
from fabtune.model.factors import shown_profile
from fabtune.model.runrecord import RunRecord, Value

# The draw; and what the label says.
_NO_POINT = ("seed", "profile")


def under_shown_label(record: RunRecord) -> RunRecord:
    """Return the record with the label under which its experiment shows it: the file has the profile's name alone."""
    settings = record.environment.get("settings")
    if not isinstance(settings, Mapping) or settings.get("profile") != record.label:
        return record
    return attrs.evolve(record, label=shown_profile(record.label, str(settings.get("known"))))


def point_settings(record: RunRecord) -> dict[str, Value]:
    """Return what makes a run one of another point: its host, an experiment's settings, and the clock."""
    settings = record.environment.get("settings")
    found: dict[str, Value] = {"host": record.host.name}
    if isinstance(settings, Mapping):
        told = {name: value for name, value in settings.items() if isinstance(value, str | int | float)}
        found |= {name: value for name, value in told.items() if name not in _NO_POINT}
    return found | ({"clock": record.clock} if record.clock else {})


def said_setting(name: str, value: Value) -> str:
    """Return how a setting, or a parameter, that tells points apart reads."""
    return f"{name} {said_value(name, value)}".removesuffix(".0")


def settings_apart(runs: Sequence[tuple[Hashable, Mapping[str, Value]]]) -> list[str]:
    """Return the settings without which runs of different ones would count as one point's.

    Each run is what is known of its point already, and its settings.
    """
    chosen: list[str] = []
    for name in dict.fromkeys(name for _, settings in runs for name in settings):
        values: dict[Hashable, set[Value]] = {}
        for point, settings in runs:
            if name in settings:
                place = (point, *(settings.get(one) for one in chosen))
                values.setdefault(place, set()).add(settings[name])
        if any(len(found) > 1 for found in values.values()):
            chosen.append(name)
    return chosen
