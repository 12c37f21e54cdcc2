# SPDX-License-Identifier: GPL-2.0-or-later
"""Kinds of targets: found in their directory, LIO and tgt side by side, and what each can and cannot be given."""

import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hosttree
import pytest
import tgttree
from tgttree import IQN

from fabtune import backends
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli import output
from fabtune.errors import FabtuneError, InputError, UnsupportedError
from fabtune.experiment.settings import check_settings, parse_settings
from fabtune.facts.collect import Facts, survey
from fabtune.host import targets, tools
from fabtune.host.run import Ended
from fabtune.lab.recipe import IMAGES, SUITES, image_for, recipe_for
from fabtune.model.device import Device
from fabtune.model.path import NetworkPath
from fabtune.tune import persist
from fabtune.tune.locate import Locator
from fabtune.tune.logins import preview_logins
from fabtune.tune.plan import CHANGE, NO_DEVICE, Plan, make_plan


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    hosttree.enter(hosttree.make(tmp_path, 1), monkeypatch)
    return tmp_path


@pytest.fixture
def tgt(host: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tgtd with one target and one initiator; its parameters are a file of the tree."""
    monkeypatch.setattr("fabtune.host.targets.tgt._runs", lambda: True)
    tgttree.serve(host)
    return host


def facts() -> Facts:
    return survey(shipped_catalog().tunables.values())


def planned(profile: str = "wan") -> Plan:
    path = NetworkPath(0.05, 125e6, 1500)
    return make_plan(load_profile(profile, shipped_catalog()), ("target",), facts(), path, {})


def test_only_the_files_of_targets_know_where_the_kernels_targets_keep_things() -> None:
    top = Path(targets.__file__).parents[2]
    named = [str(path.relative_to(top)) for path in top.rglob("*.py") if path.parent.name != "targets"
             and re.search(r"configfs|kernel/config|tgtadm", path.read_text())]  # fmt: skip
    # Of configfs OCFS2's heartbeat and USB gadgets, which are no targets.
    assert named == ["host/kept_open.py"]


def test_kinds_are_found_and_each_scope_belongs_to_one() -> None:
    assert [kind.name for kind in targets.kinds()] == ["lio", "nvmet", "scst", "tgt"]
    scopes = targets.every_scope()
    assert len(scopes) == len(set(scopes))
    for name in (*targets.offers(), *targets.acl_offers()):
        assert targets.of_scope(shipped_catalog().tunables[name].scope)
    assert targets.default_of("lio.cmdsn_depth") == "lio.default_cmdsn_depth"
    assert targets.default_of("lio.default_cmdsn_depth") is None
    with pytest.raises(InputError, match="expected one of lio, tgt"):
        targets.named("scst")


@pytest.mark.parametrize(("scope", "identity"), [("srpt-tpg", "fe80::a1/fe80::a1"), ("backstore", "rd_mcp/disk0")])
def test_who_is_logged_in_is_asked_of_what_shows_nobody(host: Path, scope: str, identity: str) -> None:
    """ib_srpt does not show it: `apply` of any of its values ended there."""
    assert targets.logins(Device(scope, identity, scope)) == []


def test_tgt_shows_its_targets_portals_luns_and_initiators(tgt: Path) -> None:
    (tpg,) = targets.tpgs()
    assert (tpg.identity, tpg.enabled, tpg.portals) == (f"{IQN},tgt", True, ("10.2.0.1:3260",))
    assert tpg.luns == ("rdwr:/dev/vg/disk",)
    assert [(one.initiator, one.sid, one.negotiated) for one in tpg.logins] == [("iqn.i", "3", {})]
    (device,) = targets.groups()
    assert targets.in_use(device)
    assert Locator("")(device) == device


def test_a_daemon_without_a_target_serves_nobody_and_says_what_to_do(tgt: Path) -> None:
    (tgt / "shown").write_text("")
    assert targets.groups() == [] and targets.tpgs() == []
    assert targets.named("tgt").lacking() == (
        "no target: tgtd runs, but has no target",
        "for a target on this host: tgt-admin",
    )


def test_a_plan_speaks_of_the_target_that_is_there(tgt: Path) -> None:
    rows = {row.tunable.name: row for row in planned().rows}
    assert rows["tgt.first_burst"].state == CHANGE and rows["tgt.first_burst"].wanted == "262144"
    assert not [name for name in rows if name.startswith("lio.") and rows[name].tunable.scope == "tpg"]


def test_a_host_without_a_target_is_planned_as_one_with_lio(host: Path) -> None:
    names = {row.tunable.name for row in planned().rows}
    assert "lio.first_burst" in names and not [name for name in names if name.startswith("tgt.")]


@pytest.mark.parametrize("name", ["naa.6001405abcdef012", "eui.02004567a425678d"])
def test_a_target_is_seen_whatever_kind_of_name_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What targetcli takes besides iqn: such a target had no portal group, and nobody used it."""
    hosttree.enter(hosttree.make(tmp_path, 0, 1), monkeypatch)
    iscsi = tmp_path / "sys/kernel/config/target/iscsi"
    (iscsi / hosttree.iqn(1)).rename(iscsi / name)
    (iscsi / "discovery_auth").mkdir()
    hosttree.put(iscsi / name / "tpgt_1/dynamic_sessions", "iqn.2026-01.a:b")
    (group,) = targets.groups()
    assert (group.identity, group.where["portals"]) == (f"{name},tpgt_1", "10.2.0.1:3260")
    assert targets.in_use(group) and [one.initiator for one in targets.logins(group)] == ["iqn.2026-01.a:b"]
    states = {row.tunable.name: row.state for row in planned().rows}
    assert states["lio.first_burst"] == CHANGE


def test_a_daemon_without_a_target_is_planned_for_and_not_lio(tgt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tgt / "shown").write_text("")
    plan = planned()
    names = {row.tunable.name for row in plan.rows}
    assert "tgt.first_burst" in names and not [name for name in names if name.startswith("lio.")]
    output.show_rows([row for row in plan.rows if row.state == NO_DEVICE])
    assert "(no tgt target seen)" in capsys.readouterr().out.replace("\n", " ")


def test_the_profile_of_defaults_gives_a_target_of_any_kind_its_own(tgt: Path) -> None:
    (device,) = targets.groups()
    backends.get("attribute").write(device, "MaxBurstLength", "1048576")
    (row,) = (row for row in planned("default").changes if row.tunable.name.startswith("tgt."))
    assert (row.tunable.name, row.wanted, row.why) == ("tgt.max_burst", "262144", "tgt's own default")
    entries = load_profile("default", shipped_catalog()).entries["target"]
    # An ACL's command window is the portal group's, which has the default.
    assert {*targets.offers(), *targets.acl_offers()} - entries.keys() == {"lio.cmdsn_depth"}


def test_values_are_written_by_tgtadm_and_read_back(tgt: Path) -> None:
    (device,) = targets.groups()
    backend = backends.get("attribute")
    backend.write(device, "MaxBurstLength", "1048576")
    assert backend.read(device, "MaxBurstLength") == "1048576"
    backend.write(device, "DataDigest", "CRC32C")
    assert backend.read(device, "DataDigest") == "CRC32C,None"
    with pytest.raises(UnsupportedError, match="tgtd has no SmallBurst"):
        backend.read(device, "SmallBurst")
    with pytest.raises(FabtuneError, match="invalid request"):
        backend.write(device, "Nonsense", "1")


def test_what_tgt_is_told_cannot_be_kept_and_that_is_said(tgt: Path) -> None:
    rows, remarks = persist.rows(planned())
    assert not [row for row in rows if row.tunable.name.startswith("persist.save")]
    assert any("tgt.first_burst" in one for one in remarks)
    (device,) = targets.groups()
    with pytest.raises(UnsupportedError, match="nothing gives tgt its parameters back"):
        backends.get("saveconfig").read(device, "FirstBurstLength")


def test_the_next_login_to_tgt_is_previewed_with_what_it_offers(tgt: Path) -> None:
    known = facts()
    agreed = {one.name: one for login in preview_logins(known, known, None, None) for one in login.agreed}
    assert agreed["MaxXmitDataSegmentLength"].result == 8192
    assert agreed["HeaderDigest"].target == "None"
    assert agreed["commands in flight"].target == 128


def test_a_daemon_that_does_not_answer_hides_nothing_else_and_is_never_taken_for_absent(
    tgt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (device,) = targets.groups()
    hosttree.put(tgt / "bin/tgtadm", "#!/bin/sh\nexit 1")
    assert not facts().tpgs and facts().sessions
    with pytest.raises(FabtuneError, match="tgtadm"):
        Locator("")(device)


@pytest.fixture
def short(tgt: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path of a socket that is short enough to listen on, with the real question whether anybody does."""
    monkeypatch.undo()
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "tgt").symlink_to(tgt)
        monkeypatch.setattr("fabtune.host.targets.tgt._socket", lambda: Path(place) / "socket.0")
        monkeypatch.setenv("PATH", f"{tgt}/bin", prepend=":")
        yield Path(place) / "socket.0"


def test_a_daemon_with_a_full_queue_is_waited_for_once(short: Path) -> None:
    with socket.socket(socket.AF_UNIX) as daemon, socket.socket(socket.AF_UNIX) as other:
        daemon.bind(str(short))
        daemon.listen(0)
        other.connect(str(short))
        before = time.monotonic()
        for _ in range(4):
            assert targets.groups() == [] and targets.tpgs() == []
        # Asked each time it would be eight seconds.
        assert 0.5 < time.monotonic() - before < 7
        with pytest.raises(FabtuneError, match="tgtd does not answer within 1 s"):
            targets.devices("tgt-target")
        lacking = targets.named("tgt").lacking()
        assert lacking is not None and "cannot be asked" in lacking[0]


def test_a_daemon_that_takes_a_question_and_gives_no_answer_is_asked_once(
    tgt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabtune.host.targets.tgt._SHOW_S", 1)
    hosttree.put(tgt / "bin/tgtadm", "#!/bin/sh\nexec sleep 60")
    asked, really = list[str](), tools.run_tool

    def run_tool(program: str, *words: str, **more: Any) -> Ended:
        asked.append(program)
        return really(program, *words, **more)

    monkeypatch.setattr(tools, "run_tool", run_tool)
    for _ in range(3):
        assert targets.groups() == [] and targets.tpgs() == []
    assert asked == ["tgtadm"]
    with pytest.raises(FabtuneError, match="tgtadm .*: no answer within 1 s"):
        targets.devices("tgt-target")


def test_a_daemon_that_gave_no_answer_is_asked_again_by_whoever_goes_on_looking(
    tgt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, asked = [1000.0], list[str]()
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])

    def run_tool(program: str, *_: object, **__: object) -> None:
        asked.append(program)
        raise FabtuneError("tgtadm: no answer within 5 s")

    with monkeypatch.context() as mute:
        mute.setattr(tools, "run_tool", run_tool)
        for _ in range(3):
            assert targets.groups() == []
        now_s[0] += 59
        assert targets.groups() == [] and asked == ["tgtadm"]
    now_s[0] += 2
    assert len(targets.groups()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_a_daemon_that_this_user_may_not_ask_is_no_traceback(host: Path) -> None:
    (host / "run/tgtd").mkdir(parents=True)
    (host / "run/tgtd").chmod(0)
    assert targets.groups() == []
    with pytest.raises(FabtuneError, match="tgtd cannot be asked: Permission denied"):
        targets.devices("tgt-target")
    (host / "run/tgtd").chmod(0o700)


def test_only_what_writes_keeps_the_journals_lock(tgt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (device,) = targets.groups()
    with (tgt / "lock").open("w") as lock:
        monkeypatch.setattr(tools, "held", [lock.fileno()])
        script = (
            (tgt / "bin/tgtadm")
            .read_text()
            .replace('"$*" >> asked', '"$* $(ls /proc/$$/fd)" | tr "\\n" " " >> asked; echo >> asked')
        )
        hosttree.put(tgt / "bin/tgtadm", script)
        (tgt / "asked").unlink()
        backend = backends.get("attribute")
        backend.write(device, "MaxBurstLength", "1048576")
        backend.read(device, "MaxBurstLength")
        kept = [
            (line.split()[3], str(lock.fileno()) in line.split()) for line in (tgt / "asked").read_text().splitlines()
        ]
    assert kept == [("update", True), ("show", False)]


def test_the_page_of_targets_is_what_the_vocabulary_says() -> None:
    top = Path(__file__).parents[2]
    done = subprocess.run([top / "tests/bench/target_kinds.py", "--check"], check=False)
    assert done.returncode == 0, "run: tests/bench/target_kinds.py"


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({"target": "scst"}, "expected one of lio, tgt"),
        ({"target": "tgt", "sessions": "2"}, "target = tgt takes only the default of sessions"),
        ({"target": "tgt", "fabric": "srp"}, "target with fabric = srp: it is only for iscsi"),
    ],
)
def test_an_experiment_is_refused_what_its_target_cannot_be(texts: dict[str, str], why: str) -> None:
    with pytest.raises(InputError, match=why):
        check_settings(parse_settings(texts, "test"), "test")


def test_an_experiment_with_tgt_boots_the_image_that_has_it() -> None:
    check_settings(parse_settings({"target": "tgt", "target_rate": "100"}, "test"), "test")
    assert (image_for("lio"), image_for("tgt")) == (SUITES[0], f"{SUITES[0]}+tgt")
    assert recipe_for(image_for("tgt")).packages == (*recipe_for(SUITES[0]).packages, "tgt")
    assert set(IMAGES) >= {*SUITES, f"{SUITES[0]}+tgt"}
