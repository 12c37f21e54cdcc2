# SPDX-License-Identifier: GPL-2.0-or-later
"""What targetcli has saved of a tuned target: a revert leaves no value of fabtune's for the next boot to bring back."""

import json
from pathlib import Path

import hosttree
import pytest

from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import ExitCode
from fabtune.facts.collect import survey
from fabtune.host import files
from fabtune.model.path import NetworkPath
from fabtune.tune import journal
from fabtune.tune.apply import apply
from fabtune.tune.pending import Leave
from fabtune.tune.plan import make_plan
from fabtune.tune.undo import Report, undo

_BURST, _DEPTH = "FirstBurstLength", "default_cmdsn_depth"
_SECRET = {"node_wwn": "iqn.i", "chap_password": "do-not-tell"}


class Target:
    """A host's LIO target with one portal group, and what targetcli and a boot make of it."""

    def __init__(self, root: Path) -> None:
        self.group = root / f"sys/kernel/config/target/iscsi/{hosttree.iqn(1)}/tpgt_1"
        self.file = root / "etc/rtslib-fb-target/saveconfig.json"

    @property
    def running(self) -> tuple[str, str]:
        """What it offers now: a parameter and an attribute."""
        return (self.group / "param" / _BURST).read_text().strip(), (self.group / "attrib" / _DEPTH).read_text().strip()

    @property
    def saved(self) -> tuple[str, str]:
        """What the next boot gives it."""
        group = json.loads(self.file.read_text())["targets"][0]["tpgs"][0]
        return group["parameters"][_BURST], str(group["attributes"][_DEPTH])

    def save(self, burst: str | None = None) -> None:
        """Save the running target, as targetcli does on its exit, or another value by hand."""
        parameters = {one.name: one.read_text().strip() for one in sorted((self.group / "param").iterdir())}
        group = {"tag": 1, "node_acls": [_SECRET], "attributes": {_DEPTH: int(self.running[1])},
                 "parameters": parameters | ({_BURST: burst} if burst else {})}  # fmt: skip
        hosttree.put(self.file, json.dumps({"targets": [{"fabric": "iscsi", "tpgs": [group], "wwn": hosttree.iqn(1)}]}))
        self.file.chmod(0o600)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    hosttree.enter(hosttree.make(tmp_path, 0, 1), monkeypatch)
    return Target(tmp_path)


def run_apply(profile: str = "lan") -> None:
    known = survey(shipped_catalog().tunables.values())
    plan = make_plan(load_profile(profile, shipped_catalog()), ("target",), known, NetworkPath(0.05, 125e6, 1500), {})
    with journal.locked():
        apply(plan, known.host, Leave(), lambda _: None)


def run_revert(profile: str | None = None, force: bool = False) -> Report:
    return undo(profile, None, None, "", force, Leave(), lambda _: None)


_OLD, _OURS = ("65536", "64"), ("262144", "128")


@pytest.mark.parametrize("was_saved", [True, False])
def test_what_targetcli_saved_of_ours_goes_back_too(target: Target, was_saved: bool) -> None:
    """The next boot brought every value back, and nothing said so."""
    if was_saved:
        target.save()
    run_apply()
    assert target.running == _OURS
    target.save()
    report = run_revert()
    assert (target.running, target.saved) == (_OLD, _OLD)
    assert report.exit_code == ExitCode.DONE
    notes = {one.note for one in report.outcomes}
    assert notes == {"the target's saved configuration had it too, and has the old value again"}
    assert target.file.stat().st_mode & 0o777 == 0o600 and "do-not-tell" in target.file.read_text()


def test_what_was_saved_before_or_by_somebody_else_stays(target: Target) -> None:
    target.save("262144")
    run_apply()
    assert run_revert().exit_code == ExitCode.DONE
    assert target.saved == ("262144", "64")
    run_apply()
    target.save("131072")
    assert run_revert().exit_code == ExitCode.DONE
    assert target.saved == ("131072", "64")


def test_what_is_set_back_by_hand_is_taken_out_of_what_is_saved(target: Target) -> None:
    run_apply()
    target.save()
    hosttree.put(target.group / "param" / _BURST, _OLD[0])
    assert run_revert().exit_code == ExitCode.DONE
    assert target.saved == _OLD


def test_a_saved_configuration_that_takes_no_value_owes_it(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    run_apply()
    target.save()

    def refuse(path: Path, text: str) -> None:
        raise OSError(30, "Read-only file system", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(files, "replace", refuse)
        report = run_revert()
    assert report.exit_code == ExitCode.FAILED and target.running == _OLD
    note = report.outcomes[0].note
    assert note.startswith("the next boot may bring it again from the target's saved configuration")
    assert "Read-only file system" in note
    (transaction,) = journal.transactions()
    assert transaction.state == "partly taken back"
    assert run_revert().exit_code == ExitCode.DONE
    assert target.saved == _OLD


def test_what_is_given_up_of_a_stopped_target_is_not_started_with_it(target: Target) -> None:
    run_apply()
    target.save()
    target.group.parent.rename(target.group.parents[4] / "away")
    assert run_revert().exit_code == ExitCode.NEEDS_ACTION and target.saved == _OURS
    report = run_revert(force=True)
    assert {str(one.state) for one in report.outcomes} == {"gone"}
    assert target.saved == _OLD


def test_whoever_relied_on_a_value_gives_back_what_was_saved_of_it(target: Target) -> None:
    target.save()
    run_apply("lan")
    target.save()
    run_apply("wan")
    assert run_revert("lan").exit_code == ExitCode.DONE
    assert target.saved == _OURS
    run_revert("wan")
    assert (target.running, target.saved) == (_OLD, _OLD)


def test_what_an_older_fabtune_wrote_is_left_and_said(target: Target) -> None:
    """Its journal does not tell whether the value was saved before."""
    target.save()
    run_apply()
    (transaction,) = journal.transactions()
    lines = [json.loads(line) for line in transaction.path.read_text().splitlines()]
    old = [{key: value for key, value in line.items() if key != "saved"} for line in lines]
    assert old != lines
    transaction.path.write_text("".join(f"{json.dumps(line)}\n" for line in old))
    target.save()
    report = run_revert()
    assert (target.running, target.saved) == (_OLD, _OURS)
    assert report.exit_code == ExitCode.NEEDS_ACTION
    (one,) = report.pending
    assert (one.action, one.label) == ("saved", "disk1 tpgt_1")
    assert "lio.first_burst 262144" in one.reason and "`targetcli saveconfig`" in one.reason
