# SPDX-License-Identifier: GPL-2.0-or-later
"""What a load of the model test has to live with, in the guest.  Each trouble says whether it took place."""

import ctypes
import fcntl
import os
import random
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from model_stacks import Stack

_SG_IO, _NVME_IO, _BLKDISCARD = 0x2285, 0xC0484E43, 0x1277
_SG_HEADER = struct.Struct("@iiBBHIPPPIIiPBBBBHHiII4x")
_NVME_COMMAND = struct.Struct("@BBHIIIQQIIIIIIIIII")
_READ, _WRITE, _READ_16 = 0x28, 0x2A, 0x88
# By the event that each brings about: type and what follows count and command, in the words of scsi_debug.
_RULES = {
    "host_busy": (1, "0x1055"), "device_busy": (1, "0x1056"), "target_busy": (1, "0x1058"),
    "task_set_full": (2, "0 0 0x28 0 0 0"), "busy": (2, "0 0 0x8 0 0 0"), "error_medium": (2, "0 0 0x2 0x3 0x11 0"),
    "error_transport": (2, "0xf 0 0 0 0 0"), "unit_attention": (2, "0 0 0x2 0x6 0x29 0"), "timeout": (0, ""),
}  # fmt: skip
# What takes a depth back, and what is sent again without a refusal.
_NOT = {"any": (), "steady": ("task_set_full",), "refusals": ("unit_attention", "timeout")}
# The last MiB, which the load leaves alone.
_DISCARD_AT, _DISCARD_BYTES = 62 << 20, 1 << 16


@dataclass
class Injector:
    """The rules by which one disk of scsi_debug fails, and how often each was followed: it counts them itself."""

    disk: str
    followed: Counter[str] = field(default_factory=Counter)
    _rules: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)

    @property
    def _file(self) -> Path:
        return Path("/sys/kernel/debug/scsi_debug", Path(f"/sys/block/{self.disk}/device").resolve().name, "error")

    def inject(self, event: str, times: int, command: int) -> None:
        """Let `event` happen to the next `times` of such commands, in place of what was told before."""
        self.settle()
        kind, rest = _RULES[event]
        self._file.write_text(f"{kind} -{times} {command:#x} {rest}".rstrip() + "\n")
        self._rules[kind, command] = event, times

    def settle(self) -> None:
        """Count what has happened, so far."""
        left = {}
        for line in self._file.read_text().splitlines()[1:]:
            kind, count, command = line.split()[:3]
            left[int(kind), int(command, 16)] = -int(count)
        for rule, (event, times) in self._rules.items():
            self.followed[event] += times - left[rule]
            self._rules[rule] = event, left[rule]

    def stop(self) -> None:
        """Let nothing fail any more."""
        self.settle()
        for kind, command in self._rules:
            self._file.write_text(f"- {kind} {command:#x}\n")
        self._rules.clear()


@dataclass
class Troubles:
    """What is done to a stack during a round, and how often it took place.

    `manner` is "any", or "steady": nothing moves the depths; or "refusals": nothing else is sent again.
    """

    stack: Stack
    chance: random.Random
    manner: str = "any"
    done: Counter[str] = field(default_factory=Counter)
    depths: dict[str, list[int]] = field(default_factory=dict)
    injectors: dict[str, Injector] = field(default_factory=dict)
    _beside: threading.Thread | None = None

    def __post_init__(self) -> None:
        self.injectors = {disk: Injector(disk) for disk in self.stack.disks if self.stack.local}
        self.depths = {disk: [int(self.stack.depth_file(disk).read_text())] for disk in self.stack.disks}

    def keep_depth(self, depth: int) -> None:
        """Give all disks this depth, for good."""
        for disk in self.stack.disks:
            self.stack.depth_file(disk).write_text(str(depth))
            self.depths[disk] = [int(self.stack.depth_file(disk).read_text())]

    def one(self) -> None:
        """Do one thing."""
        disk, stack = self.chance.choice(self.stack.disks), self.stack
        for path in stack.failed_paths():
            stack.message("reinstate_path", path)
        kinds: list[Callable[[str], None]] = [self._passthrough]
        if self.manner != "steady":
            kinds.append(self._depth)
        if stack.local:
            kinds += [self._inject, self._inject, self._inject]
        if self.manner == "any" and self.chance.random() < 0.5:
            kinds.append(self._reset)
        if stack.name == "multipath":
            kinds.append(self._fail_over)
        if stack.can_discard():
            kinds.append(self._discard)
        self.chance.choice(kinds)(disk)

    def end(self) -> None:
        """Leave nothing that would go on."""
        for injector in self.injectors.values():
            injector.stop()
        for path in self.stack.failed_paths():
            self.stack.message("reinstate_path", path)
        if self._beside:
            self._beside.join()

    def _inject(self, disk: str) -> None:
        event = self.chance.choice([event for event in _RULES if event not in _NOT[self.manner]])
        # What fails to be written, fails for good; a medium fails to be read.
        command = _READ if event == "error_medium" else self.chance.choice((_READ, _WRITE))
        # Each time that runs out takes a second, in which little else happens.
        times = 1 if event == "timeout" else self.chance.choice((1, 3, 10))
        self.injectors[disk].inject(event, times, command)

    def _depth(self, disk: str) -> None:
        file = self.stack.depth_file(disk)
        wanted = self.chance.choice((4, 8, 32, 64))
        before = int(file.read_text())
        with suppress(OSError):
            file.write_text(str(wanted))
        now = int(file.read_text())
        self.depths[disk].append(now)
        self.done["depths"] += now != before

    def _reset(self, disk: str) -> None:
        if self.stack.kind(disk) == "nvme":
            controller = next(Path("/sys/class/nvme").iterdir())
            (controller / "reset_controller").write_text("1")
        elif subprocess.run(["sg_reset", "--device", f"/dev/{disk}"], check=False, capture_output=True).returncode:
            return
        self.done["resets"] += 1

    def _fail_over(self, disk: str) -> None:
        number = Path(f"/sys/block/{disk}/dev").read_text().strip()
        self.stack.message("fail_path", number)
        self.done["fail_overs"] += number in self.stack.failed_paths()

    def _beside_load(self, work: Callable[[], object]) -> None:
        """Do `work` while the troubles go on: it may have to wait for the end of one."""

        def quietly() -> None:
            with suppress(OSError):
                work()

        if not self._beside or not self._beside.is_alive():
            self._beside = threading.Thread(target=quietly)
            self._beside.start()

    def _passthrough(self, disk: str) -> None:
        wrong = self.chance.random() < 0.3
        sector = 0xFFFFFFF0 if wrong else self.chance.randrange(1 << 16)
        send = nvme_read if self.stack.kind(disk) == "nvme" else scsi_read
        self._beside_load(lambda: send(f"/dev/{disk}", sector))

    def _discard(self, disk: str) -> None:
        offset = _DISCARD_AT + _DISCARD_BYTES * self.chance.randrange(16)
        self._beside_load(
            lambda: _ioctl(f"/dev/{self.stack.head}", _BLKDISCARD, struct.pack("QQ", offset, _DISCARD_BYTES))
        )


def _ioctl(device: str, code: int, argument: bytes) -> None:
    handle = os.open(device, os.O_RDWR)
    try:
        fcntl.ioctl(handle, code, argument)
    finally:
        os.close(handle)


def scsi_read(device: str, sector: int) -> None:
    """Read one sector of a SCSI disk by SG_IO, with a command that nobody injects errors into."""
    data, sense = ctypes.create_string_buffer(512), ctypes.create_string_buffer(64)
    command = ctypes.create_string_buffer(struct.pack(">BBQIBB", _READ_16, 0, sector, 1, 0, 0), 16)
    places = (ctypes.addressof(place) for place in (data, command, sense))
    _ioctl(device, _SG_IO, _SG_HEADER.pack(ord("S"), -3, 16, 64, 0, 512, *places, 20000, *[0] * 12))


def nvme_read(device: str, sector: int) -> None:
    """Read one block of a namespace by the driver's own ioctl."""
    data = ctypes.create_string_buffer(4096)
    length = int(Path("/sys/block", Path(device).name, "queue/logical_block_size").read_text())
    words = [sector, 0, 0, 0, 0, 0]
    _ioctl(device, _NVME_IO, _NVME_COMMAND.pack(2, 0, 0, 1, 0, 0, 0, ctypes.addressof(data), 0, length, *words, 0, 0))
