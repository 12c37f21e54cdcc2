# SPDX-License-Identifier: GPL-2.0-or-later
"""The stacks of the model test, in the guest: how each is made, and what it can do."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, "/fabtune/userspace")

SCSI_DEBUG = Path("/sys/bus/pseudo/drivers/scsi_debug")
_ROUND_TRIP_MS = 1
_ACL = Path(
    "/sys/kernel/config/target/iscsi/iqn.2026-01.lab.fabtune:target/tpgt_1/acls/iqn.2026-01.lab.fabtune:initiator"
)


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.02)


class Stack:
    """A device to load, `head`, with the disks below it, or itself; all in `devices`, the head first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.local = name in ("scsi_debug", "multipath")
        self.head = ""
        self.disks: list[str] = []
        self.lab = ["env", "PYTHONPATH=/fabtune/userspace", "/usr/bin/python3", "-m", "fabtune.lab.guest"]

    @property
    def devices(self) -> list[str]:
        return list(dict.fromkeys((self.head, *self.disks)))

    def kind(self, device: str) -> str:
        """Return scsi, dm or nvme."""
        return "dm" if device.startswith("dm") else "nvme" if device.startswith("nvme") else "scsi"

    def once(self) -> None:
        """Do what is done once a guest."""
        if not self.local:
            # Without a round trip a request has ended before the next one comes.
            run(*self.lab, "up", "--rtt", f"{_ROUND_TRIP_MS}ms", "--fabric", self.name, "--size-mib", "64")
        if self.name == "iscsi":
            # What the initiator may have under way is its ACL's, which a window of the whole target group is not.
            (_ACL / "lun_0").mkdir(parents=True)
            (_ACL / "lun_0/disk").symlink_to(_ACL.parents[1] / "lun/lun_0")

    def make(self, window: int, delay_ns: int) -> None:
        """Make the devices: a target that takes `window` commands at once, disks that take so long."""
        if self.local:
            self.disks = scsi_disks(2 if self.name == "multipath" else 1, delay_ns)
            self.head = self._multipath() if self.name == "multipath" else self.disks[0]
            return
        if self.name == "iscsi":
            (_ACL / "cmdsn_depth").write_text(str(window))
        self.head = run(*self.lab, "login", "--fabric", self.name).split()[-1].removeprefix("/dev/")
        self.disks = [self.head]

    def _multipath(self) -> str:
        run("modprobe", "-a", "dm_multipath", "dm_round_robin")
        sectors = run("blockdev", "--getsz", f"/dev/{self.disks[0]}")
        paths = " ".join(f"/dev/{disk} 1000" for disk in self.disks)
        table = f"0 {sectors} multipath 1 queue_if_no_path 0 1 1 round-robin 0 {len(self.disks)} 1 {paths}"
        run("dmsetup", "create", "--noudevsync", "mp", "--table", table)
        head = run("dmsetup", "info", "-c", "--noheadings", "-o", "blkdevname", "mp")
        until(Path("/dev", head).is_block_device, head)
        return head

    def failed_paths(self) -> list[str]:
        """Return the paths that dm does not use, by major:minor."""
        if self.name != "multipath":
            return []
        words = run("dmsetup", "status", "mp").split()
        return [word for word, state in zip(words, words[1:], strict=False) if state == "F" and ":" in word]

    def message(self, *words: str) -> None:
        run("dmsetup", "message", "mp", "0", *words)

    def depth_file(self, disk: str) -> Path:
        """Return the file with the most that `disk` may have in flight."""
        name = "queue/nr_requests" if self.kind(disk) == "nvme" else "device/queue_depth"
        return Path("/sys/block", disk, name)

    def is_blocked(self, disk: str) -> bool:
        """Return whether a SCSI disk is taken for busy because of what it has refused, with nothing under way."""
        device = Path("/sys/block", disk, "device")
        return (device / "device_blocked").read_text() != "0\n" == (device / "device_busy").read_text()

    def hctl(self, device: str) -> str:
        """Return host:channel:id:lun of a SCSI disk, else nothing."""
        return Path(f"/sys/block/{device}/device").resolve().name if self.kind(device) == "scsi" else ""

    def limits(self, device: str) -> dict[str, int]:
        """Return what may limit how many requests `device` has in flight, and how many of its tags are reserved."""
        files = {"nr_requests": Path(f"/sys/block/{device}/queue/nr_requests")}
        if self.kind(device) == "scsi":
            host = self.hctl(device).split(":")[0]
            files |= {"tags": Path(f"/sys/class/scsi_host/host{host}/can_queue"), "depth": self.depth_file(device)}
        elif self.kind(device) == "nvme":
            files["tags"] = next(Path("/sys/class/nvme").glob("nvme*/sqsize"))
        else:
            files["tags"] = Path("/sys/module/dm_mod/parameters/dm_mq_queue_depth")
        found = {name: int(file.read_text()) for name, file in files.items()}
        # NVMe over a fabric keeps one for the command that connects the queue.
        return found | {"reserved": int(self.kind(device) == "nvme")}

    def least_ns(self, delay_ns: int) -> int:
        """Return what a request takes at least: the disk's delay, or a round trip."""
        return delay_ns if self.local else _ROUND_TRIP_MS * 1_000_000

    def can_discard(self) -> bool:
        return int(Path(f"/sys/block/{self.head}/queue/discard_max_bytes").read_text()) > 0

    def can_flush(self) -> bool:
        return Path(f"/sys/block/{self.head}/queue/write_cache").read_text().strip() == "write back"

    def remove(self, disk: str) -> None:
        """Take `disk` away from under whatever uses it."""
        if self.local:
            Path(f"/sys/block/{disk}/device/delete").write_text("1")
        else:
            run(*self.lab, "logout", "--fabric", self.name)

    def unmake(self) -> None:
        """Take away what is left."""
        if self.name == "multipath":
            run("dmsetup", "remove", "--noudevsync", "mp")
        if self.local:
            run("modprobe", "-r", "scsi_debug")


def scsi_disks(wanted: int, delay_ns: int) -> list[str]:
    """Load scsi_debug; return its disks, each a host's, which have the same data."""
    run("modprobe", "sd_mod")
    run(
        "modprobe", "scsi_debug", f"ndelay={delay_ns}", "dev_size_mb=64", "max_queue=64", "lbpu=1", f"add_host={wanted}"
    )
    found: list[str] = []

    def look() -> bool:
        found[:] = sorted(path.name for path in Path("/sys/block").glob("sd*")
                          if "scsi_debug" in (path / "device/model").read_text())  # fmt: skip
        return len(found) == wanted and all(Path("/dev", disk).is_block_device() for disk in found)

    until(look, "the disks of scsi_debug")
    for disk in found:
        run("dd", f"if=/dev/{disk}", "of=/dev/null", "bs=4k", "count=1", "status=none")
        # A command that is lost comes to its end in a second.
        device = Path(f"/sys/block/{disk}/device")
        (device / "timeout").write_text("1")
        # Nor is a disk given up whose commands are lost again and again.
        for scsi_disk in device.glob("scsi_disk/*"):
            (scsi_disk / "max_medium_access_timeouts").write_text("1000000")
    return found
