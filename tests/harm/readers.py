# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads every value of a host that tuning may touch, sharing no code with fabtune: files, `ip`, `tc` and `ethtool`.

A snapshot is a flat dictionary from a name to a text.  The first word of a name is its kind:

    sysctl init net.core.rmem_max          record IQN,PORTAL KEY             lio iscsi/IQN/tpgt_1/param/FirstBurstLength
    qdisc init i0    link init i0    feature init i0    route init DESTINATION    rule init    file /etc/...
    session IQN,PORTAL,N recovery_tmo      disk IQN,PORTAL,N,LUN queue/nr_requests
"""

import ctypes
import fcntl
import hashlib
import json
import os
import re
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

Snapshot = dict[str, str]

NETNS = "target"
RECORDS = next((path for path in map(Path, ("/var/lib/iscsi", "/etc/iscsi")) if path.is_dir()), Path("/etc/iscsi"))
CONFIGFS = Path("/sys/kernel/config/target")
_SYSCTL_DIRECTORIES = ("net/core", "net/ipv4")
# Counters, secrets and what the kernel moves by itself.
_MOVING = re.compile(
    r"tcp_fastopen_key|tcp_(allowed|available)_congestion|netdev_rss_key|ip_local_reserved|_hash|flow_limit"
)
_NOT_OF_TARGETS = ("hw_", "emulate_", "unmap", "max_unmap", "alua")
_ETC = (
    "iscsi", "sysctl.d", "sysctl.conf", "modprobe.d", "udev", "systemd/network", "rtslib-fb-target", "target",
    "multipath", "multipath.conf", "srp_daemon.conf", "modules-load.d", "fstab", "iproute2", "tmpfiles.d",
)  # fmt: skip
_QUEUE = (
    "scheduler", "nr_requests", "max_sectors_kb", "rq_affinity", "add_random", "read_ahead_kb", "wbt_lat_usec",
    "nomerges",
)  # fmt: skip
_SESSION = (
    "recovery_tmo", "abort_tmo", "lu_reset_tmo", "tgt_reset_tmo", "first_burst_len", "max_burst_len", "initial_r2t",
    "immediate_data", "max_outstanding_r2t", "erl", "fast_abort", "ifacename",
)  # fmt: skip
_CONNECTION = ("max_recv_dlength", "max_xmit_dlength", "ping_tmo", "recv_tmo", "header_digest", "data_digest")
_libc = ctypes.CDLL(None, use_errno=True)


def enter(namespace: str) -> None:
    """Move this process into the network namespace called `namespace`.  Raises OSError."""
    fd = os.open(f"/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
    if _libc.setns(fd, 0x40000000):
        raise OSError(ctypes.get_errno(), f"setns {namespace}")
    os.close(fd)


def text_of(path: Path | str) -> str | None:
    """Return the stripped text of `path`, None when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Longer than any attribute; records are longer.
            parts = [os.read(fd, 16384)]
            while len(parts[-1]) == 16384:
                parts.append(os.read(fd, 16384))
        finally:
            os.close(fd)
    except OSError:
        return None
    return b"".join(parts).decode(errors="replace").strip()


def in_namespace(namespace: str, read: Callable[[], Snapshot]) -> Snapshot:
    """Return what `read` finds inside `namespace`, read by a child so that this process stays where it is."""
    if not Path("/run/netns", namespace).exists():
        return {}
    near, far = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(near)
            enter(namespace)
            with os.fdopen(far, "w") as stream:
                json.dump(read(), stream)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(far)
    with os.fdopen(near) as stream:
        text = stream.read()
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise RuntimeError(f"reading inside namespace {namespace} failed")
    found: Snapshot = json.loads(text)
    return found


def _tool(*words: str, stdin: str = "") -> str:
    return subprocess.run(words, input=stdin, capture_output=True, text=True, check=False).stdout


def network(where: str) -> Snapshot:
    """Return sysctls, links, queueing disciplines, features, routes and rules of the namespace we are in."""
    found: Snapshot = {}
    for directory in _SYSCTL_DIRECTORIES:
        with os.scandir(f"/proc/sys/{directory}") as entries:
            names = sorted(entry.name for entry in entries if entry.is_file())
        for name in names:
            if _MOVING.search(name):
                continue
            value = text_of(f"/proc/sys/{directory}/{name}")
            key = f"sysctl {where} {directory.replace('/', '.')}.{name}"
            fields = (value or "").split()
            # Of a vector each field may be somebody else's.
            found |= (
                {f"{key}[{index}]": field for index, field in enumerate(fields)}
                if len(fields) > 1
                else {key: value or ""}
            )
    trees = _trees()
    for link in json.loads(_tool("ip", "-j", "link") or "[]"):
        name = link["ifname"]
        for key in ("mtu", "txqlen", "operstate", "master", "address"):
            found[f"link {where} {name} {key}"] = str(link.get(key, ""))
        # What the kernel attaches by itself goes as its device goes down, and is no value.
        found[f"qdisc {where} {name}"] = "\n".join(trees.get(name, []))
        if name != "lo":
            found[f"feature {where} {name}"] = _features(name)
    for family in ("-4", "-6"):
        rules = []
        for line in _tool("ip", "-d", family, "-batch", "-", stdin="rule show\nroute show table all\n").splitlines():
            if re.match(r"\d+:", line):
                rules.append(line)
            elif " table local " not in f"{line} " and " proto kernel " not in f"{line} " and "dev lo" not in line:
                found |= _route(f"route {where} {family}", re.sub(r"expires \d+sec", "expires", line).split())
        found[f"rule {where} {family}"] = "\n".join(rules)
    return found


def _route(base: str, words: list[str]) -> Snapshot:
    """Return each attribute of one line of `ip route` under a name of its own."""
    words = words[1:] if words[0] == "unicast" else words
    table = words[words.index("table") + 1] if "table" in words else "main"
    metric = words[words.index("metric") + 1] if "metric" in words else "0"
    name = f"{base} {words[0]} {table} {metric}"
    found = {name: "there"}
    place = 1
    while place < len(words):
        alone = words[place] in ("expires", "onlink", "linkdown", "pref") or place + 1 == len(words)
        value = "" if alone else words[place + 1]
        if value == "lock":
            value = " ".join(words[place + 1 : place + 3])
            place += 1
        found[f"{name} {words[place - (value.startswith('lock'))]}"] = value
        place += 1 if alone else 2
    return found


def _trees() -> dict[str, list[str]]:
    """Return the whole queueing tree of each device, without the handles that the kernel draws."""
    found: dict[str, list[str]] = {}
    with_classes = set()
    for line in _tool("tc", "qdisc", "show").splitlines():
        words = line.split()
        name = words[words.index("dev") + 1]
        found.setdefault(name, []).append(_plain(line))
        if words[1] in ("htb", "hfsc", "drr", "qfq", "prio"):
            with_classes.add(name)
    for name in sorted(with_classes):
        for what in ("class", "filter"):
            lines = _tool("tc", what, "show", "dev", name).splitlines()
            # fq_codel's classes are its flows of this moment.
            found[name] += [_plain(line) for line in lines if not line.startswith("class fq_codel")]
    return {name: sorted(lines) for name, lines in found.items()}


def _plain(line: str) -> str:
    line = re.sub(r"\b[89a-f][0-9a-f]{3}:", "auto:", line)
    return re.sub(r"\brefcnt \d+ ?", "", line).strip()


# ethtool's commands that get one word (include/uapi/linux/ethtool.h).
_FEATURES = {"tso": 0x1E, "gso": 0x23, "gro": 0x2B, "flags": 0x25}


def _features(name: str) -> str:
    """Return the offloads of device `name`."""
    shown = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        for feature, command in _FEATURES.items():
            buffer = ctypes.create_string_buffer(struct.pack("=II", command, 0), 8)
            request = struct.pack("16sP16x", name.encode(), ctypes.addressof(buffer))
            try:
                fcntl.ioctl(channel.fileno(), 0x8946, request)
                shown.append(f"{feature}={struct.unpack('=II', buffer.raw)[1]}")
            except OSError:
                continue
    return " ".join(shown)


def records() -> Snapshot:
    """Return every key of every node record, and its file's mode."""
    found: Snapshot = {}
    for path in sorted(
        Path(top, name) for top, _, names in os.walk(RECORDS / "nodes") for name in names if name != "lock"
    ):
        # nodes/IQN/ADDRESS,PORT,TPGT/INTERFACE
        parts = path.relative_to(RECORDS / "nodes").parts
        name = f"{parts[0]},{','.join(parts[1].split(',')[:2])}" if len(parts) > 1 else parts[0]
        found[f"record {name} (file)"] = _status(path)
        for line in (text_of(path) or "").splitlines():
            key, equals, value = line.partition(" = ")
            if equals:
                found[f"record {name} {key.strip()}"] = value.strip()
    return found


def targets() -> Snapshot:
    """Return LIO's parameters and attributes in configfs."""
    found: Snapshot = {}
    # An ACL's parameters are its session's.
    for pattern in (
        "iscsi/iqn*/tpgt_*/attrib/*", "iscsi/iqn*/tpgt_*/param/*", "iscsi/iqn*/tpgt_*/acls/*/attrib/*",
        "iscsi/iqn*/tpgt_*/acls/*/cmdsn_depth", "core/*_*/*/attrib/*",
    ):  # fmt: skip
        for path in CONFIGFS.glob(pattern):
            if path.name.startswith(_NOT_OF_TARGETS):
                continue
            value = text_of(path)
            if value is not None:
                found[f"lio {path.relative_to(CONFIGFS)}"] = value
    return found


def _status(path: Path) -> str:
    status = path.lstat()
    try:
        labels = " ".join(
            f"{name}={os.getxattr(path, name, follow_symlinks=False)!r}"
            for name in sorted(os.listxattr(path, follow_symlinks=False)) if not name.startswith("trusted.")
        )  # fmt: skip
    except OSError:
        labels = ""
    return f"{status.st_mode:o} {status.st_uid}:{status.st_gid} {labels}".strip()


def files() -> Snapshot:
    """Return mode, owner, attributes and content of the files below /etc that tools configure storage with."""
    found: Snapshot = {}
    for name in _ETC:
        top = Path("/etc", name)
        for path in [top, *sorted(top.rglob("*"))] if top.is_dir() and not top.is_symlink() else [top]:
            if not path.is_symlink() and (not path.exists() or path.is_dir() or RECORDS / "nodes" in path.parents):
                continue
            if path.is_symlink():
                found[f"file {path}"] = f"link to {path.readlink()}"
            else:
                data = path.read_bytes()
                shown = data.decode(errors="replace") if len(data) < 400 else hashlib.sha256(data).hexdigest()[:16]
                found[f"file {path}"] = f"{_status(path)}\n{shown}"
    return found


def sessions() -> Iterator[tuple[str, int, Path]]:
    """Yield (name, session id, directory) of each session; sessions to one portal are numbered in their order."""
    seen: dict[str, int] = {}
    directories = sorted(Path("/sys/class/iscsi_session").glob("session*"), key=lambda path: int(path.name[7:]))
    for directory in directories:
        sid = int(directory.name[7:])
        target = text_of(directory / "targetname")
        connection = Path(f"/sys/class/iscsi_connection/connection{sid}:0")
        address = text_of(connection / "persistent_address")
        if not target or not address:
            continue
        base = f"{target},{_short(address)},{text_of(connection / 'persistent_port')}"
        seen[base] = seen.get(base, -1) + 1
        yield f"{base},{seen[base]}", sid, directory


def _short(address: str) -> str:
    """Return an address as iscsiadm's directories write it."""
    import ipaddress

    return str(ipaddress.ip_address(address)) if ":" in address else address


def disks_of(directory: Path) -> list[str]:
    """Return the disks (sda) of the session in `directory`."""
    return sorted(path.name for path in (directory / "device").glob("target*/*:*:*:*/block/*"))


def devices() -> Snapshot:
    """Return what sysfs tells of sessions and their disks."""
    found: Snapshot = {}
    for name, sid, directory in sessions():
        for key in _SESSION:
            value = text_of(directory / key)
            if value is not None:
                found[f"session {name} {key}"] = value
        for key in _CONNECTION:
            value = text_of(Path(f"/sys/class/iscsi_connection/connection{sid}:0") / key)
            if value is not None:
                found[f"session {name} {key}"] = value
        for disk in disks_of(directory):
            base = Path("/sys/block", disk)
            lun = (base / "device").resolve().name.rpartition(":")[2]
            for key in (*(f"queue/{one}" for one in _QUEUE), "device/queue_depth", "device/timeout"):
                value = text_of(base / key)
                if value is not None:
                    found[f"disk {name},{lun} {key}"] = value
    return found


def snapshot() -> Snapshot:
    """Return everything."""
    found = network("init")
    found |= in_namespace(NETNS, lambda: network(NETNS))
    found |= records() | targets() | files() | devices()
    return found


def differing(first: Snapshot, second: Snapshot) -> list[str]:
    """Return the names whose values differ, those that only one of the two has included."""
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
