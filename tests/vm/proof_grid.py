# SPDX-License-Identifier: GPL-2.0-or-later
"""Known iSCSI configurations, all twelve or three: the capture must confirm each, and contradict every wrong claim."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

from fabtune.lab.fabrics.iscsi import PORTAL, TARGET_IQN, Iscsi
from fabtune.lab.iscsi_initiator import INITIATOR_IQN
from fabtune.measure import capture, proof, target, workload
from fabtune.model.factors import Settings

TPG = Path(f"/sys/kernel/config/target/iscsi/{TARGET_IQN}/tpgt_1")
ACL = TPG / "acls" / INITIATOR_IQN
KEYS = {
    "ImmediateData": "node.session.iscsi.ImmediateData",
    "InitialR2T": "node.session.iscsi.InitialR2T",
    "FirstBurstLength": "node.session.iscsi.FirstBurstLength",
    "MaxBurstLength": "node.session.iscsi.MaxBurstLength",
}
REQUEST_BYTES, FIRST_BURST, PDU_BYTES = 262144, 32768, 8192
MAX_BURSTS, WINDOWS = (32768, 65536, 1048576), (16, 48)
SHORT = (1, 3, 8)


def configurations() -> list[dict[str, str]]:
    """Return every combination of the booleans and bursts, with both windows among them.

    The short run takes three of them, which have each value of each key.
    """
    found = []
    for number, (immediate, initial, burst) in enumerate(itertools.product(("Yes", "No"), ("Yes", "No"), MAX_BURSTS)):
        found.append(
            {
                "ImmediateData": immediate,
                "InitialR2T": initial,
                "FirstBurstLength": str(min(FIRST_BURST, burst)),
                "MaxBurstLength": str(burst),
                "CommandWindow": str(WINDOWS[number % 2]),
            }
        )
    return found if os.environ.get("LENGTH") == "full" else [found[number] for number in SHORT]


def configure(wanted: dict[str, str]) -> None:
    """Set both ends, so that the login can only agree on `wanted`."""
    for name, key in KEYS.items():
        (TPG / "param" / name).write_text(wanted[name])
        update = ["iscsiadm", "-m", "node", "-T", TARGET_IQN, "-p", PORTAL, "-o", "update"]
        subprocess.run([*update, "-n", key, "-v", wanted[name]], check=True)
    # What LIO declares as the longest data segment it takes: small, so that a first burst needs several PDUs.
    (TPG / "param/MaxXmitDataSegmentLength").write_text(str(PDU_BYTES))
    (ACL / "cmdsn_depth").write_text(wanted["CommandWindow"])


def make_acl() -> None:
    """Give the initiator an ACL of its own: one made at its first login keeps the depth of that time."""
    (ACL / "lun_0").mkdir(parents=True)
    (ACL / "lun_0/disk").symlink_to(TPG / "lun/lun_0")


def unsolicited(wanted: dict[str, str]) -> int:
    """Return the bytes of a write that must go unasked (RFC 7143, 13.10 to 13.14), worked out here once more."""
    if wanted["InitialR2T"] == "No":
        return int(wanted["FirstBurstLength"])
    return PDU_BYTES if wanted["ImmediateData"] == "Yes" else 0


def wrong_claims(right: dict[str, str]) -> list[tuple[str, str]]:
    """Return one wrong value of each claim that the requests can tell."""
    other = {"Yes": "No", "No": "Yes"}
    return [
        ("ImmediateData", other[right["ImmediateData"]]),
        ("InitialR2T", other[right["InitialR2T"]]),
        ("MaxBurstLength", str(int(right["MaxBurstLength"]) // 64)),
        ("CommandWindow", str(int(right["CommandWindow"]) + 1)),
        ("R2TsPerWrite", str(int(right["R2TsPerWrite"]) + 1)),
    ]


def main() -> int:
    """Run the grid; print each finding that is not what it must be, and a sum."""
    load = workload.load("xdd").with_parameters(["queue_depth=8"])
    wrong = confirmed = contradicted = 0
    make_acl()
    iscsi = Iscsi(Settings())
    grid = configurations()
    for wanted in grid:
        configure(wanted)
        disk = iscsi.login()[0]
        # Neighbours that the block layer joined would be larger requests, with more R2Ts.
        Path(f"/sys/block/{disk}/queue/nomerges").write_text("2")
        place = target.find(f"/dev/{disk}")
        solicited = REQUEST_BYTES - unsolicited(wanted)
        right = wanted | {"R2TsPerWrite": str(-(-solicited // int(wanted["MaxBurstLength"])))}
        seen = capture.observe(load, place)
        for finding in proof.judge(right, seen):
            if finding.claim == "FirstBurstLength" and wanted["InitialR2T"] != "No":
                expected = proof.CANNOT_TELL
            else:
                expected = proof.AS_CONFIGURED
            confirmed += finding.verdict == proof.AS_CONFIGURED
            if finding.verdict != expected:
                wrong += 1
                print(f"{wanted}: {finding}, expected '{expected}'")
        for claim, value in wrong_claims(right):
            (finding,) = [one for one in proof.judge(right | {claim: value}, seen) if one.claim == claim]
            contradicted += finding.verdict == proof.NOT_AS_CONFIGURED
            if finding.verdict != proof.NOT_AS_CONFIGURED:
                wrong += 1
                print(f"{wanted}: wrong claim {claim}={value} was not contradicted: {finding}")
        iscsi.logout()
    told = f"{confirmed} claims confirmed, {contradicted} wrong ones contradicted, {wrong} wrong"
    print(f"{len(grid)} configurations, {told}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
