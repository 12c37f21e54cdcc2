# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks that a server in the kernel has open without a claim, or passes on: SCST's, a USB gadget's, RNBD's."""

from pathlib import Path

import hosttree
import pytest

from fabtune.host import targets
from fabtune.host.blocks import BLOCK, Node, rdev
from fabtune.host.sessions import live_sessions, scsi_devices
from fabtune.host.users import Users

_SCST = "sys/kernel/scst_tgt/devices"
_LUN = "sys/kernel/config/usb_gadget/g1/functions/mass_storage.0/lun.0/file"
_LEGACY_LUN = "sys/class/udc/dummy_udc.0/device/gadget.0/lun0/file"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the tree of a host with one session, whose disk has the number 8:16 and the node `disk` in the tree."""
    root = hosttree.make(tmp_path / "root", 1)
    hosttree.enter(root, monkeypatch)
    hosttree.put(root / "sys/devices/platform/host1/session1/target1:0:0/1:0:0:0/block/sd1/dev", "8:16")
    for name in ("disk", "image"):
        hosttree.put(root / name, "")
    node = (root / "disk").stat()
    monkeypatch.setattr(
        "fabtune.host.kept_open.rdev",
        lambda status: Node(BLOCK, 8, 16) if status.st_ino == node.st_ino else rdev(status),
    )
    return root


def user() -> str:
    """Return who uses the session's disk."""
    [session] = live_sessions()
    [device] = scsi_devices(session)
    return Users().of_device(device)


@pytest.mark.parametrize("mark", ["", "\n[key]", "\n\n[key]"])
def test_a_disk_that_scst_has_open_is_in_use(host: Path, mark: str) -> None:
    assert user() == ""
    hosttree.put(host / _SCST / "lun1/filename", f"{host}/disk{mark}")
    assert user() == "the SCST device lun1"


def test_an_image_that_scst_serves_uses_no_disk_itself(host: Path) -> None:
    hosttree.put(host / _SCST / "lun1/filename", f"{host}/image\n[key]")
    # One without data, and a drive without a medium.
    hosttree.put(host / _SCST / "null1/threads_num", "1")
    hosttree.put(host / _SCST / "drive1/filename", "")
    assert user() == ""


@pytest.mark.parametrize("what", ["handler", "exported"])
def test_a_disk_that_scst_passes_on_is_in_use(host: Path, what: str) -> None:
    # SCST lists each SCSI device of the host.
    for address in ("1:0:0:0", "7:0:0:0"):
        (host / _SCST / address / "exported").mkdir(parents=True)
    (host / _SCST / "7:0:0:0/handler").symlink_to("../../handlers/dev_disk")
    assert user() == ""
    link = host / _SCST / "1:0:0:0" / ("handler" if what == "handler" else "exported/export0")
    link.symlink_to("../../handlers/dev_disk")
    assert user() == "the SCST device 1:0:0:0"


def test_what_scst_does_not_tell_may_be_any_disk(host: Path) -> None:
    (host / "sys/module/scst").mkdir(parents=True)
    assert "SCST, perhaps" in user()
    (host / _SCST).mkdir(parents=True)
    assert user() == ""
    hosttree.put(host / _SCST / "lun1/filename", "/nosuch\n[key]")
    assert "lun1, perhaps: /nosuch" in user()
    (host / _SCST / "lun1/filename").unlink()
    (host / _SCST / "lun1/filename").mkdir()
    assert "lun1/filename cannot be read" in user()


def test_scst_is_no_target_that_is_tuned() -> None:
    assert "scst" not in [kind.name for kind in targets.serving()]


@pytest.mark.parametrize("lun", [_LUN, _LEGACY_LUN])
def test_a_disk_that_a_usb_gadget_shows_is_in_use(host: Path, lun: str) -> None:
    hosttree.put(host / lun, "")
    assert user() == ""
    hosttree.put(host / lun, f"{host}/disk")
    assert user() == "a USB gadget's mass storage"
    hosttree.put(host / lun, "/nosuch")
    assert "mass storage, perhaps: /nosuch" in user()


def test_what_a_usb_gadget_does_not_tell_may_be_any_disk(host: Path) -> None:
    (host / "sys/module/usb_f_mass_storage").mkdir(parents=True)
    assert "mount configfs" in user()
    (host / "sys/kernel/config/usb_gadget").mkdir(parents=True)
    assert user() == ""


def test_a_disk_that_rnbd_serves_is_in_use(host: Path) -> None:
    device = host / "sys/class/rnbd-server/ctl/devices/sd1"
    hosttree.put(device / "block_dev/dev", "8:0")
    assert user() == ""
    hosttree.put(device / "block_dev/dev", "8:16")
    assert user() == "RNBD's server (sd1)"
    (device / "block_dev/dev").unlink()
    assert "RNBD's server (sd1), perhaps" in user()
