# SPDX-License-Identifier: GPL-2.0-or-later
"""What ``stat`` says of one disk: what is not seen, what binds its queue, and which disk a name stands for."""

import json
from pathlib import Path

import pytest
from test_stat import reading

from fabtune.cli import stat_output
from fabtune.cli.main import main
from fabtune.errors import InputError
from fabtune.host import tree
from fabtune.stat import diff, endpoint, parse, since_seen


def compared(tmp_path: Path, before: str, after: str, *words: str) -> int:
    paths = [tmp_path / name for name in ("a", "b")]
    for path, text in zip(paths, (before, after), strict=True):
        path.write_text(text)
    return main(["stat", *words, "--diff", *map(str, paths)])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("enabled=1", "enabled=0"), "Nothing is being counted"),
        (("scsi=1", "scsi=0 missing=scsi_dispatch_cmd_error"), "not seen: this kernel has no scsi_dispatch_cmd_error"),
    ],
)
def test_what_is_not_seen_is_said_of_one_disk_as_well(
    change: tuple[str, str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = (reading([1000]).replace(*change), reading([1000] * 2, time_ns=3 * 10**9).replace(*change))
    assert compared(tmp_path, *texts, "sda") == 0
    assert says in " ".join(capsys.readouterr().out.split())
    assert compared(tmp_path, *texts, "--json") == 0
    missing = json.loads(capsys.readouterr().out)["module"]["missing"]
    assert missing == (["scsi_dispatch_cmd_error"] if "missing" in change[1] else [])


def queues(at_limit_ns: int, time_ns: int, highest: int = 3) -> str:
    text = reading([1000], time_ns=time_ns).replace(
        "at_limit_ns=0\n", "at_limit_ns=0 depth_error_ns=7 limit_of=queue\n"
    )
    return text + f"queue id=4 queue=1 in_flight=2 highest={highest} limit=32 at_limit_ns={at_limit_ns}\n"


def test_hardware_queues_are_told_with_their_time_at_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = queues(10**8, 2 * 10**9), queues(6 * 10**8, 3 * 10**9)
    assert compared(tmp_path, *texts, "--json") == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert device["queues"] == [
        {
            "queue": 1, "issued": None, "in_flight": 2, "highest_depth": 3, "depth_limit": 32,
            "at_limit_fraction": 0.5,
        }
    ]  # fmt: skip
    assert device["depth_error_ns"] == 14 and device["torn"] is False
    assert device["slowest"] is None, "nobody asked"
    assert compared(tmp_path, *texts, "sda") == 0
    row = next(line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["1"])
    assert row == ["1", "-", "2", "3", "32", "50.0%"]


def given(issued: int, time_ns: int) -> str:
    text = queues(0, time_ns).replace("queue=1", "queue=0").removesuffix("\n") + f" issued={issued}\n"
    return text + f"queue id=4 queue=1 in_flight=0 highest=1 limit=32 at_limit_ns=0 issued={2 * issued}\n"


def test_what_each_hardware_queue_was_given_is_told() -> None:
    one = diff(parse(given(100, 2 * 10**9)), parse(given(107, 3 * 10**9))).device("sda")
    assert [(queue.queue, queue.issued) for queue in one.queues] == [(0, 7), (1, 14)]


def test_what_a_device_was_given_before_it_had_several_queues_was_its_first_ones() -> None:
    before = parse(reading([1000])).devices[0]
    one = diff(parse(reading([1000])), parse(given(107, 3 * 10**9))).device("sda")
    assert [queue.issued for queue in one.queues] == [107 - before.ops["read"].issued, 214]


def test_what_binds_the_queue_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "SYS", tmp_path)
    (tmp_path / "block/sda/queue").mkdir(parents=True)
    (tmp_path / "block/sda/queue/nr_requests").write_text("4\n")
    found = parse(reading([1000]))
    stat_output.print_details(since_seen(found).devices[0])
    assert "limit 4 (nr_requests; fabstat's is 32, and time at the limit is of that)" in " ".join(
        capsys.readouterr().out.split()
    )
    stat_output.print_table(since_seen(found), since_seen(found).devices, found)
    assert "4 (nr_requests)" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "block/sda/queue/nr_requests").write_text("256\n")
    stat_output.print_details(since_seen(found).devices[0])
    assert "limit 32, mean" in " ".join(capsys.readouterr().out.split())
    changed = parse(reading([1000]).replace("highest=3 ", "highest=143 "))
    stat_output.print_details(since_seen(changed).devices[0])
    assert "highest 143, limit 32 (changed since), mean" in " ".join(capsys.readouterr().out.split())


def test_a_disk_that_is_gone_is_not_on_its_successor_s_target(tmp_path: Path) -> None:
    for path, text in {"scsi_host/host2/ioc_guid": "0xnew\n", "srp_remote_ports/port-2:1/port_id": "new\n"}.items():
        (tmp_path / "class" / path).parent.mkdir(parents=True)
        (tmp_path / "class" / path).write_text(text)
    live = reading([1000], identity="disk=sdc dev=8:32 diskseq=3 hctl=2:0:0:0 driver=ib_srp parent=host2")
    gone = live.replace("state=live", "state=gone")
    assert [endpoint(parse(text).devices[0], tmp_path).target for text in (live, gone)] == ["0xnew", ""]


def test_a_subsystem_s_name_of_any_bytes_takes_nothing_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte that is no text in a controller's name, and `fabtune stat` ended with a traceback."""
    (tmp_path / "class/nvme/nvme0").mkdir(parents=True)
    (tmp_path / "class/nvme/nvme0/subsysnqn").write_bytes(b"nqn.2014.08.org.nvmexpress:1af4\xffSERIAL\n")
    monkeypatch.setattr(tree, "SYS", tmp_path)
    text = reading([1000], identity="disk=nvme0n1 dev=259:0 diskseq=3 hctl=- driver=nvme parent=nvme0")
    monkeypatch.setattr("fabtune.cli.stat.snapshot", lambda: parse(text))
    monkeypatch.setattr("fabtune.cli.stat.slowest", lambda: None)
    assert main(["stat"]) == 0
    assert "nqn.2014.08.org.nvmexpress:1af4" in capsys.readouterr().out


def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with disk sda, its partition sda1, LVM's dm-1 on that, and a multipath dm-3; returns its /dev."""
    system, dev = tmp_path / "sys", tmp_path / "dev"
    monkeypatch.setattr(tree, "SYS", system)
    for path in ("block/dm-1/slaves/sda1", "block/dm-3/slaves/sda", "block/sda/sda1", "block/md0", "dev/mapper"):
        (system / path).mkdir(parents=True, exist_ok=True)
    (system / "block/sda/sda1/partition").write_text("1\n")
    (system / "block/dm-3/dm").mkdir()
    (system / "block/dm-3/dm/uuid").write_text("mpath-36001405\n")
    (system / "class/block").mkdir(parents=True)
    for name, place in {"sda": "sda", "sda1": "sda/sda1", "dm-1": "dm-1", "dm-3": "dm-3", "md0": "md0"}.items():
        (system / "class/block" / name).symlink_to(system / "block" / place)
    (dev / "mapper").mkdir(parents=True)
    (dev / "disk/by-id").mkdir(parents=True)
    for name in ("sda", "sda1", "dm-1", "dm-3"):
        (dev / name).touch()
    for name, place in {"mapper/mpatha": "dm-3", "mapper/vg-lv": "dm-1", "disk/by-id/x": "sda"}.items():
        (dev / name).symlink_to(dev / place)
    return dev


def test_names_that_lead_to_a_disk_stand_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = named(tmp_path, monkeypatch)
    disk = reading([1000])
    head = disk[disk.index("device id=4") :].replace("id=4", "id=5").replace("disk=sda", "disk=dm-3")
    found = since_seen(parse(disk + head))

    def disks(name: str) -> list[str]:
        return [one.device.disk for one in stat_output.chosen_devices(found, [name], everything=False)]

    assert disks(f"{dev}/disk/by-id/x") == ["sda"] and disks(f"{dev}/mapper/mpatha") == ["dm-3"]
    assert not capsys.readouterr().err
    assert disks("sda1") == ["sda"]
    assert "sda1 is a partition" in (said := capsys.readouterr().err) and "whole disk sda" in said
    with pytest.raises(InputError, match="vg-lv.*dm-1 passes.*below.*: sda"):
        disks(f"{dev}/mapper/vg-lv")
    with pytest.raises(InputError, match="fabstat has seen no request on it"):
        disks("md0")
    with pytest.raises(InputError, match="no such block device"):
        disks("sdq")
    gone = since_seen(parse(disk.replace("state=live", "state=gone")))
    with pytest.raises(InputError, match="device 'sda' is gone"):
        stat_output.chosen_devices(gone, ["sda"], everything=False)


def test_what_each_of_several_queues_has_is_not_taken_for_the_device_s_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four channels with 32 requests each, 62 of them at once by queue_depth, the limit was "32 (nr_requests)"."""
    monkeypatch.setattr(tree, "SYS", tmp_path)
    (tmp_path / "block/sda/queue").mkdir(parents=True)
    (tmp_path / "block/sda/queue/nr_requests").write_text("32\n")
    text = reading([1000]).replace("highest=3 limit=32", "highest=60 limit=62")
    found = parse(text.replace("at_limit_ns=0\n", "at_limit_ns=0 depth_error_ns=0 torn=0 limit_of=device\n"))
    stat_output.print_details(since_seen(found).devices[0])
    assert "limit 62, mean" in " ".join(capsys.readouterr().out.split())
    # A module that keeps to the limit that it saw first does not know of nr_requests that were lowered since.
    stat_output.print_details(since_seen(parse(text)).devices[0])
    assert "limit 32 (nr_requests" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("disk", "on"), [("dm-3", "nvme0n1"), ("md0", "nvme0n1p1")])
def test_what_lies_on_nvme_s_multipath_disk_is_counted_at_its_paths(
    disk: str, on: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """LVM and md on it "had seen no request": sysfs names the multipath disk, and fabstat its paths."""
    monkeypatch.setattr(tree, "SYS", tmp_path)
    (tmp_path / f"block/{disk}/slaves/{on}").mkdir(parents=True)
    (tmp_path / "block/nvme0n1/nvme0n1p1").mkdir(parents=True)
    (tmp_path / "block/nvme0n1/nvme0n1p1/partition").write_text("1\n")
    (tmp_path / "class/block").mkdir(parents=True)
    for name, place in {disk: disk, "nvme0n1": "nvme0n1", "nvme0n1p1": "nvme0n1/nvme0n1p1"}.items():
        (tmp_path / "class/block" / name).symlink_to(tmp_path / "block" / place)
    text = reading([1000], identity="disk=nvme0c0n1 dev=259:0 diskseq=3 hctl=- driver=nvme parent=nvme0")
    second = text[text.index("device id=4") :].replace("id=4", "id=5").replace("nvme0c0n1", "nvme0c1n1")
    monkeypatch.setattr("fabtune.cli.stat.snapshot", lambda: parse(text + second))
    monkeypatch.setattr("fabtune.cli.stat.slowest", lambda: None)
    assert main(["stat", disk]) == 2
    said = capsys.readouterr().err
    assert f"{disk} passes requests on to the disks below it" in said and "no request" not in said
    assert "nvme0c0n1 (path of nvme0n1), nvme0c1n1 (path of nvme0n1)" in said
    assert main(["stat", "nvme0n1p1"]) == 0
    assert "whole disk nvme0n1" in (told := capsys.readouterr()).err and "nvme0c1n1" in told.out
