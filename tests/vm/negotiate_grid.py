# SPDX-License-Identifier: GPL-2.0-or-later
"""Logs in with many pairs of settings and compares sysfs with the preview; prints each difference and a sum."""

import itertools
import random
import subprocess
import sys
from pathlib import Path

from fabtune.host.sessions import live_sessions
from fabtune.model.negotiate import Value, preview

TARGET, PORTAL = "iqn.2026-01.lab.fabtune:target", "10.2.0.1:3260"
PARAMETERS = Path(f"/sys/kernel/config/target/iscsi/{TARGET}/tpgt_1/param")
RECORD = {
    "InitialR2T": "node.session.iscsi.InitialR2T",
    "ImmediateData": "node.session.iscsi.ImmediateData",
    "FirstBurstLength": "node.session.iscsi.FirstBurstLength",
    "MaxBurstLength": "node.session.iscsi.MaxBurstLength",
    "MaxOutstandingR2T": "node.session.iscsi.MaxOutstandingR2T",
    "MaxRecvDataSegmentLength": "node.conn[0].iscsi.MaxRecvDataSegmentLength",
    "MaxXmitDataSegmentLength": "node.conn[0].iscsi.MaxXmitDataSegmentLength",
    "HeaderDigest": "node.conn[0].iscsi.HeaderDigest",
    "DataDigest": "node.conn[0].iscsi.DataDigest",
    "cmds_max": "node.session.cmds_max",
}
BOOLEANS = (False, True)
LENGTHS = (512, 4096, 9999, 65536, 262144, 1048576, 16776192)


def iscsiadm(*words: str) -> subprocess.CompletedProcess[str]:
    """Run iscsiadm on the lab's one record."""
    return subprocess.run(
        ["iscsiadm", "-m", "node", "-T", TARGET, "-p", PORTAL, *words], capture_output=True, text=True, check=False
    )


def native(value: Value) -> str:
    """Return a value as both sides write it."""
    return ("No", "Yes")[value] if isinstance(value, bool) else str(value)


def grid() -> list[tuple[dict[str, Value], dict[str, Value]]]:
    """Return 224 pairs: every combination of the booleans, then lengths, PDU sizes, digests and queues at random."""
    draw = random.Random(7143)
    pairs: list[tuple[dict[str, Value], dict[str, Value]]] = []
    for ours, theirs in itertools.product(itertools.product(BOOLEANS, BOOLEANS), repeat=2):
        names = ("InitialR2T", "ImmediateData")
        pairs.append((dict(zip(names, ours, strict=True)), dict(zip(names, theirs, strict=True))))
    while len(pairs) < 224:
        ours_now: dict[str, Value] = {name: draw.choice(LENGTHS) for name in ("FirstBurstLength", "MaxBurstLength")}
        theirs_now: dict[str, Value] = {name: draw.choice(LENGTHS) for name in ("FirstBurstLength", "MaxBurstLength")}
        ours_now["MaxRecvDataSegmentLength"] = draw.choice(LENGTHS)
        ours_now["MaxXmitDataSegmentLength"] = draw.choice((0, *LENGTHS))
        theirs_now["MaxXmitDataSegmentLength"] = draw.choice(LENGTHS)
        ours_now["MaxOutstandingR2T"] = draw.choice((1, 2, 8, 64))
        theirs_now["MaxOutstandingR2T"] = draw.choice((1, 4, 16, 256))
        ours_now["InitialR2T"], theirs_now["ImmediateData"] = draw.choice(BOOLEANS), draw.choice(BOOLEANS)
        for digest in ("HeaderDigest", "DataDigest"):
            ours_now[digest] = draw.choice(("None", "CRC32C,None", "None,CRC32C"))
            theirs_now[digest] = draw.choice(("None", "CRC32C,None"))
        ours_now["cmds_max"] = draw.choice((32, 100, 128, 1024))
        pairs.append((ours_now, theirs_now))
    return pairs


def differences(ours: dict[str, Value], theirs: dict[str, Value]) -> list[str]:
    """Log in with these settings and return what differs from the preview."""
    for name, value in theirs.items():
        (PARAMETERS / name).write_text(native(value))
    for name, value in ours.items():
        iscsiadm("-o", "update", "-n", RECORD[name], "-v", native(value)).check_returncode()
    done = iscsiadm("--login")
    sessions = live_sessions()
    if done.returncode or not sessions:
        return [f"login failed: {done.stderr.strip()}"]
    agreed = {one.name: native(one.result) for one in preview(ours, theirs)}
    found = [
        f"{name}: {value}, preview {agreed[name]}"
        for name, value in sessions[0].negotiated.items()
        if name in agreed and agreed[name] != value
    ]
    if len(sessions[0].negotiated.keys() & agreed.keys()) < 9:
        found.append(f"only {sorted(sessions[0].negotiated)} to compare")
    queue = (1 << (int(ours.get("cmds_max", 128)).bit_length() - 1)) - 15
    if sessions[0].can_queue != queue:
        found.append(f"can_queue: {sessions[0].can_queue}, preview {queue}")
    iscsiadm("--logout").check_returncode()
    return found


def main() -> int:
    """Run the grid; each pair starts from the defaults of both sides."""
    theirs_default = {name: (PARAMETERS / name).read_text().strip() for name in ("InitialR2T", "ImmediateData")}
    shown = iscsiadm("-o", "show").stdout.splitlines()
    ours_default = {
        key: next(line.split(" = ")[1] for line in shown if line.startswith(f"{key} = ")) for key in RECORD.values()
    }
    wrong = 0
    pairs = grid()
    for ours, theirs in pairs:
        for key, value in ours_default.items():
            if key not in [RECORD[name] for name in ours]:
                iscsiadm("-o", "update", "-n", key, "-v", value)
        for name, value in theirs_default.items():
            (PARAMETERS / name).write_text(value)
        if found := differences(ours, theirs):
            wrong += 1
            print(ours, theirs, "; ".join(found))
    print(f"{len(pairs)} pairs, {wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
