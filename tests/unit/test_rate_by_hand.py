# SPDX-License-Identifier: GPL-2.0-or-later
"""What an administrator gives our fq by hand does not go with it."""

import json
from pathlib import Path

import hosttree
import pytest
import tctree

from fabtune import backends
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli.main import main
from fabtune.facts.collect import this_host
from fabtune.tune import journal
from fabtune.tune.apply import apply
from fabtune.tune.pending import Leave
from fabtune.tune.plan import CHANGE, Plan, Row

_KIND, _RATE = ("qdisc.kind", "fq"), ("qdisc.maxrate", "125000000")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = hosttree.make(tmp_path / "root")
    hosttree.enter(root, monkeypatch)
    tctree.make(root)
    return root


def applied(*values: tuple[str, str]) -> None:
    catalog, rows = shipped_catalog().tunables, []
    for name, wanted in values:
        now = backends.get("qdisc").read(tctree.NIC, catalog[name].key)
        rows.append(Row(catalog[name], "initiator", tctree.NIC, now, wanted, CHANGE, "a test"))
    with journal.locked():
        assert not apply(Plan("mine", ("initiator",), "", None, {}, rows), this_host(), Leave(), print).refused


def by_hand(root: Path, bytes_per_s: int) -> None:
    (fq,) = tctree.attached(root)
    fq["options"] = tctree.FQ | {"maxrate": bytes_per_s}
    (root / "qdisc").write_text(json.dumps([fq]))


@pytest.mark.parametrize("ours", [[_KIND], [_KIND, _RATE]])
def test_a_rate_that_somebody_gave_our_fq_keeps_it_there_and_is_said(
    host: Path, capsys: pytest.CaptureFixture[str], ours: list[tuple[str, str]]
) -> None:
    """It went with the fq: one value restored, exit 0."""
    before = tctree.attached(host)
    applied(*ours)
    by_hand(host, 62_500_000)
    for _ in range(2):
        capsys.readouterr()
        assert main(["revert"]) == 3 and backends.get("qdisc").read(tctree.NIC, "maxrate") == "62500000"
        assert "by hand" in capsys.readouterr().out
    assert main(["revert", "--force"]) == 0 and tctree.attached(host) == before


def test_our_own_rate_goes_before_its_fq(host: Path) -> None:
    before = tctree.attached(host)
    applied(_KIND, _RATE)
    assert main(["revert"]) == 0 and tctree.attached(host) == before


def test_a_rate_of_another_profile_outlives_the_one_that_brought_the_fq(host: Path) -> None:
    before = tctree.attached(host)
    applied(_KIND)
    first = journal.transactions()[0].name
    applied(_RATE)
    assert main(["revert", "--transaction", first]) == 3
    assert backends.get("qdisc").read(tctree.NIC, "maxrate") == "125000000"
    assert main(["revert"]) == 0 and tctree.attached(host) == before
