# SPDX-License-Identifier: GPL-2.0-or-later
"""A tgtd for the copy of a host's trees: its texts are files, and a script in tgtadm's place shows them."""

import stat
from pathlib import Path

import hosttree

IQN = hosttree.iqn(1)
PARAMETERS = {
    "MaxRecvDataSegmentLength": "8192", "HeaderDigest": "None", "DataDigest": "None", "InitialR2T": "Yes",
    "MaxOutstandingR2T": "1", "ImmediateData": "Yes", "FirstBurstLength": "65536", "MaxBurstLength": "262144",
    "ErrorRecoveryLevel": "0", "MaxConnections": "1", "MaxXmitDataSegmentLength": "8192", "MaxQueueCmd": "128",
}  # fmt: skip
SHOWN = f"""Target 1: {IQN}
    System information:
        Driver: iscsi
        State: ready
        Nop interval: 0
        Nop count: 0
    I_T nexus information:
        I_T nexus: 3
            Initiator: iqn.i alias: guest
            Connection: 0
                IP Address: 10.1.0.1
    LUN information:
        LUN: 0
            Type: controller
            SCSI ID: IET     00010000
            Backing store type: null
            Backing store path: None
        LUN: 1
            Type: disk
            SCSI ID: IET     00010001
            Backing store type: rdwr
            Backing store path: /dev/vg/disk
    Account information:
    ACL information:
        ALL"""


def serve(host: Path) -> None:
    """Give the tree `host` a tgtd with one target and one initiator."""
    hosttree.put(host / "run/tgtd/socket.0", "")
    hosttree.put(host / "shown", SHOWN)
    hosttree.put(host / "parameters", "\n".join(f"{key}={value}" for key, value in PARAMETERS.items()))
    script = host / "bin/tgtadm"
    hosttree.put(
        script,
        f"""#!/bin/bash
cd {host}; echo "$*" >> asked
case "$*" in
*"--op update"*) [ "${{*: -3:1}}" != Nonsense ] || {{ echo 'tgtadm: invalid request' >&2; exit 22; }}
    sed -i "s/^${{*: -3:1}}=.*/${{*: -3:1}}=${{*: -1}}/" parameters;;
*"--mode portal"*) echo 'Portal: 10.2.0.1:3260,1';;
*"--mode session"*) echo "tgtadm: invalid request" >&2; exit 22;;
*"--tid"*) cat parameters;;
*) cat shown;;
esac""",
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
