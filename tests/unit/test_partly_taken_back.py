# SPDX-License-Identifier: GPL-2.0-or-later
"""A revert that was begun: whatever it leaves, or whoever cuts it short, what it was to take back stays taken back."""

import signal
from pathlib import Path

import hosttree
import pytest
from processes import in_child

from fabtune.cli.main import main
from fabtune.guard.rounds import Guard
from fabtune.host import tree
from fabtune.tune import journal
from fabtune.tune.journal import Writer
from fabtune.tune.lines import Line, RevertingLine

_IDLE, _BACKLOG = "net/ipv4/tcp_slow_start_after_idle", "net/core/netdev_max_backlog"
_PROFILE = """
summary = "two sysctls"
[initiator."tcp.slow_start_after_idle"]
value = false
why = "a test"
[initiator."net.netdev_max_backlog"]
value = 4321
why = "a test"
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the tree of a host on which the profile was applied."""
    root = hosttree.make(tmp_path / "root", 1)
    hosttree.enter(root, monkeypatch)
    monkeypatch.setenv("FABTUNE_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "two.toml").write_text(_PROFILE)
    apply(root)
    return root


def apply(host: Path) -> int:
    path = ("--role", "initiator", "--rtt", "1ms", "--rate", "1gbit")
    return main(["apply", str(host.parent / "two.toml"), *path])


def values(host: Path) -> tuple[str | None, str | None]:
    return tree.read_text(host / "proc/sys" / _IDLE), tree.read_text(host / "proc/sys" / _BACKLOG)


def put(host: Path, name: str, value: str) -> None:
    hosttree.put(host / "proc/sys" / name, value)


def boots(host: Path) -> None:
    """Have the kernel's own values, as a boot does."""
    hosttree.put(host / "proc/sys/kernel/random/boot_id", "99999999-2222-3333-4444-555555555555")
    put(host, _IDLE, "1")
    put(host, _BACKLOG, "1000")


def state() -> str:
    (one,) = journal.transactions()
    return one.state


def reverted_in_part(host: Path) -> None:
    """Take all back but one value, which somebody has set since."""
    put(host, _BACKLOG, "2000")
    assert main(["revert"]) == 3
    assert values(host) == ("1", "2000")


def test_what_was_left_to_somebody_is_not_written_at_the_next_boot(host: Path) -> None:
    reverted_in_part(host)
    boots(host)
    main(["apply", "--again"])
    assert values(host) == ("1", "1000")


def test_guard_does_not_hold_what_was_left_to_somebody(host: Path) -> None:
    reverted_in_part(host)
    put(host, _BACKLOG, "1000")
    Guard(heal=True).look(print)
    assert values(host) == ("1", "1000")


def test_history_and_verify_say_that_it_was_taken_back_in_part(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reverted_in_part(host)
    assert state() == "partly taken back"
    assert main(["verify"]) == 3
    # Somebody gives it the old value himself: the journal still owes an end.
    put(host, _BACKLOG, "1000")
    capsys.readouterr()
    assert main(["verify"]) == 3
    (name,) = [one.name for one in journal.transactions()]
    said = " ".join(capsys.readouterr().out.split())
    assert f"`fabtune revert --transaction {name}` goes on" in said
    assert "was given back, by a revert that could not journal it or by hand" in said
    assert said.endswith("1 value checked, 1 differ, 1 partly taken back")
    assert main(["revert"]) == 0
    assert state() == "taken back"
    assert main(["verify"]) == 0


def test_an_apply_after_it_is_in_force_whatever_it_found_as_wanted(host: Path) -> None:
    reverted_in_part(host)
    put(host, _BACKLOG, "4321")
    assert apply(host) == 0
    first, second = journal.transactions()
    assert (first.state, second.state) == ("partly taken back", "in force")
    # Until then two of them answer for one value, which verify says.
    assert main(["verify"]) == 4
    assert main(["revert", "--transaction", first.name]) == 0
    assert main(["verify"]) == 0 and values(host) == ("0", "4321")
    boots(host)
    main(["apply", "--again"])
    assert values(host) == ("0", "4321")


def test_a_power_cut_at_any_step_of_a_revert_leaves_nothing_for_the_boot_to_write(host: Path) -> None:
    """Before the first value goes back nothing was taken back, and all may stay in force."""
    cut = 1
    while in_child(lambda: main(["revert"]), f"kill:{cut}") == -signal.SIGKILL:
        begun = values(host) != ("0", "4321")
        boots(host)
        main(["apply", "--again"])
        assert values(host) == ("1", "1000") or not begun, cut
        main(["revert"])
        apply(host)
        assert values(host) == ("0", "4321")
        cut += 1
    assert cut > 4


def full(writer: Writer, line: Line) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_keeps_no_value_from_going_back_and_that_it_was_not_journalled_is_said(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as disk:
        disk.setattr(Writer, "append", full)
        assert main(["revert"]) == 1
    assert values(host) == ("1", "1000")
    said = " ".join("".join(capsys.readouterr()).split())
    assert "No space left on device; values go back all the same" in said
    assert "would write them again" in said
    assert main(["revert"]) == 0 and state() == "taken back"


def test_a_disk_that_is_full_after_the_first_line_has_what_counts(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Writer.append

    def full_then(writer: Writer, line: Line) -> None:
        append(writer, line) if isinstance(line, RevertingLine) else full(writer, line)

    with monkeypatch.context() as disk:
        disk.setattr(Writer, "append", full_then)
        assert main(["revert"]) == 1
    assert values(host) == ("1", "1000") and state() == "partly taken back"
    main(["apply", "--again"])
    assert values(host) == ("1", "1000")


def test_what_a_revert_was_begun_of_is_not_confirmed(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main(["revert"])
    monkeypatch.setattr("fabtune.tune.armed.arm", lambda name: None)
    monkeypatch.setattr("fabtune.tune.confirm.require_way_back", lambda *words: None)
    path = ("--role", "initiator", "--rtt", "1ms", "--rate", "1gbit", "--confirm-within", "3600s")
    assert main(["apply", str(host.parent / "two.toml"), *path]) in (0, 4)
    put(host, _BACKLOG, "2000")
    assert main(["revert"]) == 3
    assert main(["confirm"]) == 1
    # What waits for its time goes back by itself, too.
    assert journal.transactions()[-1].state == "unconfirmed"


def test_a_journal_without_the_line_says_what_it_did(host: Path) -> None:
    """An older fabtune wrote none; what it left open of a revert was in force."""
    reverted_in_part(host)
    (one,) = journal.transactions()
    kept = [line for line in one.path.read_text().splitlines(keepends=True) if '"reverting"' not in line]
    one.path.write_text("".join(kept))
    assert state() == "in force"
