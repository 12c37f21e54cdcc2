# SPDX-License-Identifier: GPL-2.0-or-later
"""The native files that keep values over a reboot."""

import json
from pathlib import Path

import hosttree
import pytest

from fabtune import backends
from fabtune.backends import UnsupportedError
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import FabtuneError
from fabtune.model.device import Device
from fabtune.tune import persist
from fabtune.tune.plan import CHANGE, Plan, Row

NIC = Device("nic", "pci:0000:00:03.0,netns:init", "eth0", {"name": "eth0"})
DISK = Device("block", "naa.6001,iqn.t,p,default", "sda")
NETNS = Device("netns", "netns:init", "host", {"netns": ""})
OTHER_NETNS = Device("netns", "netns:tgt", "netns tgt", {"netns": ""})
MODULES = Device("module", "modules", "kernel modules")
SRP_PORT = Device("srp-port", "fe80", "port-1:1")
VETH = Device("nic", "name:veth0,netns:init", "veth0", {"name": "veth0"})
NAMELESS = Device("block", "name:sdb,iqn.t,p,default", "sdb")
TPG = Device("tpg", "iqn.2026-01.test:disk1,tpgt_1", "disk1 tpgt_1")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    hosttree.enter(hosttree.make(tmp_path, 0, 1), monkeypatch)
    return tmp_path


def plan(*wishes: tuple[str, Device, str]) -> Plan:
    tunables = shipped_catalog().tunables
    rows = [
        Row(tunables[name], tunables[name].roles[0], device, "?", value, CHANGE, "x") for name, device, value in wishes
    ]
    return Plan("x", ("initiator", "target"), "", None, {}, rows)


def contents(made: Plan) -> dict[str, str]:
    return {row.tunable.key: row.wanted or "" for row in persist.rows(made)[0]}


def test_vectors_and_single_sysctls(host: Path) -> None:
    made = contents(plan(("tcp.rmem_max", NETNS, "99"), ("tcp.rmem_default", NETNS, "88"), ("tcp.sack", NETNS, "1")))
    lines = made["etc/sysctl.d/90-fabtune.conf"].splitlines()
    assert lines[0].startswith("# Written by fabtune")
    assert lines[1:] == ["net.ipv4.tcp_rmem = 4096 88 99", "net.ipv4.tcp_sack = 1"]


def test_another_namespace_has_no_sysctl_file(host: Path) -> None:
    assert contents(plan(("tcp.rmem_max", OTHER_NETNS, "99"))) == {}


def test_a_second_role_adds_to_the_file(host: Path) -> None:
    hosttree.put(host / "etc/sysctl.d/90-fabtune.conf", "# x\nnet.ipv4.tcp_ecn = 1")
    made = contents(plan(("tcp.sack", NETNS, "1")))
    assert "net.ipv4.tcp_ecn = 1\nnet.ipv4.tcp_sack = 1" in made["etc/sysctl.d/90-fabtune.conf"]


def test_a_link_file_keeps_the_naming_policy(host: Path) -> None:
    made = contents(plan(("nic.rx_ring", NIC, "4096"), ("nic.tso", NIC, "1"), ("nic.rx_usecs", NIC, "8")))
    text = made["etc/systemd/network/10-fabtune-0000-00-03.0.link"]
    for line in ("Path=pci-0000:00:03.0*", "RxBufferSize=4096", "TCPSegmentationOffload=yes", "RxCoalesceSec=8us"):
        assert line in text.splitlines()
    assert "NamePolicy=keep kernel database onboard slot path" in text.splitlines()


def test_udev_rules_match_by_what_survives_renaming(host: Path) -> None:
    made = contents(plan(("block.scheduler", DISK, "none"), ("nic.gro_flush_timeout", NIC, "20000")))
    text = made["etc/udev/rules.d/99-fabtune.rules"]
    assert 'ATTR{device/wwid}=="naa.6001", ATTR{queue/scheduler}="none"' in text
    assert 'KERNELS=="0000:00:03.0", ATTR{gro_flush_timeout}="20000"' in text
    assert "sda" not in text and "eth0" not in text
    hosttree.put(host / "etc/udev/rules.d/99-fabtune.rules", text.strip())
    again = contents(plan(("block.scheduler", DISK, "mq-deadline")))["etc/udev/rules.d/99-fabtune.rules"]
    assert again.count("queue/scheduler") == 1 and "mq-deadline" in again and "gro_flush_timeout" in again


def test_module_parameters(host: Path) -> None:
    made = contents(plan(("srp.mod_ch_count", MODULES, "4")))
    lines = made["etc/modprobe.d/fabtune.conf"].splitlines()
    assert lines[1:] == ["options ib_srp ch_count=4"]
    hosttree.put(host / "etc/modprobe.d/fabtune.conf", "\n".join(lines))
    again = contents(plan(("iscsi.recv_from_iscsi_q", MODULES, "Y"), ("srp.dev_loss_tmo", SRP_PORT, "700")))
    assert again["etc/modprobe.d/fabtune.conf"].splitlines()[1:] == [
        "options ib_srp ch_count=4", "options ib_srp dev_loss_tmo=700", "options iscsi_tcp recv_from_iscsi_q=Y",
    ]  # fmt: skip


def test_a_second_profile_adds_to_a_link_file(host: Path) -> None:
    key = "etc/systemd/network/10-fabtune-0000-00-03.0.link"
    hosttree.put(host / key, contents(plan(("nic.rx_ring", NIC, "4096")))[key].strip())
    lines = contents(plan(("nic.tso", NIC, "1")))[key].splitlines()
    assert "RxBufferSize=4096" in lines and "TCPSegmentationOffload=yes" in lines
    assert lines.count("Path=pci-0000:00:03.0*") == 1


@pytest.mark.parametrize(
    ("name", "device", "value", "remark"),
    [
        ("qdisc.kind", NIC, "fq", "qdisc.kind: nothing native keeps it"),
        ("tcp.sack", OTHER_NETNS, "1", "tcp.sack of netns tgt: sysctl.d sets the first network namespace alone"),
        ("nic.mtu", VETH, "9000", "nic.mtu of veth0: no native file matches it"),
        ("nic.gro_flush_timeout", VETH, "1", "nic.gro_flush_timeout of veth0: no native file matches it"),
        ("nic.rps_cpus", NIC, "3", "nic.rps_cpus of eth0: no native file matches it"),
        ("block.scheduler", NAMELESS, "none", "block.scheduler of sdb: the disk has no WWID"),
        ("lio.first_burst", TPG, "262144", "disk1 tpgt_1: not in the saved configuration"),
    ],
)
def test_what_nothing_native_keeps_is_said(host: Path, name: str, device: Device, value: str, remark: str) -> None:
    hosttree.put(host / "etc/target/saveconfig.json", "{}")
    rows, remarks = persist.rows(plan((name, device, value)))
    assert rows == [] and len(remarks) == 1 and remarks[0].startswith(remark)


def test_records_that_differ_leave_iscsid_conf_alone(host: Path) -> None:
    hosttree.put(host / "etc/iscsi/iscsid.conf", "node.startup = manual")
    first, second = (Device("record", f"iqn.{name},p,default", name) for name in "ab")
    made = plan(("iscsi.cmds_max", first, "256"), ("iscsi.cmds_max", second, "512"), ("iscsi.tcp_window", first, "0"))
    rows, remarks = persist.rows(made)
    assert [(row.tunable.key, row.wanted) for row in rows] == [("node.conn[0].tcp.window_size", "0")]
    assert remarks[0].startswith("node.session.cmds_max: records differ (256, 512)")


def saveconfig(host: Path, place: str = "etc/target") -> Path:
    path = host / place / "saveconfig.json"
    tpg = {"tag": 1, "parameters": {"FirstBurstLength": "65536"}, "attributes": {"default_cmdsn_depth": 64},
           "node_acls": [{"node_wwn": "iqn.i", "chap_password": "do-not-tell"}]}  # fmt: skip
    hosttree.put(path, json.dumps({"targets": [{"wwn": "iqn.2026-01.test:disk1", "tpgs": [tpg]}]}))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("place", ["etc/target", "etc/rtslib-fb-target"])
def test_saveconfig_changes_by_single_keys(host: Path, place: str) -> None:
    path = saveconfig(host, place)
    before = json.loads(path.read_text())
    backend = backends.get("saveconfig")
    assert backend.read(TPG, "param/FirstBurstLength") == "65536"
    backend.write(TPG, "param/FirstBurstLength", "262144")
    backend.write(TPG, "attrib/default_cmdsn_depth", "128")
    after = json.loads(path.read_text())
    assert after["targets"][0]["tpgs"][0]["attributes"] == {"default_cmdsn_depth": 128}
    assert path.stat().st_mode & 0o777 == 0o600
    backend.write(TPG, "param/FirstBurstLength", "65536")
    backend.write(TPG, "attrib/default_cmdsn_depth", "64")
    assert json.loads(path.read_text()) == before


def test_backstores_and_srp_targets_are_saved_too(host: Path) -> None:
    path = saveconfig(host)
    config = json.loads(path.read_text())
    config["storage_objects"] = [{"name": "disk0", "plugin": "ramdisk", "attributes": {"is_nonrot": 1}}]
    port = {"fabric": "srpt", "wwn": "ib.fe8000000000000002000000000000a1"}
    config["targets"].append(port | {"tpgs": [{"tag": 1, "attributes": {"srp_sq_size": 4096}}]})
    path.write_text(json.dumps(config))
    backend = backends.get("saveconfig")
    store = Device("backstore", "rd_mcp/disk0,serial-1", "rd_mcp/disk0")
    guid = "fe80:0000:0000:0000:0200:0000:0000:00a1"
    tpg = Device("srpt-tpg", f"{guid}/{guid}", "srpt")
    for device, key, old, new in ((store, "is_nonrot", "1", "0"), (tpg, "srp_sq_size", "4096", "8192")):
        assert backend.read(device, f"attrib/{key}") == old
        backend.write(device, f"attrib/{key}", new)
        assert backend.read(device, f"attrib/{key}") == new


def test_a_target_that_was_never_saved_is_said(host: Path) -> None:
    with pytest.raises(UnsupportedError, match="no saved target in /etc/target/saveconfig.json or"):
        backends.get("saveconfig").read(TPG, "param/FirstBurstLength")
    saveconfig(host)
    other = Device("tpg", "iqn.2026-01.test:other,tpgt_1", "other tpgt_1")
    with pytest.raises(UnsupportedError, match="run `targetcli saveconfig` once"):
        backends.get("saveconfig").read(other, "param/FirstBurstLength")
    hosttree.put(host / "etc/target/saveconfig.json", "{")
    with pytest.raises(FabtuneError, match="not JSON"):
        backends.get("saveconfig").read(TPG, "param/FirstBurstLength")


@pytest.mark.parametrize("key", ["etc/shadow", "etc/sysctl.d/../shadow", "etc/sysctl.d/99-other.conf", "/etc/passwd"])
def test_no_file_but_our_own_is_ever_written(host: Path, key: str) -> None:
    with pytest.raises(FabtuneError, match="not a file of fabtune's"):
        backends.get("textfile").write(Device("host", "host", "host"), key, "x")


def test_iscsid_conf_keeps_every_other_line(host: Path) -> None:
    path = host / "etc/iscsi/iscsid.conf"
    original = "# node.session.cmds_max = 128\nnode.startup = manual\nnode.session.auth.password = do-not-tell"
    hosttree.put(path, original)
    backend, device = backends.get("conf"), Device("host", "host", "host")
    assert backend.read(device, "node.session.cmds_max") == ""
    backend.write(device, "node.session.cmds_max", "256")
    assert path.read_text() == original + "\nnode.session.cmds_max = 256\n"
    backend.write(device, "node.session.cmds_max", "")
    assert path.read_text() == original + "\n"


def test_srp_daemon_conf_changes_only_the_catch_all_rule(host: Path) -> None:
    path = host / "etc/srp_daemon.conf"
    original = "a id_ext=1,max_cmd_per_lun=8\na queue_size=32\nd pkey=8001"
    hosttree.put(path, original)
    backend, device = backends.get("srp_daemon"), Device("host", "host", "host")
    assert backend.read(device, "queue_size") == "32"
    backend.write(device, "queue_size", "127")
    backend.write(device, "ch_count", "4")
    assert path.read_text() == original.replace("queue_size=32", "queue_size=127,ch_count=4") + "\n"
    backend.write(device, "ch_count", "")
    backend.write(device, "queue_size", "32")
    assert path.read_text() == original + "\n"
