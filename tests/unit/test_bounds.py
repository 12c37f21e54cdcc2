# SPDX-License-Identifier: GPL-2.0-or-later
"""0 and -1 that mean off or without a limit: the vocabulary says so, and bounds respect it."""

from pathlib import Path

import hosttree
import pytest

from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import parse_tunable, shipped_catalog
from fabtune.errors import InputError
from fabtune.facts.collect import Facts, Host, Reading
from fabtune.model.device import Device
from fabtune.tune.plan import CHANGE, KEPT, SAME, Row, make_plan

THING = {"summary": "x", "backend": "attribute", "key": "x", "scope": "host", "type": "int", "effect": "live",
         "roles": ["initiator"], "persist": "none", "persist_why": "x", "source": "x", "minimum": 3,
         "maximum": 60}  # fmt: skip


def planned(name: str, now: str, words: str, directory: Path) -> Row:
    """Return the row of a profile that wants `words` of tunable `name` where the host holds `now`."""
    catalog = shipped_catalog()
    tunable = catalog.tunables[name]
    file = directory / "one.toml"
    file.write_text(f'summary = "x"\n[{tunable.roles[0]}."{name}"]\n{words}\nwhy = "x"\n')
    device = Device(tunable.scope, "it", "it")
    facts = Facts(Host("h", "6.12.0", "b", 1 << 34, 2), "", [], [], [], [Reading(name, device, now)])
    (row,) = make_plan(load_profile(str(file), catalog), (tunable.roles[0],), facts, None, {}).rows
    return row


SPECIAL = [one for one in shipped_catalog().tunables.values() if one.off or one.unlimited]


@pytest.mark.parametrize("name", [one.name for one in SPECIAL if one.off])
def test_no_bound_switches_on_what_is_off(name: str, tmp_path: Path) -> None:
    tunable = shipped_catalog().tunables[name]
    for number in tunable.off:
        top = max(tunable.minimum or 0, 1)
        for words in (f"at_least = {top}", f"at_most = {top}"):
            row = planned(name, tunable.native(number), words, tmp_path)
            assert (row.state, row.wanted) == (KEPT, tunable.native(number)), words
            assert "off" in row.note


@pytest.mark.parametrize("name", [one.name for one in SPECIAL if one.unlimited])
def test_no_limit_satisfies_every_at_least(name: str, tmp_path: Path) -> None:
    tunable = shipped_catalog().tunables[name]
    for number in tunable.unlimited:
        row = planned(name, tunable.native(number), f"at_least = {(tunable.maximum or 1) // 8 * 4}", tmp_path)
        assert (row.state, row.wanted) == (KEPT, tunable.native(number))
        row = planned(
            name, tunable.native(number), f"at_most = {max(tunable.minimum or 0, tunable.multiple_of)}", tmp_path
        )
        assert row.state == CHANGE


def test_every_negative_number_is_no_limit_where_one_is(tmp_path: Path) -> None:
    assert planned("iscsi.replacement_timeout", "-7", "at_least = 60", tmp_path).state == KEPT
    assert planned("iscsi.replacement_timeout", "-7", "value = -1", tmp_path).state == SAME
    # 0 is the least of these: commands fail at once.
    assert planned("iscsi.replacement_timeout", "0", "at_least = 60", tmp_path).state == CHANGE


def test_a_bound_that_comes_out_small_does_not_switch_off(tmp_path: Path) -> None:
    assert planned("iscsi.noop_timeout", "5", 'at_most = "50ms"', tmp_path).wanted == "1"
    assert planned("iscsi.noop_timeout", "5", "at_most = 0", tmp_path).wanted == "0"


def test_an_exact_value_may_be_off(tmp_path: Path) -> None:
    assert planned("lio.nopin_timeout", "15", "value = 0", tmp_path).wanted == "0"
    assert planned("srp.fast_io_fail_tmo", "15", 'value = "off"', tmp_path).wanted == "off"
    assert planned("srp.dev_loss_tmo", "off", "value = -1", tmp_path).state == SAME
    assert planned("srp.dev_loss_tmo", "600", "value = 700", tmp_path).wanted == "700"


def test_wan_leaves_the_pings_of_a_root_disk_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fabtune.facts.collect import collect
    from fabtune.model.path import NetworkPath
    from fabtune.tune.plan import tunables_of

    monkeypatch.setitem(hosttree.RECORD, "node.conn[0].timeo.noop_out_interval", "0")
    monkeypatch.setitem(hosttree.RECORD, "node.conn[0].timeo.noop_out_timeout", "0")
    hosttree.enter(hosttree.make(tmp_path, 1), monkeypatch)
    for name in ("wan", "wan-satellite"):
        profile = load_profile(name, shipped_catalog())
        plan = make_plan(profile, ("initiator",), collect(tunables_of(profile)), NetworkPath(0.5, 125e4), {})
        found = {row.tunable.name: row for row in plan.rows}
        assert found["iscsi.noop_timeout"].state == KEPT
        if name == "wan-satellite":
            assert found["iscsi.noop_interval"].state == KEPT


@pytest.mark.parametrize(
    ("keys", "words"),
    [({"off": 0, "unlimited": 0}, "0 stands in both 'off' and 'unlimited'"), ({"off": ["0"]}, "key 'off': found '0'"),
     ({"off": 0, "type": "text"}, "need type \"int\""), ({"off": 0, "words": {"never": 5}}, "'never' is 5")],
)  # fmt: skip
def test_the_vocabulary_is_checked(keys: dict[str, object], words: str) -> None:
    table: dict[str, object] = {**THING, **keys}
    if table["type"] == "text":
        del table["minimum"], table["maximum"]
    with pytest.raises(InputError, match=words):
        parse_tunable("x.y", table, "file: [y]")


def test_off_is_allowed_beside_the_range_and_told() -> None:
    tunable = parse_tunable("x.y", {**THING, "off": 0, "unlimited": -1, "words": {"never": -1}}, "file: [y]")
    assert tunable.allowed() == "an integer from 3 to 60; 0 is off; -1 is no limit, written never"
    assert tunable.check(0, "w") == 0
    with pytest.raises(InputError, match="found 2, allowed"):
        tunable.check(2, "w")
    assert (tunable.parse("never"), tunable.native(-1)) == (-1, "never")
