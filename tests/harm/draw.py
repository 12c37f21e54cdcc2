# SPDX-License-Identifier: GPL-2.0-or-later
"""Draws a random host and a random sequence of steps from a seed.  Nothing here depends on what a run finds.

A step is one line of words, so that a failing sequence can be printed, cut and replayed:

    [kill:N|torn:N|interrupt:N|full:N] [after:S] [head|devfull|ro-state|ro-etc|ro-records|full-state|full-etc] VERB ...
"""

import json
import random
from dataclasses import asdict, dataclass, fields, replace

LAYERS = ("plain", "vlan", "bond", "bond-vlan")
BACKSTORES = ("ramdisk", "fileio", "block")
ACCESS = ("demo", "acl", "chap")
USES = ("none", "open", "node", "sg", "mount", "mntns", "swap", "loop", "dm", "md", "lio", "mpath")
QDISCS = (
    "", "fq", "fq maxrate 800mbit", "pfifo limit 50", "cake bandwidth 500mbit", "fq_codel limit 777",
    "handle 1: htb default 10", "handle 1: prio bands 4",
)  # fmt: skip
ROUTES = ("direct", "via", "initcwnd", "expires", "nhid", "table")
PROFILES = ("lan", "wan", "wan-lossy", "low-latency", "lan-jumbo", "/run/harm/custom.toml")
TARGET_SETTINGS = ("", "MaxOutstandingR2T 6", "InitialR2T Yes", "FirstBurstLength 4096", "MaxBurstLength 65536")
RECORD_SETTINGS = (
    "", "node.conn[0].timeo.noop_out_interval 0", "node.session.timeo.replacement_timeout 86400",
    "node.session.queue_depth 17", "node.conn[0].tcp.window_size 262144",
)  # fmt: skip
SYSCTLS = (
    "", "net.ipv4.tcp_rmem 4096 200000 268435456", "net.core.rmem_max 4000000", "net.ipv4.tcp_slow_start_after_idle 0",
    "net.ipv4.tcp_congestion_control reno",
)  # fmt: skip
FILES = ("", "sysctl", "symlink", "link", "modprobe", "mode")


@dataclass(frozen=True)
class Target:
    """One target: what is behind its LUN, who may log in, how it is reached."""

    backstore: str
    access: str
    portals: int
    tpgs: int
    nr_sessions: int
    use: str


@dataclass(frozen=True)
class Host:
    """A host and its targets, before fabtune."""

    family: int
    layer: str
    route: str
    qdisc: str
    target_setting: str
    record_setting: str
    sysctl: str
    file: str
    saved: bool
    targets: tuple[Target, ...]

    def text(self) -> str:
        """Return the host as one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @property
    def sessions(self) -> int:
        """Number of sessions when all are logged in."""
        return sum(one.portals * one.nr_sessions for one in self.targets)


def parse_host(text: str) -> Host:
    """Return the host that `text` describes; what it leaves out is as plain as it can be."""
    given = json.loads(text)
    plain: dict[str, object] = {
        "family": 4, "layer": "plain", "route": "direct", "qdisc": "", "target_setting": "", "record_setting": "",
        "sysctl": "", "file": "", "saved": True,
    }  # fmt: skip
    plain_target = {"backstore": "ramdisk", "access": "demo", "portals": 1, "tpgs": 1, "nr_sessions": 1, "use": "none"}
    targets = tuple(Target(**(plain_target | one)) for one in given.pop("targets", [{}]))
    wrong = set(given) - {field.name for field in fields(Host)}
    if wrong:
        raise SystemExit(f"host: unknown keys {', '.join(sorted(wrong))}")
    return Host(**(plain | given), targets=targets)


def host(seed: int, multipathd: bool = True) -> Host:
    """Draw a host with 1 to 3 sessions."""
    draw = random.Random(f"host {seed}")
    targets: list[Target] = []
    room = draw.choice((1, 1, 2, 2, 3))
    while room:
        portals = draw.choice([count for count in (1, 1, 2) if count <= room])
        nr_sessions = draw.choice((1, 1, 1, 2)) if portals * 2 <= room else 1
        uses = USES if portals * nr_sessions > 1 and multipathd else USES[:-1]
        use = draw.choice(("mpath", *uses)) if len(uses) == len(USES) else draw.choice(("none", "none", *uses))
        tpgs = draw.choice((1, 2)) if portals == 2 and use != "mpath" else 1
        targets.append(Target(draw.choice(BACKSTORES), draw.choice(ACCESS), portals, tpgs, nr_sessions, use))
        room -= portals * nr_sessions
    found = Host(
        family=draw.choice((4, 4, 6)), layer=draw.choice(("plain", *LAYERS)), route=draw.choice(("direct", *ROUTES)),
        qdisc=draw.choice(("", "", *QDISCS)), target_setting=draw.choice(TARGET_SETTINGS),
        record_setting=draw.choice(RECORD_SETTINGS), sysctl=draw.choice(SYSCTLS), file=draw.choice(FILES),
        saved=draw.random() < 0.7, targets=tuple(targets),
    )  # fmt: skip
    # With multipathd there is udevd, which would give a NIC made at a reboot the file's name.
    udevd = any(one.use == "mpath" for one in targets)
    return replace(found, file="sysctl") if udevd and found.file == "link" else found


# Weights of the verbs.
_VERBS = {
    "apply": 40, "revert": 14, "verify": 8, "foreign": 12, "discover": 4, "logout": 5, "login": 5, "reboot": 5,
    "saveconfig": 2, "restoreconfig": 2, "release": 2, "use": 3,
}  # fmt: skip
_FAULTS = ("kill", "kill", "kill", "torn", "interrupt", "full")
_PLACES = ("ro-state", "ro-etc", "ro-records", "full-state", "full-etc", "full-records")
_OUTPUTS = ("head", "head-err", "devfull", "errfull", "closed")


def steps(seed: int, count: int = 0) -> list[str]:
    """Draw `count` steps (default: 3 to 8)."""
    draw = random.Random(f"steps {seed}")
    number = count or draw.randint(3, 8)
    found = [_command(draw, "apply")]
    while len(found) < number:
        verb = draw.choices(list(_VERBS), list(_VERBS.values()))[0]
        found.append(_command(draw, verb) if verb in ("apply", "revert", "verify") else _event(draw, verb))
    return found


def _command(draw: random.Random, verb: str) -> str:
    words: list[str] = []
    luck = draw.random()
    if verb != "verify" and luck < 0.22:
        words.append(f"{draw.choice(_FAULTS)}:{int(draw.lognormvariate(2.9, 0.9)) + 1}")
    elif verb != "verify" and luck < 0.30:
        words.append(f"after:{draw.uniform(0.02, 1):.2f}")
    elif luck < 0.38:
        words.append(draw.choice(_PLACES))
    elif luck < 0.46:
        words.append(draw.choice(_OUTPUTS))
    words.append(verb)
    if verb == "apply":
        words.append(draw.choice(PROFILES))
        words += ["--rtt", draw.choice(("1ms", "20ms", "50ms"))] if draw.random() < 0.8 else []
        words += ["--rate", draw.choice(("622mbit", "1gbit", "10gbit"))]
        words += [
            option
            for option, share in (("--allow-relogin", 0.5), ("--end-sessions", 0.3), ("--persist", 0.4))
            if draw.random() < share
        ]
        words += draw.choice(("", "", "--role initiator", "--role target --netns target")).split()
    elif verb == "revert":
        words += ["--allow-relogin"] if draw.random() < 0.5 else []
        words += draw.choice(("", "", draw.choice(PROFILES), "--transaction LAST", "--transaction FIRST")).split()
    else:
        words += draw.choice(("", "--json")).split()
    return " ".join(words)


_FOREIGN = (
    "sysctl net.core.rmem_max {n}", "sysctl net.ipv4.tcp_wmem[2] {n}", "sysctl net.ipv4.tcp_no_metrics_save {b}",
    "sysctl net.ipv4.tcp_slow_start_after_idle {b}", "record node.session.cmds_max 512",
    "record node.session.queue_depth 77", "record node.conn[0].iscsi.MaxRecvDataSegmentLength 131072",
    "lio param/FirstBurstLength 16384", "lio param/MaxBurstLength 524288", "lio attrib/default_cmdsn_depth 33",
    "qdisc pfifo limit 33", "qdisc fq maxrate 123mbit", "mtu 1400", "txqueuelen 777",
    "file /etc/sysctl.d/95-admin.conf net.core.rmem_max = {n}",
    "file /etc/sysctl.d/80-admin.conf net.core.wmem_max = {n}",
    "disk queue/nr_requests 17", "disk queue/read_ahead_kb 333", "file /etc/udev/rules.d/70-admin.rules # {n}",
    "unlink /etc/sysctl.d/90-fabtune.conf", "route initcwnd 7", "record-damage", "record-stray",
)  # fmt: skip


def _event(draw: random.Random, verb: str) -> str:
    if verb == "foreign":
        return "foreign " + draw.choice(_FOREIGN).format(n=draw.randrange(3_000_001, 4_000_000, 2), b=draw.randrange(2))
    if verb in ("logout", "login", "release", "use"):
        return f"{verb} {draw.randrange(3)}"
    return verb
