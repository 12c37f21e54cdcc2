# SPDX-License-Identifier: GPL-2.0-or-later
"""Who uses a disk: each kind of user holds it in its own way, and does I/O through it when asked."""

import contextlib
import mmap
import os
import signal
import stat
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import readers
from shell import HostError, run, until

_DIRECTORY = Path("/run/harm/users")
_LIO = Path("/sys/kernel/config/target/core")


@dataclass
class User:
    """One user of the disk `disk` of the sessions `names`; `sids` are the sessions that must not end meanwhile."""

    kind: str
    disk: str
    names: tuple[str, ...]
    sids: dict[str, int] = field(default_factory=dict)
    _holder: "subprocess.Popen[bytes] | None" = None
    _path: str = ""
    _reader: int = 0

    def start(self) -> None:
        """Begin to use the disk.  Raises HostError."""
        _DIRECTORY.mkdir(parents=True, exist_ok=True)
        self._path = f"/dev/{self.disk}"
        getattr(self, f"_start_{self.kind}")()
        self.sids = {name: sid for name, sid, _ in readers.sessions() if name in self.names}

    def stop(self) -> None:
        """Let go of the disk.  Raises HostError."""
        getattr(self, f"_stop_{self.kind}", lambda: None)()
        if self._holder is not None and self._holder.stdin is not None:
            self._holder.stdin.close()
            self._holder.wait()
        (_DIRECTORY / self.disk).unlink(missing_ok=True)

    def lost(self) -> str:
        """Return what is wrong with the use: a session that ended, I/O that failed; '' if nothing is."""
        if self.kind == "mpath":
            return self._lost_paths()
        gone = self._ended()
        if gone and all(self.sids[name] in self._here("") for name in gone):
            # A target that cuts its initiator off is logged in to again; the disk stays.
            with contextlib.suppress(HostError):
                until(lambda: not self._ended(), "the session to be logged in again", 30)
            gone = self._ended()
        if gone:
            return f"{self.disk}, used by {self.kind}: the session of {', '.join(gone)} ended"
        try:
            self._touch()
        except (OSError, HostError) as error:
            return f"{self.disk}, used by {self.kind}: {error}"
        return ""

    def _lost_paths(self) -> str:
        """Paths may go one at a time, while reads that never stop never fail."""
        done, status = os.waitpid(self._reader, os.WNOHANG)
        if done:
            self._reader = 0
            return f"{self._path}: a read failed: {os.strerror(os.waitstatus_to_exitcode(status))}"
        try:
            until(
                lambda: run("dmsetup", "status", self._path).count(" A ") >= len(self.names),
                "all paths of the device",
                30,
            )
        except HostError as error:
            return f"{self._path}: {error}: {run('dmsetup', 'status', self._path, check=False).strip()}"
        return ""

    @staticmethod
    def _here(state: str) -> dict[int, str]:
        """Return the sessions in `state`, or all, by id."""
        return {sid: name for name, sid, directory in readers.sessions()
                if not state or readers.text_of(directory / "state") == state}  # fmt: skip

    def _ended(self) -> list[str]:
        """Return the names of the sessions that are not logged in under their old id."""
        here = self._here("LOGGED_IN")
        return [name for name, sid in self.sids.items() if sid not in here]

    def _touch(self) -> None:
        if self.kind == "mount":
            path = _DIRECTORY / f"m-{self.disk}" / "file"
            with path.open("wb") as stream:
                stream.write(os.urandom(4096))
                os.fsync(stream.fileno())
        elif self.kind != "sg":
            _read(self._path)

    def _hold(self, path: str, *before: str) -> None:
        """Start a process that opens `path` and keeps it until its stdin ends."""
        command = [*before, "sh", "-c", f'exec 9<>"{path}" && echo && exec cat']
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        if not self._holder.stdout.readline():
            raise HostError(f"cannot hold {path}")

    def _number(self) -> int:
        """Return a number for what only this user makes."""
        return 70 + ord(self.disk[-1]) - ord("a")

    def _start_open(self) -> None:
        self._hold(self._path)

    def _start_node(self) -> None:
        other = _DIRECTORY / self.disk
        os.mknod(other, stat.S_IFBLK | 0o600, Path(self._path).stat().st_rdev)
        self._hold(str(other))

    def _start_sg(self) -> None:
        run("modprobe", "sg", check=False)
        generic = next(Path("/sys/block", self.disk, "device/scsi_generic").glob("sg*"), None)
        if generic is None:
            raise HostError("this kernel has no sg")
        self._hold(f"/dev/{generic.name}")

    def _start_mount(self) -> None:
        run("mkfs.ext4", "-q", "-F", self._path)
        place = _DIRECTORY / f"m-{self.disk}"
        place.mkdir(exist_ok=True)
        run("mount", self._path, str(place))

    def _stop_mount(self) -> None:
        run("umount", str(_DIRECTORY / f"m-{self.disk}"))

    def _start_mntns(self) -> None:
        run("mkfs.ext4", "-q", "-F", self._path)
        script = f'mount --make-rprivate / && mount "{self._path}" /mnt && echo && exec cat'
        self._holder = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        if not self._holder.stdout.readline():
            raise HostError("no mount in a namespace of its own")

    def _start_swap(self) -> None:
        run("mkswap", self._path)
        run("swapon", self._path)

    def _stop_swap(self) -> None:
        run("swapoff", self._path)

    def _start_loop(self) -> None:
        self._loop = run("losetup", "--show", "-f", self._path).strip()

    def _stop_loop(self) -> None:
        run("losetup", "-d", self._loop)

    def _start_dm(self) -> None:
        sectors = Path("/sys/block", self.disk, "size").read_text().strip()
        table = f"0 {sectors} linear {self._path} 0"
        run("dmsetup", "create", f"h-{self.disk}", "-u", f"LVM-harm{self.disk}", "--noudevsync", "--table", table)

    def _stop_dm(self) -> None:
        run("dmsetup", "remove", "--retry", "--noudevsync", f"h-{self.disk}")

    def _start_md(self) -> None:
        run("modprobe", "raid1", check=False)
        run(
            "mdadm",
            "--build",
            f"/dev/md{self._number()}",
            "--level=1",
            "--raid-devices=2",
            "--force",
            self._path,
            "missing",
        )

    def _stop_md(self) -> None:
        run("mdadm", "--stop", f"/dev/md{self._number()}")

    def _start_lio(self) -> None:
        store = _LIO / f"iblock_{self._number()}" / f"h-{self.disk}"
        store.mkdir(parents=True)
        (store / "control").write_text(f"udev_path={self._path}")
        (store / "enable").write_text("1")

    def _stop_lio(self) -> None:
        adapter = _LIO / f"iblock_{self._number()}"
        (adapter / f"h-{self.disk}").rmdir()
        adapter.rmdir()

    def _start_mpath(self) -> None:
        wwid = (readers.text_of(Path("/sys/block", self.disk, "device/wwid")) or "").removeprefix("naa.")
        name = f"3{wwid}"
        until(lambda: Path(f"/dev/mapper/{name}").exists(), f"multipathd to make {name}")
        until(lambda: run("dmsetup", "status", name).count(" A ") >= len(self.names), "all paths")
        self._path = f"/dev/mapper/{name}"
        self._hold(self._path)
        self._reader = os.fork()
        if self._reader == 0:
            _read_for_ever(self._path)

    def _stop_mpath(self) -> None:
        assert self._holder is not None and self._holder.stdin is not None
        if self._reader:
            os.kill(self._reader, signal.SIGKILL)
            os.waitpid(self._reader, 0)
        self._holder.stdin.close()
        self._holder.wait()
        name = Path(self._path).name

        def flushed() -> bool:
            run("multipath", "-f", name, check=False)
            return not Path(self._path).exists()

        # Whoever looks at a device that changes, udevd above all, holds it for a moment.
        until(flushed, f"{name} to go")


def _read(path: str) -> None:
    """Read a block past the page cache.  Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        buffer = mmap.mmap(-1, 4096)
        if os.preadv(fd, [buffer], 0) != 4096:
            raise OSError(5, "short read")
    finally:
        os.close(fd)


def _read_for_ever(path: str) -> None:
    """Read a block twenty times a second until one read fails; the exit code is its errno."""
    try:
        while True:
            _read(path)
            time.sleep(0.05)
    except OSError as error:
        os._exit(error.errno or 1)
    finally:
        os._exit(99)
