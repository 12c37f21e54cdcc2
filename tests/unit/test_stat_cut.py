# SPDX-License-Identifier: GPL-2.0-or-later
"""Saved readings that are cut short or damaged: refused, never shown with other figures."""

from dataclasses import fields
from pathlib import Path
from struct import pack, unpack_from

import pytest
from test_stat_target import served

from fabtune.cli.main import main
from fabtune.errors import FabtuneError, InputError
from fabtune.stat import Interval, diff, load, parse, parse_target, parse_typed, target_diff
from fabtune.stat.interval import since_seen

DATA = Path(__file__).with_name("data")
TEXTS = {name: (DATA / f"fabstat-{name}.stats").read_text() for name in ("0.1.0", "0.2.0")}


def later(text: str) -> str:
    """The same reading, taken a second later."""
    moved = []
    for line in text.splitlines():
        if line.startswith("module ") or " state=live " in line:
            words = [
                f"time_ns={int(word[8:]) + 10**9}" if word.startswith("time_ns=") else word for word in line.split(" ")
            ]
            line = " ".join(words)
        moved.append(line)
    return "\n".join(moved) + "\n"


def least(interval: Interval) -> int:
    """The smallest counter of an interval."""
    found = [one.at_limit_ns for one in interval.devices]
    for one in interval.devices:
        found += one.events.values()
        for op in one.ops.values():
            found += [getattr(op, field.name) for field in fields(op) if isinstance(getattr(op, field.name), int)]
            found += op.errors_by_class.values()
    return min(found, default=0)


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_ends_within_a_line_is_refused(name: str) -> None:
    text = TEXTS[name]
    taken = [cut for cut in range(len(text)) if text[cut - 1 : cut] != "\n" and _is_read(text[:cut])]
    assert taken == []


def _is_read(text: str) -> bool:
    try:
        parse(text)
    except FabtuneError:
        return False
    return True


@pytest.mark.parametrize("name", TEXTS)
def test_a_saved_text_without_its_last_lines_is_refused_or_has_all_devices_and_their_times(
    name: str, tmp_path: Path
) -> None:
    lines = TEXTS[name].splitlines(keepends=True)
    whole = parse(TEXTS[name])
    path = tmp_path / "cut"
    for number in range(len(lines)):
        path.write_text("".join(lines[:number]))
        try:
            found = load(path)
        except FabtuneError:
            continue
        assert [one.id for one in found.devices] == [one.id for one in whole.devices], number
        assert all(op.histograms["device"].count == op.completed for one in found.devices for op in one.ops.values()), (
            number
        )


def test_no_counter_of_an_interval_is_negative_whatever_is_missing_of_a_reading() -> None:
    whole = TEXTS["0.2.0"]
    cut = later(whole)
    first, lines = parse(whole), cut.splitlines(keepends=True)
    assert least(diff(first, parse(cut))) == 0
    for number in range(4, len(lines)):
        for text in ("".join(lines[:number]), "".join(lines[:number] + lines[number + 1 :])):
            try:
                assert least(diff(first, parse(text))) >= 0, number
            except FabtuneError:
                continue


def test_counters_that_shrank_are_damage_and_what_is_another_device_or_torn_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = TEXTS["0.2.0"], later(TEXTS["0.2.0"])
    fewer = after.replace("id=1 task_set_full=3", "id=1 task_set_full=2")
    for damaged in (
        fewer,
        after.replace("issued=19 ", "issued=18 "),
        after.replace("op=read error_medium=1", "op=read"),
    ):
        with pytest.raises(InputError, match="sda.*smaller in the second reading"):
            diff(parse(before), parse(damaged))
    # One event a CPU may be missing in a torn reading.
    torn = diff(parse(before), parse(fewer.replace("torn=0", "torn=1")))
    assert least(torn) == 0
    # The module takes samples that were missing into their histograms once there is memory again.
    made_up = parse(before.replace("events id=3\n", "events id=3 no_histogram=4\n"))
    assert least(diff(made_up, parse(after))) == 0
    # A disk that came later, under the same name.
    other = diff(
        parse(before.replace("id=1 ", "id=9 ").replace("issued=19 completed=16", "issued=99 completed=16")),
        parse(after),
    )
    assert other.device("sda").ops["read"].issued == 19
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, text in zip(paths, (before, fewer), strict=True):
        path.write_text(text)
    assert main(["stat", "--diff", *map(str, paths)]) == 2
    assert "damaged" in (said := capsys.readouterr()).err and not said.out


def test_a_cut_reading_of_what_was_served_is_refused() -> None:
    text = served(10)
    with pytest.raises(InputError, match="cut short"):
        parse_target(text[:-1])
    with pytest.raises(InputError, match="damaged"):
        parse_target(text.replace("2:10", "2:1"))
    after = served(10, time_ns=3 * 10**9)
    for damaged in (after.replace("completed=10", "completed=9"), after.replace("task_set_full=5", "task_set_full=4")):
        with pytest.raises(InputError, match="smaller in the second reading"):
            target_diff(parse_target(text), parse_target(damaged))


def test_the_time_at_the_limit_is_that_of_the_queue_that_was_fullest_meanwhile() -> None:
    first, second = (
        f"queue={number} in_flight=0 highest={most} limit=8 at_limit_ns=" for number, most in ((0, 1), (1, 5))
    )
    before = TEXTS["0.2.0"].replace(f"{first}0", f"{first}2000000000")
    after = later(before).replace(f"{second}0", f"{second}500000000")
    one = diff(parse(before), parse(after)).device("nullb0")
    assert one.at_limit == pytest.approx(0.5)
    assert [queue.at_limit_ns for queue in one.queues] == [0, 500_000_000]
    assert since_seen(parse(after)).device("nullb0").queues[0].at_limit_ns == 2_000_000_000


def test_where_the_module_writes_an_end_what_lacks_it_is_cut_short(tmp_path: Path) -> None:
    text = TEXTS["0.2.0"].replace("missing=-", "missing=- ends=1")
    path = tmp_path / "saved"
    path.write_text(text + "end devices=3\n")
    assert [one.ops for one in load(path).devices] == [one.ops for one in parse(TEXTS["0.2.0"]).devices]
    lines = text.splitlines(keepends=True)
    for number in range(len(lines) + 1):
        path.write_text("".join(lines[:number]))
        with pytest.raises(InputError, match="cut short|expected"):
            load(path)
    path.write_text(text + "end devices=4\n")
    with pytest.raises(InputError, match="no end"):
        load(path)
    told = served(10).replace(" memory_refused=0\n", " memory_refused=0 ends=1\n")
    assert parse_target(told + "end\n").luns == parse_target(served(10)).luns
    with pytest.raises(InputError, match="no end"):
        parse_target(told)


def test_a_typed_reading_in_which_a_disk_stands_twice_has_its_end() -> None:
    """A disk that goes while the file is read may stand there twice; then all of the reading was refused."""
    typed = (DATA / "fabstat-0.2.0.stats.bin").read_bytes()
    header, _, _ = typed.partition(b"\0")
    records = typed[len(header) // 8 * 8 + 8 :]
    header = header.replace(b"missing=-", b"missing=- ends=1")
    (length,) = unpack_from("=I", records, 4)
    data = header + bytes(8 - len(header) % 8) + records + records[:length]
    assert len(parse_typed(data + pack("=IIQ", 7, 16, 4)).devices) == 3
    with pytest.raises(InputError, match="cut short"):
        parse_typed(data + pack("=IIQ", 7, 16, 3))


def test_a_typed_reading_that_lacks_its_end_is_cut_short() -> None:
    typed = (DATA / "fabstat-0.2.0.stats.bin").read_bytes()
    header, _, _ = typed.partition(b"\0")
    records = typed[len(header) // 8 * 8 + 8 :]
    header = header.replace(b"missing=-", b"missing=- ends=0")
    data = header + bytes(8 - len(header) % 8) + records
    assert parse_typed(data + pack("=IIQ", 7, 16, 3)).devices == parse_typed(typed).devices
    for cut in (data, data + pack("=IIQ", 7, 16, 4), data + pack("=IIQ", 7, 16, 3)[:8]):
        with pytest.raises(InputError, match="cut short"):
            parse_typed(cut)
