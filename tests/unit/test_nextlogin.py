# SPDX-License-Identifier: GPL-2.0-or-later
"""Values with which the next login fails, or may fail, are not written; and which TPG a record meets."""

from pathlib import Path

import hosttree
import pytest

from fabtune.backends import record
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.facts.collect import collect, survey
from fabtune.model.path import NetworkPath
from fabtune.tune import nextlogin
from fabtune.tune.logins import preview_logins
from fabtune.tune.plan import CHANGE, REFUSED, Plan, Row, make_plan, tunables_of

TPG = "sys/kernel/config/target/iscsi"


def planned(name: str = "wan", roles: tuple[str, ...] = ("initiator",), **parameters: float) -> Plan:
    profile = load_profile(name, shipped_catalog())
    record.BACKEND.forget()
    mine = tunables_of(profile)
    facts = collect([*mine, *nextlogin.tunables_needed(one.name for one in mine)])
    plan = make_plan(profile, roles, facts, NetworkPath(0.05, 125e6), parameters)
    nextlogin.guard(plan, facts)
    return plan


def row(plan: Plan, name: str = "iscsi.max_outstanding_r2t") -> Row:
    return next(one for one in plan.rows if one.tunable.name == name)


def portal(host: Path, number: int, address: str, tpg: str = "tpgt_1") -> Path:
    directory = host / TPG / hosttree.iqn(number) / tpg
    (directory / "np" / address).mkdir(parents=True)
    return directory


def agreed(host: Path, value: str) -> None:
    hosttree.put(host / "sys/class/iscsi_session/session1/max_outstanding_r2t", value)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = hosttree.make(tmp_path, 1)
    hosttree.enter(made, monkeypatch)
    return made


def serve(host: Path, **values: str) -> Path:
    """Let this host serve the record's target too."""
    tpg = portal(host, 1, "10.2.0.1:3260")
    for name, value in {**hosttree.PARAMETERS, **values}.items():
        hosttree.put(tpg / "param" / name, value)
    return tpg


def test_a_target_whose_offer_is_no_power_of_two_is_named_with_what_would_work(host: Path) -> None:
    serve(host, MaxOutstandingR2T="6")
    found = row(planned())
    assert (found.state, found.now) == (REFUSED, "1")
    assert "disk1 tpgt_1 on this host offers 6: 6 is not a power of two" in found.note
    assert found.note.endswith("4 would work")
    assert row(planned(), "iscsi.cmds_max").state == CHANGE


def test_a_target_that_takes_the_value_lets_it_pass(host: Path) -> None:
    serve(host, MaxOutstandingR2T="16")
    assert row(planned()).state == CHANGE


def test_what_a_restarted_target_would_offer_again_counts_beside_the_plans_value(host: Path) -> None:
    serve(host, MaxOutstandingR2T="6")
    found = row(planned(roles=("initiator", "target")))
    assert found.state == REFUSED and "once it is restarted or taken back, offers 6" in found.note


def test_an_unknown_target_is_not_asked_for_more_than_it_is_known_to_accept(host: Path) -> None:
    agreed(host, "1")
    found = row(planned())
    assert found.state == REFUSED
    assert "the live session agreed on 1" in found.note and "trust_logins=1" in found.note
    assert row(planned(trust_logins=1)).state == CHANGE


def test_a_session_that_agreed_on_less_than_ours_tells_the_targets_own_value(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreed(host, "4")
    path = host / "records" / hosttree.iqn(1)
    path.write_text(path.read_text().replace("MaxOutstandingR2T = 1", "MaxOutstandingR2T = 8"))
    assert row(planned()).state == CHANGE


@pytest.mark.parametrize(("theirs", "state"), [("None", REFUSED), ("CRC32C,None", CHANGE)])
def test_a_digest_that_the_target_lacks_is_not_asked_for(host: Path, theirs: str, state: str) -> None:
    serve(host, HeaderDigest=theirs)
    mine = host / "mine.toml"
    mine.write_text('summary = "x"\n[initiator."iscsi.header_digest"]\nvalue = "CRC32C"\nwhy = "x"\n')
    path = host / "records" / hosttree.iqn(1)
    path.write_text(path.read_text() + "node.conn[0].iscsi.HeaderDigest = None\n")
    assert row(planned(str(mine)), "iscsi.header_digest").state == state


@pytest.mark.parametrize(("logged_in", "wanted", "state"), [
    ("iqn.2026-01.test:client\0", "None", REFUSED), ("", "None", CHANGE),
    ("iqn.2026-01.test:client\0", "None,CRC32C", CHANGE),
])  # fmt: skip
def test_a_target_does_not_stop_taking_a_digest_that_a_live_initiator_may_ask_for(
    host: Path, logged_in: str, wanted: str, state: str
) -> None:
    hosttree.put(serve(host, HeaderDigest="CRC32C,None") / "dynamic_sessions", logged_in)
    mine = host / "mine.toml"
    mine.write_text(
        f'summary = "x"\n[parameters.trust_logins]\ndefault = "0"\nsummary = "x"\n'
        f'[target."lio.header_digest"]\nvalue = "{wanted}"\n'
        'why = "x"\n'
    )
    found = row(planned(str(mine), ("target",)), "lio.header_digest")
    assert found.state == state
    assert state == CHANGE or "iqn.2026-01.test:client may ask for nothing but CRC32C" in found.note
    assert row(planned(str(mine), ("target",), trust_logins=1), "lio.header_digest").state == CHANGE


def test_a_digest_without_a_way_back_is_not_asked_of_an_unknown_target(host: Path) -> None:
    path = host / "records" / hosttree.iqn(1)
    path.write_text(path.read_text() + "node.conn[0].iscsi.HeaderDigest = None\n")
    mine = host / "mine.toml"
    for value, state in (("CRC32C", REFUSED), ("CRC32C,None", CHANGE)):
        mine.write_text(f'summary = "x"\n[initiator."iscsi.header_digest"]\nvalue = "{value}"\nwhy = "x"\n')
        assert row(planned(str(mine)), "iscsi.header_digest").state == state


@pytest.mark.parametrize(
    ("second", "logins"),
    [("10.2.0.9:3260", ["tpgt_1"]), ("10.2.0.1:3261", ["tpgt_1"]), ("0.0.0.0:3260", ["tpgt_1", "tpgt_2"])],
)
def test_a_record_meets_the_tpgs_that_have_its_portal(host: Path, second: str, logins: list[str]) -> None:
    serve(host)
    other = portal(host, 1, second, "tpgt_2")
    for name, value in hosttree.PARAMETERS.items():
        hosttree.put(other / "param" / name, value)
    facts = survey(shipped_catalog().tunables.values())
    found = preview_logins(facts, facts, None, None)
    assert [(one.tpg or "").rpartition(",")[2] for one in found] == logins
