# SPDX-License-Identifier: GPL-2.0-or-later
"""A target on another host: which fabtune is there, what it wrote, and that a step goes back at both ends."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from fabtune import __version__
from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.tune.far_end import FarEnd

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
    """What `fabtune history --json` prints, behind a banner."""
    text = json.dumps([{"transaction": name, "state": state} for name, state in states.items()], indent=2)
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
        (f"*--version) echo fabtune {__version__};;\n*) {history(b='unconfirmed')};;", "b waits to be confirmed there"),
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
