# SPDX-License-Identifier: GPL-2.0-or-later
"""What a switch between profiles runs, on which end and in which order, and what it does not accept."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from fabtune.errors import ExitCode, FabtuneError
from fabtune.measure import recordfile
from fabtune.model.untouched import UNTOUCHED
from fabtune.tune import switch as switching
from fabtune.tune.switch import Ends, switch

LAUNCHER = Path(__file__).resolve().parents[2] / "userspace/bin/fabtune"
PATH = ["--rtt=50ms"]
OPTIONS = "-oBatchMode=yes -oConnectTimeout=10 -oServerAliveInterval=5"


@pytest.fixture
def fabtune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command in fabtune's place that notes its words, and says and returns what the test puts beside it."""
    command = tmp_path / "fabtune"
    command.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/log\n'
        f"cat {tmp_path}/says.$1 2>/dev/null || echo '{{\"pending\": []}}'\n"
        f"exit $(cat {tmp_path}/code.$1 2>/dev/null || echo 0)\n"
    )
    command.chmod(0o755)
    monkeypatch.setattr(switching, "_here", lambda: [str(command)])
    monkeypatch.setattr(switching, "_forget_paths", lambda ends: None)
    monkeypatch.setattr(switching, "live_sessions", list)
    return tmp_path


def log(directory: Path) -> list[str]:
    return (directory / "log").read_text().splitlines()


def test_the_target_is_switched_before_the_initiator_logs_in(fabtune: Path) -> None:
    switch("wan", Ends(target_netns="target"), PATH, [1])
    assert log(fabtune) == [
        "revert --role target --netns target",
        "apply wan --role target --netns target --rtt=50ms",
        "revert --role initiator",
        "apply wan --role initiator --rtt=50ms --allow-relogin --json",
    ]


def test_one_end_alone_is_switched_whatever_it_is(fabtune: Path) -> None:
    switch("wan", Ends(), PATH, [1])
    assert log(fabtune) == ["revert", "apply wan --rtt=50ms --allow-relogin --json"]


def test_untouched_is_taken_back_on_both_ends(fabtune: Path) -> None:
    switch(UNTOUCHED, Ends(target_netns="target"), PATH, [1])
    assert log(fabtune) == ["revert --role target --netns target", "revert --role initiator"]


def test_another_host_is_reached_by_ssh(fabtune: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = fabtune / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "ssh $*" >> {fabtune}/log\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fabtune}:/usr/bin:/bin")
    switch("wan", Ends(target_host="storage1"), PATH, [1])
    assert log(fabtune)[:2] == [
        f"ssh {OPTIONS} storage1 fabtune revert --role target",
        f"ssh {OPTIONS} storage1 fabtune apply wan --role target --rtt=50ms",
    ]


def test_the_targets_values_are_read_there(fabtune: Path) -> None:
    device = '{"label": "eth0"}'
    known = f'{{"tunable": "nic.mtu", "device": {device}, "value": "9000"}}'
    unknown = f'{{"tunable": "nic.x", "device": {device}, "value": null}}'
    (fabtune / "says.show").write_text(f'{{"readings": [{known}, {unknown}]}}')
    assert switching.target_values(Ends(target_netns="target")) == {"nic.mtu of eth0": "9000"}
    assert log(fabtune) == ["show --json --netns target"]
    assert switching.target_values(Ends()) == {}
    (fabtune / "code.show").write_text("1")
    with pytest.raises(FabtuneError, match="reading the target's values failed: .* show"):
        switching.target_values(Ends(target_netns="target"))


def test_in_a_namespace_of_this_host_what_is_the_initiator_s_is_none_of_the_target_s_values(fabtune: Path) -> None:
    """The initiator's own disk, node record and paced portal were listed as what differed at the target."""
    portal = {end: {"label": f"10.2.0.1:3260 as {end}", "identity": f"{end} 10.2.0.1:3260,netns:x"} for end in ENDS}
    said = [
        ("block.nr_requests", {"label": "sda", "identity": "naa.1"}),
        ("iscsi.first_burst", {"label": "target at 10.2.0.1:3260", "identity": "iqn.x"}),
        *(("connection.pacing", portal[end]) for end in ENDS),
        ("lio.first_burst", {"label": "target tpgt_1", "identity": "iqn.x,1"}),
        ("tcp.rmem_max", {"label": "netns target", "identity": "netns:target"}),
        ("of.a_later_fabtune", {"label": "x", "identity": "x"}),
    ]
    readings = [{"tunable": name, "device": device, "value": "1"} for name, device in said]
    (fabtune / "says.show").write_text(json.dumps({"readings": readings}))
    assert list(switching.target_values(Ends(target_netns="target"))) == [
        "connection.pacing of 10.2.0.1:3260 as target", "lio.first_burst of target tpgt_1",
        "tcp.rmem_max of netns target", "of.a_later_fabtune of x",
    ]  # fmt: skip


ENDS = ("initiator", "target")


def interrupting(directory: Path, times: int, then_s: int) -> Ends:
    """A command that sends its caller SIGINT so many times, a second apart, and notes it when it comes to its end."""
    command = directory / "slow"
    command.write_text(
        f"#!/bin/sh\nfor i in $(seq {times}); do kill -INT $PPID; sleep 1; done\n"
        f"sleep {then_s}\necho $1 > {directory}/ended\n"
    )
    command.chmod(0o755)
    return Ends(command=str(command))


def test_ctrl_c_lets_a_switch_end_before_it_counts(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        switch("wan", interrupting(tmp_path, 1, 0), PATH, [1])
    assert (tmp_path / "ended").read_text() == "wan\n"


def test_a_second_ctrl_c_ends_a_switch_at_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        switch("wan", interrupting(tmp_path, 2, 60), PATH, [1])
    assert not (tmp_path / "ended").exists()


@pytest.mark.parametrize(
    ("action", "accepted"), [("target-relogin", True), ("relogin", False), ("reload", False), ("reboot", False)]
)
def test_a_profile_that_is_not_felt_yet_is_no_profile_in_force(fabtune: Path, action: str, accepted: bool) -> None:
    """A target's initiators log in again by the switch itself; anything else due means measuring something else."""
    pending = f'{{"pending": [{{"action": "{action}", "label": "sda", "reason": "in use"}}]}}'
    (fabtune / "says.apply").write_text(pending)
    (fabtune / "code.apply").write_text("4")
    if accepted:
        switch("wan", Ends(), PATH, [1])
        return
    with pytest.raises(FabtuneError, match=f"'wan' is applied but not in force: {action} of sda in use"):
        switch("wan", Ends(), PATH, [1])


def test_values_that_somebody_else_changed_end_the_switch(fabtune: Path) -> None:
    (fabtune / "code.revert").write_text("3")
    (fabtune / "says.revert").write_text("tcp.rmem_max is somebody else's now")
    with pytest.raises(FabtuneError, match="switching to 'wan' failed: .* revert: tcp.rmem_max is somebody"):
        switch("wan", Ends(), PATH, [1])
    assert log(fabtune) == ["revert"]


BANNER = "Welcome to storage1\n"


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (BANNER, "storage1: no JSON in what it printed: Welcome to storage1"),
        ("{}", "storage1: key 'readings' is missing"),
        ('{"readings": [{"tunable": 5}]}', r"storage1: .*readings\[0\]"),
    ],
)
def test_what_another_host_says_is_looked_at_before_it_is_used(
    fabtune: Path, monkeypatch: pytest.MonkeyPatch, said: str, wrong: str
) -> None:
    monkeypatch.setattr(switching, "_there", lambda ends: switching._here())
    (fabtune / "says.show").write_text(said)
    with pytest.raises(FabtuneError, match=wrong):
        switching.target_values(Ends(target_host="storage1"))


def test_a_banner_before_what_another_host_says_is_none_of_it(fabtune: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "_there", lambda ends: switching._here())
    (fabtune / "says.show").write_text(f'{BANNER}{{\n"readings": []}}')
    assert switching.target_values(Ends(target_host="storage1")) == {}


def test_ab_goes_from_switch_to_switch_with_the_launcher_alone_and_beside_hostile_names(tmp_path: Path) -> None:
    for name in ("json", "fabtune", "argparse"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken in')\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"FABTUNE_ROOT": str(tmp_path / "root"), "FABTUNE_STATE_DIR": str(tmp_path / "state")}
    (tmp_path / "root").mkdir()
    # O_DIRECT works there: pytest's own directory may be on a tmpfs.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        words = ["ab", UNTOUCHED, UNTOUCHED, "xdd", "--on", place, "--pairs=2", "--calibrate=0", "--settle=0s",
                 "--set=total_bytes=1m", "--out", str(tmp_path / "runs"), "--json"]  # fmt: skip
        done = subprocess.run(
            [LAUNCHER, *words], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
        )
    # Two pairs are too few for a verdict.
    assert done.returncode == ExitCode.CANNOT_TELL, done.stderr
    assert len(list(recordfile.find(tmp_path / "runs"))) == 4
