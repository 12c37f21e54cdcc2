# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares what a round of the model test has left: on any host, at any time, with the reader as it is now."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "userspace"), str(Path(__file__).resolve().parent)]

from model_answers import answers  # noqa: E402
from model_books import Model, model_of  # noqa: E402
from model_compare import differences  # noqa: E402
from model_kept import expanded  # noqa: E402
from model_known import Known, disk_stat, known, since  # noqa: E402
from model_removed import Gone, differences_of_removed  # noqa: E402
from model_rows import ANSWERS  # noqa: E402

from fabtune.errors import FabtuneError  # noqa: E402
from fabtune.stat import DeviceInterval, Interval, diff, parse  # noqa: E402

_REFUSALS = tuple(name for name in ANSWERS if name != "timeout")


@dataclass
class Judged:
    """What was compared of a round: `requests` are those of the head that its trace saw to end.

    `apart_ns` is how much longer a request took by the module, in the mean, than by the trace, of each device.
    """

    requests: int = 0
    highest: int = 0
    errors: int = 0
    troubles: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)
    apart_ns: list[float] = field(default_factory=list)

    def saw(self, model: Model) -> None:
        """Note what the trace of a device shows to have taken place."""
        self.highest = max(self.highest, model.highest)
        self.errors += model.errors
        self.troubles.update({"errors": model.errors, "sent back": model.requeued})
        for op, name in (("flush", "flushes"), ("discard", "discards"), ("other", "passthrough")):
            self.troubles[name] += model.ops[op].completed


def judged(told: Mapping[str, Any]) -> Judged:
    """Compare a round's file, `told`."""
    result = Judged(troubles=Counter(told["troubles"]))
    models = {device: model_of(expanded(one["trace"])) for device, one in told["devices"].items()}
    for device, model in models.items():
        result.saw(model)
        knows = known(told, device)
        answered = knows.answers or {}
        result.troubles["timeouts"] += answered.get("timeout", 0)
        result.troubles["refusals"] += sum(answered.get(name, 0) for name in _REFUSALS)
        if device != told["head"]:
            head = models[told["head"]]
            knows = replace(knows, refused_above=head.requeued + head.held)
        result.found += [f"{device}: {line}" for line in _differences(device, model, told["looks"], knows)]
        result.apart_ns += _apart_ns(device, model, told["looks"])
    result.requests += _completed(models[told["head"]])
    if told["manner"] == "steady":
        result.troubles["reached limits"] += any(_reached(model, known(told, disk)) for disk, model in models.items())
    if told["removal"]:
        _removed(told, result)
    return result


def _reached(model: Model, knows: Known) -> bool:
    lowest, most = knows.limits
    return lowest == most and model.at_depth_ns[most] > 0


def _completed(model: Model) -> int:
    return sum(books.completed for books in model.ops.values())


def _differences(device: str, model: Model, looks: Sequence[Mapping[str, Any]], knows: Known) -> list[str]:
    """Return the differences of a device; what cannot be read, or is not there, is one, too."""
    try:
        before, after = (parse(look["reading"]) for look in looks)
        one = diff(before, after).device(device)
    except FabtuneError as error:
        return [str(error)]
    # By their ids: a former disk may have had the name.
    was = {earlier.id: earlier for earlier in before.devices}.get(one.device.id)
    if was:
        knows = replace(knows, highest_before=was.highest, eh_wakeups_before=was.eh_wakeups)
    return differences(model, one, knows)


def _apart_ns(device: str, model: Model, looks: Sequence[Mapping[str, Any]]) -> list[float]:
    with suppress(FabtuneError):
        one = diff(*(parse(look["reading"]) for look in looks)).device(device)
        ours = sum(op.device_ns for op in one.ops.values())
        theirs = sum(sum(books.times_ns) for books in model.ops.values())
        return [(ours - theirs) / _completed(model)] if _completed(model) else []
    return []


def _removed(told: Mapping[str, Any], result: Judged) -> None:
    """Compare a disk that was removed, and the head above it where that stays."""
    removal = told["removal"]
    disk, looks = removal["disk"], removal["looks"]
    result.troubles["removals"] += removal["loaded"]
    try:
        before, after = (parse(look["reading"]) for look in looks)
        number = diff(before, before).device(disk).device.id
        interval = diff(before, after)
        one = _of(interval, number)
    except FabtuneError as error:
        result.found.append(f"{disk}, removed: {error}")
        return
    head = model_of(expanded(removal["head_trace"])) if removal["head_trace"] else None
    hctl = told["devices"][disk]["hctl"]
    stats = [disk_stat(text) for text in removal["stats"]]
    gone = Gone(
        moved=None if head else removal["moved"], head=head, last=since(*stats), least_ns=told["least_ns"],
        answers=answers(looks[0]["answers"], looks[1]["answers"], hctl) if hctl else None,
    )  # fmt: skip
    result.found += [f"{disk}, removed: {line}" for line in differences_of_removed(one, gone)]
    if head:
        name = told["head"]
        result.saw(head)
        result.requests += _completed(head)
        knows = Known(kind="dm", limits=known(told, name).limits, last_limit=known(told, name).last_limit)
        found = _differences(name, head, looks, knows)
        result.found += [f"{name}, a path removed: {line}" for line in found]


def _of(interval: Interval, number: int) -> DeviceInterval:
    return next(one for one in interval.devices if one.device.id == number)
