#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes an inventory of many local hosts, each a tree of its own (FABTUNE_ROOT) that the real fabtune tunes.

    fleet_hosts.py DIRECTORY COUNT [--away NAME...] [--bad NAME...] [--cut NAME...] [--hung NAME...]

Hosts are called h0000, h0001, ...; those `away` answer no connection, of those that are `bad` no value can be written,
what is applied to those that are `cut` cuts them off, and to those `hung` fabtune gives no answer.
"""

import argparse
import os
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace"), str(TOP / "tests/unit")]

import hosttree  # noqa: E402

_LAUNCHER = """#!/bin/sh
export FABTUNE_ROOT={root} FABTUNE_STATE_DIR={root}/state PYTHONPATH={top}/userspace PATH={root}/bin:$PATH
{first}exec /usr/bin/python3 -m fabtune "$@"
"""
_FIRST = {
    "bad": '[ "$1" != apply ] || { echo "fabtune: this host refuses" >&2; exit 1; }\n',
    "cut": '[ "$1" != apply ] || { /usr/bin/python3 -m fabtune "$@"; : > ${FABTUNE_ROOT}/cut; exit 0; }\n',
    "hung": "exec sleep infinity\n",
}


def main() -> None:
    """Write trees, launchers and inventory.ini."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("count", type=int)
    for kind in ("away", *_FIRST):
        parser.add_argument(f"--{kind}", nargs="*", default=[])
    args = parser.parse_args()
    lines = ["[targets]", "[initiators]"]
    for number in range(args.count):
        name = f"h{number:04}"
        root = args.directory / name
        if not root.exists():
            hosttree.make(root, 1)
        launcher = root / "fabtune"
        first = "".join(text for kind, text in _FIRST.items() if name in getattr(args, kind))
        launcher.write_text(_LAUNCHER.format(root=root, top=TOP, first=first))
        launcher.chmod(0o755)
        # Nobody listens at port 1.
        where = f"ansible_connection={'mortal' if name in args.cut else 'local'}"
        where = "ansible_host=127.0.0.1 ansible_port=1" if name in args.away else where
        lines.append(f"{name} fabtune_executable={launcher} {where}")
    lines += ["[all:vars]", "ansible_python_interpreter=/usr/bin/python3"]
    (args.directory / "inventory.ini").write_text("\n".join(lines) + "\n")
    os.sync()


if __name__ == "__main__":
    main()
