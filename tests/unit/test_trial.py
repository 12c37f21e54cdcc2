# SPDX-License-Identifier: GPL-2.0-or-later
"""Steps on trial: one `fabtune tune` at a time, and what one that was killed has left is told from what stays."""

import fcntl
import json
from collections.abc import Iterator
from pathlib import Path

import hosttree
import pytest

from fabtune.cli.main import main
from fabtune.errors import ExitCode, FabtuneError
from fabtune.host import tree
from fabtune.tune import again, journal, trial
from fabtune.tune.carry_out import carry_out
from fabtune.tune.pending import Leave
from fabtune.tune.request import request
from fabtune.tune.unconfirmed import on_trial

_PROFILE = """
summary = "a sysctl"
[initiator."tcp.mtu_probing"]
value = 1
why = "a test"
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without systemd."""
    root = hosttree.make(tmp_path / "root")
    hosttree.enter(root, monkeypatch)
    (tmp_path / "mine.toml").write_text(_PROFILE)
    return root


@pytest.fixture
def step(host: Path) -> str:
    """A step that a tune has written and not judged: its transaction."""
    asked = request(str(host.parent / "mine.toml"), "initiator", "", "40ms", "1gbit", ())
    _, done = carry_out(asked, persist=False, leave=Leave(), on_trial=True, progress=lambda _: None)
    return done.transaction


@pytest.fixture
def other_tune(host: Path) -> Iterator[None]:
    """Another tune, process 7, is at work."""
    (host / "state").mkdir(mode=0o700, exist_ok=True)
    with (host / "state/tuning").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("7")
        lock.flush()
        yield


def states() -> list[str]:
    return [one.state for one in journal.transactions()]


def test_what_a_killed_tune_left_is_named_with_what_takes_it_back(
    step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert states() == ["on trial"]
    capsys.readouterr()
    assert main(["verify", "--json"]) == ExitCode.NEEDS_ACTION
    (told,) = [one for one in json.loads(capsys.readouterr().out)["remarks"] if one["found"] == "on trial"]
    assert (
        f"`fabtune revert --transaction {step}`" in told["note"]
        and f"`fabtune confirm --transaction {step}`" in told["note"]
    )
    assert main(["revert", "--transaction", step]) == ExitCode.DONE
    assert states() == ["taken back"] and main(["verify"]) == ExitCode.DONE


@pytest.mark.usefixtures("other_tune")
def test_what_a_tune_at_work_tries_is_said_to_be_under_way(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["verify"]) == ExitCode.NEEDS_ACTION
    said = " ".join(capsys.readouterr().out.split())
    assert "process 7" in said and f"revert --transaction {step}" not in said


def test_what_is_kept_is_no_longer_on_trial(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    # A word for what waits to be confirmed is none for what is being looked at.
    assert main(["confirm"]) == ExitCode.FAILED
    assert main(["confirm", "--transaction", step]) == ExitCode.DONE
    assert states() == ["in force"] and main(["verify"]) == ExitCode.DONE


@pytest.mark.usefixtures("step")
def test_what_is_on_trial_is_not_written_again_after_a_boot(host: Path) -> None:
    hosttree.put(host / "proc/sys/net/ipv4/tcp_mtu_probing", "0")
    assert again.write_again(lambda _: None).results == []
    assert len(on_trial(journal.transactions())) == 1


def test_a_second_tune_is_told_of_the_first_and_others_may_write_meanwhile(host: Path) -> None:
    # Nor need it wait for what the first one writes to be told of it.
    with trial.alone(), journal.locked(), pytest.raises(FabtuneError, match="another `fabtune tune`"), trial.alone():
        pass
    with trial.alone():
        assert trial.other_tune().startswith("another `fabtune tune` (process ")
        with pytest.raises(FabtuneError, match=r"another `fabtune tune` \(process \d+\) .* wait for it"), trial.alone():
            pass
        words = ["--role", "initiator", "--rtt", "40ms", "--rate", "1gbit"]
        assert main(["apply", str(host.parent / "mine.toml"), *words]) == ExitCode.DONE
        assert main(["revert"]) == ExitCode.DONE
    assert trial.other_tune() == ""
    with trial.alone():
        pass


def test_a_tune_begins_with_nothing_on_trial(step: str) -> None:
    with pytest.raises(FabtuneError, match=f"`fabtune revert --transaction {step}` takes it back"), trial.alone():
        pass


def test_a_step_that_was_killed_while_it_was_written_is_named_and_no_tune_begins_before_it_is_back(
    step: str, host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed before it had its new connections: what it had written was looked at as what was there before."""
    (one,) = journal.transactions()
    one.path.write_text("".join(one.path.read_text().splitlines(keepends=True)[:-1]))
    assert tree.read_text(host / "proc/sys/net/ipv4/tcp_mtu_probing") == "1"
    with pytest.raises(FabtuneError, match=f"`fabtune revert --transaction {step}` takes them back"), trial.alone():
        pass
    capsys.readouterr()
    assert main(["verify", "--json"]) == ExitCode.NEEDS_ACTION
    (told,) = json.loads(capsys.readouterr().out)["remarks"]
    assert told["found"] == "interrupted" and "keeps it" not in told["note"]
    assert main(["confirm", "--transaction", step]) == ExitCode.FAILED
    assert f"it goes back by `fabtune revert --transaction {step}`" in capsys.readouterr().err
    assert main(["revert", "--transaction", step]) == ExitCode.DONE and main(["verify"]) == ExitCode.DONE
    with trial.alone():
        pass


@pytest.mark.usefixtures("other_tune")
def test_the_verb_is_refused_before_it_brings_a_load(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--yes"]) == ExitCode.FAILED
    assert "another `fabtune tune` (process 7)" in capsys.readouterr().err
