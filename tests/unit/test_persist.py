# SPDX-License-Identifier: GPL-2.0-or-later
"""The native files that keep values over a reboot."""

import fnmatch
import json
import shutil
from dataclasses import replace
from pathlib import Path

import hosttree
import pytest

from fabtune import backends
from fabtune.backends.textfile import HEADER
from fabtune.catalog.tunable import load_catalog, shipped_catalog
from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.installed import data_dir
from fabtune.model.device import Device
from fabtune.tune import persist, persist_links
from fabtune.tune.plan import CHANGE, REFUSED, Plan, Row

NIC = Device("nic", "pci:0000:00:03.0,netns:init", "eth0", {"name": "eth0"})
DISK = Device("block", "naa.6001,iqn.t,p,default", "sda")
NETNS = Device("netns", "netns:init", "host", {"netns": ""})
OTHER_NETNS = Device("netns", "netns:tgt", "netns tgt", {"netns": ""})
MODULES = Device("module", "modules", "kernel modules")
SRP_PORT = Device("srp-port", "fe80", "port-1:1")
VETH = Device("nic", "name:veth0,netns:init", "veth0", {"name": "veth0"})
NAMELESS = Device("block", "name:sdb,iqn.t,p,default", "sdb")
TPG = Device("tpg", "iqn.2026-01.test:disk1,tpgt_1", "disk1 tpgt_1")


LINK = "etc/systemd/network/99-default-fabtune-pci-0000-00-03.0.link"
DEFAULT_LINK = """[Match]
OriginalName=*

[Link]
NamePolicy=keep kernel database onboard slot path
MACAddressPolicy=persistent"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    hosttree.enter(hosttree.make(tmp_path, 0, 1), monkeypatch)
    hosttree.put(tmp_path / "usr/lib/systemd/network/99-default.link", DEFAULT_LINK)
    nic(tmp_path, "eth0", "pci-0000:00:03.0")
    udevadm(tmp_path)
    return tmp_path


def nic(host: Path, name: str, path: str) -> None:
    hosttree.put(host / f"sys/class/net/{name}/device/vendor", "0x8086")
    hosttree.put(host / f"sys/class/net/{name}/path", path)


def udevadm(host: Path) -> None:
    """Make a udevadm to which every .link file of the tree matches every NIC; `Path=` alone is looked at."""
    hosttree.put(
        host / "bin/udevadm",
        f"""#!/bin/bash
cd {host}
nic=${{@: -1}}; nic=${{nic##*/}}; path=$(cat sys/class/net/$nic/path 2>/dev/null)
case $1 in
--version) echo 257;;
info) echo "ID_PATH=$path";;
test-builtin)
    for file in $(ls {{etc,run,usr/lib}}/systemd/network/*.link 2>/dev/null | awk -F/ '{{ print $NF, $0 }}' |
        sort | cut -d' ' -f2); do
        wanted=$(sed -n 's/^Path=//p' $file)
        if [ -z "$wanted" ] || [ "$wanted" = "$path" ]; then
            echo "ID_NET_LINK_FILE=/$file"
            name=$(sed -n 's/^Name=//p' $file)
            echo "ID_NET_NAME=${{name:-$nic}}"
            exit
        fi
    done;;
esac""",
    )
    hosttree.put(host / "bin/setpriv", '#!/bin/sh\nshift 2\nexec "$@"')
    for tool in ("udevadm", "setpriv"):
        (host / "bin" / tool).chmod(0o755)


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
    hosttree.put(host / "etc/sysctl.d/90-fabtune.conf", f"{HEADER}\nnet.ipv4.tcp_ecn = 1")
    made = contents(plan(("tcp.sack", NETNS, "1")))
    assert "net.ipv4.tcp_ecn = 1\nnet.ipv4.tcp_sack = 1" in made["etc/sysctl.d/90-fabtune.conf"]


def test_a_copy_of_the_distributions_link_file_keeps_how_nics_are_named(host: Path) -> None:
    made = contents(plan(("nic.rx_ring", NIC, "4096"), ("nic.tso", NIC, "1"), ("nic.rx_usecs", NIC, "8")))
    lines = made[LINK].splitlines()
    for line in ("Path=pci-0000:00:03.0", "RxBufferSize=4096", "TCPSegmentationOffload=yes", "RxCoalesceSec=8us"):
        assert line in lines
    assert "NamePolicy=keep kernel database onboard slot path" in lines and "MACAddressPolicy=persistent" in lines
    assert "OriginalName=*" not in lines
    assert "etc/systemd/network/" in made and "etc/systemd/" in made


JUMBO_RING = """
[rx_jumbo_ring]
summary = "descriptors of the receive queue for jumbo frames"
why = "As for rx_ring."
backend = "ethtool"
key = "rings.rx-jumbo"
scope = "nic"
type = "int"
minimum = 1
effect = "live"
roles = ["initiator", "target"]
persist = "link"
persist_as = "RxJumboBufferSize"
source = "Documentation/networking/ethtool-netlink.rst"
"""


def test_a_nic_tunable_that_stands_in_a_toml_file_alone_is_kept(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(data_dir("tunables"), tmp_path / "tunables")
    with (tmp_path / "tunables/nic.toml").open("a") as file:
        file.write(JUMBO_RING)
    catalog = load_catalog(tmp_path / "tunables")
    monkeypatch.setattr(persist_links, "shipped_catalog", lambda: catalog)
    added = Row(catalog.tunables["nic.rx_jumbo_ring"], "initiator", NIC, "?", "512", CHANGE, "x")
    made = contents(Plan("x", ("initiator",), "", None, {}, [added]))
    assert "RxJumboBufferSize=512" in made[LINK].splitlines()
    hosttree.put(host / LINK, made[LINK].strip())
    again = contents(plan(("nic.rx_ring", NIC, "4096")))[LINK].splitlines()
    assert "RxJumboBufferSize=512" in again and "RxBufferSize=4096" in again


def test_what_nothing_keeps_says_why() -> None:
    for tunable in shipped_catalog().tunables.values():
        assert (tunable.persist == "none") == tunable.kept_by().startswith("nothing: ")


SAN0 = "[Match]\nPath=pci-0000:00:03.0\n[Link]\nName=san0"
DROP_IN = "etc/systemd/network/70-san0.link.d/50-fabtune.conf"
SAN_NIC = Device("nic", NIC.identity, "san0", {"name": "san0"})


def san0(host: Path, more: str = "") -> None:
    (host / "sys/class/net/eth0").rename(host / "sys/class/net/san0")
    hosttree.put(host / "etc/systemd/network/70-san0.link", SAN0 + more)


def test_an_administrators_link_file_gets_a_drop_in(host: Path) -> None:
    san0(host)
    made = contents(plan(("nic.mtu", SAN_NIC, "9000")))
    assert made == {
        "etc/systemd/network/70-san0.link.d/": "ours", DROP_IN: f"{HEADER}\n[Link]\nMTUBytes=9000\n",
    }  # fmt: skip
    hosttree.put(host / DROP_IN, made[DROP_IN].strip())
    again = contents(plan(("nic.rx_ring", SAN_NIC, "512")))
    assert again[DROP_IN].splitlines()[1:] == ["[Link]", "MTUBytes=9000", "RxBufferSize=512"]


def test_an_administrators_value_in_a_link_file_stays_his(host: Path) -> None:
    san0(host, "\nMTUBytes=1500\nRxBufferSize=512")
    rows, remarks = persist.rows(plan(("nic.mtu", SAN_NIC, "9000"), ("nic.rx_ring", SAN_NIC, "512")))
    assert rows == []
    assert remarks == ["nic.mtu of san0: /etc/systemd/network/70-san0.link sets MTUBytes=1500 at boot"]
    # Nor does `apply --again` write over it, which has no other way to tell that somebody means 1500.
    assert persist.what_sets("nic.mtu", SAN_NIC, "9000") == "/etc/systemd/network/70-san0.link sets 1500"
    assert persist.what_sets("nic.mtu", SAN_NIC, "1500") == persist.what_sets("nic.tx_ring", SAN_NIC, "512") == ""


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        (("Path=pci-0000:00:03.0", "OriginalName=*"), "70-san0.link is for other NICs too; set the values there"),
        (("Path=pci-0000:00:03.0", "Path=pci-*"), "udev has no .link file for it under this name"),
        (("Name=san0", "Name=san1"), "udev has no .link file for it under this name"),
    ],
)
def test_a_link_file_that_is_for_others_too_is_left_alone(host: Path, change: tuple[str, str], remark: str) -> None:
    san0(host)
    hosttree.put(host / "etc/systemd/network/70-san0.link", SAN0.replace(*change))
    (host / "usr/lib/systemd/network/99-default.link").unlink()
    rows, remarks = persist.rows(plan(("nic.mtu", SAN_NIC, "9000")))
    assert rows == [] and len(remarks) == 1 and remark in remarks[0]


def test_a_link_file_that_would_rename_a_nic_is_refused(host: Path) -> None:
    text = f"{HEADER}\n[Match]\nPath=pci-0000:00:03.0\n[Link]\nNamePolicy=kernel\n"
    with pytest.raises(FabtuneError, match="NIC eth0 would not be named as before"):
        backends.get("link").write(Device("host", "host", "host"), LINK, text)


def test_udev_rules_match_by_what_survives_renaming(host: Path) -> None:
    made = contents(plan(("block.scheduler", DISK, "none"), ("nic.gro_flush_timeout", NIC, "20000")))
    text = made["etc/udev/rules.d/99-fabtune.rules"]
    assert 'ATTR{device/wwid}=="naa.6001", ATTR{queue/scheduler}="none"' in text
    assert 'KERNELS=="0000:00:03.0", ATTR{gro_flush_timeout}="20000"' in text
    assert "sda" not in text and "eth0" not in text
    assert "etc/udev/" in made and "etc/udev/rules.d/" in made
    hosttree.put(host / "etc/udev/rules.d/99-fabtune.rules", text.strip())
    again = contents(plan(("block.scheduler", DISK, "mq-deadline")))["etc/udev/rules.d/99-fabtune.rules"]
    assert again.count("queue/scheduler") == 1 and "mq-deadline" in again and "gro_flush_timeout" in again


def test_a_udev_rule_knows_a_disk_whose_name_has_runs_of_blanks_and_no_other(host: Path) -> None:
    shown = "t10.ATA     QEMU HARDDISK                           QM[0]|1"
    hosttree.put(host / "sys/block/sda/device/wwid", shown)
    where = {"directory": str(host / "sys/block/sda")}
    disk = Device("block", f"{' '.join(shown.split())},iqn.t,p,default", "sda", where)
    text = contents(plan(("block.scheduler", disk, "none")))["etc/udev/rules.d/99-fabtune.rules"]
    pattern = text.partition('ATTR{device/wwid}=="')[2].partition('"')[0]
    assert fnmatch.fnmatchcase(shown, pattern)
    for other in (shown.replace("QM", "1QM"), shown.replace(" QM", "QM"), shown + "1", shown.replace("ATA", "AT")):
        assert not fnmatch.fnmatchcase(other, pattern), other
    assert "|" not in pattern, "what udev takes for two patterns"


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
    hosttree.put(host / LINK, contents(plan(("nic.rx_ring", NIC, "4096")))[LINK].strip())
    lines = contents(plan(("nic.tso", NIC, "1")))[LINK].splitlines()
    assert "RxBufferSize=4096" in lines and "TCPSegmentationOffload=yes" in lines
    assert lines.count("Path=pci-0000:00:03.0") == 1
    rows = [row for row in persist.rows(plan(("nic.tso", NIC, "1")))[0] if row.tunable.key == LINK]
    assert rows[0].share.splitlines() == [line for line in lines[1:] if line != "RxBufferSize=4096"]
    assert lines.count("NamePolicy=keep kernel database onboard slot path") == 1


@pytest.mark.parametrize(
    ("name", "device", "value", "remark"),
    [
        ("qdisc.kind", NIC, "fq", "qdisc.kind: nothing native keeps it: only what manages the network"),
        ("tcp.sack", OTHER_NETNS, "1", "tcp.sack of netns tgt: sysctl.d sets only the first network namespace"),
        ("nic.mtu", VETH, "9000", "nic.mtu of veth0: no native file matches it"),
        ("nic.gro_flush_timeout", VETH, "1", "nic.gro_flush_timeout of veth0: no native file matches it"),
        ("nic.rps_cpus", NIC, "3", "nic.rps_cpus: nothing native keeps it: each queue has its own value"),
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


RECORDS = tuple(Device("record", f"iqn.{name},p,default", f"iqn.{name}") for name in "ab")
R2T = "node.session.iscsi.MaxOutstandingR2T"
DIGEST = "node.conn[0].iscsi.HeaderDigest"


def test_a_value_refused_for_one_record_stays_out_of_iscsid_conf(host: Path) -> None:
    hosttree.put(host / "etc/iscsi/iscsid.conf", "node.startup = manual")
    made = plan(*(("iscsi.cmds_max", record, "256") for record in RECORDS))
    made.rows[1] = replace(made.rows[1], state=REFUSED)
    rows, remarks = persist.rows(made)
    assert rows == [] and len(remarks) == 1
    assert (
        remarks[0].startswith("node.session.cmds_max = 256: not in iscsid.conf") and "refused for iqn.b" in remarks[0]
    )


@pytest.mark.parametrize(
    ("conf", "name", "key", "wanted", "written"),
    [
        ("", "iscsi.max_outstanding_r2t", R2T, "16", False),
        (f"{R2T} = 4", "iscsi.max_outstanding_r2t", R2T, "16", False),
        (f"{R2T} = 16", "iscsi.max_outstanding_r2t", R2T, "4", True),
        (f"{R2T} = 16", "iscsi.max_outstanding_r2t", R2T, "1", True),
        ("", "iscsi.header_digest", DIGEST, "CRC32C", False),
        ("", "iscsi.header_digest", DIGEST, "CRC32C,None", True),
        (f"{DIGEST} = CRC32C", "iscsi.header_digest", DIGEST, "None", True),
    ],
)
def test_iscsid_conf_gets_only_what_every_target_gets_along_with(
    host: Path, conf: str, name: str, key: str, wanted: str, written: bool
) -> None:
    hosttree.put(host / "etc/iscsi/iscsid.conf", conf)
    rows, remarks = persist.rows(plan((name, RECORDS[0], wanted)))
    assert [(row.tunable.key, row.wanted) for row in rows] == ([(key, wanted)] if written else [])
    assert written or (remarks[0].startswith(f"{key} = {wanted}: not in iscsid.conf") and "discovery" in remarks[0])


def test_what_iscsid_conf_says_already_is_the_administrators(host: Path) -> None:
    hosttree.put(host / "etc/iscsi/iscsid.conf", f"{R2T} = 16\n{DIGEST} = CRC32C")
    made = plan(("iscsi.max_outstanding_r2t", RECORDS[0], "16"), ("iscsi.header_digest", RECORDS[0], "CRC32C"))
    assert persist.rows(made) == ([], [])


@pytest.mark.parametrize("what", ["mask", "dangling", "absent", "directory"])
def test_a_file_that_cannot_be_ours_is_a_remark(host: Path, what: str) -> None:
    for file in ("etc/iscsi/iscsid.conf", "etc/udev/rules.d/99-fabtune.rules"):
        (host / file).parent.mkdir(parents=True, exist_ok=True)
        if what == "directory":
            (host / file).mkdir()
        elif what == "mask" or (what == "dangling" and "iscsid" in file):
            (host / file).symlink_to("/dev/null" if "rules" in file else "/nowhere/iscsid.conf")
    made = plan(("iscsi.cmds_max", RECORDS[0], "256"), ("block.scheduler", DISK, "none"), ("tcp.sack", NETNS, "1"))
    rows, remarks = persist.rows(made)
    assert "etc/sysctl.d/90-fabtune.conf" in [row.tunable.key for row in rows]
    assert "node.session.cmds_max" not in [row.tunable.key for row in rows]
    assert any(one.startswith("/etc/iscsi/iscsid.conf: ") for one in remarks)
    assert any(one.startswith("/etc/udev/rules.d/99-fabtune.rules: ") for one in remarks) == (
        what in ("mask", "directory")
    )


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


def iscsid_conf(host: Path, line: str) -> Path:
    """Return an iscsid.conf of these bytes: line ends and blanks are what is looked at."""
    path = host / "etc/iscsi/iscsid.conf"
    path.parent.mkdir(parents=True)
    path.write_bytes(line.encode())
    return path


@pytest.mark.parametrize(
    "line",
    [
        "node.session.cmds_max=64\n", "node.session.cmds_max= 64\n", "node.session.cmds_max = 64",
        "node.session.cmds_max =\n", "node.session.cmds_max = \t\r\n",
    ],
)  # fmt: skip
def test_a_line_that_open_iscsi_passes_over_sets_nothing_and_stays(host: Path, line: str) -> None:
    path = iscsid_conf(host, line)
    backend, device = backends.get("conf"), Device("host", "host", "host")
    assert backend.read(device, "node.session.cmds_max") == ""
    backend.write(device, "node.session.cmds_max", "256")
    assert b"node.session.cmds_max = 256\n" in path.read_bytes() and line.encode() in path.read_bytes()
    backend.write(device, "node.session.cmds_max", "")
    assert path.read_bytes() == line.encode()


@pytest.mark.parametrize("line", ["node.session.cmds_max\t=\t64 \r\n", "  node.session.cmds_max = 64\t\n"])
def test_what_stands_around_a_value_in_iscsid_conf_stays_while_it_is_another(host: Path, line: str) -> None:
    path = iscsid_conf(host, line)
    backend, device = backends.get("conf"), Device("host", "host", "host")
    assert backend.read(device, "node.session.cmds_max") == "64"
    backend.write(device, "node.session.cmds_max", "256")
    assert path.read_bytes() == line.replace("64", "256").encode()
    backend.write(device, "node.session.cmds_max", "64")
    assert path.read_bytes() == line.encode()


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


def test_others_comments_in_srp_daemon_conf_go_back_in_whatever_encoding_they_came(host: Path) -> None:
    path = host / "etc/srp_daemon.conf"
    hosttree.put(path, "")
    path.write_bytes(b"# r\xe9seau\na queue_size=32\n")
    backend, device = backends.get("srp_daemon"), Device("host", "host", "host")
    assert backend.read(device, "queue_size") == "32"
    backend.write(device, "queue_size", "127")
    assert path.read_bytes() == b"# r\xe9seau\na queue_size=127\n"


def test_udev_rules_stand_in_the_order_in_which_values_depend_on_each_other(host: Path) -> None:
    made = contents(plan(("block.nr_requests", DISK, "64"), ("block.scheduler", DISK, "none")))
    lines = made["etc/udev/rules.d/99-fabtune.rules"].splitlines()
    assert ["queue/scheduler" in line for line in lines[1:]] == [True, False]
    hosttree.put(host / "etc/udev/rules.d/99-fabtune.rules", f"{lines[0]}\n{lines[2]}")
    again = contents(plan(("block.scheduler", DISK, "none")))["etc/udev/rules.d/99-fabtune.rules"]
    assert again.splitlines() == lines


RMEM_12 = ("tcp.rmem_max", NETNS, "12")


@pytest.mark.parametrize(
    ("file", "line", "remark"),
    [
        ("etc/sysctl.d/99-admin.conf", "net.ipv4.tcp_rmem = 4096 8192 16384", "/etc/sysctl.d/99-admin.conf sets"),
        ("etc/sysctl.d/10-admin.conf", "net.ipv4.tcp_rmem = 4096 8192 16384", "is not to be overridden by"),
        ("etc/sysctl.d/10-admin.conf", "-net/ipv4/tcp_rmem=4096 8192 16384", "/etc/sysctl.d/10-admin.conf sets"),
        ("etc/sysctl.d/10-admin.conf", "net.ipv4.tcp_*mem = 4096 8192 16384", "/etc/sysctl.d/10-admin.conf sets"),
        ("etc/sysctl.conf", "net.ipv4.tcp_rmem = 4096 8192 16384", "/etc/sysctl.conf sets"),
        ("usr/lib/sysctl.d/99-vendor.conf", "net.ipv4.tcp_rmem = 4096 8192 16384", "is read after"),
        ("usr/lib/sysctl.d/10-vendor.conf", "net.ipv4.tcp_rmem = 4096 8192 16384", ""),
        ("etc/sysctl.d/99-admin.conf", "net.ipv4.tcp_rmem = 1 2 12", "-"),
        ("etc/sysctl.d/99-admin.conf", "-net.ipv4.tcp_rmem", ""),
        ("etc/sysctl.d/99-admin.conf", "# net.ipv4.tcp_rmem = 1 2 3", ""),
        ("etc/sysctl.d/99-admin.conf", "net.ipv4.tcp_rmem_x = 1 2 3", ""),
    ],
)
def test_a_sysctl_that_another_file_sets_is_said_and_not_counted(host: Path, file: str, line: str, remark: str) -> None:
    hosttree.put(host / file, line)
    rows, remarks = persist.rows(plan(RMEM_12, ("tcp.sack", NETNS, "0")))
    text = next(row.wanted or "" for row in rows if row.tunable.key.endswith(".conf"))
    assert ("net.ipv4.tcp_rmem" in text) == (not remark) and "net.ipv4.tcp_sack = 0" in text
    if len(remark) > 1:
        assert len(remarks) == 1 and remark in remarks[0] and file in remarks[0]
    else:
        assert remarks == []


def test_a_masked_file_of_the_distribution_sets_nothing(host: Path) -> None:
    hosttree.put(host / "usr/lib/sysctl.d/99-vendor.conf", "net.ipv4.tcp_rmem = 1 2 3")
    (host / "etc/sysctl.d").mkdir(parents=True)
    (host / "etc/sysctl.d/99-vendor.conf").symlink_to("/dev/null")
    assert persist.rows(plan(RMEM_12))[1] == []


def test_a_module_option_that_another_file_sets_is_said(host: Path) -> None:
    hosttree.put(host / "etc/modprobe.d/admin.conf", "options ib-srp foo=1 ch_count=2")
    rows, remarks = persist.rows(plan(("srp.mod_ch_count", MODULES, "4")))
    assert rows == [] and "/etc/modprobe.d/admin.conf sets 2 at boot" in remarks[0]
    hosttree.put(host / "proc/cmdline", "quiet ib_srp.ch_count=4")
    assert persist.rows(plan(("srp.mod_ch_count", MODULES, "4"))) == ([], [])


@pytest.mark.parametrize(
    ("rule", "foreign"),
    [
        ('ACTION=="add|change", KERNEL=="sd[a-z]", ATTR{queue/scheduler}="bfq"', True),
        ('KERNEL=="sd*", ENV{ID_VENDOR}=="LIO-ORG", ATTR{queue/scheduler}="bfq"', True),
        ('KERNEL=="sd*", ATTR{queue/rotational}=="1", \\\n ATTR{queue/scheduler}:="bfq"', True),
        ('KERNEL=="sd*", ATTR{queue/rotational}=="0", ATTR{queue/scheduler}="bfq"', False),
        ('KERNEL=="nvme*", ATTR{queue/scheduler}="bfq"', False),
        ('SUBSYSTEM!="block", ATTR{queue/scheduler}="bfq"', False),
        ('ACTION=="remove", ATTR{queue/scheduler}="bfq"', False),
        ('KERNEL=="sd*", ATTR{queue/scheduler}="none"', False),
        ('# KERNEL=="sd*", ATTR{queue/scheduler}="bfq"', False),
    ],
)
def test_a_queue_setting_of_another_udev_rule_is_said(host: Path, rule: str, foreign: bool) -> None:
    hosttree.put(host / "sys/block/sda/queue/rotational", "1")
    disk = Device("block", DISK.identity, "sda", {"directory": str(host / "sys/block/sda")})
    hosttree.put(host / "etc/udev/rules.d/60-admin.rules", rule)
    rows, remarks = persist.rows(plan(("block.scheduler", disk, "none")))
    assert bool(remarks) == foreign and ("/etc/udev/rules.d/60-admin.rules sets bfq" in "".join(remarks)) == foreign
    assert bool(rows) != foreign


def test_a_rule_for_the_scsi_device_counts_too(host: Path) -> None:
    (host / "sys/devices/0:0:0:0").mkdir(parents=True)
    (host / "sys/block/sda").mkdir(parents=True)
    (host / "sys/block/sda/device").symlink_to(host / "sys/devices/0:0:0:0")
    disk = Device("block", DISK.identity, "sda", {"directory": str(host / "sys/block/sda")})
    hosttree.put(host / "etc/udev/rules.d/60-admin.rules", 'SUBSYSTEM=="scsi", KERNEL=="0:*", ATTR{timeout}="180"')
    assert "sets 180 at boot" in persist.rows(plan(("block.timeout", disk, "60")))[1][0]


@pytest.mark.parametrize("text", ["# mine\nnet.ipv4.tcp_sack = 1", f"{HEADER}\n# and mine"])
def test_a_file_that_the_administrator_made_in_our_name_is_left_alone(host: Path, text: str) -> None:
    hosttree.put(host / "etc/sysctl.d/90-fabtune.conf", text)
    rows, remarks = persist.rows(plan(RMEM_12))
    assert rows == [] and "written or edited by somebody else" in remarks[0]


def test_a_link_in_our_name_is_left_alone(host: Path) -> None:
    hosttree.put(host / "victim", "x")
    (host / "etc/sysctl.d").mkdir(parents=True)
    (host / "etc/sysctl.d/90-fabtune.conf").symlink_to(host / "victim")
    rows, remarks = persist.rows(plan(RMEM_12))
    assert rows == [] and "not a plain file" in remarks[0]
    with pytest.raises(FabtuneError, match="left alone"):
        backends.get("textfile").write(Device("host", "host", "host"), "etc/sysctl.d/90-fabtune.conf", "x")
    assert (host / "victim").read_text() == "x\n"


def test_a_directory_of_ours_goes_only_while_nothing_else_is_in_it(host: Path) -> None:
    backend, device, key = backends.get("textfile"), Device("host", "host", "host"), "etc/modprobe.d/"
    (host / "etc").mkdir(exist_ok=True)
    backend.write(device, key, "ours")
    backend.write(device, "etc/modprobe.d/fabtune.conf", f"{HEADER}\nx\n")
    assert backend.read(device, key) == "ours"
    hosttree.put(host / "etc/modprobe.d/admin.conf", "x")
    assert backend.read(device, key) == ""
    backend.write(device, key, "")
    assert (host / "etc/modprobe.d/admin.conf").exists()


@pytest.mark.parametrize("text", ["a=1\nb = 2 \n\n", "# \udce9\n  b =2\r\nc=3", "b =1\nb   =\t2\n# b=3\n", "b=1"])
def test_iscsid_conf_goes_back_to_the_byte(host: Path, text: str) -> None:
    path = host / "etc/iscsi/iscsid.conf"
    path.parent.mkdir(parents=True)
    content = text.encode(errors="surrogateescape")
    path.write_bytes(content)
    backend, device = backends.get("conf"), Device("host", "host", "host")
    for key in ("b", "new"):
        old = backend.read(device, key)
        backend.write(device, key, "77")
        assert backend.read(device, key) == "77" and path.read_bytes() != content
        backend.write(device, key, old)
        assert path.read_bytes() == content
