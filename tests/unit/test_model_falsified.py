# SPDX-License-Identifier: GPL-2.0-or-later
"""A module that is wrong is told by the randomised model test, on each stack, by what its guest knows of it."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from model_rounds import EVENTS, Round, bucket, histogram, made_up

from fabtune.stat import DeviceInterval, Histogram

from model_compare import differences  # isort: skip

KINDS = ("scsi_debug", "path", "iscsi", "nvme")
SCSI = ("scsi_debug", "path", "iscsi")
Wrong = Callable[[Round], DeviceInterval]


@cache
def a_round(kind: str) -> Round:
    return made_up(kind)


def retried(of: Round) -> list[int]:
    return [request.device_ns for request in of.requests if request.back_ns]


def others(of: Round) -> Histogram:
    return histogram(request.device_ns for request in of.requests if not request.back_ns)


def ends_wrong(of: Round) -> DeviceInterval:
    """Return the fastest tenth and the slowest one at the ends of the histogram."""
    times = sorted(request.device_ns for request in of.requests)
    part = int(len(times) * 0.099)
    wrong = histogram(times[part : len(times) - part]) + bucket(0, part) + bucket(-1, part)
    return of.histograms(device=wrong)


def no_refusals(of: Round) -> DeviceInterval:
    histograms = of.one.ops["read"].histograms | {"refused": Histogram(bucket(0, 0).from_ns, {})}
    return of.read(refused=0, refused_ns=0, histograms=histograms)


def not_seen_on_a_path(of: Round) -> DeviceInterval:
    read = of.one.ops["read"]
    none = {"refused": Histogram(bucket(0, 0).from_ns, {}), "total": read.histograms["device"]}
    return of.read(refused=0, refused_ns=0, total_ns=read.device_ns, histograms={**read.histograms, **none})


def from_the_first_issue(of: Round) -> DeviceInterval:
    times = [request.total_ns for request in of.requests]
    return of.read(device_ns=sum(times), histograms=of.one.ops["read"].histograms | {"device": histogram(times)})


def events(of: Round, **changes: int) -> DeviceInterval:
    return replace(of.one, events={**of.one.events, **changes})


def device(of: Round, **changes: object) -> DeviceInterval:
    return replace(of.one, device=replace(of.one.device, **changes))


def told_as_the_targets(of: Round) -> DeviceInterval:
    none = {"target_busy": 0, "task_set_full": 0, "requeued_by_driver": 0, "requeued_by_target": of.model.requeued}
    return replace(no_refusals(of), events={**of.one.events, **none})


def one_too_many(of: Round) -> DeviceInterval:
    """Return one more in flight whenever something is."""
    busy_ns = sum(of.model.at_depth_ns.values())
    more = replace(of.one, depth_ns=of.one.depth_ns + busy_ns)
    return replace(more, device=replace(more.device, highest=more.device.highest + 1))


def slower(of: Round) -> DeviceInterval:
    """Return 4 us more for each request."""
    read = of.one.ops["read"]
    more = 4000 * read.completed
    return of.read(device_ns=read.device_ns + more, total_ns=read.total_ns + more)


EVERYWHERE: dict[str, Wrong] = {
    "a tenth at either end of the histogram": ends_wrong,
    "what was sent back in the first bucket": lambda of: of.histograms(device=others(of) + bucket(0, len(retried(of)))),
    "the total of what was sent back in the first bucket": lambda of: of.histograms(
        total=others(of) + bucket(0, len(retried(of)))
    ),
    "all totals in the first bucket": lambda of: of.histograms(total=bucket(0, of.one.ops["read"].completed)),
    "device times from the first issue": from_the_first_issue,
    "a limit of 1": lambda of: device(of, limit=1),
    "twice the limit": lambda of: device(of, limit=2 * of.one.device.limit),
    "a depth that may be off by any time": lambda of: replace(of.one, depth_ns=0, depth_error_ns=10**12),
    "an error of the depth": lambda of: replace(of.one, depth_error_ns=1),
    "a torn reading": lambda of: device(of, torn=1),
    "an error of the depth that is not known": lambda of: replace(of.one, depth_error_ns=None),
    "one too many in flight": one_too_many,
    "4 us more for each": slower,
    "error handlers": lambda of: device(of, eh_wakeups=10**6),
    "timeouts": lambda of: events(of, timeout=10**6),
    "timed out": lambda of: events(of, timed_out=1),
}  # fmt: skip
REFUSED: dict[str, Wrong] = {
    "refused for no time": lambda of: of.read(refused_ns=0),
    "all refused for ever": lambda of: of.histograms(refused=bucket(-1, of.one.ops["read"].refused)),
    "all refused for nothing": lambda of: of.histograms(refused=bucket(0, of.one.ops["read"].refused)),
    "all refused for nothing, and so the sum": lambda of: replace(
        of.histograms(refused=bucket(0, of.one.ops["read"].refused)),
        ops={"read": replace(of.histograms(refused=bucket(0, of.one.ops["read"].refused)).ops["read"], refused_ns=0)},
    ),
    "no refusals": no_refusals,
    "not seen on a path": not_seen_on_a_path,
    "refusals of the driver told as another's": lambda of: events(of, host_busy=of.one.events["target_busy"] + 1),
    "a window told as the device": lambda of: events(
        of, device_busy=of.one.events["host_busy"], host_busy=of.one.events["target_busy"],
        target_busy=of.one.events["device_busy"] + 1,
    ),
    "a driver's refusals told as the target's": told_as_the_targets,
    "a full task set told as busy": lambda of: events(of, task_set_full=0, busy=of.one.events["task_set_full"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("delay_ns", "depth"), [(300_000, 48), (100_000, 4), (1_000_000, 16)])
def test_a_right_module_differs_in_nothing(kind: str, delay_ns: int, depth: int) -> None:
    of = made_up(kind, requests=3000, delay_ns=delay_ns, depth=depth)
    assert differences(of.model, of.one, of.knows) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", EVERYWHERE)
def test_a_wrong_module_is_told_on_every_stack(kind: str, what: str) -> None:
    of = a_round(kind)
    assert differences(of.model, EVERYWHERE[what](of), of.knows)


@pytest.mark.parametrize("kind", SCSI)
@pytest.mark.parametrize("what", REFUSED)
def test_wrong_refusals_are_told(kind: str, what: str) -> None:
    of = a_round(kind)
    assert differences(of.model, REFUSED[what](of), of.knows)


@pytest.mark.parametrize("kind", KINDS)
def test_each_event_is_told_by_the_count(kind: str) -> None:
    of = a_round(kind)
    unknown = [name for name in EVENTS if name.startswith("nvme_") and kind == "nvme"]
    for name in EVENTS:
        wrong = events(of, **{name: of.one.events[name] + 1})
        assert name in unknown or differences(of.model, wrong, of.knows), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("up", [1, -1])
def test_all_times_a_bucket_off_are_told(kind: str, up: int) -> None:
    of = made_up(kind, requests=3000, delay_ns=1_000_000)
    right = of.one.ops["read"].histograms["device"]
    wrong = Histogram(right.from_ns, {index + up: count for index, count in right.counts.items()})
    assert differences(of.model, of.histograms(device=wrong), of.knows)


@pytest.mark.parametrize("kind", KINDS)
def test_time_at_a_limit_that_stays_is_told(kind: str) -> None:
    of = made_up(kind, limits=(16, 16))
    reached_ns = sum(ns for depth, ns in of.model.at_depth_ns.items() if depth >= 16)
    right = replace(of.one, at_limit_ns=reached_ns, device=replace(of.one.device, limit=16))
    # What answers TASK SET FULL has its depth taken back.
    knows = replace(of.knows, limits=(16, 16), last_limit=(16, 16))
    assert differences(of.model, right, knows) == []
    for wrong_ns in (0, reached_ns * 2, sum(of.model.at_depth_ns.values()) * 2):
        assert differences(of.model, replace(right, at_limit_ns=wrong_ns), knows)
