# SPDX-License-Identifier: GPL-2.0-or-later
"""Each rule fires where its hazard is and nowhere else, and on another host's saved facts just the same."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli.main import main
from fabtune.errors import ExitCode, InputError
from fabtune.facts import saved_facts
from fabtune.facts.collect import Facts, Host, Reading
from fabtune.host.nics import Nic
from fabtune.host.owners import Owner
from fabtune.host.sessions import Session
from fabtune.host.sockets import TcpSocket
from fabtune.host.srp import SrpLogin
from fabtune.host.targets import Backstore, Login, Tpg
from fabtune.lint import hazards, rules
from fabtune.lint.hazards import lint
from fabtune.lint.rule import SEVERITIES, Rule, ToldPath
from fabtune.model.device import Device
from fabtune.model.path import NetworkPath

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
CARD = Nic("eth0", "e1000e", 1500, 10**9, "0000:00:03.0", ("eth0",))
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
    values = {tunable: value for (tunable, _), value in CLEAN.items()} | spoiled
    readings = [Reading(tunable, devices.get(tunable, HOST), value) for tunable, value in values.items()]
    return Facts(
        Host("h", "6.12.107", "boot", 16 << 30, 4), "", [SESSION], [SOCKET], [CARD], readings,
        tpgs=[Tpg("iqn.t,tpgt_1", True, ("10.0.0.1:3260",), ("d",), (Login("iqn.i", False, {}),))],
        backstores=[Backstore("fileio/d", "fileio", True)], srp=[SRP], congestion_controls=["reno", "cubic"],
    )  # fmt: skip


def found(facts: Facts, path: NetworkPath | None = WAN) -> set[str]:
    return {one.rule for one in lint(facts, shipped_catalog(), path)}


def _owner(who: str, key: str = "", value: str = "") -> Change:
    return lambda facts: facts.owners.append(Owner(who, "/somewhere", key, value))


def _srp(**values: int) -> Change:
    def change(facts: Facts) -> None:
        facts.srp = [replace(SRP, **values)]

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


def _value(tunable: str, value: str) -> Change:
    """Give `tunable` another value."""

    def change(facts: Facts) -> None:
        kept = [one for one in facts.readings if one.tunable != tunable]
        device = next((one.device for one in facts.readings if one.tunable == tunable), HOST)
        facts.readings = [*kept, Reading(tunable, device, value)]

    return change


def _mounted_over_one_nic(facts: Facts) -> None:
    _value("nic.rx_ring", "256")(facts)
    facts.mounted = ["sda"]


# What makes a rule fire where it is no value of a tunable, or more than the example in its table.
CHANGES: list[tuple[str, Change]] = [
    ("first-burst-above-max", _value("lio.first_burst", "2097152")),
    ("r2t-not-power-of-two", _value("lio.max_outstanding_r2t", "6")),
    ("r2t-not-power-of-two", _value("tgt.max_outstanding_r2t", "6")),
    ("offer-never-taken", _value("tgt.max_connections", "4")),
    ("queue-depth-above-session", _value("block.queue_depth", "200")),
    ("dead-knob", _value("tcp.adv_win_scale", "2")),
    ("offload-off", _value("nic.gso", "0")),
    ("cmdsn-depth-too-large", _value("lio.default_cmdsn_depth", "1024")),
    ("link-flap", _mounted_over_one_nic),
    ("sysctl-owned", _owner("sysctl.d", "net.ipv4.tcp_rmem", "4096 131072 16777216")),
    ("other-tuner", _owner("tuned", "", "network-throughput")),
    ("other-tuner", _owner("bpftune")),
    ("other-tuner", _owner("irqbalance")),
    ("other-tuner", _owner("NetworkManager")),
    ("recovery-timeout-owner", _multipath),
    ("srp-credits-exhausted", _srp(zero_req_lim=7)),
    ("srp-sg-without-ext", _srp(sg_tablesize=64)),
    ("srp-channels-above-vectors", _srp(ch_count=8)),
    ("lro-on", _bridge),
    ("window-from-first-login", _demo_mode),
    ("path-longer-than-told", lambda facts: facts.sockets.append(replace(SOCKET, rtt_ms=500, min_rtt_ms=500))),
    ("path-shorter-than-told", lambda facts: facts.sockets.__setitem__(0, replace(SOCKET, rtt_ms=5, min_rtt_ms=5))),
    ("rate-above-nic", lambda facts: facts.nics.__setitem__(0, replace(CARD, speed_bit_per_s=10**8))),
    ("mtu-differs", lambda facts: facts.nics.append(replace(CARD, name="eth1", mtu_bytes=9000))),
    ("write-cache-claimed", lambda facts: facts.backstores.__setitem__(0, Backstore("fileio/d", "fileio", False))),
]


def test_a_sound_host_makes_no_rule_fire() -> None:
    assert found(facts_with()) == set()


_EXAMPLES = {one.id: one for one in hazards.rules() if one.example}


@pytest.mark.parametrize("rule", _EXAMPLES.values(), ids=_EXAMPLES)
def test_a_rule_fires_on_its_example(rule: Rule) -> None:
    facts = facts_with()
    for tunable, value in rule.example.items():
        _value(tunable, value)(facts)
    # A slow path, on which full queues last longer than the time limits of the examples.
    assert rule.id in found(facts, WAN) | found(facts, SLOW)


@pytest.mark.parametrize(("rule", "change"), CHANGES)
def test_a_rule_fires_on_a_change(rule: str, change: Change) -> None:
    facts = facts_with()
    change(facts)
    assert rule in found(facts)


def test_every_rule_has_an_id_of_its_own_and_facts_on_which_it_fires() -> None:
    ids = [one.id for one in hazards.rules()]
    assert len(ids) == len(set(ids)) >= 40
    untested = {one.id for one in hazards.rules() if not one.example} - {rule for rule, _ in CHANGES}
    assert not untested, "give these an example in their tables, or a change in CHANGES"


@pytest.mark.parametrize(
    ("rtt_ms", "rate_mbit", "rules_found"),
    [
        (50, 1000, set()),
        (45, 100, set()),
        (5, 1000, {"path-longer-than-told"}),
        (500, 1000, {"path-shorter-than-told"}),
        (50, 10_000, {"rate-above-nic"}),
        (10, 10_000, {"path-longer-than-told", "rate-above-nic"}),
    ],
)
def test_a_profile_in_force_for_another_path_is_told_by_name(
    rtt_ms: float, rate_mbit: float, rules_found: set[str]
) -> None:
    told = ToldPath("profile 'wan' in force", rtt_ms, rate_mbit * 1e6)
    seen = lint(facts_with(), shipped_catalog(), None, [told])
    assert {one.rule for one in seen} == rules_found
    assert {one.device for one in seen} <= {"profile 'wan' in force"}


def test_of_two_paths_with_a_profile_each_none_is_called_the_other() -> None:
    """Whoever followed the advice planned the LAN's values for the WAN, where they had been right."""
    facts = facts_with()
    facts.sockets = [replace(SOCKET, remote="10.9.0.1", min_rtt_ms=0.2), SOCKET]
    lan, wan = ToldPath("profile 'lan' in force", 0.2, 1e9), ToldPath("profile 'wan' in force", 50, 1e9)
    assert lint(facts, shipped_catalog(), None, [lan, wan]) == []
    # The path that lint itself goes by, the longest of the connections, excuses none.
    (seen,) = lint(facts, shipped_catalog(), NetworkPath(0.05, 125e6), [lan])
    assert (seen.rule, seen.device) == ("path-longer-than-told", "profile 'lan' in force")


def test_a_path_is_not_called_wrong_where_it_is_not_known() -> None:
    told = ToldPath("profile 'wan' in force", 5, 1e12)
    facts = facts_with()
    facts.sockets, facts.nics = [SOCKET, replace(SOCKET, min_rtt_ms=0)], [CARD, replace(CARD, speed_bit_per_s=None)]
    assert lint(facts, shipped_catalog(), None, [told]) == []


def test_without_a_path_only_what_needs_none_is_said() -> None:
    facts = facts_with(
        iscsi__tcp_window="524288", iscsi__noop_timeout="1", block__timeout="1", lio__dataout_timeout="1"
    )
    assert found(facts, None) == {"window-clamped"}


def test_a_rule_says_nothing_about_what_cannot_be_read() -> None:
    assert found(replace(facts_with(), readings=[replace(one, value=None) for one in facts_with().readings])) == set()
    assert found(Facts(Host("h", "6.12.107", "boot", 0, 4), "", [], [], [], [])) == set()


@pytest.mark.parametrize("digits", ["9" * 400, "-" + "9" * 400])
def test_a_number_that_no_kernel_can_hold_is_no_number(digits: str) -> None:
    for tunable, _ in CLEAN:
        facts = facts_with()
        _value(tunable, digits)(facts)
        lint(facts, shipped_catalog(), WAN)


def test_a_new_rule_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strange_rules.py").write_text(
        """
from fabtune.lint.rule import case, rule

@rule("cmds-max-odd", "notice", seen="cmds_max is {value}", so="it is no {usual}", fix="set it to {usual}")
def cmds_max_odd(scene):
    for reading, value in scene.numbers("iscsi.cmds_max"):
        if value != 64:
            yield case(reading, value=value, usual=64)
"""
    )
    monkeypatch.setattr(rules, "__path__", [*rules.__path__, str(tmp_path)])
    hazards.rules.cache_clear()
    try:
        [hazard] = lint(facts_with(), shipped_catalog(), WAN)
    finally:
        hazards.rules.cache_clear()
    assert hazard.as_json() == {
        "hazard": "cmds-max-odd", "severity": "notice", "device": RECORD.label,
        "evidence": "cmds_max is 128", "consequence": "it is no 64", "fix": "set it to 64",
    }  # fmt: skip


def test_a_saved_facts_file_gives_the_same_findings(tmp_path: Path) -> None:
    facts = facts_with(iscsi__max_outstanding_r2t="6", tcp__sack="0")
    path = tmp_path / "host.json"
    path.write_text(json.dumps(saved_facts.to_json(facts)))
    assert saved_facts.load(path) == facts
    assert lint(saved_facts.load(path), shipped_catalog(), WAN) == lint(facts, shipped_catalog(), WAN)


def test_facts_are_written_as_the_first_fabtune_reads_them_and_its_own_are_read(tmp_path: Path) -> None:
    """Version 1 as fabtune 0.1.0 demanded it, where a NIC has its MAC."""
    written: dict[str, Any] = json.loads(json.dumps(saved_facts.to_json(facts_with())))
    assert written["fabtune_facts"] == 1
    for table, keys in {
        "sessions": "sid target portal interface state address port local_port luns can_queue negotiated",
        "sockets": "local remote local_port remote_port rtt_ms min_rtt_ms delivery_bytes_per_s cwnd_segments mss_bytes "
        "retransmitted_segments congestion_control receive_buffer_bytes send_buffer_bytes",
        "nics": "name driver mtu_bytes speed_bit_per_s pci_path mac lower",
        "readings": "tunable device value",
        "tpgs": "identity enabled portals luns logins",
        "backstores": "name plugin writes_back",
        "srp": "port port_id state host req_lim zero_req_lim can_queue ch_count cmd_sg_entries sg_tablesize "
        "allow_ext_sg comp_vectors",
    }.items():
        assert written[table] and set(keys.split()) <= written[table][0].keys(), table
    path = tmp_path / "host.json"
    for mac in ("52:54:00:12:34:56", ""):
        written["nics"][0]["mac"] = mac
        path.write_text(json.dumps(written))
        assert saved_facts.load(path).nics == [replace(CARD, mac=mac)]
    del written["nics"][0]["mac"]
    path.write_text(json.dumps(written))
    assert saved_facts.load(path).nics == [CARD]


@pytest.mark.parametrize("key", ["sessions", "sockets", "nics", "readings"])
def test_facts_that_say_nothing_of_the_host_are_refused_by_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    table = json.loads(json.dumps(saved_facts.to_json(facts_with())))
    del table[key]
    path = tmp_path / "host.json"
    path.write_text(json.dumps(table))
    assert main(["lint", str(path)]) == ExitCode.USAGE
    assert f"{path}: key '{key}' is missing" in capsys.readouterr().err
    path.write_text(json.dumps({**table, key: {}}))
    assert main(["lint", str(path)]) == ExitCode.USAGE
    assert f"{path}: key '{key}': found {{}} (table), allowed: array" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "not a facts file"),
        ('{"fabtune_facts": true}', "not a facts file of version 1"),
        ('{"fabtune_facts": 1}', "key 'host' is missing"),
        (
            '{"fabtune_facts": 1, "host": 5, "netns": ""}',
            "key 'host': found 5 (integer), allowed: a table with the keys name, kernel",
        ),
        ('{"fabtune_facts": 1, "host": {"name": 1}, "netns": ""}', "key 'host.name': found 1 (integer), allowed: text"),
        ('{"fabtune_facts": 1, "sockets": [NaN]}', "not JSON: NaN is not a number"),
        *(
            (
                '{"fabtune_facts": 1, "host": {"name": "", "kernel": "", "boot_id": "", "memory_bytes": '
                + number
                + "}}",
                text,
            )
            for number, text in (
                ("1" + "0" * 400, "a number of at most 64 bits"),
                ("1e999", "key 'host.memory_bytes': found inf (number), allowed: integer"),
            )
        ),
    ],
)
def test_a_wrong_facts_file_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "host.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        saved_facts.load(path)
    assert problem in str(caught.value) and str(path) in str(caught.value)


def test_a_number_that_no_kernel_has_is_none() -> None:
    for text in ("9" * 400, "0x" + "f" * 5000, "²"):
        facts = facts_with(**{name.replace(".", "__"): text for name, _ in CLEAN})
        assert found(facts) <= {"congestion-control-missing"}


def test_the_worst_comes_first_and_every_finding_is_whole() -> None:
    spoiled = facts_with(iscsi__max_outstanding_r2t="6", tcp__sack="0", lio__max_connections="2")
    seen = lint(spoiled, shipped_catalog(), WAN)
    assert [one.severity for one in seen] == list(SEVERITIES)
    assert all(one.evidence and one.consequence and one.fix for one in seen)
