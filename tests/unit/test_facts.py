# SPDX-License-Identifier: GPL-2.0-or-later
"""What is read of a host: sessions, targets, SRP logins, owners; sockets from real connections."""

import socket
from pathlib import Path

import hosttree
import pytest

from fabtune.catalog.tunable import shipped_catalog
from fabtune.facts import devices
from fabtune.facts.collect import survey
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import sockets, srp, targets
from fabtune.host.iscsiadm import parse_records
from fabtune.host.owners import Owner, owners
from fabtune.host.sessions import live_sessions
from fabtune.model.device import Device
from fabtune.tune import path_choice as tune_path
from fabtune.tune.revert import Locator

# asm-generic/socket.h; Python has no name for it.
_SO_MAX_PACING_RATE = 47


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    hosttree.enter(hosttree.make(tmp_path, 2, 1), monkeypatch)
    return tmp_path


def test_sessions_have_their_luns_and_negotiated_values(host: Path) -> None:
    hosttree.put(host / "sys/class/iscsi_session/session1/initial_r2t", "1")
    hosttree.put(host / "sys/class/iscsi_connection/connection1:0/data_digest", "1")
    hosttree.put(host / "sys/class/scsi_host/host1/can_queue", "113")
    first = live_sessions()[0]
    assert (first.target, first.portal, first.luns) == (hosttree.iqn(1), "10.2.0.1:3260", ("sd1",))
    assert first.negotiated == {"FirstBurstLength": "65536", "InitialR2T": "Yes", "DataDigest": "CRC32C"}
    assert first.can_queue == 113


def test_a_session_finds_its_own_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"x" * 1000)
            mine = [s for s in sockets.established() if s.local_port == client.getsockname()[1]]
            client.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, 125_000)
            paced = [s for s in sockets.established() if s.local_port == client.getsockname()[1]]
    assert len(mine) == 1
    assert (mine[0].max_pacing_bytes_per_s, paced[0].max_pacing_bytes_per_s) == (0, 125_000)
    # As records have it.
    assert all(isinstance(told, int | float | str) for told in vars(mine[0]).values())
    assert (mine[0].remote, mine[0].remote_port) == ("127.0.0.1", port)
    assert 0 < mine[0].path_rtt_ms < 1000
    assert mine[0].receive_buffer_bytes > 0 and mine[0].congestion_control


def test_secrets_of_records_are_never_kept() -> None:
    lines = ("# BEGIN RECORD", "node.name = a", "node.session.auth.password = x", "node.session.auth.username_in = y")
    assert parse_records("\n".join(lines)) == [{"node.name": "a"}]


def test_a_later_sysctl_directory_wins_by_file_name(host: Path) -> None:
    hosttree.put(host / "usr/lib/sysctl.d/50-x.conf", "net.core.rmem_max = 1")
    hosttree.put(host / "etc/sysctl.d/50-x.conf", "# comment\n-net/core/rmem_max=2\n; net.core.wmem_max = 3")
    hosttree.put(host / "etc/tuned/active_profile", "network-throughput")
    hosttree.put(host / "proc/77/comm", "irqbalance")
    assert owners() == [
        Owner("sysctl.d", str(host / "etc/sysctl.d/50-x.conf"), "net.core.rmem_max", "2"),
        Owner("tuned", str(host / "etc/tuned/active_profile"), "", "network-throughput"),
        Owner("irqbalance", "a running process"),
    ]


def test_targets_show_who_is_logged_in_and_with_what(host: Path) -> None:
    tpg = host / f"sys/kernel/config/target/iscsi/{hosttree.iqn(1)}/tpgt_1"
    hosttree.put(tpg / "acls/iqn.i/info", "LIO Session ID: 2   ISID: 0x00 TSIH: 2  SessionType: Normal")
    hosttree.put(tpg / "acls/iqn.i/param/FirstBurstLength", "65536")
    hosttree.put(tpg / "acls/iqn.idle/info", "No active iSCSI Session for Initiator Endpoint: iqn.idle")
    hosttree.put(tpg / "dynamic_sessions", "iqn.guest\n\0")
    logins = targets.tpgs()[0].logins
    assert [(one.initiator, one.dynamic) for one in logins] == [("iqn.i", False), ("iqn.guest", True)]
    assert logins[0].negotiated == {"FirstBurstLength": "65536"}
    device = Device("tpg", f"{hosttree.iqn(1)},tpgt_1", "t")
    assert [(one.initiator, one.sid) for one in targets.logins(device)] == [("iqn.i", "2"), ("iqn.guest", "")]
    assert targets.in_use(device)
    assert not targets.in_use(Device("acl", f"{hosttree.iqn(1)},tpgt_1,iqn.idle", "t"))


def test_backstores_tell_whether_they_really_cache(host: Path) -> None:
    for name, mode in (("cached", "Buffered-WCE"), ("through", "O_DSYNC")):
        store = host / f"sys/kernel/config/target/core/fileio_0/{name}"
        hosttree.put(
            store / "info",
            f"Status: ACTIVATED\n        TCM FILEIO ID: 0        File: /x  Size: 1  Mode: {mode} Async: 0",
        )
        hosttree.put(store / "attrib/emulate_write_cache", "0")
    assert [(one.name, one.writes_back) for one in targets.backstores()] == [
        ("fileio/cached", True),
        ("fileio/through", False),
    ]


def test_srp_logins_show_their_credits(host: Path) -> None:
    port = host / "sys/devices/x/host9/rport/port-9:1"
    hosttree.put(port / "port_id", "fe80")
    (host / "sys/class/srp_remote_ports").mkdir(parents=True)
    (host / "sys/class/srp_remote_ports/port-9:1").symlink_to(port)
    hosttree.put(host / "sys/class/scsi_host/host9/req_lim", "62")
    hosttree.put(host / "sys/class/scsi_host/host9/zero_req_lim", "3")
    (login,) = srp.srp_logins()
    assert (login.port_id, login.host, login.req_lim, login.zero_req_lim, login.can_queue) == (
        "fe80",
        "host9",
        62,
        3,
        -1,
    )
    (host / "sys/devices/x/host9/target9:0:0/9:0:0:1/block/sd9").mkdir(parents=True)
    hosttree.put(host / "sys/block/sd9/device/wwid", "naa.9")
    assert "naa.9,fe80" in [disk.identity for disk in devices.find("block", HostSnapshot())]


def test_a_disk_is_found_again_under_another_name(host: Path) -> None:
    before = Locator("")(Device("block", f"naa.6001405{1:09},{live_sessions()[0].identity}", "sd1"))
    assert before and before.label == "sd1"
    block = host / "sys/devices/platform/host1/session1/target1:0:0/1:0:0:0/block/sd1"
    block.rename(block.with_name("sd9"))
    (host / "sys/block/sd1").rename(host / "sys/block/sd9")
    after = Locator("")(before)
    assert after and after.label == "sd9" and after.where["directory"].endswith("sd9")


def test_the_survey_of_a_host_is_complete_and_its_path_unknown(host: Path) -> None:
    facts = survey(shipped_catalog().tunables.values())
    assert len(facts.sessions) == 2 and len(facts.tpgs) == 1
    assert facts.congestion_controls == ["reno", "cubic"]
    assert tune_path.choose(facts, None, None) is None
    given = tune_path.choose(facts, 50.0, 1e9)
    assert given and given.bdp_bytes == 6.25e6
    assert HostSnapshot().peers == ["10.2.0.1", "10.2.0.2"]
