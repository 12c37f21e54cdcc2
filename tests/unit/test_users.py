# SPDX-License-Identifier: GPL-2.0-or-later
"""Who uses a disk, as far as a file tells it: what is registered with io_uring, in the words of several kernels."""

from pathlib import Path

import hosttree
import pytest

from fabtune.host import hidden, tree
from fabtune.host.blocks import BLOCK, CHARACTER, Node
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
    hosttree.put(tmp_path / "proc/swaps", "Filename\n/nosuch/swap file 8 0 -1\n")
    assert "swap space, perhaps" in Users().system_on("sda")
