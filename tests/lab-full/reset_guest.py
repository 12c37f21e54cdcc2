#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Inside a guest whose disk outlives it: takes back what the last boot was cut off in, then is cut off in turn.

    reset_guest.py CASE LAST

State directory, node records, saved target and native files lie on /dev/vda, as on a host.  Boot 0 makes them and notes
every value; each boot comes up as a host does (sysctl.d, modprobe.d, the saved target, the records), must find all
values back after `fabtune revert`, and then resets the machine at a random moment of an apply, or of a revert.
"""

import json
import os
import random
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

sys.path.insert(0, "/fabtune/userspace")

from fabtune.host.run import run
from fabtune.lab import topology
from fabtune.lab.fabrics.iscsi import Iscsi
from fabtune.lab.shell import nsenter
from fabtune.model.factors import Settings

DISK, KEEP = Path("/dev/vda"), Path("/keep")
# What a host keeps and fabtune or open-iscsi write to.
KEPT = ("etc/iscsi", "etc/rtslib-fb-target", "etc/sysctl.d", "etc/modprobe.d", "etc/udev/rules.d",
        "etc/systemd/network", "var/lib/iscsi", "var/lib/fabtune")  # fmt: skip
APPLY = [
    "fabtune",
    "apply",
    "wan",
    "--role",
    "both",
    "--rtt",
    "50ms",
    "--rate",
    "1gbit",
    "--persist",
    "--allow-relogin",
    "--end-sessions",
]
REVERT = ["fabtune", "revert", "--allow-relogin", "--end-sessions"]


def say(text: str) -> None:
    """Print one line, out of the serial port before the call returns: the machine may not live on."""
    print(text, flush=True)
    termios.tcdrain(sys.stdout.fileno())


def keep() -> bool:
    """Mount what outlives the guest; tell whether this is its first boot."""
    for module in ("virtio_pci", "virtio_blk", "ext4"):
        run(["modprobe", module], what=f"loading {module}")
    deadline = time.monotonic() + 10
    while not DISK.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    first = subprocess.run(["blkid", str(DISK)], stdout=subprocess.DEVNULL, check=False).returncode != 0
    if first:
        run(["mkfs.ext4", "-q", str(DISK)], what="making the file system")
    KEEP.mkdir()
    run(["mount", str(DISK), str(KEEP)], what="mounting the disk")
    for name in KEPT:
        here, there = Path("/") / name, KEEP / name
        here.mkdir(parents=True, exist_ok=True)
        if first:
            there.parent.mkdir(parents=True, exist_ok=True)
            run(["cp", "-a", str(here), str(there)], what=f"keeping {name}")
        run(["mount", "--bind", str(there), str(here)], what=f"binding {name}")
    return first


def boot(first: bool) -> None:
    """Bring the host up from its files alone."""
    run(["sysctl", "--system"], what="setting sysctls")
    topology.up(topology.EmulatedPath())
    iscsi = Iscsi(Settings())
    if first:
        iscsi.start_target()
        iscsi.start_initiator()
        run([*nsenter(topology.TARGET), "targetctl", "save"], what="saving the target")
        os.sync()
    else:
        for module in ("target_core_mod", "iscsi_target_mod", "iscsi_tcp", "sd_mod"):
            run(["modprobe", module], what=f"loading {module}")
        run([*nsenter(topology.TARGET), "targetctl", "restore"], what="restoring the target")
        # No discovery: it would write the records anew.
        subprocess.Popen(
            ["iscsid", "-f"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while subprocess.run(["iscsiadm", "-m", "session"], capture_output=True, check=False).returncode not in (0, 21):
            time.sleep(0.05)
    iscsi.login()


# Without the target's namespace: made after sysctl.d was read, it copies the first one's values.
READ = r"""
iscsiadm -m node -o show
grep -r . /sys/kernel/config/target/iscsi/*/tpgt_1/{param,attrib}/
sysctl -a 2>/dev/null | grep -E '^net\.(ipv4\.tcp_|core\.)' | grep -vE 'tcp_fastopen_key|tcp_mem|netdev_rss_key'
ip route; tc qdisc | sort
grep -r . /sys/block/sd*/queue/{scheduler,nr_requests,max_sectors_kb,rq_affinity,add_random,read_ahead_kb}
grep -r . /sys/module/iscsi_tcp/parameters
"""


def values() -> dict[str, str]:
    """Return every value that profile wan and --persist may touch, read without fabtune's help."""
    found = {"kernel": run(["bash", "-c", READ], what="reading all values")}
    for name in KEPT[:-1]:
        for path in sorted((KEEP / name).rglob("*")):
            if path.is_file() and not path.is_symlink():
                found[str(path)] = path.read_text(errors="replace")
    return found


def differing(before: dict[str, str]) -> list[str]:
    """Return what is not as it was, files by name and kernel values by line."""
    after = values()
    wrong = [name for name in before.keys() | after.keys() if name != "kernel" and before.get(name) != after.get(name)]
    lines = set(before["kernel"].splitlines()) ^ set(after["kernel"].splitlines())
    return sorted([*wrong, *lines])


def checked(words: list[str], allowed: tuple[int, ...] = (0, 4)) -> str:
    """Run fabtune and return its output, or end with it where its exit code is none of `allowed`."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in allowed:
        say(f"FAILED {' '.join(words)}: exit {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
        sys.exit(1)
    return done.stdout


def found_at_boot(case: int, before: dict[str, str]) -> None:
    """Take back what the last boot left and say what it was."""
    open_ones = [one for one in json.loads(checked(["fabtune", "history", "--json"])) if one["state"] != "taken back"]
    left = ", ".join(f"{one['state']} with {len(one['steps'])} values" for one in open_ones) or "nothing in force"
    steps = json.loads(checked([*REVERT, "--json"]))["steps"]
    counts = {state: sum(step["state"] == state for step in steps) for state in sorted({one["state"] for one in steps})}
    again = json.loads(checked(["fabtune", "revert", "--json"]))["steps"]
    wrong = differing(before)
    verdict = f"FAILED, differs: {wrong[:20]}, second revert: {again}" if wrong or again else "all as before"
    say(f"case {case}: {left}; revert: {counts}: {verdict}")


def journalled() -> int:
    """Return how many lines all transactions have."""
    return sum(path.read_bytes().count(b"\n") for path in Path("/var/lib/fabtune/journal").glob("*.jsonl"))


def cut(case: int) -> None:
    """Reset the machine at a random moment of an apply, each fourth time of the revert after it.

    The moment is a line of the journal and up to 0.1 s, so that it lies among the writes however fast the host is.
    """
    draw = random.Random(case)
    words = APPLY
    if case % 4 == 0:
        checked(APPLY)
        words = REVERT
    lines = json.loads((KEEP / "lines.json").read_text())[words[1]]
    line, delay_s = draw.randint(1, lines - 3), draw.uniform(0, 0.1)
    say(f"case {case}: reset {delay_s * 1e3:.0f} ms after line {line} of {lines} of {words[1]}")
    wanted = journalled() + line

    def reset() -> None:
        while journalled() < wanted:
            time.sleep(0.001)
        time.sleep(delay_s)
        Path("/proc/sysrq-trigger").write_text("b")

    threading.Thread(target=reset, daemon=True).start()
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    time.sleep(60)
    say(f"FAILED case {case}: {words[1]} never wrote so many lines")


def main() -> int:
    """One boot."""
    case, last = int(sys.argv[1]), int(sys.argv[2])
    first = keep()
    boot(first)
    if first:
        before = values()
        (KEEP / "before.json").write_text(json.dumps(before))
        lines = {}
        for words in (APPLY, REVERT):
            earlier = journalled()
            checked(words)
            lines[words[1]] = journalled() - earlier
            if words is APPLY:
                say(f"apply moves {len(differing(before))} values and files")
        (KEEP / "lines.json").write_text(json.dumps(lines))
        os.sync()
        wrong = differing(before)
        say(f"case 0: without a reset: {f'FAILED, differs: {wrong[:20]}' if wrong else 'all as before'}")
    else:
        found_at_boot(case, json.loads((KEEP / "before.json").read_text()))
    if case < last:
        cut(case + 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
