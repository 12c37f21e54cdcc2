# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers that no clock, port or guest has, and Ctrl-C before or after a verb: no traceback, a range is named."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fabtune.cli import main as cli
from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.measure import beat

TOP = Path(__file__).resolve().parents[2]
AT = "expected seconds from 0 to 4294967295"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        *((f"measure xdd --on /tmp --at {at}", AT) for at in ("inf", "nan", "9999999999999", "-5", "soon")),
        *((f"why --at {at}", AT) for at in ("inf", "nan", "1e13")),
        ("measure xdd --on /tmp --at 5", "s ago by this host's clock; expected an instant to come"),
        *(
            (f"measure net --peer localhost --port {port}", "expected a whole number from 1 to 65535")
            for port in ("99999999999999999999", "9" * 5000, "0", "-1", "1.5")
        ),
        *((f"lab run --timeout-s {limit} x", "expected seconds from 1 to 1000000") for limit in ("nan", "inf", "0")),
        ("lab run --smp 0 x", "expected a whole number from 1 to 255"),
        ("lab run --memory-mib 3 x", "expected a whole number from 256 to 32768"),
        (f"lab run --seed {2**64} x", "expected a whole number from 0 to"),
        ("ab a b xdd --on /tmp --seed -1", "expected a whole number from 0 to"),
        ("ab a b xdd --on /tmp --settle 1000000000000s", "--settle 1000000000000s: expected 0s to 86400s"),
        ("measure xdd --on /tmp --runtime 0", "--runtime 0: expected more than 0s, at most 1000000s"),
        ("measure xdd --on /tmp --ramp 5", "--ramp 5: expected 0s to 1000000s"),
        ("why --for 0", "--for 0: expected 1s to 3600s"),
        ("guard --for 0", "--for 0: expected 1ms to 10000000s"),
        ("apply wan --confirm-within 0", "--confirm-within 0: expected 5s to 86400s"),
        ("ab a b xdd --on /tmp --pairs -2", "--pairs -2: expected 2 or more"),
        ("ab a b xdd --on /tmp --pairs 0", "--pairs 0: expected 2 or more"),
        ("ab a b xdd --on /tmp --calibrate -2", "--calibrate -2: expected 0 or more"),
        ("ab a b xdd --on /tmp --pairs 3", "--pairs 3: expected an even number"),
        ("lab run", "the following arguments are required: SCRIPT;"),
        ("plan wan --rtt 50ms --rate 1gbit --set io_size=0", "fabtune: --set io_size=0: expected above 0: "),
        *(
            (f"plan short-queue --rtt 5ms --rate 1gbit --set {one}=0", f"fabtune: --set {one}=0: expected above 0: ")
            for one in ("streams", "io_size")
        ),
    ],
)
def test_what_is_out_of_range_is_bad_usage_and_the_range_is_named(
    words: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == ExitCode.USAGE
    assert says in capsys.readouterr().err


def test_only_who_lacks_the_right_to_the_journal_is_told_to_be_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").write_text("no directory\n")
    monkeypatch.setenv("FABTUNE_STATE_DIR", str(tmp_path / "state"))
    for words in (["history"], ["revert"], ["guard", "--for", "1ms"]):
        assert main(words) == ExitCode.FAILED
        said = capsys.readouterr().err
        assert str(tmp_path / "state") in said and "as root" not in said
    monkeypatch.setenv("FABTUNE_STATE_DIR", str(tmp_path / "other"))

    def denied(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path / "other"))

    monkeypatch.setattr(Path, "iterdir", denied)
    assert main(["history"]) == ExitCode.FAILED
    assert "Permission denied; run as root" in capsys.readouterr().err


def test_a_wait_ends_when_the_clock_shows_the_instant_and_says_how_long_ago_that_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, slept = [1000.0], list[float]()

    def sleep(left_s: float) -> None:
        slept.append(left_s)
        # The clock is set back meanwhile, once.
        clock[0] += left_s - (1 if len(slept) == 1 else 0)

    monkeypatch.setattr(time, "time", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", sleep)
    assert beat.wait_until(1005) == 0 and slept == [5, 1]
    assert beat.wait_until(1003) == 2 and slept == [5, 1]


def interrupted(command: list[str | Path], **keywords: object) -> tuple[int, str]:
    """Send Ctrl-C to `command` once it says that it is ready; return its exit status and what it says on stderr."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"PATH": "/usr/bin:/bin"}, **keywords
    ) as one:  # type: ignore[call-overload]
        assert one.stdout.readline() == "ready\n"
        one.send_signal(signal.SIGINT)
        said = one.communicate(timeout=30)[1]
    return one.returncode, said


def test_ctrl_c_while_the_launcher_still_imports_ends_it_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    launcher = tmp_path / "bin/fabtune"
    launcher.write_bytes((TOP / "userspace/bin/fabtune").read_bytes())
    launcher.chmod(0o755)
    package = tmp_path / "lib/fabtune/fabtune"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    stub = "import time\nprint('ready', flush=True)\ntime.sleep({})\nstart = lambda: 7\n"
    (package / "__main__.py").write_text(stub.format(30))
    assert interrupted([launcher]) == (-signal.SIGINT, "")
    # Where whoever started it has it ignore Ctrl-C, it does.
    (package / "__main__.py").write_text(stub.format(1))
    assert interrupted(["env", "--ignore-signal=INT", launcher]) == (7, "")


@pytest.mark.parametrize(
    ("when", "status"),
    [("needs.complaint = lambda _: wait()", -signal.SIGINT), ("cli.main = lambda: wait()", ExitCode.INTERRUPTED)],
)
def test_ctrl_c_around_a_verb_ends_without_a_traceback(when: str, status: int) -> None:
    code = f"""
import signal, sys, time
sys.path.insert(0, {str(TOP / "userspace")!r})
from fabtune import __main__, needs
from fabtune.cli import main as cli
def wait():
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL and {status} > 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    print("ready", flush=True)
    time.sleep(30)
{when}
sys.argv[1:] = ["--version"]
sys.exit(__main__.start())
"""
    assert interrupted([sys.executable, "-I", "-c", code]) == (status, "")


def test_ctrl_c_is_a_verb_s_own_to_answer_for_once_all_of_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []

    def handler(_: object) -> object:
        found.append(signal.getsignal(signal.SIGINT))
        return handler if len(found) == 1 else 0

    monkeypatch.setattr(cli, "handler", handler)
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        assert cli.main(["profiles"]) == ExitCode.DONE
    finally:
        signal.signal(signal.SIGINT, before)
    assert found == [signal.SIG_DFL, signal.default_int_handler]
