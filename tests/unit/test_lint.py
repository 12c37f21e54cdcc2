# SPDX-License-Identifier: GPL-2.0-or-later
"""Each hazard is found where it is and nowhere else, and on another host's saved facts just the same."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import InputError
from fabtune.facts import saved
from fabtune.facts.collect import Facts, Host, Reading
from fabtune.host.nics import Nic
from fabtune.host.owners import Owner
from fabtune.host.sessions import Session
from fabtune.host.sockets import TcpSocket
from fabtune.host.srp import SrpLogin
from fabtune.host.targets import Backstore, Login, Tpg
from fabtune.model.device import Device
from fabtune.model.path import NetworkPath
from fabtune.tune.lint import lint

RECORD = Device("record", "iqn.t,10.0.0.1:3260,default", "t at 10.0.0.1:3260")
TPG = Device("tpg", "iqn.t,tpgt_1", "t tpgt_1")
ACL = Device("acl", "iqn.t,tpgt_1,iqn.i", "t i")
NETNS = Device("netns", "netns:init", "host")
HOST = Device("host", "host", "host")
DISK = Device("block", "naa.1,iqn.t,10.0.0.1:3260,default", "sda")
SESSION_DEVICE = Device("session", RECORD.identity, RECORD.label)
STORE = Device("backstore", "fileio/d,1", "fileio/d")
PORT = Device("srp-port", "p", "port-1:1")
NIC = Device("nic", "pci:0000:00:03.0,netns:init", "eth0")
SESSION = Session(1, "iqn.t", "10.0.0.1:3260", "default", "LOGGED_IN", "10.0.0.1", 3260, 4000, ("sda",), 113,
                  {"FirstBurstLength": "262144"})  # fmt: skip
SOCKET = TcpSocket("10.0.0.2", "10.0.0.1", 4000, 3260, 50, 50, 0, 10, 1448, 0, "cubic", 131072, 16384)
CARD = Nic("eth0", "e1000e", 1500, 10**9, "0000:00:03.0", "00:00:00:00:00:01", ("eth0",))
SRP = SrpLogin("port-1:1", "p", "running", "host1", 62, 0, 62, 2, 12, 12, False, 4)

# A host without a single hazard: what each case below spoils.
CLEAN: dict[tuple[str, Device], str] = {
    ("iscsi.tcp_window", RECORD): "0", ("iscsi.first_burst", RECORD): "262144", ("iscsi.max_burst", RECORD): "1048576",
    ("iscsi.max_outstanding_r2t", RECORD): "16", ("iscsi.cmds_max", RECORD): "128",
    ("iscsi.queue_depth", RECORD): "32", ("iscsi.noop_interval", RECORD): "5", ("iscsi.noop_timeout", RECORD): "5",
    ("iscsi.xmit_thread_priority", RECORD): "0", ("iscsi.replacement_timeout", RECORD): "120",
    ("iscsi.recovery_timeout", SESSION_DEVICE): "120", ("block.queue_depth", DISK): "32",
    ("block.timeout", DISK): "30", ("lio.first_burst", TPG): "262144", ("lio.max_burst", TPG): "1048576",
    ("lio.max_xmit_segment", TPG): "262144", ("lio.initial_r2t", TPG): "Yes",
    ("lio.max_outstanding_r2t", TPG): "16", ("lio.default_cmdsn_depth", TPG): "128",
    ("lio.max_connections", TPG): "1", ("lio.error_recovery_level", TPG): "0", ("lio.cmdsn_depth", ACL): "128",
    ("lio.dataout_timeout", ACL): "10", ("lio.emulate_write_cache", STORE): "1", ("net.rmem_max", HOST): "212992",
    ("net.wmem_max", HOST): "212992", ("net.rmem_default", HOST): "212992", ("net.wmem_default", HOST): "212992",
    ("tcp.rmem_max", NETNS): "33554432", ("tcp.wmem_max", NETNS): "33554432", ("tcp.window_scaling", NETNS): "1",
    ("tcp.timestamps", NETNS): "1", ("tcp.sack", NETNS): "1", ("tcp.moderate_rcvbuf", NETNS): "1",
    ("tcp.adv_win_scale", NETNS): "1", ("tcp.congestion_control", NETNS): "cubic",
    ("tcp.mem_pressure", HOST): "250000", ("srp.fast_io_fail_tmo", PORT): "15", ("srp.dev_loss_tmo", PORT): "600",
    ("nic.lro", NIC): "0", ("nic.tso", NIC): "1", ("nic.gso", NIC): "1", ("qdisc.kind", NIC): "fq_codel",
}  # fmt: skip
WAN = NetworkPath(0.05, 125e6)
SLOW = NetworkPath(0.05, 12.5e6)
Change = Callable[[Facts], None]


def facts_with(**values: str) -> Facts:
    """Return the clean host with some values changed; underscores stand for the dot of a tunable's name."""
    spoiled = {name.replace("__", "."): value for name, value in values.items()}
    devices = dict(CLEAN.keys())
    found = {tunable: value for (tunable, _), value in CLEAN.items()} | spoiled
    readings = [Reading(tunable, devices.get(tunable, HOST), value) for tunable, value in found.items()]
    return Facts(
        Host("h", "6.12.107", "boot", 16 << 30, 4), "", [SESSION], [SOCKET], [CARD], readings,
        tpgs=[Tpg("iqn.t,tpgt_1", True, ("10.0.0.1:3260",), ("d",), (Login("iqn.i", False, {}),))],
        backstores=[Backstore("fileio/d", "fileio", True)], srp=[SRP], congestion_controls=["reno", "cubic"],
    )  # fmt: skip


def hazards(facts: Facts, path: NetworkPath | None = WAN) -> set[str]:
    return {one.hazard for one in lint(facts, shipped_catalog(), path)}


def test_a_sound_host_has_no_findings() -> None:
    assert hazards(facts_with()) == set()


@pytest.mark.parametrize(
    ("values", "path", "hazard"),
    [
        ({"iscsi__tcp_window": "524288"}, WAN, "window-locked"),
        ({"iscsi__tcp_window": "524288"}, WAN, "window-clamped"),
        ({"tcp__rmem_max": "4194304"}, WAN, "buffer-below-default"),
        ({"iscsi__first_burst": "2097152"}, WAN, "first-burst-above-max"),
        ({"lio__first_burst": "2097152"}, WAN, "first-burst-above-max"),
        ({"lio__max_xmit_segment": "65536"}, WAN, "first-burst-above-pdu"),
        ({"iscsi__max_outstanding_r2t": "6"}, WAN, "r2t-not-power-of-two"),
        ({"lio__max_outstanding_r2t": "6"}, WAN, "r2t-not-power-of-two"),
        ({"iscsi__cmds_max": "100"}, WAN, "cmds-max-not-power-of-two"),
        ({"iscsi__cmds_max": "512"}, WAN, "queue-above-window"),
        ({"iscsi__queue_depth": "200"}, WAN, "queue-depth-above-session"),
        ({"block__queue_depth": "200"}, WAN, "queue-depth-above-session"),
        ({"lio__cmdsn_depth": "64"}, WAN, "cmdsn-depth-not-kept"),
        ({"lio__cmdsn_depth": "1024"}, WAN, "cmdsn-depth-too-large"),
        ({"lio__dataout_timeout": "3"}, SLOW, "dataout-timeout-short"),
        ({"iscsi__noop_timeout": "2"}, SLOW, "ping-timeout-short"),
        ({"lio__first_burst": "16777212", "lio__default_cmdsn_depth": "512"}, WAN, "unsolicited-memory"),
        ({"srp__fast_io_fail_tmo": "600"}, WAN, "srp-timeouts-crossed"),
        ({"iscsi__xmit_thread_priority": "-20"}, WAN, "dead-knob"),
        ({"tcp__adv_win_scale": "2"}, WAN, "dead-knob"),
        ({"net__rmem_default": "67108864"}, WAN, "default-buffer-raised"),
        ({"tcp__congestion_control": "bbr"}, WAN, "congestion-control-missing"),
        ({"tcp__congestion_control": "bbr"}, WAN, "bbr-without-fq"),
        ({"lio__emulate_write_cache": "0"}, WAN, "write-cache-hidden"),
        ({"lio__max_connections": "4"}, WAN, "offer-never-taken"),
        ({"tcp__sack": "0"}, WAN, "tcp-feature-off"),
        ({"tcp__mem_pressure": "100"}, WAN, "tcp-memory"),
        ({"nic__tso": "0"}, WAN, "offload-off"),
        ({"iscsi__first_burst": "131072"}, WAN, "session-older-than-record"),
        ({"block__timeout": "2"}, SLOW, "scsi-timeout-short"),
        ({"iscsi__recovery_timeout": "-1"}, WAN, "recovery-for-ever"),
        ({"srp__queue_size": "200"}, WAN, "srp-queue-above-credits"),
        ({"nic__rx_ring": "256"}, WAN, "link-flap"),
    ],
)
def test_a_hazard_in_a_value(values: dict[str, str], path: NetworkPath, hazard: str) -> None:
    facts = facts_with(**values)
    facts.mounted = ["sda"]
    assert hazard in hazards(facts, path)


def _owner(who: str, key: str = "", value: str = "") -> Change:
    return lambda facts: facts.owners.append(Owner(who, "/somewhere", key, value))


def _srp(**values: int) -> Change:
    def change(facts: Facts) -> None:
        facts.srp = [replace(SRP, **values)]  # type: ignore[arg-type]

    return change


def _multipath(facts: Facts) -> None:
    _owner("multipathd")(facts)
    facts.readings = [
        replace(one, value="5") if one.tunable == "iscsi.recovery_timeout" else one for one in facts.readings
    ]


def _demo_mode(facts: Facts) -> None:
    facts.tpgs[0] = replace(facts.tpgs[0], logins=(Login("iqn.i", True, {}),))


def _bridge(facts: Facts) -> None:
    facts.nics = [replace(CARD, driver="bridge")]
    facts.readings = [replace(one, value="1") if one.tunable == "nic.lro" else one for one in facts.readings]


@pytest.mark.parametrize(
    ("change", "hazard"),
    [
        (_owner("sysctl.d", "net.ipv4.tcp_rmem", "4096 131072 16777216"), "sysctl-owned"),
        (_owner("tuned", "", "network-throughput"), "other-tuner"),
        (_owner("bpftune"), "other-tuner"),
        (_owner("irqbalance"), "other-tuner"),
        (_owner("NetworkManager"), "other-tuner"),
        (_multipath, "recovery-timeout-owner"),
        (_srp(zero_req_lim=7), "srp-credits-exhausted"),
        (_srp(sg_tablesize=64), "srp-sg-without-ext"),
        (_srp(ch_count=8), "srp-channels-above-vectors"),
        (_bridge, "lro-on"),
        (_demo_mode, "window-from-first-login"),
        (lambda facts: facts.nics.append(replace(CARD, name="eth1", mtu_bytes=9000)), "mtu-differs"),
        (lambda facts: facts.backstores.__setitem__(0, Backstore("fileio/d", "fileio", False)), "write-cache-claimed"),
    ],
)
def test_a_hazard_in_the_surroundings(change: Change, hazard: str) -> None:
    facts = facts_with()
    change(facts)
    assert hazard in hazards(facts)


def test_a_saved_facts_file_gives_the_same_findings(tmp_path: Path) -> None:
    facts = facts_with(iscsi__max_outstanding_r2t="6", tcp__sack="0")
    path = tmp_path / "host.json"
    path.write_text(json.dumps(saved.to_json(facts)))
    assert saved.load(path) == facts
    assert lint(saved.load(path), shipped_catalog(), WAN) == lint(facts, shipped_catalog(), WAN)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "not a facts file"),
        ('{"fabtune_facts": 1}', "key 'host' is missing"),
        ('{"fabtune_facts": 1, "host": 5, "netns": ""}', "host: found '5', expected an object"),
        ('{"fabtune_facts": 1, "host": {"name": 1}, "netns": ""}', "host: name: found '1', expected str"),
    ],
)
def test_a_wrong_facts_file_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "host.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        saved.load(path)
    assert problem in str(caught.value) and str(path) in str(caught.value)


def test_the_worst_comes_first_and_every_finding_is_whole() -> None:
    found = lint(
        facts_with(iscsi__max_outstanding_r2t="6", tcp__sack="0", lio__max_connections="2"), shipped_catalog(), WAN
    )
    assert [one.severity for one in found] == ["danger", "warning", "notice"]
    assert all(one.evidence and one.consequence and one.mend for one in found)
