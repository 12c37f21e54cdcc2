# SPDX-License-Identifier: GPL-2.0-or-later
"""What the model of the randomised test counts, and that nothing which the module says goes uncompared."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fabtune.installed import PACKAGE
from fabtune.stat import DeviceInterval, Op, parse, since_seen

sys.path.insert(0, str(PACKAGE.parents[1] / "tests/vm"))

from model_books import DISCARD, FLUSH, PASSTHROUGH, WRITE, Books, Model, Retry, model_of, op_of  # noqa: E402
from model_compare import NOT_KNOWN, differences  # noqa: E402
from model_kept import CATEGORY, COMPLETE, ISSUE, REQUEUE, condensed, expanded  # noqa: E402
from model_known import DiskStat, Known, disk_stat  # noqa: E402
from model_rows import ANSWERS  # noqa: E402

READING = Path(__file__).parent / "data/fabstat-0.2.0.stats"
READ_EVENT, WRITE_EVENT = 0, WRITE << CATEGORY


def told(*events: tuple[int, int, int, int, int]) -> Model:
    model = Model()
    for event in events:
        model.event(*event)
    return model


def test_the_model_counts_a_request_that_is_sent_back_and_one_that_comes_in_parts() -> None:
    model = told(
        (ISSUE | READ_EVENT, 100, 8, 4096, 0), (REQUEUE | READ_EVENT, 200, 8, 4096, 0),
        (ISSUE | READ_EVENT, 300, 8, 4096, 0), (COMPLETE | READ_EVENT, 450, 8, 4096, 0),
        (ISSUE | WRITE_EVENT, 500, 64, 8192, 0), (COMPLETE | WRITE_EVENT, 600, 64, 4096, 0),
        (COMPLETE | WRITE_EVENT, 900, 72, 4096, 0x10000 - 61), (COMPLETE | READ_EVENT, 950, 800, 0, 0),
    )  # fmt: skip
    reads, writes = model.ops["read"], model.ops["write"]
    assert (reads.issued, reads.sent_back, reads.completed) == (2, 1, 1)
    assert (reads.times_ns, reads.total_times_ns, reads.retries) == ([150], [350], [Retry(150, 350, (100,))])
    assert (writes.issued, writes.completed, writes.bytes, writes.times_ns) == (1, 1, 8192, [400])
    assert (writes.errors, writes.failed_bytes) == (Counter(error_medium=1), 4096)
    assert (model.depth, model.highest, model.requeued, model.held, model.partial) == (0, 1, 1, 0, 1)
    assert model.depth_ns == 100 + 150 + 400


def test_a_request_done_in_part_and_then_sent_back_is_the_same_one() -> None:
    model = told(
        (ISSUE | READ_EVENT, 100, 8, 8192, 0), (COMPLETE | READ_EVENT, 200, 8, 4096, 0),
        (REQUEUE | READ_EVENT, 210, 16, 4096, 0), (REQUEUE | READ_EVENT, 220, 16, 4096, 0),
        (ISSUE | READ_EVENT, 300, 16, 4096, 0), (COMPLETE | READ_EVENT, 400, 16, 4096, 0),
    )  # fmt: skip
    reads = model.ops["read"]
    assert (reads.sent_back, reads.bytes, reads.times_ns, reads.total_times_ns) == (1, 8192, [100], [300])
    assert (model.requeued, model.held, model.partial, model.depth) == (1, 1, 1, 0)


def test_a_request_given_up_while_it_waits_was_never_issued() -> None:
    model = told((REQUEUE | READ_EVENT, 100, 8, 4096, 0), (COMPLETE | READ_EVENT, 200, 8, 4096, 0x10000 - 19))
    assert (model.never_issued, model.held, model.ops["read"].errors) == (1, 1, Counter(error_offline=1))
    assert not model.waiting


def test_which_of_several_passthrough_requests_was_sent_back_is_unclear_and_so_are_its_times() -> None:
    other = PASSTHROUGH << CATEGORY
    model = told(
        (ISSUE | other, 100, 0, 0, 0), (ISSUE | other, 400, 0, 0, 0), (REQUEUE | other, 500, 0, 0, 0),
        (COMPLETE | other, 600, 0, 0, 0), (ISSUE | other, 900, 0, 0, 0), (COMPLETE | other, 1000, 0, 0, 0),
    )  # fmt: skip
    books = model.ops["other"]
    # The first of them or the second, and at 900 that one or a new one.
    assert (books.unclear, books.unclear_ns) == (2, 300 + 400)
    assert (books.issued, books.sent_back, books.completed, model.depth) == (3, 1, 2, 0)
    one = told((ISSUE | other, 100, 0, 0, 0), (REQUEUE | other, 200, 0, 0, 0)).ops["other"]
    assert (one.unclear, one.unclear_ns) == (0, 0)


def test_what_is_held_was_refused_and_what_is_sent_back_may_have_been() -> None:
    retry = Retry(10, 900, sent_back_ns=(500, 100), held_ns=(300, 50))
    assert (retry.longest_ns, retry.shortest_ns(path=False), retry.shortest_ns(path=True)) == (500, 300, 50)
    assert Retry(10, 900, sent_back_ns=(500, 100)).shortest_ns(path=False) == 100


def test_events_are_the_same_after_they_have_been_condensed() -> None:
    other = PASSTHROUGH << CATEGORY
    events = [
        (100, ISSUE, 8, 8192, 0), (150, ISSUE | other, 0, 0, 0), (160, ISSUE | other, 0, 512, 0),
        (200, COMPLETE, 8, 4096, 0), (210, REQUEUE, 16, 4096, 0), (300, ISSUE, 16, 4096, 0),
        (350, COMPLETE | other, 0, 0, 5), (360, COMPLETE | other, 0, 512, 0), (400, COMPLETE, 16, 4096, 0),
    ]  # fmt: skip
    assert list(expanded(condensed(events))) == events


def test_who_sees_issues_or_ends_later_sees_another_highest_depth() -> None:
    model = model_of([(0, ISSUE, 8, 4096, 0), (1000, COMPLETE, 8, 4096, 0), (1010, ISSUE, 16, 4096, 0)])
    assert (model.highest, model.highest_apart(0, 9), model.highest_apart(0, 11)) == (1, 1, 2)
    assert model.highest_apart(1001, 0) == 1


def test_a_write_behind_a_flush_is_a_write_and_the_flush_is_told_from_it() -> None:
    assert [op_of(kind) for kind in (FLUSH, FLUSH | WRITE, DISCARD | WRITE, WRITE, 0)] == [
        "flush", "write", "discard", "write", "read"]  # fmt: skip


def test_the_disks_own_statistics_are_read_by_kind() -> None:
    stat = disk_stat("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17")
    assert stat == DiskStat({"read": 1, "write": 5, "discard": 12, "flush": 16},
                            {"read": 1536, "write": 3584, "discard": 14 * 512})  # fmt: skip


def agreeing(number: int) -> tuple[Model, DeviceInterval, Known]:
    """Return a model and knowledge by which all is right that the reading says of its device `number`."""
    one = since_seen(parse(READING.read_text())).devices[number]
    # Details are off in the test.
    one = replace(one, ops={name: replace(op, details={}) for name, op in one.ops.items()})
    model = Model()
    for name, op in one.ops.items():
        model.ops[name] = books_of(op)
    device, events = one.device, one.events
    model.requeued = events["requeued_by_driver"] + events["requeued_by_target"]
    model.held = events["requeued_unstarted"]
    model.highest = device.highest
    model.moves = [(0, 1)] * device.highest + [(1, -1)] * device.highest
    model.at_depth_ns[1] = one.depth_ns
    scsi = device.hctl != "-"
    names = ("task_set_full", "error_medium")
    answers = Counter({name: events[name] for name in ANSWERS}) if scsi else None
    known = Known(
        kind="scsi" if scsi else "nvme", injected={name: events[name] for name in names} if scsi else None,
        limits=(device.limit, device.limit), last_limit=(device.limit, device.limit), answers=answers,
        stat=DiskStat({name: op.completed for name, op in one.ops.items()},
                      {name: op.bytes for name, op in one.ops.items() if name != "flush"}),
        fio={name: op.bytes for name, op in one.ops.items() if name in ("read", "write")},
    )  # fmt: skip
    return model, one, known


def books_of(op: Op) -> Books:
    return Books(
        op.issued, op.completed, op.sent_back, op.bytes, errors=Counter(op.errors_by_class),
        times_ns=times_of(op, "device", op.device_ns), total_times_ns=times_of(op, "total", op.total_ns),
        retries=retries_of(op),
    )  # fmt: skip


def retries_of(op: Op) -> list[Retry]:
    """Return who was refused: those whose time from the first issue stands elsewhere."""
    device, total = (Counter(op.histograms[time].counts) for time in ("device", "total"))
    from_ns = op.histograms["device"].from_ns
    pairs = zip(sorted((device - total).elements()), sorted((total - device).elements()), strict=True)
    waits = (op.refused_ns,) * op.sent_back
    found = [Retry(from_ns[first], from_ns[last], waits) for first, last in pairs]
    return found + [Retry(0, 0, waits)] * (op.refused - len(found))


def times_of(op: Op, time: str, total_ns: int) -> list[int]:
    """Return times in the middle of their buckets, the sum of which is so much."""
    histogram = op.histograms[time]
    bounds = [(histogram.from_ns[index], histogram.from_ns[index + 1]) for index in sorted(histogram.counts)
              for _ in range(histogram.counts[index])]  # fmt: skip
    times = [(low + high) // 2 for low, high in bounds]
    for place, (low, high) in enumerate(bounds):
        times[place] += max(low - times[place], min(high - 1 - times[place], total_ns - sum(times)))
    return times


@pytest.mark.parametrize("number", [0, 1])
def test_a_reading_that_is_right_differs_in_nothing(number: int) -> None:
    assert differences(*agreeing(number)) == []


def test_a_path_s_flush_is_a_read_by_its_disk_s_statistics() -> None:
    model, one, known = agreeing(0)
    flushes = Op(issued=9000, completed=9000)
    one, model.ops["flush"] = replace(one, ops=one.ops | {"flush": flushes}), Books(9000, 9000)
    assert known.stat
    reads = dict(known.stat.requests) | {"flush": 0}
    reads["read"] += 9000
    known = replace(known, path=True, stat=replace(known.stat, requests=reads))
    said = differences(model, one, known)
    assert not [line for line in said if line.startswith("read beside")]
    assert [line for line in differences(model, one, replace(known, path=False)) if line.startswith("read beside")]


def test_a_path_s_disk_counts_the_clones_too_that_got_no_place_in_its_queue() -> None:
    model, one, known = agreeing(0)
    assert known.stat
    reads = dict(known.stat.requests)
    reads["read"] += 9000
    known = replace(known, path=True, stat=replace(known.stat, requests=reads), refused_above=9000)
    assert not [line for line in differences(model, one, known) if line.startswith("read beside")]
    for wrong in (replace(known, refused_above=0), replace(known, path=False)):
        assert [line for line in differences(model, one, wrong) if line.startswith("read beside")]


Wrong = Callable[[DeviceInterval], DeviceInterval]


def op_wrong(**changes: object) -> Wrong:
    return lambda one: replace(one, ops=one.ops | {"read": replace(one.ops["read"], **changes)})


def histogram_wrong(time: str) -> Wrong:
    """Every time of a kind stands in the first bucket."""

    def wrong(one: DeviceInterval) -> DeviceInterval:
        read = one.ops["read"]
        histogram = read.histograms[time]
        other = replace(histogram, counts={0: histogram.count or 1})
        return op_wrong(histograms={**read.histograms, time: other})(one)

    return wrong


def event_wrong(name: str) -> Wrong:
    return lambda one: replace(one, events={**one.events, name: one.events.get(name, 0) + 1000})


def swapped(one: DeviceInterval) -> DeviceInterval:
    by = {"requeued_by_driver": "requeued_by_target", "requeued_by_target": "requeued_by_driver"}
    return replace(one, events={name: one.events[by.get(name, name)] for name in one.events})


def device_wrong(**changes: object) -> Wrong:
    return lambda one: replace(one, device=replace(one.device, **changes))


EVENTS = (*parse(READING.read_text()).event_names, "nvme_aborted", "nvme_path", "nvme_not_ready")
WRONG: dict[str, Wrong] = {
    **{key: op_wrong(**{key: value}) for key, value in (
        ("issued", 1), ("completed", 1), ("sent_back", 77), ("bytes", 1), ("errors", 77), ("device_ns", 0),
        ("total_ns", 0), ("refused", 999), ("refused_ns", 10**12), ("errors_by_class", {"error_io": 77}),
    )},
    **{f"{time} histogram": histogram_wrong(time) for time in ("device", "total", "refused")},
    **{name: event_wrong(name) for name in EVENTS},
    "depth_ns": lambda one: replace(one, depth_ns=10**15), "at_limit_ns": lambda one: replace(one, at_limit_ns=10**12),
    "highest": device_wrong(highest=4000), "limit": device_wrong(limit=1), "in_flight": device_wrong(in_flight=1),
    "forgotten": device_wrong(forgotten=1),
    "limit_of": lambda one: device_wrong(limit_of="device" if one.device.limit_of == "queue" else "queue")(one),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("number", [0, 1])
def test_whatever_the_module_says_wrongly_is_a_difference(number: int, what: str) -> None:
    model, one, known = agreeing(number)
    assert differences(model, WRONG[what](one), known)


def test_refusals_counted_as_the_drivers_instead_of_the_targets_are_a_difference() -> None:
    model, one, known = agreeing(0)
    assert differences(model, swapped(one), known)


def test_queues_that_do_not_add_up_are_a_difference() -> None:
    model, one, known = agreeing(1)
    first, *rest = one.device.queues
    for queues in ((), (replace(first, highest=4000), *rest), (replace(first, in_flight=1), *rest)):
        assert differences(model, device_wrong(queues=queues)(one), known)


def test_bytes_that_neither_fio_nor_the_disk_moved_are_a_difference() -> None:
    model, one, known = agreeing(0)
    assert known.fio and known.stat
    more = {name: count + 512 for name, count in known.fio.items()}
    assert len(differences(model, one, replace(known, fio=more))) == 2
    assert len(differences(model, one, replace(known, stat=replace(known.stat, bytes=more)))) == 2
    assert differences(model, one, replace(known, flushes=1))


def test_what_cannot_be_known_is_named_with_its_reason() -> None:
    assert all(len(reason) > 20 for reason in NOT_KNOWN.values())
    names = " ".join(NOT_KNOWN)
    assert all(name in names for name in ("hctl", "held_", "nvme_", "at_limit_ns", "CPUs", "kernels", "waits", "queue"))
