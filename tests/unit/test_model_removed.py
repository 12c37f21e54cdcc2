# SPDX-License-Identifier: GPL-2.0-or-later
"""What is told of a disk that went under load, and of readings that cannot be compared."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from model_rounds import EVENTS, READING, Round, answered, bucket, made_up, told

from fabtune.stat import DeviceInterval, Histogram

import model_judge  # isort: skip
from model_answers import answers  # isort: skip
from model_known import DiskStat, usable  # isort: skip
from model_kept import condensed  # isort: skip
from model_removed import Gone, differences_of_removed  # isort: skip

FAILED = 48
# A round of 1500 reads of 4 KiB with 100 us and more.
Wrong = Callable[[Round], DeviceInterval]


@cache
def a_round() -> Round:
    """Return a round of a disk, the last requests of which failed when it was removed."""
    of = made_up("scsi_debug", requests=1500, delay_ns=100_000)
    one = of.read(errors=FAILED, errors_by_class={"error_offline": FAILED})
    return replace(of, one=replace(one, events={**one.events, "error_offline": FAILED}))


def gone(of: Round, **changes: Any) -> Gone:
    """Return what is known of it: fio's figures without what failed, and what the disk had counted shortly before."""
    read = of.one.ops["read"]
    well = read.completed - FAILED
    moved = {
        "read": {"bytes": read.bytes - FAILED * 4096, "ios": well, "latency_ns": read.total_ns},
        "write": {"bytes": 0, "ios": 0, "latency_ns": 0},
    }  # fmt: skip
    last = DiskStat({"read": well - 100, "write": 0}, {"read": (well - 100) * 4096, "write": 0})
    return replace(Gone(moved, None, last, 100_000, of.knows.answers), **changes)


def twice(of: Round) -> DeviceInterval:
    """Return every request counted twice."""
    read = of.one.ops["read"]
    counters = ("issued", "completed", "sent_back", "bytes", "refused", "device_ns", "total_ns", "refused_ns")
    histograms = {
        time: Histogram(one.from_ns, {index: 2 * count for index, count in one.counts.items()})
        for time, one in read.histograms.items()
    }
    events = {name: 2 * count if name.startswith("requeued") else count for name, count in of.one.events.items()}
    more = of.read(**{name: 2 * getattr(read, name) for name in counters}, histograms=histograms)
    return replace(more, events=events)


def device_histogram(index: int) -> Wrong:
    return lambda of: of.histograms(device=bucket(index, of.one.ops["read"].completed))


def no_time(of: Round) -> DeviceInterval:
    """Return all requests in the first bucket, and no time at all."""
    read = of.one.ops["read"]
    histograms = {time: bucket(0, one.count) for time, one in read.histograms.items()}
    return replace(of.read(device_ns=0, total_ns=0, refused_ns=0, histograms=histograms), depth_ns=0)


WRONG: dict[str, Wrong] = {
    "twice": twice, "no time": no_time, "all in the last bucket": device_histogram(-1),
    "all in the first bucket": device_histogram(0),
    "a total of ten years": lambda of: of.read(total_ns=10**18),
    "no device time": lambda of: of.read(device_ns=0),
    "no refused time": lambda of: of.read(refused_ns=0),
    "no depth": lambda of: replace(of.one, depth_ns=0),
    "at the limit for ever": lambda of: replace(of.one, at_limit_ns=10**15),
    "a torn reading": lambda of: replace(of.one, device=replace(of.one.device, torn=1)),
}  # fmt: skip


def test_a_right_one_differs_in_nothing() -> None:
    assert differences_of_removed(a_round().one, gone(a_round())) == []


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_one_is_told(what: str) -> None:
    of = a_round()
    assert differences_of_removed(WRONG[what](of), gone(of))


@pytest.mark.parametrize("name", [name for name in EVENTS if not name.startswith(("never_issued", "partial", "nvme_"))])
def test_each_event_is_held_by_what_the_kernel_or_the_ops_say(name: str) -> None:
    of = a_round()
    wrong = replace(of.one, events={**of.one.events, name: of.one.events[name] + 1000})
    assert differences_of_removed(wrong, gone(of))


def test_a_path_of_which_nothing_is_counted_is_told_by_the_disk_s_own_statistics() -> None:
    of = a_round()
    path = gone(of, moved=None, head=of.model)
    assert differences_of_removed(of.one, path) == []
    nothing = replace(of.one, ops={}, events=dict.fromkeys(of.one.events, 0), depth_ns=0)
    assert differences_of_removed(nothing, path)
    assert differences_of_removed(twice(of), path)


def round_told(of: Round) -> dict[str, Any]:
    """Return a whole file of a round whose readings are not to be compared with it."""
    document = told("scsi_debug", of.one, (64, 64))
    events = [(when, 7 if by > 0 else 8, 8 * number, 4096, 0) for number, (when, by) in enumerate(of.model.moves[:1])]
    document["devices"]["sda"]["trace"] = condensed(events)
    for look in document["looks"]:
        look["reading"] = READING.text
    return document | {"removal": None}


def test_what_cannot_be_compared_is_a_difference() -> None:
    document = round_told(a_round())
    earlier, later = document["looks"]
    later["reading"] = READING.text.replace("op=read issued=19", "op=read issued=18")
    assert "issued smaller in the second reading" in " ".join(model_judge.judged(document).found)
    for text in ("", READING.text.replace("disk=sda", "disk=sdz"), READING.text[:3000]):
        earlier["reading"] = later["reading"] = text
        assert model_judge.judged(document).found


def test_a_removed_disk_that_has_not_been_seen_is_a_difference_and_none_of_its_requests_counts() -> None:
    document = round_told(a_round())
    looks = document["looks"]
    words = " ".join("0" * 17)
    document["removal"] = {
        "disk": "sda", "loaded": True, "moved": document["moved"], "stats": [words, words], "head_trace": None,
        "looks": looks,
    }  # fmt: skip
    judged = model_judge.judged(document)
    assert (judged.requests, judged.troubles["removals"]) == (0, 1)
    looks[0]["reading"] = READING.text.replace("disk=sda", "disk=sdz")
    assert "sda, removed: device 'sda': fabstat has seen no request on it" in model_judge.judged(document).found


def test_what_the_kernel_counts_is_read_by_device_and_a_histogram_that_overflowed_is_not_believed() -> None:
    events = dict.fromkeys(EVENTS, 0)
    before, after = (answered({**events, "host_busy": count, "busy": count}, 0) for count in (2, 9))
    found = answers(before, after, "0:0:0:0")
    assert (found["host_busy"], found["busy"], found["target_busy"]) == (7, 7, 0)
    assert not +answers(before, after, "1:0:0:0")
    after["scsi_eh_wakeup"] = after["scsi_eh_wakeup"].replace("Dropped: 0", "Dropped: 3")
    with pytest.raises(ValueError, match="has lost some"):
        answers(before, after, "0:0:0:0")


def test_the_limit_is_the_lowest_of_tags_requests_and_depth_less_what_is_reserved() -> None:
    scsi = {"nr_requests": 256, "tags": 64, "depth": 32, "reserved": 0}
    assert [usable(scsi, depth) for depth in (32, 128)] == [32, 64]
    assert usable({"nr_requests": 127, "tags": 127, "reserved": 1}, None) == 126
    assert usable({"nr_requests": 4, "tags": 127, "reserved": 1}, None) == 3


def test_a_depth_that_the_target_takes_back_may_be_any_below() -> None:
    steady = made_up("nvme", requests=1500, limits=(8, 8)).knows
    assert (steady.limits, steady.last_limit) == ((8, 8), (8, 8))
    of = made_up("scsi_debug", requests=1500, limits=(8, 8))
    assert of.one.events["task_set_full"]
    assert (of.knows.limits, of.knows.last_limit) == ((1, 8), (7, 8))
