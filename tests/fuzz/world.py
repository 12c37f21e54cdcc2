# SPDX-License-Identifier: GPL-2.0-or-later
"""The host that cases run on: unit tests' hosttree, with a NIC, records, a saved target and what tools answer."""

import json
import re

import hosttree
from bench import Bench

_LINK = {
    "ifname": "eth0",
    "mtu": 1500,
    "linkinfo": {},
    "addr_info": [{"family": "inet", "local": "10.2.0.9", "prefixlen": 24}],
}
_ROUTE = {
    "dst": "10.2.0.0/24",
    "dev": "eth0",
    "protocol": "kernel",
    "scope": "link",
    "prefsrc": "10.2.0.9",
    "flags": [],
}
_QDISCS = [
    {"kind": "mq", "handle": "0:", "root": True, "options": {}},
    {"kind": "fq", "handle": "0:", "parent": ":1", "options": {"limit": 10000, "maxrate": 125000000}},
    {"kind": "pfifo_fast", "handle": "0:", "parent": ":2", "options": {"bands": 3, "priomap": [1, 2]}},
]
SAVED_TARGET = {
    "fabric_modules": [],
    "storage_objects": [{"name": "disk1", "plugin": "fileio", "attributes": {"block_size": 512}, "wwn": "x"}],
    "targets": [
        {
            "fabric": "iscsi", "wwn": hosttree.iqn(1),
            "tpgs": [{
                "tag": 1, "parameters": {"FirstBurstLength": "65536"}, "attributes": {"login_timeout": 15},
                "node_acls": [],
            }],
        }
    ],
}  # fmt: skip
ISCSID_CONF = "# comment\nnode.startup = manual\nnode.session.auth.password = secret\nnode.session.cmds_max = 128\n"
SYSCTL_D = "# mine\nnet.ipv4.tcp_sack = 1\nnet/core/rmem_max=212992\n-net.core.wmem_max = 1\n"


def _records(sessions: int) -> str:
    text = ""
    for number in range(1, sessions + 1):
        text += "# BEGIN RECORD 2.1.11\n"
        text += f"node.name = {hosttree.iqn(number)}\nnode.tpgt = 1\nnode.startup = automatic\n"
        text += f"node.conn[0].address = 10.2.0.{number}\nnode.conn[0].port = 3260\niface.iscsi_ifacename = default\n"
        text += "iface.initiatorname = <empty>\n"
        text += "".join(f"{key} = {value}\n" for key, value in hosttree.RECORD.items())
        text += "# END RECORD\n"
    return text


def make(bench: Bench) -> None:
    """Build the host and tell the tools what they answer on it."""
    hosttree.make(bench.host, 2, 1)
    nic = bench.host / "sys/class/net/eth0"
    for name, value in {"mtu": "1500", "speed": "10000", "address": "00:00:00:00:00:01"}.items():
        hosttree.put(nic / name, value)
    hosttree.put(bench.host / "etc/iscsi/iscsid.conf", ISCSID_CONF)
    hosttree.put(bench.host / "etc/iscsi/initiatorname.iscsi", "InitiatorName=iqn.2026-01.test:me")
    hosttree.put(bench.host / "etc/sysctl.d/50-mine.conf", SYSCTL_D)
    hosttree.put(bench.host / "etc/target/saveconfig.json", json.dumps(SAVED_TARGET))
    hosttree.put(bench.host / "proc/self/mountinfo", "26 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw")
    for name in ("sysctl.d", "modprobe.d", "udev/rules.d", "systemd/network"):
        (bench.host / "etc" / name).mkdir(parents=True, exist_ok=True)
    (bench.state / "journal").mkdir(parents=True, mode=0o700)
    bench.state.chmod(0o700)
    (bench.scratch / "profiles").mkdir()
    answers = {
        "iscsiadm-show": _records(2),
        "ip-route-get": "".join(
            json.dumps([{"dst": f"10.2.0.{number}", "dev": "eth0", "prefsrc": "10.2.0.9", "uid": 0}]) + "\n"
            for number in (1, 2)
        ),
        "ip-address-j": json.dumps([_LINK]),
        "ip-route-show-j": json.dumps([_ROUTE, {"dst": "default", "gateway": "10.2.0.254", "dev": "eth0"}]),
        "ip-route-show": "10.2.0.0/24 dev eth0 proto kernel scope link src 10.2.0.9 rto_min lock 300ms quickack 1\n",
        "ip-route-change": "",
        "tc-qdisc-show": json.dumps(_QDISCS),
        "tc-qdisc-change": "", "tc-qdisc-replace": "", "tc-qdisc-del": "",
    }  # fmt: skip
    bench.tools.valid = {name: text.encode() for name, text in answers.items()}
    bench.keep()


def allowed_files(bench: Bench) -> re.Pattern[str]:
    """Return what reverting may write: the files that the vocabulary names, and the journal."""
    from fabtune.catalog.tunable import shipped_catalog

    tails = set()
    for tunable in shipped_catalog().tunables.values():
        key = re.escape(tunable.key.partition("[")[0]).replace(r"\*", "[^/]*")
        if tunable.backend == "sysctl":
            tails.add("proc/sys/" + key.replace(r"\.", "/"))
        elif tunable.backend in ("attribute", "mtu"):
            tails.add(f"(?:.*/)?{key}")
    etc = (
        r"iscsi/iscsid\.conf", r"target/saveconfig\.json", r"sysctl\.d/9\d-fabtune\.conf", r"modprobe\.d/fabtune\.conf",
        r"udev/rules\.d/99-fabtune\.rules", r"systemd/network/[\w.@-]+",
    )  # fmt: skip
    # A file is replaced through a draft beside it.
    tails |= {rf"etc/{name}|etc/{_draft(name)}" for name in etc}
    return re.compile(f"{re.escape(str(bench.host))}/({'|'.join(sorted(tails))})|{re.escape(str(bench.state))}/.*")


def _draft(name: str) -> str:
    directory, _, file = name.rpartition("/")
    return rf"{directory}/\.{file}\.fabtune-draft"
