# SPDX-License-Identifier: GPL-2.0-or-later
"""Readings of the module: parsing, differences, percentiles, names, and the verbs that show them."""

import json
import math
import timeit
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtune.cli import stat_output
from fabtune.cli.main import main
from fabtune.errors import FabtuneError, InputError
from fabtune.host import tree
from fabtune.stat import Histogram, diff, endpoint, head_above, head_of, host_loads, load, parse, since_seen, snapshot


def bounds() -> tuple[int, ...]:
    """The module's buckets, written down independently of its arithmetic."""
    linear = [index * 64 for index in range(16)]
    octaves = [2**octave * (16 + step) // 16 for octave in range(10, 40) for step in range(16)]
    return (*linear, *octaves, 2**40)


BOUNDS = bounds()


def bucket(ns: int) -> int:
    return max(index for index, bound in enumerate(BOUNDS) if bound <= ns)


def histogram(times: Sequence[int]) -> Histogram:
    counts: dict[int, int] = {}
    for ns in times:
        counts[bucket(ns)] = counts.get(bucket(ns), 0) + 1
    return Histogram(BOUNDS, counts)


def reading(
    reads: Sequence[int], *, time_ns: int = 2_000_000_000, events: str = "", depth_ns: int = 0, loaded_ns: int = 1,
    identity: str = "disk=sda dev=8:0 diskseq=9 hctl=2:0:0:1 driver=iscsi_tcp parent=session3", number: int = 4,
) -> str:  # fmt: skip
    """A reading as the module prints it, with one device that did `reads`, in ns each."""
    counts = " ".join(f"{index}:{count}" for index, count in sorted(histogram(reads).counts.items()))
    op = (
        f"op id={number} op=read issued={len(reads)} completed={len(reads)} sent_back=0 "
        f"bytes={4096 * len(reads)} errors=0 device_ns={sum(reads)} total_ns={sum(reads)} refused=0 refused_ns=0\n"
        + "".join(
            f"histogram id={number} op=read time={time} count={len(reads)} {counts}\n" for time in ("device", "total")
        )
        if reads
        else ""
    )
    return (
        "# fabstat 1\n"
        f"module version=0.1.0 enabled=1 scsi=1 clock=counter loaded_ns={loaded_ns} time_ns={time_ns} "
        "stuck_ms=60000 depth_modulus_ns=1000000000000 memory_bytes=1 memory_limit_bytes=2 memory_refused=0 "
        "devices_seen=1 untracked=0\n"
        f"buckets from_ns {' '.join(map(str, BOUNDS))}\n"
        "event_names task_set_full busy host_busy device_busy target_busy eh_retry driver_other held_device "
        "held_recovery held_backoff held_target held_other timeout\n"
        f"device id={number} state=live {identity} seen_ns=1000000000 time_ns={time_ns} in_flight=0 "
        f"highest=3 limit=32 forgotten=0 eh_wakeups=0 depth_ns={depth_ns} at_limit_ns=0\n"
        f"events id={number}{events}\n" + op
    )


@given(st.lists(st.integers(0, 2**41), min_size=1, max_size=200), st.floats(0.01, 100))
def test_a_percentile_holds_the_nearest_rank_of_the_times_themselves(times: list[int], percent: float) -> None:
    found = histogram(times).percentile(percent)
    true = sorted(times)[math.ceil(len(times) * percent / 100) - 1]
    assert found is not None and found.low_ns <= true < found.high_ns
    if 1024 <= true < 2**40:
        assert abs(found.value_ns - true) <= found.error_ns <= 0.0313 * true * 16 / 15


def test_a_histogram_without_samples_has_no_percentile_and_refuses_nonsense() -> None:
    assert Histogram(BOUNDS).percentile(50) is None
    with pytest.raises(ValueError, match="more than 0"):
        histogram([5]).percentile(0)


@given(st.lists(st.integers(0, 2**40), max_size=50), st.lists(st.integers(0, 2**40), max_size=50))
def test_what_is_added_between_two_readings_is_their_difference(first: list[int], second: list[int]) -> None:
    before, after = parse(reading(first)), parse(reading([*first, *second], time_ns=3_000_000_000))
    interval = diff(before, after)
    assert interval.elapsed_ns == 1_000_000_000
    device = interval.device("sda")
    assert device.completed == len(second)
    found = device.histogram()
    if second:
        assert found is not None and found.counts == histogram(second).counts
    else:
        assert found is None or found.count == 0


def test_queue_full_is_the_sum_of_refusals_by_target_and_driver_and_held_is_apart() -> None:
    events = " task_set_full=1 busy=2 host_busy=4 device_busy=8 target_busy=16 driver_other=32 held_target=100"
    device = since_seen(parse(reading([1000], events=events))).device("/dev/sda")
    assert device.queue_full == 63
    assert device.held == 100
    before = parse(reading([1000], events=" busy=2"))
    after = parse(reading([1000], events=" busy=7", time_ns=3_000_000_000))
    assert diff(before, after).device("sda").queue_full == 5


def test_mean_depth_survives_the_wrap_of_its_integral() -> None:
    before = parse(reading([1000], depth_ns=999_000_000_000))
    after = parse(reading([1000], depth_ns=2_000_000_000, time_ns=3_000_000_000))
    assert diff(before, after).device("sda").mean_depth == pytest.approx(3.0)


def test_an_integral_read_some_microseconds_long_leaves_no_depth_behind() -> None:
    before = parse(reading([1000], depth_ns=7_000_002_000))
    after = parse(reading([1000], depth_ns=7_000_000_000, time_ns=3_000_000_000))
    assert diff(before, after).device("sda").mean_depth == 0


def test_a_torn_reading_or_one_that_may_be_far_off_tells_no_mean_depth(capsys: pytest.CaptureFixture[str]) -> None:
    def depth(key: str) -> float | None:
        before = parse(reading([1000], depth_ns=1_000_000_000))
        text = reading([1000], depth_ns=3_000_000_000, time_ns=3_000_000_000)
        return diff(before, parse(text.replace("at_limit_ns=0", f"at_limit_ns=0 {key}"))).device("sda").mean_depth

    assert depth("depth_error_ns=1000 torn=0") == depth("newer=1") == pytest.approx(2.0)
    assert depth("depth_error_ns=0 torn=1") is None
    assert depth("depth_error_ns=90000000000 torn=0") is None
    torn = parse(reading([1000], depth_ns=10**15).replace("at_limit_ns=0", "at_limit_ns=0 torn=2"))
    stat_output.print_table(since_seen(torn), since_seen(torn).devices, torn)
    assert "1000000" not in (shown := capsys.readouterr().out) and "?" in shown


def test_names_with_blanks_come_back_as_they_are() -> None:
    text = reading([1000]).replace("driver=iscsi_tcp", r"driver=3w-9xxx\040\134\040card")
    assert parse(text).devices[0].driver == "3w-9xxx \\ card"


def test_a_device_that_went_while_the_file_was_read_is_one_device() -> None:
    text = reading([1000])
    again = text[text.index("device id=4") :].replace("state=live", "state=gone")
    assert [device.state for device in parse(text + again).devices] == ["gone"]


def test_hardware_queues_have_limits_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    text = reading([1000]).replace("at_limit_ns=0\n", "at_limit_ns=5 limit_of=queue\n")
    text += "queue id=4 queue=1 in_flight=2 highest=3 limit=32 at_limit_ns=5 newer=1\n"
    taken = parse(text)
    assert [(one.queue, one.limit, one.at_limit_ns) for one in taken.devices[0].queues] == [(1, 32, 5)]
    stat_output.print_details(since_seen(taken).devices[0])
    assert "limit 32/queue" in (shown := capsys.readouterr().out) and "hardware queue" in shown


def test_what_the_kernel_does_not_tell_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(missing: str, identity: str = "disk=sda dev=8:0 diskseq=9 hctl=2:0:0:1 driver=x parent=session3") -> str:
        text = reading([1000], identity=identity).replace("scsi=1", f"scsi=0 missing={missing}")
        stat_output.print_table(since_seen(parse(text)), since_seen(parse(text)).devices, parse(text))
        return " ".join(capsys.readouterr().out.split())

    assert "not seen: this kernel has no scsi_dispatch_cmd_error" in shown("block_rq_remap,scsi_dispatch_cmd_error")
    assert "not seen" in shown("-")
    nvme = "disk=nvme0n1 dev=259:0 diskseq=9 hctl=- driver=nvme parent=nvme0"
    assert "not seen" not in shown("scsi_dispatch_cmd_error", nvme)


def test_a_device_that_came_between_two_readings_counts_from_its_first_request() -> None:
    before = parse(reading([5000]))
    after = parse(reading([7000, 7000], number=5, time_ns=3_000_000_000))
    device = diff(before, after).device("sda")
    assert device.completed == 2
    assert device.elapsed_ns == 2_000_000_000


def test_readings_of_different_loads_or_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(InputError, match="reloaded"):
        diff(parse(reading([1], loaded_ns=1)), parse(reading([1], loaded_ns=2)))
    with pytest.raises(InputError, match="older"):
        diff(parse(reading([1], time_ns=5)), parse(reading([1], time_ns=4)))


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "first line"), ("# fabstat 2\n", "fabstat 2"), ("nonsense\n", "first line"), ("# fabstat 1\n", "cut short")],
)
def test_a_text_that_is_no_reading_is_refused(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse(text)


@given(st.data())
def test_a_reading_cut_short_or_damaged_is_refused_or_read_never_a_traceback(data: st.DataObject) -> None:
    text = reading([1000, 2000, 3000], events=" busy=1")
    place = data.draw(st.integers(0, len(text)))
    damaged = text[:place] + data.draw(st.sampled_from(["", "\n", "=", " ", "x", ":"])) + text[place + 1 :]
    if data.draw(st.booleans()):
        damaged = text[:place]
    try:
        since_seen(parse(damaged))
    except InputError as error:
        assert str(error)


def test_total_times_that_the_module_leaves_out_are_the_device_times() -> None:
    lines = [line for line in reading([1000, 9000]).splitlines() if "time=total" not in line]
    read = parse("\n".join(lines) + "\n").devices[0].ops["read"]
    assert read.histograms["total"].counts == read.histograms["device"].counts == histogram([1000, 9000]).counts
    assert read.histograms["refused"].count == 0


def test_unknown_records_keys_and_events_of_a_newer_module_are_passed_over() -> None:
    text = reading([1000]).replace("highest=3", "highest=3 newkey=7")
    text = text.replace("op=read issued", "op=read newer=1 issued").replace("time=device", "time=device newer=3")
    device = since_seen(parse(text + "future id=4 x=y\n")).device("sda")
    assert device.completed == 1 and device.device.highest == 3


def test_errors_are_told_apart_by_op_and_class_and_subtract() -> None:
    def failing(text: str, count: int) -> str:
        text = text.replace("event_names", "event_names error_medium")
        return text.replace("histogram", f"errors id=4 op=read error_medium={count}\nhistogram", 1)

    first = parse(failing(reading([1000]), 2))
    second = parse(failing(reading([1000, 2000], time_ns=3_000_000_000), 7))
    assert first.devices[0].ops["read"].errors_by_class == {"error_medium": 2}
    assert diff(first, second).device("sda").ops["read"].errors_by_class == {"error_medium": 5}


def test_a_missing_module_says_how_to_load_it(tmp_path: Path) -> None:
    with pytest.raises(FabtuneError, match="the fabstat module is not loaded.*(modprobe|apt install|dkms install)"):
        snapshot(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / "nothing")


def test_an_iscsi_disk_is_named_by_target_and_portal(tmp_path: Path) -> None:
    device = parse(reading([1])).devices[0]
    for path, text in {
        "class/iscsi_session/session3/targetname": "iqn.2026-01.example:t0\n",
        "class/iscsi_connection/connection3:0/persistent_address": "fd00::1\n",
        "class/iscsi_connection/connection3:0/persistent_port": "3260\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    end = endpoint(device, tmp_path)
    assert (end.transport, end.target, end.portal) == ("iscsi", "iqn.2026-01.example:t0", "[fd00::1]:3260")
    assert endpoint(replace(device, parent="virtio3", hctl="-"), tmp_path).transport == ""


def test_an_srp_disk_is_named_by_its_hosts_target(tmp_path: Path) -> None:
    for path, text in {
        "class/srp_remote_ports/port-2:1/port_id": "aa:bb\n",
        "class/scsi_host/host2/ioc_guid": "0xfe\n",
        "class/scsi_host/host2/dgid": "fe80::5\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    device = replace(parse(reading([1])).devices[0], parent="host2", driver="ib_srp")
    end = endpoint(device, tmp_path)
    assert (end.transport, end.target, end.portal) == ("srp", "0xfe", "fe80::5")


def test_paths_stand_beside_the_disk_whose_paths_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nvme = "disk=nvme0c{0}n1 dev=259:{0} diskseq=9 hctl=- driver=nvme parent=nvme{0}"
    text = reading([1000], identity=nvme.format(0))
    second = text[text.index("device id=4") :].replace("id=4", "id=5").replace("nvme0c0n1", "nvme0c1n1")
    found = since_seen(parse(text + second))
    chosen = stat_output.chosen_devices(found, ["/dev/nvme0n1"], everything=False)
    assert [one.device.disk for one in chosen] == ["nvme0c0n1", "nvme0c1n1"]
    stat_output.print_table(found, chosen, parse(text))
    assert capsys.readouterr().out.count("path of nvme0n1") == 2
    with pytest.raises(InputError, match="nvme1n1"):
        stat_output.chosen_devices(found, ["nvme1n1"], everything=False)
    monkeypatch.setattr(tree, "SYS", tmp_path)
    (tmp_path / "block/sda/holders/dm-3").mkdir(parents=True)
    (tmp_path / "block/dm-3/dm").mkdir(parents=True)
    (tmp_path / "block/dm-3/dm/uuid").write_text("mpath-36001405\n")
    disk = reading([1000])
    head = disk[disk.index("device id=4") :].replace("id=4", "id=5").replace("disk=sda", "disk=dm-3")
    found = since_seen(parse(disk + head))
    chosen = stat_output.chosen_devices(found, ["dm-3"], everything=False)
    assert head_of("sda") == "dm-3" and [one.device.disk for one in chosen] == ["dm-3", "sda"]
    # The name of a disk that is gone is another's by now.
    (gone,) = since_seen(parse(disk.replace("state=live", "state=gone"))).devices
    assert head_above(gone.device) == "" and head_above(found.devices[0].device) == "dm-3"
    (tmp_path / "block/dm-3/dm/uuid").write_text("LVM-x\n")
    chosen = stat_output.chosen_devices(found, ["dm-3"], everything=False)
    assert head_of("sda") == "" and [one.device.disk for one in chosen] == ["dm-3"]


def test_luns_that_share_a_hosts_commands_are_summed_up(tmp_path: Path) -> None:
    first = reading([1000], depth_ns=1_000_000_000)
    lun = first[first.index("device id=4") :].replace("id=4", "id=5").replace("2:0:0:1", "2:0:0:2")
    found = since_seen(parse(first + lun))
    directory = tmp_path / "class/scsi_host/host2"
    directory.mkdir(parents=True)
    (directory / "can_queue").write_text("2\n")
    (load,) = host_loads(found.devices, tmp_path)
    assert load.host == 2 and load.can_queue == 2
    assert load.mean_depth == pytest.approx(2 * (found.devices[0].mean_depth or math.nan))
    assert load.full == (load.mean_depth >= 1.8)
    torn = since_seen(parse(first + lun.replace("at_limit_ns=0", "at_limit_ns=0 torn=1")))
    assert host_loads(torn.devices, tmp_path) == []
    (directory / "nr_hw_queues").write_text("1\n")
    assert len(host_loads(found.devices, tmp_path)) == 1
    assert host_loads(found.devices, tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("flags", "capacity"),
    [
        ("alloc_policy=FIFO SHOULD_MERGE|TAG_QUEUE_SHARED", 8),
        ("TAG_QUEUE_SHARED|TAG_HCTX_SHARED", 2),
        (None, None),
    ],
)
def test_a_host_with_several_queues_takes_as_many_as_each_of_them_or_all_together(
    flags: str | None, capacity: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Four full queues were no host at all."""
    monkeypatch.setattr(tree, "SYS", tmp_path)
    place = tmp_path / "class/scsi_host/host2"
    place.mkdir(parents=True)
    (place / "can_queue").write_text("2\n")
    (place / "nr_hw_queues").write_text("4\n")
    if flags is not None:
        queue = tmp_path / "kernel/debug/block/sda/hctx0"
        queue.mkdir(parents=True)
        (queue / "flags").write_text(f"{flags}\n")
    text = parse(reading([1000], depth_ns=7_800_000_000))
    found = since_seen(text)
    (load,) = host_loads(found.devices)
    assert (load.can_queue, load.full) == (capacity, capacity is not None)
    stat_output.print_table(found, found.devices, text)
    shown = " ".join(capsys.readouterr().out.split())
    assert (f"{load.mean_depth:.1f} of its {capacity} commands" in shown) is (capacity is not None)
    assert ("how many host2 takes is not known" in shown) is (capacity is None)


def test_a_name_that_two_disks_have_had_is_the_later_ones() -> None:
    text = reading([1000])
    older = text[text.index("device id=4") :].replace("id=4", "id=3").replace("state=live", "state=dying")
    for both in (text + older, text[: text.index("device id=4")] + older + text[text.index("device id=4") :]):
        found = parse(both)
        assert since_seen(found).device("sda").device.id == 4


def test_json_has_stable_keys_and_percentiles_carry_their_error(capsys: pytest.CaptureFixture[str]) -> None:
    taken = parse(reading([1_000_000] * 99 + [50_000_000], events=" target_busy=3"))
    stat_output.print_interval_json(since_seen(taken), since_seen(taken).devices, taken, None, one_line=False)
    device = json.loads(capsys.readouterr().out)["devices"][0]
    read = device["ops"]["read"]
    assert device["queue_full"] == 3 and device["parent"] == "session3" and device["depth_limit"] == 32
    assert read["device_ms"]["mean"] == pytest.approx(1.49)
    assert abs(read["device_ms"]["p50"] - 1.0) <= read["device_ms"]["p50_error"] <= 0.0315
    assert abs(read["device_ms"]["max"] - 50.0) <= read["device_ms"]["max_error"]
    assert read["refused_ms"]["p99"] is None


def test_two_saved_readings_are_compared_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_text(reading([1_000_000] * 10))
    (tmp_path / "b").write_text(reading([1_000_000] * 30, time_ns=3_000_000_000))
    assert main(["stat", "--diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    shown = capsys.readouterr().out
    assert "sda" in shown and "read" in shown and "20" in shown.split()
    assert main(["stat", "sda", "--diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "±" in capsys.readouterr().out
    assert main(["stat", "sdz", "--diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    (tmp_path / "c").write_bytes(b"\xff\xfe")
    assert main(["stat", "--diff", str(tmp_path / "a"), str(tmp_path / "c")]) == 2
    assert main(["stat", "--count", "3"]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--watch", "0"], ["--watch", "x"], ["--watch", "nan"], ["--count", "0"]])
def test_impossible_intervals_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stat", *words]) == 2
    assert "expected" in capsys.readouterr().err


def test_parsing_a_thousand_devices_costs_little_more_than_reading_their_words() -> None:
    body = reading(list(range(1_000_000, 1_400_000, 4000)) * 3)
    head, _, device = body.partition("device id=4")
    text = head + "".join(f"device id=4{device}".replace("id=4", f"id={number}") for number in range(1000))
    assert len(parse(text).devices) == 1000
    # A ratio of two runs side by side; on a machine of today the whole is about 30 ms.
    assert min(timeit.repeat(lambda: parse(text), number=1)) < 6 * min(timeit.repeat(lambda: _words(text), number=1))


def _words(text: str) -> list[list[list[str]]]:
    return [[word.split("=") for word in line.split(" ")] for line in text.splitlines()]
