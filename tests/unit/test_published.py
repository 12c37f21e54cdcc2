# SPDX-License-Identifier: GPL-2.0-or-later
"""What `verify --publish` has told the metrics is told anew by whatever changes it, and is never a part of it."""

import json
import os
from pathlib import Path

import hosttree
import pytest

from fabtune.cli.main import main
from fabtune.errors import ExitCode, FabtuneError
from fabtune.export import verified
from fabtune.host import files, tree
from fabtune.tune import journal

_PROFILE = 'summary = "s"\n[initiator."block.rq_affinity"]\nvalue = 2\nwhy = "t"\n'
_VALUE = "sys/block/sd1/queue/rq_affinity"
_PATH = ("--rtt", "1ms", "--rate", "1gbit")
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the tree of a host on which a profile of one value was applied, with nothing published."""
    root = hosttree.make(tmp_path / "root", 1)
    hosttree.enter(root, monkeypatch)
    hosttree.put(root / _VALUE, "1")
    (tmp_path / "one.toml").write_text(_PROFILE)
    assert main(_apply(root)) == ExitCode.DONE
    return root


def _apply(root: Path) -> list[str]:
    return ["apply", str(root.parent / "one.toml"), "--role", "initiator", *_PATH]


def _published() -> Path:
    return tree.ROOT / "run/fabtune/verify.json"


def _drifted() -> dict[str, int]:
    found: dict[str, int] = json.loads(_published().read_text())["drifted"]
    return found


def _drift(root: Path) -> None:
    """Have somebody change the value, and the metrics know."""
    hosttree.put(root / _VALUE, "0")
    assert main(["verify", "--publish"]) == ExitCode.DRIFT
    assert _drifted() == {"block.rq_affinity": 1}


def test_a_look_that_finds_all_put_right_is_told_the_metrics(host: Path) -> None:
    """The alert went on for a day beside a verify that found nothing."""
    _drift(host)
    hosttree.put(host / _VALUE, "2")
    # Of a part of it nothing is told.
    assert main(["verify", "--role", "initiator"]) == ExitCode.DONE
    assert main(["verify", str(host.parent / "one.toml"), "--role", "initiator", *_PATH]) == ExitCode.DONE
    assert _drifted()
    assert main(["verify"]) == ExitCode.DONE
    assert not _drifted()


def test_what_is_taken_back_is_told_the_metrics(host: Path) -> None:
    _drift(host)
    assert main(["revert", "--dry-run"]) == ExitCode.DONE
    assert _drifted()
    # What is somebody's own by now stays, and is told as verify tells it.
    assert main(["revert"]) == ExitCode.DRIFT
    assert _drifted() and main(["verify"]) == ExitCode.DRIFT
    hosttree.put(host / _VALUE, "2")
    assert main(["revert"]) == ExitCode.DONE
    assert not _drifted()
    assert json.loads(_published().read_text())["checked"] == 0


def test_what_is_applied_is_told_the_metrics(host: Path) -> None:
    _drift(host)
    assert main([*_apply(host), "--dry-run"]) == ExitCode.DONE
    assert _drifted()
    assert main(_apply(host)) == ExitCode.DONE
    assert not _drifted()


def test_what_is_written_again_is_told_the_metrics(host: Path) -> None:
    hosttree.put(host / "proc/sys/kernel/random/boot_id", "00000002-2222-3333-4444-555555555555")
    hosttree.put(host / _VALUE, "1")
    assert main(["verify", "--publish"]) == ExitCode.DRIFT
    assert main(["apply", "--again"]) == ExitCode.DONE
    assert not _drifted()


@pytest.mark.parametrize("words", [("confirm",), ("revert", "--unconfirmed", "once"), ("revert", "--unconfirmed")])
def test_what_is_confirmed_or_taken_back_in_its_place_is_told_the_metrics(host: Path, words: tuple[str, ...]) -> None:
    _drift(host)
    hosttree.put(host / _VALUE, "2")
    main(list(words))
    assert not _drifted()


def test_where_nothing_was_published_nothing_is(host: Path) -> None:
    """Nobody asked for it, and what is not renewed daily would only grow old."""
    assert main(["verify"]) == main(_apply(host)) == main(["apply", "--again"]) == main(["revert"]) == ExitCode.DONE
    assert not _published().exists()


@pytest.mark.parametrize("error", [FabtuneError("no look"), OSError(28, "full"), KeyboardInterrupt()])
@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_what_is_done_is_done_whatever_becomes_of_the_metrics(
    host: Path, verb: str, error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    _drift(host)
    told = _published().read_text()

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(*((files, "keep") if isinstance(error, OSError) else (verified, "verify")), fails)
    capsys.readouterr()
    assert main([*_apply(host), "--json"] if verb == "apply" else ["revert", "--force", "--json"]) == ExitCode.DONE
    out, err = capsys.readouterr()
    assert json.loads(out) and "the metrics still show" in err
    assert (host / _VALUE).read_text().strip() == ("2" if verb == "apply" else "1")
    # What stands there was found then, and says when.
    assert _published().read_text() == told
    assert len(journal.transactions()) == (2 if verb == "apply" else 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_user_who_may_not_publish_looks_all_the_same(host: Path, capsys: Capture) -> None:
    _drift(host)
    _published().parent.chmod(0o500)
    assert main(["verify"]) == ExitCode.DRIFT
    assert "metrics" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [("one.toml",), ("--role", "both"), ("--netns", "blue")])
def test_no_part_is_published_as_the_whole(host: Path, words: tuple[str, ...], capsys: Capture) -> None:
    """A profile that was never applied was drift, and what --netns looks at was all there is."""
    assert main(["revert"]) == ExitCode.DONE
    given = [str(host.parent / words[0]), *_PATH] if words[0] == "one.toml" else list(words)
    assert main(["verify", *given, "--publish"]) == ExitCode.USAGE
    option = "PROFILE" if words[0] == "one.toml" else words[0]
    assert f"it cannot be combined with {option}" in capsys.readouterr().err
    assert not _published().exists()
