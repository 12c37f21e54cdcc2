# SPDX-License-Identifier: GPL-2.0-or-later
"""A copy of the trees a host shows (/proc/sys, /sys, configfs, /etc), made of plain files in a temporary directory.

It stands for a host that this one is not: with sessions, targets and disks.  Values written to it
stay as written, which a kernel's would not always: what kernels make of them is tested in guests.
"""

import stat
from pathlib import Path

import pytest

from fabtune.backends import record
from fabtune.host import tree

SYSCTLS = {
    "net/core/rmem_max": "212992", "net/core/wmem_max": "212992", "net/core/rmem_default": "212992",
    "net/core/wmem_default": "212992", "net/core/netdev_max_backlog": "1000",
    "net/ipv4/tcp_rmem": "4096\t131072\t6291456",
    "net/ipv4/tcp_wmem": "4096\t16384\t4194304", "net/ipv4/tcp_slow_start_after_idle": "1",
    "net/ipv4/tcp_no_metrics_save": "0", "net/ipv4/tcp_mtu_probing": "0", "net/ipv4/tcp_timestamps": "1",
    "net/ipv4/tcp_sack": "1", "net/ipv4/tcp_window_scaling": "1", "net/ipv4/tcp_moderate_rcvbuf": "1",
    "net/ipv4/tcp_congestion_control": "cubic", "net/ipv4/tcp_available_congestion_control": "reno cubic",
    "net/ipv4/tcp_mem": "18813 25086 37626", "net/ipv4/tcp_adv_win_scale": "1",
    "kernel/random/boot_id": "11111111-2222-3333-4444-555555555555",
}  # fmt: skip
PARAMETERS = {
    "FirstBurstLength": "65536", "MaxBurstLength": "262144", "MaxOutstandingR2T": "1", "InitialR2T": "Yes",
    "ImmediateData": "Yes", "MaxXmitDataSegmentLength": "262144", "MaxConnections": "1", "ErrorRecoveryLevel": "0",
}  # fmt: skip
RECORD = {
    "node.conn[0].tcp.window_size": "524288", "node.session.iscsi.FirstBurstLength": "262144",
    "node.session.iscsi.MaxBurstLength": "16776192", "node.session.iscsi.MaxOutstandingR2T": "1",
    "node.session.iscsi.InitialR2T": "No", "node.session.iscsi.ImmediateData": "Yes", "node.session.cmds_max": "128",
    "node.conn[0].iscsi.MaxRecvDataSegmentLength": "262144", "node.session.queue_depth": "32",
    "node.conn[0].timeo.noop_out_interval": "5", "node.conn[0].timeo.noop_out_timeout": "5",
    "node.session.auth.password": "do-not-tell",
}  # fmt: skip
TARGET = "iqn.2026-01.test:disk"


def put(path: Path, text: str) -> None:
    """Write one file of the tree."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def iqn(number: int) -> str:
    """Return the name of session `number`'s target."""
    return f"{TARGET}{number}"


def make(root: Path, sessions: int = 0, tpgs: int = 0) -> Path:
    """Build the tree of a host with so many sessions and target portal groups; return its root."""
    for name, value in SYSCTLS.items():
        put(root / "proc/sys" / name, value)
    put(root / "proc/meminfo", "MemTotal:       16777216 kB")
    put(root / "usr/lib/os-release", "ID=debian")
    for number in range(1, sessions + 1):
        _session(root / "sys", number)
    for number in range(1, tpgs + 1):
        tpg = root / f"sys/kernel/config/target/iscsi/{TARGET}{number}/tpgt_1"
        for name, value in PARAMETERS.items():
            put(tpg / "param" / name, value)
        put(tpg / "attrib/default_cmdsn_depth", "64")
        put(tpg / "attrib/login_timeout", "15")
        put(tpg / "enable", "1")
        (tpg / f"np/10.2.0.{number}:3260").mkdir(parents=True)
    _iscsiadm(root, sessions)
    return root


def log_in(root: Path, number: int) -> None:
    """Let session `number` come to a host that has all sessions below it."""
    _session(root / "sys", number)
    _iscsiadm(root, number)


def two_of_one_record(root: Path) -> None:
    """Make session 2 the second one of session 1's record (nr_sessions = 2), one path each to the same disk."""
    sys = root / "sys"
    for name in ("class/iscsi_session/session{}/targetname", "class/iscsi_session/session{}/ifacename",
                 "class/iscsi_connection/connection{}:0/persistent_address",
                 "class/iscsi_connection/connection{}:0/address", "block/sd{}/device/wwid"):  # fmt: skip
        (sys / name.format(2)).write_text((sys / name.format(1)).read_text())
    record = root / "records" / iqn(1)
    record.write_text(record.read_text() + "node.session.nr_sessions = 2\n")
    (root / "records" / iqn(2)).unlink()


def _session(sys: Path, number: int) -> None:
    device = sys / f"devices/platform/host{number}/session{number}"
    for name, value in {"targetname": iqn(number), "ifacename": "default", "state": "LOGGED_IN",
                        "first_burst_len": "65536", "recovery_tmo": "120"}.items():  # fmt: skip
        put(sys / f"class/iscsi_session/session{number}" / name, value)
    block = device / f"target{number}:0:0/{number}:0:0:0/block/sd{number}"
    block.mkdir(parents=True)
    (sys / f"class/iscsi_session/session{number}/device").symlink_to(device)
    for name, value in {"persistent_address": f"10.2.0.{number}", "persistent_port": "3260",
                        "address": f"10.2.0.{number}", "port": "3260"}.items():  # fmt: skip
        put(sys / f"class/iscsi_connection/connection{number}:0" / name, value)
    for name, value in {"queue/scheduler": "none [mq-deadline]", "queue/rq_affinity": "1", "queue/nr_requests": "128",
                        "device/wwid": f"naa.6001405{number:09}", "device/timeout": "30"}.items():  # fmt: skip
        put(sys / f"block/sd{number}" / name, value)


def _iscsiadm(root: Path, sessions: int) -> None:
    """Make an iscsiadm that shows and updates records kept in the tree, as open-iscsi's prints them."""
    for number in range(1, sessions + 1):
        lines = [f"node.name = {iqn(number)}", f"node.conn[0].address = 10.2.0.{number}", "node.conn[0].port = 3260",
                 "iface.iscsi_ifacename = default"]  # fmt: skip
        lines += [f"{key} = {value}" for key, value in RECORD.items()]
        put(root / f"records/{iqn(number)}", "\n".join(lines))
    put(root / "bin/record-begin", "# BEGIN RECORD 2.1.11")
    put(root / "bin/record-end", "# END RECORD")
    script = root / "bin/iscsiadm"
    # A kill test runs it a thousand times: it starts as few programs as it can.
    put(
        script,
        f"""#!/bin/sh
cd {root}/records || exit 6
target='*'; operation=
while [ $# -gt 0 ]; do case $1 in
    -T) target=$2; shift;; -o) operation=$2; shift;; -n) key=$2; shift;; -v) value=$2; shift;;
esac; shift; done
set -- $target
[ -e "$1" ] || exit 21
if [ "$operation" = update ]; then
    while IFS= read -r line; do
        [ "${{line%% = *}}" != "$key" ] || line="$key = $value"
        printf '%s\\n' "$line"
    done < "$1" > .new
    exec mv .new "$1"
else
    for file; do shown="$shown ../bin/record-begin $file ../bin/record-end"; done
    exec cat $shown
fi""",
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    # This machine's own links and routes must neither be seen nor touched.
    for tool in ("ip", "tc"):
        put(root / "bin" / tool, "#!/bin/sh\necho '[]'")
        (root / "bin" / tool).chmod(0o755)


def enter(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process see the tree as its host, with its state directory inside."""
    monkeypatch.setattr(tree, "ROOT", root)
    monkeypatch.setattr(tree, "SYS", root / "sys")
    monkeypatch.setattr(tree, "PROC", root / "proc")
    monkeypatch.setattr(tree, "ETC", root / "etc")
    record.BACKEND.forget()
    monkeypatch.setenv("FABTUNE_STATE_DIR", str(root / "state"))
    monkeypatch.setenv("PATH", f"{root}/bin", prepend=":")
