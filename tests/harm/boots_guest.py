#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Inside a guest that booted with systemd: one step of the boot test.  boots.py says which, boot after boot.

setup             the administrator's own files, target and node records
record            the host is as he wants it: remember that
apply             still so; then `fabtune apply --persist`
revert            the host has his values and, beside them, ours; then `fabtune revert`
revert-after-cut  power failed within apply: the host comes up, and verify and revert know what was written
check             the host is as it was before apply
"""

import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

IQN = "iqn.2026-01.lab.fabtune:boots"
PORTALS = {"san0": "192.0.2.1", "vec1": "198.51.100.1"}
BEFORE = Path("/var/lib/boots-before.json")
JOURNALS = Path("/var/lib/fabtune")
WAIT_S = 60
# Made anew by every boot, or by time.
UNSTEADY = (
    "/etc/machine-id",
    "/etc/resolv.conf",
    "/etc/.updated",
    "/etc/mtab",
    "/etc/ld.so.cache",
    "/etc/.pwd.lock",
    "/etc/multipath",
    "/etc/multipath/bindings",
    "/etc/multipath/wwids",
)
SYSCTLS = ("net.core.", "net.ipv4.tcp_", "vm.", "kernel.sched_")
UNSTEADY_SYSCTLS = ("tcp_fastopen_key", "tcp_mem", "netrom", "vm.user_reserve", "vm.stat_refresh")
BLOCK = (
    "queue/scheduler", "queue/nr_requests", "queue/read_ahead_kb", "queue/max_sectors_kb", "device/timeout",
    "device/queue_depth",
)  # fmt: skip

ADMINISTRATOR = {
    # Names one NIC and sets one of its values himself; the other NIC keeps the distribution's.
    "/etc/systemd/network/70-san0.link":
        "[Match]\nMACAddress=52:54:00:00:00:01\n[Link]\nName=san0\nTransmitQueueLength=3000\n",
    "/etc/sysctl.d/10-early.conf": "net.core.netdev_max_backlog = 3000\n",
    "/etc/sysctl.d/99-san.conf": "net.core.wmem_max = 300000\n-net/ipv4/tcp_sack=0\n",
    "/etc/udev/rules.d/60-san.rules":
        'ACTION=="add|change", SUBSYSTEM=="block", KERNEL=="sd*", ATTR{queue/read_ahead_kb}="512"\n',
    "/etc/systemd/system/san-address.service":
        "[Unit]\nWants=sys-subsystem-net-devices-san0.device\nAfter=sys-subsystem-net-devices-san0.device\n"
        "Before=network.target\n[Service]\nType=oneshot\nRemainAfterExit=yes\n"
        + "".join(f"ExecStart=/usr/sbin/ip address add {address}/24 dev {nic}\n" for nic, address in PORTALS.items())
        + "[Install]\nWantedBy=multi-user.target\n",
    "/etc/systemd/system/open-iscsi.service.d/order.conf":
        "[Unit]\nAfter=rtslib-fb-targetctl.service san-address.service\nWants=san-address.service\n",
    "/etc/systemd/system/rtslib-fb-targetctl.service.d/order.conf": "[Unit]\nAfter=san-address.service\n",
    "/etc/iscsi/initiatorname.iscsi": "InitiatorName=iqn.2026-01.lab.fabtune:host\n",
}  # fmt: skip

# The target, as targetcli makes it: that asks for D-Bus, which is not on every host.
TARGET = """
import sys
from rtslib_fb import LUN, TPG, FabricModule, NetworkPortal, RDMCPStorageObject, RTSRoot, Target
tpg = TPG(Target(FabricModule("iscsi"), sys.argv[1]), 1)
LUN(tpg, 0, RDMCPStorageObject("disk", 32 << 20))
for address in sys.argv[2:]:
    NetworkPortal(tpg, address)
for name in ("authentication", "demo_mode_write_protect"):
    tpg.set_attribute(name, 0)
for name in ("generate_node_acls", "cache_dynamic_acls"):
    tpg.set_attribute(name, 1)
tpg.enable = True
RTSRoot().save_to_file()
"""

# (role, tunable, values of which one is drawn)
WISHES: tuple[tuple[str, str, tuple[object, ...]], ...] = (
    ("initiator", "nic.mtu", (1400, 1300)),
    ("initiator", "nic.txqueuelen", (5000, 2000)),
    ("initiator", "tcp.rmem_max", (7000000, 9000000)),
    ("initiator", "net.wmem_max", (4000000,)),
    ("initiator", "net.netdev_max_backlog", (5000,)),
    ("initiator", "block.scheduler", ("none",)),
    ("initiator", "block.nr_requests", (48, 64)),
    ("initiator", "block.read_ahead_kb", (2048,)),
    ("initiator", "iscsi.cmds_max", (256, 512)),
    ("initiator", "iscsi.replacement_timeout", (33,)),
    ("target", "lio.first_burst", (131072, 65536)),
)


def expected_of(tunable: str, value: object) -> dict[str, str]:
    """Return what stands after a reboot with `value` kept: the end of each value by its key; his own stay his."""
    return {
        "nic.mtu": {f"nic uml-vector.{nic} mtu": f"{value}" for nic in (0, 1)},
        "nic.txqueuelen": {"nic uml-vector.1 tx_queue_len": f"{value}"},
        "tcp.rmem_max": {"sysctl net.ipv4.tcp_rmem": f"{value}"},
        "block.scheduler": {f"disk {address} queue/scheduler": f"[{value}]" for address in PORTALS.values()},
        "block.nr_requests": {f"disk {address} queue/nr_requests": f"{value}" for address in PORTALS.values()},
        "iscsi.cmds_max": {f"record {address} node.session.cmds_max": f"{value}" for address in PORTALS.values()},
        "iscsi.replacement_timeout": {
            **{f"record {address} node.session.timeo.replacement_timeout": f"{value}" for address in PORTALS.values()},
            **{f"session {address} recovery_tmo": f"{value}" for address in PORTALS.values()},
        },
        "lio.first_burst": {
            "target param/FirstBurstLength": f"{value}",
            **{f"session {address} first_burst_len": f"{value}" for address in PORTALS.values()},
        },
    }.get(tunable, {})  # fmt: skip


def draw(seed: int) -> tuple[list[str], dict[str, str]]:
    """Return one or two profiles, to be applied in turn, and what they bring."""
    rng = random.Random(seed)
    drawn = [(role, name, rng.choice(values)) for role, name, values in WISHES if rng.random() < 0.7]
    rng.shuffle(drawn)
    drawn = drawn or [("initiator", "nic.mtu", 1400)]
    middle = rng.choice([0, rng.randrange(len(drawn))])
    texts = [
        'summary = "a test"\n'
        + "".join(f'[{role}."{name}"]\nvalue = {json.dumps(value)}\nwhy = "a test"\n' for role, name, value in part)
        for part in (drawn[:middle], drawn[middle:])
        if part
    ]
    expected: dict[str, str] = {}
    if {"iscsi.cmds_max", "block.scheduler"} & {name for _, name, _ in drawn}:
        # The kernel makes it of the command window where no scheduler has its own: any will do.
        expected |= {f"disk {address} queue/nr_requests": "" for address in PORTALS.values()}
    expected |= {key: end for _, name, value in drawn for key, end in expected_of(name, value).items()}
    return texts, expected


def sh(*command: str, allowed: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode not in allowed:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr


def setup() -> None:
    """Write the administrator's files and make his target, and leave all for the next boot."""
    for name, text in ADMINISTRATOR.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    conf, real = Path("/etc/iscsi/iscsid.conf"), Path("/etc/san/iscsid.conf")
    real.parent.mkdir()
    real.write_text(conf.read_text().replace("node.startup = manual", "node.startup=automatic")
                    + "node.session.timeo.replacement_timeout=77")  # fmt: skip
    real.chmod(0o640)
    os.chown(real, 0, 6)
    conf.unlink()
    conf.symlink_to("../san/iscsid.conf")
    sh("udevadm", "control", "--reload")
    for nic in ("vec0", "vec1"):
        sh("udevadm", "trigger", "--action=add", f"/sys/class/net/{nic}")
    # Not `trigger --settle`: before systemd 257 that waits for ever for a NIC which gets another name.
    sh("udevadm", "settle")
    sh("systemctl", "daemon-reload")
    sh("systemctl", "enable", "san-address.service", "open-iscsi.service", "rtslib-fb-targetctl.service")
    sh("systemctl", "start", "san-address.service")
    Path("/etc/rtslib-fb-target").mkdir(exist_ok=True)
    sh("/usr/bin/python3", "-c", TARGET, IQN, *PORTALS.values())
    sh("systemctl", "restart", "iscsid.service")
    print(sh("iscsiadm", "-m", "discovery", "-t", "st", "-p", PORTALS["san0"]))
    for address in PORTALS.values():
        sh("iscsiadm", "-m", "node", "-T", IQN, "-p", address, "-o", "update", "-n", "node.startup", "-v", "automatic")
    print(sh("iscsiadm", "-m", "node"), sh("grep", "-n", "node.startup", "/etc/san/iscsid.conf"))
    sh("sync")


def wait_for_sessions() -> None:
    deadline = time.monotonic() + WAIT_S
    while len(sessions()) < len(PORTALS) or len(disks()) < len(PORTALS):
        if time.monotonic() > deadline:
            units = ("open-iscsi", "rtslib-fb-targetctl", "san-address")
            tell = sh("systemctl", "--no-pager", "status", *units, allowed=(0, 3))
            raise SystemExit(f"sessions {sessions()}, disks {disks()} after {WAIT_S} s\n{tell}\n{sh('ip', 'address')}")
        time.sleep(0.2)
    sh("udevadm", "settle")


def sessions() -> dict[str, Path]:
    """Return the live sessions by the address that each is logged in at."""
    found = {}
    for session in Path("/sys/class/iscsi_session").glob("session*"):
        connection = Path("/sys/class/iscsi_connection") / f"connection{session.name.removeprefix('session')}:0"
        if (session / "state").read_text().strip() == "LOGGED_IN":
            found[(connection / "persistent_address").read_text().strip()] = session
    return found


def disks() -> dict[str, Path]:
    return {
        address: path
        for address, session in sessions().items()
        for path in Path(session, "device").resolve().glob("target*/*/block/*")
    }


def state() -> dict[str, str]:
    """Return everything that persists or should, read without fabtune's help."""
    found: dict[str, str] = {}
    for device in Path("/sys/class/net").glob("*/device"):
        nic = device.parent
        found[f"nic {device.resolve().name} name"] = nic.name
        for name in ("mtu", "tx_queue_len"):
            found[f"nic {device.resolve().name} {name}"] = (nic / name).read_text().strip()
    for line in sh("sysctl", "-a", allowed=(0, 1, 255)).splitlines():
        name, _, value = line.partition(" = ")
        if name.startswith(SYSCTLS) and not any(part in name for part in UNSTEADY_SYSCTLS):
            found[f"sysctl {name}"] = value
    for address, session in sessions().items():
        for name in ("targetname", "first_burst_len", "max_burst_len", "recovery_tmo", "username"):
            found[f"session {address} {name}"] = (session / name).read_text().strip()
    for address, disk in disks().items():
        for name in BLOCK:
            found[f"disk {address} {name}"] = (disk / name).read_text().strip()
    for place in (*Path("/sys/kernel/config/target/iscsi", IQN, "tpgt_1").glob("param/*"),
                  *Path("/sys/kernel/config/target/iscsi", IQN, "tpgt_1").glob("attrib/*")):  # fmt: skip
        found[f"target {place.parent.name}/{place.name}"] = place.read_text().strip()
    for address in PORTALS.values():
        record = sh("iscsiadm", "-m", "node", "-T", IQN, "-p", address, "-o", "show")
        lines = (line.partition(" = ") for line in record.splitlines())
        found |= {f"record {address} {name}": value for name, _, value in lines}
    for path in Path("/etc").rglob("*"):
        if str(path) not in UNSTEADY and "/backup" not in str(path):
            found[f"file {path}"] = file_state(path)
    return found


def file_state(path: Path) -> str:
    was = path.lstat()
    content = str(path.readlink()) if path.is_symlink() else "directory"
    if path.is_file() and not path.is_symlink():
        content = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return f"{was.st_mode:o} {was.st_uid}:{was.st_gid} {content}"


# The files that it may change or add, and nothing else.
OUR_FILES = ("fabtune", "/etc/san/iscsid.conf", "saveconfig.json", "/etc/iscsi/nodes/", "70-san0.link.d",
             "/etc/udev/rules.d", "/etc/modprobe.d", "/etc/systemd/network")  # fmt: skip


def same(key: str, first: str | None, second: str | None) -> bool:
    """Tell whether two boots agree on a value; what the kernel makes of its free memory is about the same."""
    if first is None or second is None or not key.startswith(("sysctl net.ipv4.tcp_rmem", "sysctl net.ipv4.tcp_wmem")):
        return first == second
    return all(abs(int(a) - int(b)) <= int(a) / 50 for a, b in zip(first.split(), second.split(), strict=True))


def compare(now: dict[str, str], expected: dict[str, str]) -> list[str]:
    """Return what is wrong: `expected` is what differs, rightly, from before."""
    before = json.loads(BEFORE.read_text())
    wrong = [f"{key}: {now.get(key)}, expected {value}" for key, value in expected.items()
             if not now.get(key, "").endswith(value) and value not in now.get(key, "").split()]  # fmt: skip
    for key in sorted(before.keys() | now.keys()):
        mine = key in expected or (expected and key.startswith("file ") and any(part in key for part in OUR_FILES))
        if not mine and not same(key, before.get(key), now.get(key)):
            wrong.append(f"{key}: {now.get(key)}, before {before.get(key)}")
    return wrong


def tell_of_journal() -> None:
    while not any(path.stat().st_size for path in JOURNALS.rglob("*.jsonl")):
        time.sleep(0.01)
    print("applying", flush=True)


def apply(seed: int) -> None:
    """Apply the profiles of `seed` for good; say when the first line is in the journal, for a power cut."""
    threading.Thread(target=tell_of_journal, daemon=True).start()
    for number, text in enumerate(draw(seed)[0]):
        profile = Path(f"/var/lib/boots-{number}.toml")
        profile.write_text(text)
        print(text, sh("fabtune", "apply", str(profile), "--persist", allowed=(0, 4)), sep="\n", flush=True)


def after_cut(now: dict[str, str]) -> list[str]:
    """Return what is not told truly, or not taken back, after a power cut within apply."""
    left = compare(now, {})
    told = sh("fabtune", "verify", allowed=(0, 3, 4))
    print(*(f"left by the cut: {line}" for line in left), told, sh("fabtune", "revert", allowed=(0, 4)), sep="\n")
    again = sh("fabtune", "verify", allowed=(0, 4))
    files = ("file ", "record ", "target ")
    wrong = [f"after revert: {line}" for line in compare(state(), {}) if line.startswith(files)]
    return wrong + ([f"verify after revert: {again}"] if "Traceback" in told + again else [])


def main(step: str, seed: int) -> int:
    """Run one step; the exit status says whether this boot brought what it should."""
    if step == "setup":
        setup()
        return 0
    wait_for_sessions()
    now = state()
    wrong: list[str] = []
    if step == "record":
        BEFORE.write_text(json.dumps(now))
        if now["nic uml-vector.0 name"] != "san0":
            wrong.append(f"the administrator's own .link does not work: {now['nic uml-vector.0 name']}")
    elif step == "apply":
        wrong = compare(now, {})
        if not wrong:
            apply(seed)
    elif step == "revert":
        wrong = compare(now, draw(seed)[1])
        # Nothing of it has drifted; a session may be due for a re-login.
        print(sh("fabtune", "verify", allowed=(0, 3, 4)))
        print(sh("fabtune", "revert", allowed=(0, 4)))
    elif step == "revert-after-cut":
        wrong = after_cut(now)
    else:
        wrong = compare(now, {})
    sh("sync")
    print("\n".join(wrong) or f"{step}: as it should be, {len(now)} values")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
