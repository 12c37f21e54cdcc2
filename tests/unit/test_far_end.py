# SPDX-License-Identifier: GPL-2.0-or-later
"""A target on another host: which fabtune is there, what it wrote, and that a step goes back at both ends."""

import json
import os
import shlex
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_step_limit import Clock

from fabtune import __version__
from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.tune import far_end
from fabtune.tune.far_end import FarEnd, RefusedThereError
from fabtune.tune.saved_plan import SavedPlan

HOST = "target.example"
Ssh = Callable[[str], Path]


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ssh:
    """A program in ssh's place that answers by a shell's `case`, and writes down what it was asked."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(cases: str) -> Path:
        asked = tmp_path / "asked"
        program = tmp_path / "ssh"
        program.write_text(
            f'#!/bin/sh\nfor words; do :; done\necho "$words" >> {asked}\ncase $words in\n{cases}\nesac\n'
        )
        program.chmod(0o755)
        return asked

    return make


def history(**states: str) -> str:
    """What `fabtune history --json` prints, behind a banner; whoever asked for it is `from` its name's host."""
    found = [{"transaction": name, "state": state, "note": f"from {name}.example"} for name, state in states.items()]
    text = json.dumps(found, indent=2)
    return "echo " + shlex.quote(f"Welcome.\n{text}")


def test_a_host_with_this_fabtune_and_nothing_open_will_do(ssh: Ssh) -> None:
    ssh(f"*--version) echo fabtune {__version__};;\n*history*) {history(a='in force')};;")
    FarEnd(HOST).check()


@pytest.mark.parametrize(
    ("cases", "said"),
    [
        ("*) echo Permission denied >&2; exit 255;;", "not reached by ssh: Permission denied"),
        ("*) echo sh: fabtune: not found >&2; exit 127;;", "no fabtune there"),
        ("*) echo fabtune 0.0.1;;", f"found fabtune 0.0.1, expected {__version__}"),
    ],
)
def test_a_host_that_will_not_do_is_said_before_anything_is_written(ssh: Ssh, cases: str, said: str) -> None:
    asked = ssh(cases)
    with pytest.raises(FabtuneError, match=said) as caught:
        FarEnd(HOST).check()
    assert HOST in str(caught.value) and caught.value.exit_code == ExitCode.FAILED
    assert "apply" not in asked.read_text()


def test_an_option_is_no_host() -> None:
    with pytest.raises(InputError, match="expected the name or address"):
        FarEnd("-oProxyCommand=x")


@pytest.mark.parametrize(
    ("state", "waits"), [("unconfirmed", True), ("taken back", False), ("in force", False), ("", False)]
)
def test_what_waits_there_to_be_confirmed_has_not_gone_back(ssh: Ssh, state: str, waits: bool) -> None:
    ssh(f"*history*) {history(**({'a': state} if state else {'b': 'unconfirmed'}))};;")
    assert FarEnd("target").waits("a") is waits


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of whoever waits for others: that of ssh goes on."""
    found = Clock()
    monkeypatch.setattr(far_end, "time", SimpleNamespace(monotonic=lambda: found.now_s, sleep=found.sleep))
    return found


def decided_after(tmp_path: Path, times: int) -> str:
    """A `case` in which host b's step waits to be confirmed so many times that somebody asks, and is kept then."""
    count = tmp_path / "times"
    waits, kept = history(b="unconfirmed"), history(b="in force")
    return f"*history*) echo >> {count}; [ $(wc -l < {count}) -le {times} ] && {{ {waits}; }} || {kept};;"


def test_what_another_host_has_not_decided_there_is_waited_for_and_said(ssh: Ssh, tmp_path: Path, clock: Clock) -> None:
    """Nothing waited: tune ended, and its advice was to decide the other host's step by hand."""
    asked, said = ssh(decided_after(tmp_path, 3)), list[str]()
    FarEnd(HOST).wait_for_others(said.append)
    assert said == [
        f"{HOST}: transaction b (from b.example) waits to be confirmed there: waiting, 600 s at most ...",
    ]
    assert clock.now_s == 15.0 and len(asked.read_text().splitlines()) == 4


def test_that_has_an_end_and_nothing_is_written_there(ssh: Ssh, clock: Clock) -> None:
    asked, said = ssh(f"*) {history(b='unconfirmed')};;"), list[str]()
    with pytest.raises(
        FabtuneError, match="b .from b.example. waits to be confirmed there, after 600 s still"
    ) as caught:
        FarEnd(HOST).wait_for_others(said.append)
    assert caught.value.exit_code == ExitCode.FAILED and HOST in str(caught.value)
    assert clock.now_s == 600.0 and len(said) == 1 and set(asked.read_text().splitlines()) == {"fabtune history --json"}
    assert "fabtune revert" not in str(caught.value) and "fabtune confirm" not in str(caught.value)


@pytest.mark.parametrize("while_asked", [True, False])
def test_ctrl_c_ends_the_waiting_at_once(ssh: Ssh, while_asked: bool) -> None:
    ssh("*) exec sleep 60;;" if while_asked else f"*) {history(b='unconfirmed')};;")
    # By then the first answer has come, where one does.
    timer = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        FarEnd(HOST).wait_for_others(lambda _: None)
    timer.join()
    assert time.monotonic() - began_s < 4.0


def test_others_are_those_whose_transactions_have_another_mark(ssh: Ssh) -> None:
    far = FarEnd(HOST)
    text = json.dumps(
        [{"transaction": "a", "state": "in force", "note": far._mark}, {"transaction": "b", "state": "x"}]
    )
    ssh(f"*) echo {shlex.quote(text)};;")
    assert far.others() == {"b": "x"}


def test_what_the_host_refuses_is_told_from_an_answer_that_is_lost(ssh: Ssh) -> None:
    plan = SavedPlan("", "", "", "", "", "wan", ("target",), (), "", None, {}, ())
    ssh("*) echo fabtune: transaction b waits to be confirmed >&2; exit 2;;")
    with pytest.raises(RefusedThereError, match="transaction b waits"):
        FarEnd(HOST).apply(plan, 60)
    ssh("*) exit 255;;")
    with pytest.raises(FabtuneError, match="not reached") as caught:
        FarEnd(HOST).apply(plan, 60)
    assert not isinstance(caught.value, RefusedThereError)
