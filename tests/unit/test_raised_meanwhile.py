# SPDX-License-Identifier: GPL-2.0-or-later
"""A bound raises only: what somebody has raised between plan and write stays as he has it."""

import json
from pathlib import Path

import hosttree
import pytest

from fabtune import backends
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli.main import main
from fabtune.facts.collect import this_host
from fabtune.host import tree
from fabtune.model.device import Device
from fabtune.tune import journal
from fabtune.tune.plan import CHANGE, Plan, Row
from fabtune.tune.row_by_row import apply_row_by_row

_QUEUE = "sys/block/sd1/queue"
_PROFILE = """
summary = "a bound"
[initiator."block.rq_affinity"]
value = 2
why = "a test"
[initiator."block.read_ahead_kb"]
{form} = 4096
why = "a test"
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the tree of a host with a disk that reads ahead a little."""
    root = hosttree.make(tmp_path / "root", 1)
    hosttree.enter(root, monkeypatch)
    hosttree.put(root / _QUEUE / "read_ahead_kb", "128")
    return root


def meanwhile(host: Path, monkeypatch: pytest.MonkeyPatch, file: str, value: str) -> None:
    """Have somebody set `file` while another value of the plan is written."""
    attributes = backends.get("attribute")
    real = attributes.write

    def write(device: Device, key: str, wanted: str) -> None:
        real(device, key, wanted)
        if key == "queue/rq_affinity":
            hosttree.put(host / file, value)

    monkeypatch.setattr(attributes, "write", write)


def apply(host: Path, form: str = "at_least", *more: str) -> int:
    profile = host.parent / "mine.toml"
    profile.write_text(_PROFILE.format(form=form))
    return main(["apply", str(profile), "--role", "initiator", "--rtt", "1ms", "--rate", "1gbit", *more])


def read_ahead(host: Path) -> str:
    return tree.read_text(host / _QUEUE / "read_ahead_kb") or ""


@pytest.mark.parametrize(("form", "by_hand"), [("at_least", "65536"), ("at_least", "0"), ("at_most", "1024")])
def test_what_is_better_by_now_stays_and_is_said(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str, by_hand: str
) -> None:
    if form == "at_most":
        hosttree.put(host / _QUEUE / "read_ahead_kb", "8192")
    meanwhile(host, monkeypatch, f"{_QUEUE}/read_ahead_kb", by_hand)
    assert apply(host, form, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert read_ahead(host) == by_hand
    assert [one["tunable"] for one in told["written"]] == ["block.rq_affinity"]
    assert [(one["tunable"], one["device"], one["now"]) for one in told["remarks"]] == [
        ("block.read_ahead_kb", "sd1", by_hand)
    ]
    assert main(["verify"]) == 0
    assert main(["revert"]) == 0
    assert read_ahead(host) == by_hand


def test_it_is_said_to_people_too(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    meanwhile(host, monkeypatch, f"{_QUEUE}/read_ahead_kb", "65536")
    assert apply(host) == 0
    assert "block.read_ahead_kb of sd1 is left alone: it is 65536 by now" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("form", "by_hand"), [("at_least", "512"), ("value", "65536")])
def test_what_is_not_enough_or_no_bound_is_written(
    host: Path, monkeypatch: pytest.MonkeyPatch, form: str, by_hand: str
) -> None:
    meanwhile(host, monkeypatch, f"{_QUEUE}/read_ahead_kb", by_hand)
    assert apply(host, form) == 0
    assert read_ahead(host) == "4096"
    assert main(["revert"]) == 0
    assert read_ahead(host) == by_hand


def test_it_takes_nothing_back_that_a_rule_binds_to_it(host: Path) -> None:
    """As a refusal would, where values that were lost are written again."""
    device = Device("netns", "netns:init", "host", {"netns": ""})
    hosttree.put(host / "proc/sys/net/ipv4/tcp_rmem", "4096 131072 20000000")
    rows = [
        Row(shipped_catalog().tunables[name], "initiator", device, now, wanted, CHANGE, "a test", form="at_least")
        for name, now, wanted in (("tcp.rmem_max", "6291456", "9000000"), ("tcp.rmem_default", "131072", "1000000"))
    ]
    with journal.locked():
        result = apply_row_by_row(Plan("mine", ("initiator",), "", None, {}, rows), this_host(), print)
    assert not result.refused
    assert (tree.read_text(host / "proc/sys/net/ipv4/tcp_rmem") or "").split() == ["4096", "1000000", "20000000"]
