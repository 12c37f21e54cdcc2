# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest that kill points run on: its values and sessions read without fabtune's help, its disk, its children.

State directory and node records lie on an ext4 of their own.  A power cut is EXT4_IOC_SHUTDOWN without
flushing: what was not on disk is lost, while the kernel keeps every value written: the harder case.
"""

import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fabtune.cli.main import main as fabtune
from fabtune.tune import fault

DISK, IMAGE, OUTPUT = Path("/var/lib/fabtune"), Path("/var/tmp/fabtune.ext4"), Path("/var/tmp/kill.output")
# Debian 13 moved the records.
NODES = next(path for path in map(Path, ("/etc/iscsi/nodes", "/var/lib/iscsi/nodes")) if path.is_dir())
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
_SYSCTLS = ("ipv4/tcp_rmem", "ipv4/tcp_wmem", "ipv4/tcp_slow_start_after_idle", "ipv4/tcp_no_metrics_save",
            "ipv4/tcp_mtu_probing", "core/rmem_max", "core/wmem_max", "core/netdev_max_backlog")  # fmt: skip
_ETC = ("sysctl.d", "modprobe.d", "udev/rules.d", "systemd/network", "target", "rtslib-fb-target")
_QUEUE = ("scheduler", "nr_requests", "read_ahead_kb", "max_sectors_kb", "rq_affinity", "nomerges", "add_random")
_NEGOTIATED = ("first_burst_len", "max_burst_len", "max_outstanding_r2t", "initial_r2t", "immediate_data")
_WAIT_S = 60

Values = dict[str, str]


def read_all() -> Values:
    """Return every value that the profiles may touch, by file; of disks by what survives a re-login."""
    files = [Path("/proc/sys/net") / name for name in _SYSCTLS]
    for directory in ("param", "attrib"):
        files += sorted(Path("/sys/kernel/config/target/iscsi").glob(f"iqn*/tpgt_1/{directory}/*"))
    files += [file for file in sorted(NODES.rglob("*")) if file.is_file()]
    for name in _ETC:
        files += [file for file in sorted((Path("/etc") / name).rglob("*")) if file.is_file()]
    found = {str(file): file.read_text() for file in (*files, Path("/etc/iscsi/iscsid.conf"))}
    for disk in _disks():
        wwid = (disk / "device/wwid").read_text().strip()
        found |= {
            f"{wwid} {name}": (disk / "queue" / name).read_text() for name in _QUEUE if (disk / "queue" / name).exists()
        }
    return found


def _disks() -> list[Path]:
    return sorted(Path("/sys/class/iscsi_session").glob("session*/device/target*/*:*:*:*/block/*"))


def sessions() -> dict[str, Values]:
    """Return what each session that is logged in has agreed upon, by its target, and how many disks it has."""
    found = {}
    for session in Path("/sys/class/iscsi_session").glob("session*"):
        try:
            if (session / "state").read_text().strip() == "LOGGED_IN":
                agreed = {name: (session / name).read_text().strip() for name in _NEGOTIATED}
                found[(session / "targetname").read_text().strip()] = agreed | {"disks": str(len(_disks()))}
        except OSError:
            # It went while it was looked at.
            continue
    return found


def settled_sessions(count: int) -> dict[str, Values]:
    """Return the sessions once there are `count`, or what is there after a minute.

    iscsid finishes a login after iscsiadm was killed, and the kernel finds its disks later still.
    """
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline:
        found = sessions()
        if len(found) == count and len(_disks()) >= count:
            return found
        time.sleep(0.05)
    return sessions()


def child(words: Sequence[str], spec: str = "") -> int:
    """Start `fabtune WORDS` in a process of its own with fault `spec`; return its id.  Its output goes to OUTPUT."""
    pid = os.fork()
    if pid == 0:
        sink = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        fault._spec, fault._count = spec, 0
        code = 99
        try:
            code = fabtune(list(words))
            sys.stdout.flush()
        except SystemExit as ending:
            code = int(ending.code or 0)
        except BaseException as error:
            os.write(2, f"traceback: {error!r}\n".encode())
        os.write(2, f"\nsteps {fault._count}\n".encode())
        os._exit(code)
    return pid


def finish(pid: int) -> int:
    """Return the exit status of `pid`, negative for the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(*words: str, spec: str = "") -> int:
    """Run `fabtune WORDS` to its end; return its exit status."""
    return finish(child(words, spec))


def steps() -> int:
    """Return how many checkpoints the last child passed."""
    return int(OUTPUT.read_text().rpartition("steps ")[2])


def kill_after(words: Sequence[str], delay_s: float) -> int:
    """Kill `fabtune WORDS` after `delay_s`, whatever it does then; return its status."""
    pid = child(words)
    time.sleep(delay_s)
    os.kill(pid, signal.SIGKILL)
    return finish(pid)


def wait_for_tools() -> None:
    """Wait for what a killed fabtune left running."""
    while subprocess.run(["pgrep", "-x", "iscsiadm"], stdout=subprocess.DEVNULL, check=False).returncode == 0:
        time.sleep(0.01)


def _mount() -> None:
    subprocess.run(["mount", "-o", "loop", str(IMAGE), str(DISK)], check=True)
    subprocess.run(["mount", "--bind", str(DISK / "nodes"), str(NODES)], check=True)


def cut_power() -> None:
    """Lose what is not on disk, then mount again."""
    wait_for_tools()
    fd = os.open(DISK, os.O_RDONLY)
    fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    os.close(fd)
    subprocess.run(["umount", str(NODES)], check=True)
    subprocess.run(["umount", str(DISK)], check=True)
    _mount()


def set_up() -> None:
    """Make the ext4 and move the node records there."""
    DISK.mkdir(mode=0o700, exist_ok=True)
    with IMAGE.open("wb") as stream:
        stream.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(IMAGE)], check=True)
    subprocess.run(["mount", "-o", "loop", str(IMAGE), str(DISK)], check=True)
    shutil.copytree(NODES, DISK / "nodes")
    DISK.chmod(0o700)
    subprocess.run(["umount", str(DISK)], check=True)
    _mount()
    os.sync()


def forget() -> None:
    """Remove the journals of what is over, so that each case starts with none."""
    for path in (DISK / "journal").glob("*"):
        path.unlink()


def heal(before: Values) -> None:
    """Put a host right by hand that a failed case left wrong, so that the next case tells of itself alone."""
    for name, text in before.items():
        path = Path(name)
        if path.is_absolute() and (not path.exists() or path.read_text() != text):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for name in read_all().keys() - before.keys():
        if name.startswith(("/etc/", str(NODES))):
            Path(name).unlink()
    for words in (["-m", "node", "--logout"], ["-m", "node", "--login"]):
        subprocess.run(["iscsiadm", *words], capture_output=True, check=False)
    forget()


def journalled() -> list[dict[str, object]]:
    """Return the lines of all journals."""
    lines = []
    for path in sorted((DISK / "journal").glob("*.jsonl")):
        data = path.read_text()
        lines += [json.loads(line) | {"file": path.name} for line in data[: data.rfind("\n") + 1].splitlines()]
    return lines
