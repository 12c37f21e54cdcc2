# SPDX-License-Identifier: GPL-2.0-or-later
"""A NIC of the tree of files whose queueing disciplines a `tc` of the test's own keeps, as the kernel would."""

import json
from pathlib import Path

import hosttree

from fabtune.model.device import Device

NAME = "v0"
# What the facts of a host would make of it.
NIC = Device(
    "nic", f"name:{NAME},netns:init", NAME, {"name": NAME, "netns": "", "directory": f"class/net/{NAME}"}
)  # fmt: skip
_LINK = {"ifname": NAME, "flags": ["UP"], "address": "02:00:00:00:00:01", "addr_info": []}
FQ = {
    "limit": 10000, "flow_limit": 100, "buckets": 1024, "orphan_mask": 1023, "low_rate_threshold": 68750,
    "refill_delay": 40000, "timer_slack": 10000, "horizon": 10000000,
}  # fmt: skip
# fq is refused where the file `without-fq` is there, as by a kernel that has no sch_fq.
_TC = """#!/usr/bin/python3
import json, os, sys
root, fq, words = {root!r}, {fq!r}, sys.argv[1:]
rows = json.load(open(root + "/qdisc"))
def has(*some): return all(one in words for one in some)
def after(word): return words[words.index(word) + 1]
if has("filter"): sys.exit()
if has("show"): print(json.dumps(rows)); sys.exit()
if words[-1] == "fq" and os.path.exists(root + "/without-fq"):
    sys.exit("Error: Specified qdisc kind is unknown.")
if has("del"):
    rows = json.load(open(root + "/qdisc.kernel"))
elif has("maxrate"):
    bytes_per_s = int(after("maxrate").removesuffix("bit")) // 8
    for row in rows:
        if row["kind"] == "fq":
            row["options"] = dict(fq, **(dict(maxrate=bytes_per_s) if bytes_per_s < (1 << 32) - 1 else dict()))
elif words[-1] == "mq":
    leaves = [dict(kind="pfifo_fast", handle="0:", parent="fab:" + str(n), options=dict()) for n in (1, 2)]
    rows = [dict(kind="mq", handle="fab:", root=True, options=dict()), *leaves]
else:
    one = dict(kind=words[-1], options=fq if words[-1] == "fq" else dict())
    if has("root"): rows = [dict(one, handle="fab:", root=True)]
    else: rows = [dict(one, handle="8001:", parent=after("parent")) if row.get("parent") == after("parent") else row
                  for row in rows]
json.dump(rows, open(root + "/qdisc", "w"))
"""


def _script(path: Path, text: str) -> None:
    hosttree.put(path, text)
    path.chmod(0o755)


def make(root: Path, queues: int = 1, **link: object) -> None:
    """Give the tree at `root` the NIC, with the kernel's own disciplines; `link` is what `ip` says of it besides."""
    hosttree.put(root / f"sys/class/net/{NAME}/mtu", "1500")
    hosttree.put(root / "proc/sys/net/core/default_qdisc", "pfifo_fast")
    hosttree.put(root / "links", json.dumps([_LINK | link]))
    _script(root / "bin/ip", f'#!/bin/sh\ncase "$*" in *address*) cat {root}/links;; *) echo "[]";; esac')
    _script(root / "bin/tc", _TC.format(root=str(root), fq=FQ))
    first: dict[str, object] = {"kind": "pfifo_fast", "handle": "0:", "root": True, "options": {}}
    rows = [first]
    if queues > 1:
        leaf = {name: value for name, value in first.items() if name != "root"}
        rows = [first | {"kind": "mq"}, *(leaf | {"parent": f":{number}"} for number in range(1, queues + 1))]
    for name in ("qdisc", "qdisc.kernel"):
        hosttree.put(root / name, json.dumps(rows))


def attached(root: Path) -> list[dict[str, object]]:
    """Return what is attached now."""
    return list(json.loads((root / "qdisc").read_text()))
