# SPDX-License-Identifier: GPL-2.0-or-later
"""A target's host with a journal of its own, and a program in ssh's place: two tunes at once, and lost answers."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import hosttree
import pytest

from fabtune.autotune.tuned_ends import AwayTarget
from fabtune.errors import FabtuneError
from fabtune.host import run
from fabtune.host.run import finish
from fabtune.tune import far_end
from fabtune.tune.far_end import FarEnd

HOST = "target.example"
_VALUE = "proc/sys/net/ipv4/tcp_mtu_probing"
_PROFILE = """
summary = "one sysctl"
[target."tcp.mtu_probing"]
value = 1
why = "a test"
"""
_ONLY = frozenset({"tcp.mtu_probing"})
_PATH = ("--rtt", "40ms", "--rate", "1gbit")
_SOURCES = Path(run.__file__).parents[2]


class There:
    """The other host."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.root = hosttree.make(directory / "root", tpgs=1)
        self.profile = directory / "mine.toml"
        self.profile.write_text(_PROFILE)
        # What happens on the way, before and after a command runs there.
        self.before, self.after = directory / "before", directory / "after"
        self._program("ssh", 'for words; do :; done\nexport WORDS="$words"')
        self._program("fabtune", f'exec {sys.executable} -m fabtune "$@"')
        with (directory / "bin/ssh").open("a") as ssh:
            ssh.write(
                f"export FABTUNE_ROOT={self.root} PYTHONPATH={_SOURCES}\n"
                f'unset FABTUNE_STATE_DIR\n. {self.before}\nsh -c "$words"\nstatus=$?\n. {self.after}\nexit $status\n'
            )
        self.goes_well()

    def _program(self, name: str, text: str) -> None:
        hosttree.put(self.directory / "bin" / name, f"#!/bin/sh\n{text}")
        (self.directory / "bin" / name).chmod(0o755)

    def goes_well(self) -> None:
        """Let nothing happen on the way."""
        self.before.write_text("")
        self.after.write_text("")

    def fabtune(self, *words: str) -> str:
        """Run fabtune there and return what it prints."""
        done = finish([self.directory / "bin/ssh", HOST, " ".join(("fabtune", *words))])
        assert done.status in (0, 4), done.stderr
        return done.stdout

    @property
    def value(self) -> str:
        return (self.root / _VALUE).read_text().strip()

    @property
    def states(self) -> list[str]:
        """The state of each transaction there."""
        return [one["state"] for one in json.loads(self.fabtune("history", "--json"))]


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[There]:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
    found = There(tmp_path)
    yield found
    # Who watches there ends with the last that waits.
    found.goes_well()
    found.fabtune("revert")


def step(far: FarEnd, there: There) -> str:
    """Write the one value there."""
    name, _ = far.apply(far.plan(str(there.profile), _ONLY, _PATH, (), estimated=False), 60)
    return name


def test_a_step_of_another_initiator_is_left_alone(there: There) -> None:
    ours, theirs = FarEnd(HOST), FarEnd(HOST)
    plan = theirs.plan(str(there.profile), _ONLY, _PATH, (), estimated=False)
    name = step(ours, there)
    with pytest.raises(FabtuneError, match="has changed"):
        theirs.apply(plan, 60)
    theirs.take_back()
    assert there.states == ["unconfirmed"] and there.value == "1"
    ours.confirm(name)
    assert there.states == ["in force"]


def test_a_step_of_another_initiator_is_waited_for_until_it_is_decided(
    there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far_end, "_ASKED_EVERY_S", 0.0)
    ours, theirs, said = FarEnd(HOST), FarEnd(HOST), list[str]()
    name = step(theirs, there)

    def decided(text: str) -> None:
        said.append(text)
        assert ours.others() == {name: "unconfirmed"} and theirs.others() == {}
        theirs.confirm(name)

    ours.wait_for_others(decided)
    assert len(said) == 1 and f"{name} (from " in said[0] and ours.others() == {name: "in force"}


def test_what_is_written_there_by_somebody_else_meanwhile_is_not_confirmed_for_him(there: There) -> None:
    far = FarEnd(HOST)
    name = step(far, there)
    there.fabtune("revert")
    there.fabtune("apply", str(there.profile), "--role", "target", *_PATH, "--confirm-within", "60s")
    with pytest.raises(FabtuneError, match=f"{name} does not wait to be confirmed: it is taken back"):
        far.confirm(name)
    assert there.states == ["taken back", "unconfirmed"]


def test_one_of_two_that_wait_is_confirmed_and_the_other_goes_on_waiting(there: There) -> None:
    name = step(FarEnd(HOST), there)
    with pytest.raises(FabtuneError, match=r"20260101T000000Z-000: not in the journal"):
        FarEnd(HOST).confirm("20260101T000000Z-000")
    assert there.states == ["unconfirmed"]
    FarEnd(HOST).confirm(name)
    assert there.states == ["in force"]


def answer_is_lost(far: FarEnd, there: There) -> None:
    """Write a step there that this end hears nothing of."""
    plan = far.plan(str(there.profile), _ONLY, _PATH, (), estimated=False)
    there.after.write_text("status=255")
    with pytest.raises(FabtuneError, match="not reached by ssh"):
        far.apply(plan, 60)
    there.goes_well()


def test_a_step_whose_answer_was_lost_goes_back_by_its_mark(there: There) -> None:
    far = FarEnd(HOST)
    answer_is_lost(far, there)
    assert there.value == "1"
    assert far.given_back("", 60, perhaps_kept=False) == ""
    assert there.value == "0" and there.states == ["taken back"]


def test_an_apply_that_is_still_to_write_there_is_not_said_to_be_back(there: There) -> None:
    """What is lost on the way may be under way yet; an earlier step of this end says nothing of it."""
    far = FarEnd(HOST)
    far.take_back(step(far, there))
    plan = far.plan(str(there.profile), _ONLY, _PATH, (), estimated=False)
    # It is held up there, with all that it is to write.
    there.before.write_text(f"cat > {there.directory}/late\nexit 255")
    with pytest.raises(FabtuneError, match="not reached by ssh"):
        far.apply(plan, 60)
    there.goes_well()
    assert "what may still be goes back by itself within 60 s" in far.given_back("", 60, perhaps_kept=False)
    assert there.states == ["taken back"]


def test_one_that_is_being_written_there_is_taken_back(there: There) -> None:
    far = FarEnd(HOST)
    answer_is_lost(far, there)
    # As it is before its limit is written.
    (journal,) = (there.root / "var/lib/fabtune/journal").glob("*.jsonl")
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(one for one in lines if '"unconfirmed"' not in one and '"applied"' not in one))
    assert there.states == ["interrupted"] and there.value == "1"
    assert far.given_back("", 60, perhaps_kept=False) == ""
    assert there.states == ["taken back"] and there.value == "0"


def test_what_a_tune_tries_there_is_a_step_in_the_journal_there_too(there: There) -> None:
    """That host's guard took it for an apply for all of its initiators."""
    far = FarEnd(HOST)
    plan = far.plan(str(there.profile), _ONLY, _PATH, (), estimated=False)
    far.confirm(AwayTarget(far).write(plan, 60, (), lambda text: None).transaction)
    (journal,) = (there.root / "var/lib/fabtune/journal").glob("*.jsonl")
    assert json.loads(journal.read_text().splitlines()[0])["on_trial"] is True and there.states == ["in force"]


def test_what_was_refused_there_was_not_written(there: There) -> None:
    """Connections were made anew for it, and the table of steps had it."""
    far = FarEnd(HOST)
    plan = far.plan(str(there.profile), _ONLY, _PATH, (), estimated=False)
    wrote = AwayTarget(far).write(plan, 60, (), lambda text: None)
    assert [(row.tunable.name, row.now, row.wanted) for row in wrote.rows] == [("tcp.mtu_probing", "0", "1")]
    far.take_back(wrote.transaction)
    answer = json.dumps({"transaction": "a", "written": [], "refused": [{"tunable": "tcp.mtu_probing"}]})
    there.before.write_text(f"cat > /dev/null\necho '{answer}'\nexit 0")
    refused = AwayTarget(far).write(plan, 60, (), lambda text: None)
    assert (refused.transaction, refused.rows) == ("a", [])


def test_a_shell_that_greets_everybody_is_no_hindrance(there: There) -> None:
    there.before.write_text("echo '{Welcome} [to this host]'")
    name = step(FarEnd(HOST), there)
    assert there.value == "1"
    FarEnd(HOST).take_back(name)
    assert there.value == "0"


def test_a_value_that_somebody_has_set_there_since_is_not_said_to_go_back_by_itself(there: There) -> None:
    far = FarEnd(HOST)
    name = step(far, there)
    (there.root / _VALUE).write_text("2\n")
    left = far.given_back(name, 60, perhaps_kept=False)
    assert "changed by somebody else" in left and "by itself" not in left
    assert f"`fabtune revert --transaction {name}` there takes it back, with --force" in left
    (there.root / _VALUE).write_text("1\n")


@pytest.mark.parametrize(("perhaps_kept", "said"), [(False, "goes back by itself within 60 s"), (True, "is not known")])
def test_a_host_that_is_lost_is_promised_nothing_that_a_confirmation_may_have_undone(
    there: There, perhaps_kept: bool, said: str
) -> None:
    far = FarEnd(HOST)
    name = step(far, there)
    there.before.write_text("exit 255")
    left = far.given_back(name, 60, perhaps_kept)
    assert said in left and ("by itself" in left) is not perhaps_kept


def test_a_host_that_says_nothing_more_is_lost(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_end, "_LONGEST_S", 0.2)
    there.before.write_text("exec sleep 60")
    assert "had not ended after 0.2 s; what was written there goes back" in FarEnd(HOST).given_back("a", 60, False)
