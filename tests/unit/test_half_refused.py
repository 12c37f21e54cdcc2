# SPDX-License-Identifier: GPL-2.0-or-later
"""A value that takes several writes, of which a later one is refused: what the earlier ones did goes back."""

import errno
from pathlib import Path

import hosttree
import pytest
import tctree

from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli.main import main
from fabtune.errors import FabtuneError
from fabtune.facts.collect import this_host
from fabtune.host import tree
from fabtune.tune import journal
from fabtune.tune.apply import Result, apply
from fabtune.tune.pending import Leave
from fabtune.tune.plan import CHANGE, Plan, Row

_QUEUES = [f"sys/class/net/{tctree.NAME}/queues/rx-{number}/rps_cpus" for number in range(3)]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = hosttree.make(tmp_path / "root")
    hosttree.enter(root, monkeypatch)
    tctree.make(root, queues=2)
    for queue in _QUEUES:
        hosttree.put(root / queue, "0")
    return root


def applied(name: str, now: str, wanted: str) -> Result:
    """Apply one value that is refused half way, behind one that is not."""
    catalog = shipped_catalog().tunables
    rows = [
        Row(catalog["nic.mtu"], "initiator", tctree.NIC, "1500", "9000", CHANGE, "a test"),
        Row(catalog[name], "initiator", tctree.NIC, now, wanted, CHANGE, "a test"),
    ]
    with journal.locked():
        return apply(Plan("mine", ("initiator",), "", None, {}, rows), this_host(), Leave(), print)


def is_as_before_but_for_the_mtu(host: Path, result: Result, name: str) -> None:
    assert [row.tunable.name for row, _ in result.refused] == [name]
    assert [row.tunable.name for row in result.written] == ["nic.mtu"]
    assert main(["verify"]) == 0
    assert main(["revert"]) == 0 and tree.read_text(host / f"sys/class/net/{tctree.NAME}/mtu") == "1500"


def test_a_root_that_was_replaced_before_its_leaves_were_refused_is_the_kernels_again(host: Path) -> None:
    """A kernel without sch_fq: nothing was said to be written, and our mq stayed for good."""
    before = tctree.attached(host)
    (host / "without-fq").touch()
    result = applied("qdisc.kind", "pfifo_fast", "fq")
    assert tctree.attached(host) == before
    is_as_before_but_for_the_mtu(host, result, "qdisc.kind")


def test_queues_that_were_written_before_another_one_was_refused_are_as_before(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = tree.write_text

    def refuse_the_last(path: str, text: str) -> None:
        if str(path).endswith(_QUEUES[-1]) and text != "0":
            raise OSError(errno.EINVAL, "Invalid argument")
        write(path, text)

    monkeypatch.setattr(tree, "write_text", refuse_the_last)
    result = applied("nic.rps_cpus", "0", "3")
    assert [tree.read_text(host / one) for one in _QUEUES] == ["0", "0", "0"]
    is_as_before_but_for_the_mtu(host, result, "nic.rps_cpus")


def test_queues_of_which_a_crash_left_some_unwritten_go_back(host: Path) -> None:
    assert not applied("nic.rps_cpus", "0", "3").refused
    (transaction,) = journal.transactions()
    lines = transaction.path.read_text().splitlines(keepends=True)
    transaction.path.write_text("".join(lines[:-1]))
    hosttree.put(host / _QUEUES[1], "0")
    assert main(["revert"]) == 0
    assert [tree.read_text(host / one) for one in _QUEUES] == ["0", "0", "0"]


def test_what_does_not_go_back_takes_the_apply_back_and_is_owed(host: Path) -> None:
    (host / "without-fq").touch()
    # The kernel would bring back another one than was there.
    hosttree.put(host / "qdisc.kernel", (host / "qdisc").read_text().replace("pfifo_fast", "fq_codel").strip())
    with pytest.raises(FabtuneError, match="could not be taken back"):
        applied("qdisc.kind", "pfifo_fast", "fq")
    assert journal.transactions()[-1].open_steps and main(["verify"]) != 0
