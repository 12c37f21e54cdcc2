# SPDX-License-Identifier: GPL-2.0-or-later
"""The module's typed file beside its text, and readings and readers of 0.1.0 beside those of today."""

import importlib.machinery
import importlib.util
import random
import re
import struct
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_stat import reading
from typed_words import DETAIL_WORDS, KINDS, LISTS, typed_of

from fabtune.cli.main import main
from fabtune.errors import FabtuneError, InputError
from fabtune.host import tree
from fabtune.stat import Snapshot, parse, parse_typed, since_seen, snapshot, text_snapshot
from fabtune.stat.binary import TYPED_VERSION

TOP = Path(__file__).resolve().parents[2]
DATA = Path(__file__).with_name("data")
ABI = (TOP / "Documentation/ABI/testing/debugfs-fabstat").read_text()
# Two readings of one module of 0.2.0, one behind the other, while nothing happened; and one of 0.1.0.
TEXT = (DATA / "fabstat-0.2.0.stats").read_text()
TYPED = (DATA / "fabstat-0.2.0.stats.bin").read_bytes()
# The same with what has come since at the end of records.
NOW = re.sub(r"^(queue .*)$", r"\1 issued=5", TEXT, flags=re.MULTILINE)
RELEASED = (DATA / "fabstat-0.1.0.stats").read_text()


def at_one_time(reading: Snapshot) -> Snapshot:
    """The reading as of time 0, so that it can be compared with another one."""
    module = {key: value for key, value in reading.module.items() if key != "time_ns"}
    devices = tuple(replace(one, time_ns=0) if one.state == "live" else one for one in reading.devices)
    return replace(reading, time_ns=0, module=module, devices=devices)


def records(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield kind, offset and length of each record."""
    at = data.index(0) // 8 * 8 + 8
    while at < len(data):
        kind, length = struct.unpack_from("=II", data, at)
        yield kind, at, length
        at += length


def test_both_files_of_a_module_say_the_same() -> None:
    typed, text = at_one_time(parse_typed(TYPED)), at_one_time(parse(TEXT))
    assert typed.devices == text.devices and typed == text
    # Nothing that the format has is missing in the recording.
    assert {kind for kind, _, _ in records(TYPED)} == set(range(len(KINDS)))
    assert {one.state for one in typed.devices} >= {"live", "gone"}
    assert {one.limit_of for one in typed.devices} == {"device", "queue"}


def test_the_typed_file_is_what_the_abi_says() -> None:
    lists = {f"list {name} {' '.join(values)}\n".encode() for name, values in LISTS.items()}
    for line in (*lists, f"list detail {' '.join(DETAIL_WORDS)}\n".encode()):
        assert line in TYPED
    for more in range(8):
        text = TEXT.replace("version=0.2.0", f"version=0.2.0{'+' * more}")
        assert parse_typed(typed_of(text)) == parse(text)


def test_the_abi_names_each_kind_of_record_and_its_values() -> None:
    page = ABI.split("So the kinds of records are:")[1].split("Without a change")[0]
    documented = dict(re.findall(r"^\t\t(\d \w+)\n((?:\t\t\t.*\n)+)", page, re.MULTILINE))
    assert list(documented) == [f"{number} {kind}" for number, kind in enumerate(KINDS)]
    for line in NOW.splitlines()[4:]:
        kind, *words = line.split(" ")
        keys = [word.partition("=")[0] for word in words if "=" in word]
        if kind in ("events", "errors"):
            keys = keys[: 1 + (kind == "errors")]
        if kind == "detail":
            keys[2] = "detail"
        listed = documented[f"{KINDS.index(kind)} {kind}"].replace(", then pairs", "").split()
        assert listed == keys, line


def test_versions_of_the_typed_file_agree() -> None:
    found = re.findall(r"#define TYPED_VERSION\s+(\d+)", (TOP / "kmod/show.c").read_text())
    assert found == [str(TYPED_VERSION)]
    assert f"# fabstat-typed {TYPED_VERSION}\n" in ABI


LARGE = st.integers(0, 2**64 - 1)


@given(st.lists(LARGE, min_size=13, max_size=13), st.integers(-5, 5), st.sampled_from(["a b", "", "x" * 31, "ä\\n"]))
def test_every_number_and_name_comes_through(numbers: list[int], depth: int, name: str) -> None:
    typed = bytearray(TYPED)
    kind, at, _ = next(records(TYPED))
    assert kind == 0
    number = numbers[0] | 1 << 60  # no other's
    struct.pack_into("=QQ32sQQ40s32s32sQQqQQQQQQQQQ", typed, at + 8, number, 1, name.encode(), 8 << 32 | 16,
                     numbers[1], b"1:0:0:2", name.encode(), b"host1", *numbers[2:4], depth, *numbers[4:12],
                     1)  # fmt: skip
    found = next(one for one in parse_typed(bytes(typed)).devices if one.id == number)
    assert (found.state, found.dev, found.disk, found.driver, found.hctl) == ("dying", "8:16", name, name, "1:0:0:2")
    assert found.limit_of == "queue" and found.parent == "host1"
    assert [found.diskseq, found.seen_ns, found.time_ns, found.highest, found.limit, found.forgotten, found.eh_wakeups,
            found.depth_ns, found.at_limit_ns, found.depth_error_ns, found.torn] == numbers[1:12]  # fmt: skip
    assert found.in_flight == depth


def test_what_a_newer_module_adds_is_passed_over() -> None:
    today = typed_of(NOW)
    header, _, _ = today.partition(b"\0")
    newer = header.replace(b"list op read", b"list else one two\nlist op read").replace(b" other\n", b" other zone\n")
    newer += bytes(8 - len(newer) % 8)
    for kind, at, length in records(today):
        more = struct.pack("=QQ", 7, 8) if KINDS[kind] in ("device", "queue", "op") else b""
        newer += struct.pack("=II", kind, length + len(more)) + today[at + 8 : at + length] + more
        newer += struct.pack("=IIQ", 77, 24, 1) + bytes(8)
    assert parse_typed(newer).devices == parse_typed(today).devices == parse(NOW).devices


@pytest.mark.parametrize("seed", range(200))
def test_a_damaged_reading_is_an_error_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(TYPED)
    for _ in range(chance.randint(1, 8)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    try:
        parse_typed(bytes(data[: chance.choice([len(data), chance.randrange(len(data))])]))
    except InputError as error:
        assert "fabstat: " in str(error)


def test_a_cut_record_and_a_record_without_end_are_damage() -> None:
    unknown = struct.pack("=IIQQ", 77, 20, 0, 0)
    for data in (TYPED[:-8], TYPED[:-16], TYPED + unknown, TYPED + unknown[:8], TYPED[: TYPED.index(0)], TYPED[:100]):
        with pytest.raises(InputError, match="damaged or cut short"):
            parse_typed(data)


def test_the_typed_file_is_read_where_there_is_one_that_is_known(tmp_path: Path) -> None:
    (tmp_path / "stats").write_text(TEXT)
    assert snapshot(tmp_path).text == TEXT
    (tmp_path / "stats.bin").write_bytes(TYPED)
    found = snapshot(tmp_path)
    assert found.text == "" and found == parse_typed(TYPED)
    assert text_snapshot(tmp_path).text == TEXT
    (tmp_path / "stats.bin").write_bytes(TYPED.replace(b"typed 1\n", b"typed 2\n", 1))
    assert snapshot(tmp_path).text == TEXT
    (tmp_path / "stats.bin").write_bytes(TYPED[:-8])
    with pytest.raises(InputError, match=r"stats\.bin: damaged"):
        snapshot(tmp_path)
    with pytest.raises(FabtuneError):
        snapshot(tmp_path / "nowhere")


def test_a_reading_is_saved_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stats").write_text(TEXT)
    (tmp_path / "stats.bin").write_bytes(TYPED)
    monkeypatch.setattr("fabtune.cli.stat.text_snapshot", lambda: text_snapshot(tmp_path))
    monkeypatch.setattr(tree, "SYS", tmp_path / "nowhere")
    assert main(["stat", "--save", str(tmp_path / "saved")]) == 0
    assert (tmp_path / "saved").read_text() == TEXT


@pytest.fixture(scope="module")
def reader() -> ModuleType:
    """The reader that 0.1.0 was released with, as it was."""
    name = "fabstat_reader_of_0_1_0"
    loader = importlib.machinery.SourceFileLoader(name, str(DATA / "fabstat-0.1.0.reader"))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def known(old: Any, new: Any) -> None:
    """Whatever `old` has, `new` has as well, and the same of it."""
    if isinstance(old, dict):
        for key, value in old.items():
            known(value, new[key])
    elif isinstance(old, list | tuple):
        assert len(old) == len(new)
        for one, other in zip(old, new, strict=True):
            known(one, other)
    else:
        assert old == new


@pytest.mark.parametrize("text", [TEXT, RELEASED], ids=["0.2.0", "0.1.0"])
def test_the_reader_of_0_1_0_reads_the_text_of_every_module(reader: ModuleType, text: str) -> None:
    # And what fabtune keeps with it, of today.
    more = re.sub(r"(device id=(\d+) .*\n)", r"\1around id=\2 transport=iscsi path_of=dm-3 can_queue=128\n", text)
    old, new = reader.parse(more), parse(text)
    assert len(old.devices) == len(new.devices) > 1
    for one, other in zip(old.devices, new.devices, strict=True):
        fields = asdict(one)
        assert len(fields) == 19 and fields["ops"]
        known(fields, asdict(other))


def test_the_text_of_0_1_0_is_read_today(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = since_seen(parse(RELEASED))
    device = found.device("sda")
    # As an eye reads it in the file.
    assert (device.queue_full, device.held, device.device.limit, device.device.hctl) == (3, 0, 8, "0:0:0:0")
    assert (device.ops["read"].issued, device.ops["read"].sent_back, device.ops["read"].errors) == (27, 3, 1)
    assert device.ops["read"].errors_by_class["error_medium"] == 1
    total = device.histogram("total", "read")
    assert total and total.count == 24 and device.ops["write"].histograms["total"].count == 20
    assert (device.device.depth_error_ns, device.device.torn, device.device.limit_of) == (0, 0, "device")
    earlier, saved = tmp_path / "earlier", tmp_path / "saved"
    earlier.write_text(RELEASED)
    saved.write_text(RELEASED.replace("completed=24", "completed=25"))
    assert main(["stat", "--diff", str(earlier), str(saved)]) == 0
    assert "sda" in capsys.readouterr().out


def test_a_reading_without_devices_is_one(tmp_path: Path) -> None:
    lines = reading([]).splitlines(keepends=True)
    empty = "".join(lines[:4])
    assert parse_typed(typed_of(empty + lines[4])[: typed_of(empty + lines[4]).index(0) // 8 * 8 + 8]) == parse(empty)
