# SPDX-License-Identifier: GPL-2.0-or-later
"""Kills apply at every step, and cuts the disk's power at random moments; revert must give every value back.

State directory and node records lie on an ext4 of their own.  A power cut is EXT4_IOC_SHUTDOWN without
flushing: what was not on disk is lost, while the kernel keeps every value written: the harder case.
Prints one line a failing case and a sum.
"""

import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fabtune.backends import record
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.facts.collect import collect
from fabtune.model.path import NetworkPath
from fabtune.tune import fault, journal
from fabtune.tune.apply import apply
from fabtune.tune.plan import make_plan, tunables_of
from fabtune.tune.undo import undo

DISK, IMAGE = Path("/var/lib/fabtune"), Path("/var/tmp/fabtune.ext4")
# Debian 13 moved the records.
NODES = next(path for path in map(Path, ("/etc/iscsi/nodes", "/var/lib/iscsi/nodes")) if path.is_dir())
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
SYSCTLS = ("tcp_rmem", "tcp_wmem", "tcp_slow_start_after_idle", "tcp_no_metrics_save")


# wan, with two values of the node record instead of all: each costs several runs of iscsiadm.
PROFILE = Path("/var/tmp/kill.toml")
PROFILE_TEXT = """summary = "wan with fewer values"
include = ["wan"]
""" + "".join(
    f'[initiator."{name}"]\ndrop = true\n'
    for name in ("iscsi.max_outstanding_r2t", "iscsi.queue_depth", "iscsi.noop_timeout", "iscsi.max_burst")
)


def silent(_: str) -> None:
    """Print no progress."""


def read_all() -> dict[str, str]:
    """Return every value the profile may touch, read without fabtune's own help."""
    files = [Path("/proc/sys/net/ipv4") / name for name in SYSCTLS]
    for directory in ("param", "attrib"):
        files += sorted(Path("/sys/kernel/config/target/iscsi").glob(f"iqn*/tpgt_1/{directory}/*"))
    found = {str(file): file.read_text() for file in files}
    found |= {str(file): file.read_text() for file in sorted(NODES.rglob("*")) if file.is_file()}
    return found


def do_apply() -> None:
    """Apply the profile for both roles, as the command line does."""
    record.BACKEND.forget()
    profile = load_profile(str(PROFILE), shipped_catalog())
    with journal.locked():
        facts = collect(tunables_of(profile))
        plan = make_plan(profile, ("initiator", "target"), facts, NetworkPath(0.05, 125e6), {})
        apply(plan, facts.host, False, silent)


def do_revert() -> None:
    """Take everything back, as the command line does."""
    record.BACKEND.forget()
    with journal.locked():
        undo(None, None, None, "", False, False, silent)


def child(action: Callable[[], None], spec: str = "") -> int:
    """Start `action` in a process of its own with fault `spec`; return its id."""
    pid = os.fork()
    if pid == 0:
        fault._spec, fault._count = spec, 0
        try:
            action()
        except KeyboardInterrupt:
            os._exit(130)
        except BaseException as error:
            print(f"child: {error!r}", flush=True)
            os._exit(1)
        os._exit(0)
    return pid


def finish(pid: int) -> int:
    """Return the exit status of `pid`, negative for the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def mount() -> None:
    """Mount the ext4 at the state directory, the node records bound to it."""
    subprocess.run(["mount", "-o", "loop", str(IMAGE), str(DISK)], check=True)
    subprocess.run(["mount", "--bind", str(DISK / "nodes"), str(NODES)], check=True)


def cut_power() -> None:
    """Lose what is not on disk, then mount again."""
    while subprocess.run(["pgrep", "-x", "iscsiadm"], stdout=subprocess.DEVNULL, check=False).returncode == 0:
        time.sleep(0.01)
    fd = os.open(DISK, os.O_RDONLY)
    fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    os.close(fd)
    subprocess.run(["umount", str(NODES)], check=True)
    subprocess.run(["umount", str(DISK)], check=True)
    mount()


def set_up() -> None:
    """Make the ext4 and move the node records there."""
    PROFILE.write_text(PROFILE_TEXT)
    DISK.mkdir(exist_ok=True)
    with IMAGE.open("wb") as stream:
        stream.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(IMAGE)], check=True)
    subprocess.run(["mount", "-o", "loop", str(IMAGE), str(DISK)], check=True)
    shutil.copytree(NODES, DISK / "nodes")
    subprocess.run(["umount", str(DISK)], check=True)
    mount()
    os.sync()


def differing(before: dict[str, str]) -> list[str]:
    """Return the names of values that are not as before."""
    after = read_all()
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def case(name: str, before: dict[str, str], end: Callable[[], object]) -> bool:
    """Run `end`, which leaves apply dead somewhere, then revert twice; tell whether everything is back."""
    end()
    statuses = [finish(child(do_revert)), finish(child(do_revert))]
    wrong = differing(before)
    if wrong or any(statuses):
        print(f"{name}: revert {statuses}, differs: {wrong}", flush=True)
        return False
    return True


def kill_at_every_step(before: dict[str, str]) -> list[bool]:
    """Kill at checkpoint 1, 2, 3, ... until apply gets through; at every second also with half a journal line."""
    results = []
    step, status = 0, -signal.SIGKILL

    def end(spec: str) -> None:
        nonlocal status
        status = finish(child(do_apply, spec))

    while status == -signal.SIGKILL:
        step += 1
        if step % 2:
            results.append(case(f"torn:{step}", before, partial(end, f"torn:{step}")))
        results.append(case(f"kill:{step}", before, partial(end, f"kill:{step}")))
        print(f"{time.monotonic():.0f} s: step {step}", file=sys.stderr, flush=True)
    return results


def kill_revert(before: dict[str, str]) -> list[bool]:
    """Kill the revert of a complete apply at every fourth of its steps."""
    results = []
    for step in range(1, 60, 4):

        def end(spec: str = f"kill:{step}") -> None:
            finish(child(do_apply))
            finish(child(do_revert, spec))

        results.append(case(f"revert kill:{step}", before, end))
    return results


def interrupt_and_fill(before: dict[str, str]) -> list[bool]:
    """Ctrl-C and a full disk: apply itself must take everything back and say so."""
    results = []
    for kind, code in (("interrupt", 1), ("full", 1)):
        for step in range(5, 50, 9):
            status = finish(child(do_apply, f"{kind}:{step}"))
            wrong = differing(before)
            if wrong or status != code:
                print(f"{kind}:{step}: exit {status}, differs: {wrong}", flush=True)
            results.append(not wrong and status == code)
            results.append(case(f"after {kind}:{step}", before, lambda: None))
    return results


def power_cuts(before: dict[str, str], count: int) -> list[bool]:
    """Kill apply and cut the disk's power after a random time."""
    draw = random.Random(20)
    started = time.monotonic()
    finish(child(do_apply))
    whole_s = time.monotonic() - started
    finish(child(do_revert))
    results = []
    for number in range(count):
        delay_s = draw.uniform(0, 1.1 * whole_s)

        def end(delay_s: float = delay_s) -> None:
            pid = child(do_apply)
            time.sleep(delay_s)
            os.kill(pid, signal.SIGKILL)
            finish(pid)
            cut_power()

        results.append(case(f"power cut {number} after {delay_s:.3f} s", before, end))
    return results


def main() -> int:
    """Run all cases and print how many failed."""
    set_up()
    before = read_all()
    started = time.monotonic()
    results = kill_at_every_step(before)
    print(f"{len(results)} kills took {time.monotonic() - started:.0f} s", flush=True)
    results += kill_revert(before) + interrupt_and_fill(before)
    results += power_cuts(before, max(0, int(sys.argv[1]) - len(results)))
    changed = finish(child(do_apply)) == 0 and differing(before)
    if len(changed or []) < 10:
        print(f"apply changed only {changed}: these cases prove nothing")
        return 1
    print(f"{len(results)} cases, {results.count(False)} failed")
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
