# SPDX-License-Identifier: GPL-2.0-or-later
"""Who uses a disk, as far as a file tells it: what is registered with io_uring, in the words of several kernels."""

from pathlib import Path

import hosttree
import pytest

from fabtune.host import hidden, kept_open, mounts, tree
from fabtune.host.blocks import BLOCK, CHARACTER, Node, directory, heads_of, holders, wwid
from fabtune.host.users import Users

PROCESS = Path("/proc/self")


@pytest.mark.parametrize(
    ("fdinfo", "nodes", "doubt"),
    [
        ("UserFiles:\t0\nUserBufs:\t0\n", [], ""),
        ("UserFiles:\t2\n    0: /etc/passwd\n    1: anon_inode:[eventfd]\nUserBufs:\t0\n", [], ""),
        ("UserFiles:\t2\n    0: /dev/null\n    1: socket:[7]\nUserBufs:\t0\n", [Node(CHARACTER, 1, 3)] * 2, ""),
        # Up to Linux 6.12, and a busy ring there.
        ("UserFiles:\t3\n    0: <none>\n    1: null\n    2: TCP\nUserBufs:\t0\n", [Node(CHARACTER, 1, 3)] * 2, ""),
        ("UserFiles:\t1\nUserBufs:\t0\n", [], "cannot be told"),
        # A busy ring since.
        ("pos:\t0\n", [], "cannot be told"),
        ("UserFiles:\t1\n    0: /nosuch\\040node (deleted)\nUserBufs:\t0\n", [], "cannot be found"),
        ("UserFiles:\t1\n    0: nosuchnode\nUserBufs:\t0\n", [], "cannot be found"),
    ],
)
def test_what_is_registered_with_a_ring_is_told_or_doubted(
    tmp_path: Path, fdinfo: str, nodes: list[Node], doubt: str
) -> None:
    hosttree.put(tmp_path / "fdinfo/3", fdinfo)
    found, reason = hidden.registered(tmp_path / "fd/3", PROCESS)
    assert set(found) == set(nodes) and doubt in reason and bool(doubt) == bool(reason)


def test_a_swap_file_on_btrfs_lies_on_all_of_its_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "SYS", tmp_path)
    for name, number in (("sda", "8:0"), ("sdb", "8:16")):
        hosttree.put(tmp_path / f"fs/btrfs/0-1/devices/{name}/dev", number)
        hosttree.put(tmp_path / f"class/block/{name}/dev", number)
    monkeypatch.setattr("fabtune.host.users.node_at", lambda path: Node(BLOCK, 8, 0) if path.name == "sda" else None)
    monkeypatch.setattr(tree, "PROC", tmp_path / "proc")
    # A file system without a number of its own: /proc itself.
    hosttree.put(tmp_path / "proc/swaps", "Filename\n/proc/version file 8 0 -1\n")
    hosttree.put(
        tmp_path / "proc/self/mountinfo", "1 0 8:3 / / rw - ext4 /dev/sda3 rw\n2 1 0:9 / /proc rw - btrfs /dev/sda rw\n"
    )
    assert [Users().system_on(disk) for disk in ("sda", "sdb", "sdc")] == ["swap space", "swap space", ""]
    # Not on a disk at all, through a link that leads there, and elsewhere.
    (tmp_path / "link").symlink_to("/proc")
    assert Users().system_on("sdb", Path("/proc/fs")) == "the file system of /proc/fs"
    assert Users().system_on("sdb", tmp_path / "link/fs") == f"the file system of {tmp_path}/link/fs"
    assert Users().system_on("sdb", tmp_path) == "swap space"
    hosttree.put(tmp_path / "proc/swaps", "Filename\n/nosuch/swap file 8 0 -1\n")
    assert "swap space, perhaps" in Users().system_on("sda")


def test_a_disk_is_used_by_what_lies_on_it_or_its_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "SYS", tmp_path / "sys")
    monkeypatch.setattr(tree, "PROC", tmp_path / "proc")
    monkeypatch.setattr("fabtune.host.users.node_at", lambda path: Node(BLOCK, 8, 2) if path.name == "sda2" else None)
    for name, number in (("sda", "8:0"), ("sda/sda1", "8:1"), ("sda/sda2", "8:2"), ("sdb", "8:16")):
        hosttree.put(tmp_path / "sys/block" / name / "dev", number)
        if "/" in name:
            hosttree.put(tmp_path / "sys/block" / name / "partition", name[-1])
            (tmp_path / "sys/class/block").mkdir(parents=True, exist_ok=True)
            (tmp_path / "sys/class/block" / Path(name).name).symlink_to(tmp_path / "sys/block" / name)
    hosttree.put(tmp_path / "proc/swaps", "Filename\n/dev/sda2 partition 8 0 -1\n")
    hosttree.put(
        tmp_path / "proc/7/mountinfo", "1 0 8:1 / /data rw - ext4 /dev/sda1 rw\n2 1 8:1 / /data rw - ext4 x rw"
    )
    (tmp_path / "proc/7/ns").mkdir()
    (tmp_path / "proc/7/ns/mnt").symlink_to("mnt:[1]")
    (tmp_path / "sys/block/sda/sda1/holders/dm-0").mkdir(parents=True)
    assert Users().of_block("sda") == [
        "sda1 is mounted on /data: unmount it", "sda1 is held by dm-0: stop it first",
        "/dev/sda2 is swap space: run swapoff",
    ]  # fmt: skip
    assert Users().of_block("sda1") == Users().of_block("sda")[:2]
    # Nobody is known, and there is no node by which it could be claimed.
    [reason] = Users().of_block("sdb")
    assert "in use by somebody, perhaps" in reason


def test_heads_seen_from_above_are_the_holders_seen_from_each_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "SYS", tmp_path)
    (tmp_path / "class/block").mkdir(parents=True)
    for name in ("sda", "sdb", "sdc", "sdd", "dm-0", "dm-1", "sdc/sdc1"):
        (tmp_path / "block" / name / "holders").mkdir(parents=True)
        (tmp_path / "block" / name / "slaves").mkdir()
        (tmp_path / "class/block" / Path(name).name).symlink_to(tmp_path / "block" / name)
    hosttree.put(tmp_path / "block/sdc/sdc1/partition", "1")
    # A multipath device on two disks, a volume on it and on a partition; the fourth disk is nobody's.
    for holder, slave in (("dm-0", "sda"), ("dm-0", "sdb"), ("dm-1", "dm-0"), ("dm-1", "sdc/sdc1")):
        (tmp_path / "block" / holder / "slaves" / Path(slave).name).symlink_to(tmp_path / "block" / slave)
        (tmp_path / "block" / slave / "holders" / holder).symlink_to(tmp_path / "block" / holder)
    heads = heads_of(["sda", "sdb", "sdc", "sdd"])
    assert heads == {"sda": ["dm-0"], "sdb": ["dm-0"], "sdc": ["dm-1"], "sdd": []}
    assert heads == {name: holders(name) for name in heads}


@pytest.mark.parametrize("attribute", ["device/wwid", "wwid", "dm/uuid"])
def test_a_wwid_is_read_wherever_the_kernel_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attribute: str
) -> None:
    monkeypatch.setattr(tree, "SYS", tmp_path)
    hosttree.put(tmp_path / "block/a/dev", "8:0")
    assert wwid(directory("a")) == ""
    hosttree.put(tmp_path / "block/a" / attribute, "t10.ATA     DISK   1 ")
    assert wwid(directory("a")) == "t10.ATA DISK 1"


def test_the_disk_of_an_ocfs2_heartbeat_is_kept_open_or_doubted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "SYS", tmp_path)
    (tmp_path / "module/ocfs2_nodemanager").mkdir(parents=True)
    [doubt] = kept_open.nodes()[1]
    assert "mount configfs" in doubt
    hosttree.put(tmp_path / "block/sda/dev", "8:0")
    cluster = tmp_path / "kernel/config/cluster/c1/heartbeat"
    hosttree.put(cluster / "region/dev", "sda\n")
    hosttree.put(cluster / "unborn/dev", "")
    assert kept_open.nodes() == ({Node(BLOCK, 8, 0): "OCFS2's heartbeat in cluster c1"}, [])
    hosttree.put(cluster / "lost/dev", "sdz\n")
    assert "sdz cannot be found" in kept_open.nodes()[1][0]


def test_a_path_on_somebodys_server_is_seen_without_asking_it(tmp_path: Path) -> None:
    hosttree.put(
        tmp_path / "mountinfo",
        f"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:30 / {tmp_path}/far\\040away rw shared:3 - nfs4 server:/x rw\n"
        f"3 2 0:31 / {tmp_path}/far\\040away/near rw - tmpfs tmpfs rw\n4 1 8:2 / /ntfs rw - fuseblk /dev/sda2 rw\n"
        "5 1 8:3 / /ntfs rw - ext4 /dev/sda3 rw\n",
    )
    seen = mounts.of(tmp_path)
    assert [one.answers for one in seen] == [True, False, True, False, True]
    (tmp_path / "link").symlink_to("far away/file")
    (tmp_path / "round").symlink_to("round")
    asked = ("far away", "link", "far away/near", "far awayer/x", "link/../x", "round")
    # Not even the way to what lies below may be gone.
    assert [mounts.answering(f"{tmp_path}/{path}", seen) for path in asked] == [False, False, False, True, False, True]
    assert mounts.answering("/ntfs/x", seen) and mounts.answering("/", seen)
    [shown] = [one for one in (mounts.at(f"{tmp_path}/far away/near/x", seen),) if one]
    assert shown.ident == 3


def test_the_files_of_an_unmounted_file_system_are_asked_by_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mounts.probed(tmp_path) and mounts.probed(tmp_path / "nosuch")
    monkeypatch.setattr(mounts, "ended", lambda program, within_s: False)
    assert not mounts.probed(tmp_path)
