# SPDX-License-Identifier: GPL-2.0-or-later
"""An option with which a verb would do nothing is refused before anything is looked at, not taken in silence."""

import shlex
from pathlib import Path

import pytest

from fabtune.cli.main import main
from fabtune.errors import ExitCode

NET = "measure net --peer storage1.invalid"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("measure xdd --on {here} --claim CommandWindow=64", "--claim needs --capture, which it is checked against"),
        (f"{NET} --capture", "measures just the network; it cannot be combined with --capture"),
        (f"{NET} --claim CommandWindow=64", "cannot be combined with --claim"),
        (f"{NET} --on /dev/null", "cannot be combined with --on"),
        (f"{NET} --set a=b", "cannot be combined with --set"),
        (f"{NET} --ramp 0s", "cannot be combined with --ramp"),
        (f"{NET} --rtt 5ms", "cannot be combined with --rtt"),
        (f"{NET} --confirm sda", "cannot be combined with --confirm"),
        (f"{NET} --at 4000000000", "cannot be combined with --at"),
        (f"{NET} --trace t.bin", "cannot be combined with --trace"),
        ("measure latency --on {here} --peer storage1", "needs `measure net`: --peer"),
        ("measure latency --on {here} --port 5202", "needs `measure net`: --port"),
        ("measure latency --on {here} --windows 5", "needs `measure net`: --windows"),
        ("measure latency --on {here} --streams 2", "needs `measure net`: --streams"),
        ("measure latency --on {here} --trace t.bin", "needs `measure replay`: --trace"),
        ("measure replay --trace t.bin --on /dev/null --peer storage1", "needs `measure net`: --peer"),
        ("measure replay --trace t.bin --on /dev/null --keep-files", "--keep-files cannot be given with a replay"),
        ("measure ioverify --on {here} --ramp 5s", "ends when its data is done: --runtime and --ramp cannot be set"),
        ("measure xdd --on {here} --ramp 5s", "ends when its data is done, after no ramp: --ramp needs --runtime"),
        ("measure latency --on {here} --confirm sdx", "--confirm sdx: {here} is no device that would be overwritten"),
        ("measure latency --on {here} --mtu 9000", "--mtu 9000: the bound needs --rtt and --rate as well"),
        ("measure latency --on {here} --mtu 9000 --rtt 5ms", "--mtu 9000: the bound needs --rtt and --rate as well"),
        ("verify --rtt 5ms", "--rtt is for a profile's plan: give a PROFILE with it"),
        ("verify --rate nonsense", "--rate is for a profile's plan"),
        ("verify --set foo", "--set is for a profile's plan"),
        ("verify --scope connection", "--scope is for a profile's plan"),
        ("verify --only tcp.rmem_max", "--only is for a profile's plan"),
        ("verify --estimated", "--estimated is for a profile's plan"),
        ("show --rtt banana", "show: --rtt is for what a profile wants: give a PROFILE with it"),
        ("show --rate fast", "--rate is for what a profile wants"),
        ("show nosuchprofile --json", "show: --json prints the facts alone; it cannot be combined with PROFILE"),
        ("show --json --rate fast", "--rate is for what a profile wants"),
        ("negotiate --target facts.json --netns nosuchns", "facts.json is of its own namespace; it cannot be combined"),
        ("negotiate --rtt 5ms", "negotiate: --rtt is for what a profile wants: give a PROFILE with it"),
        ("negotiate --rtt 5ms --rate 1gbit --target facts.json", "--rtt is for what a profile wants"),
        ("explain xdd --netns nosuchns", "a workload is read in no namespace; it cannot be combined with --netns"),
        ("tunables --markdown --json", "tunables: --markdown prints a page; it cannot be combined with --json"),
        ("stat --save {here}/saved sda", "stat: --save keeps the whole reading; it cannot be combined with DEV"),
        ("stat --save {here}/saved --target --all", "it cannot be combined with --all"),
        ("stat --save {here}/saved --json", "it cannot be combined with --json"),
        ("export --textfile - --listen foo", "--listen: nothing listens with --textfile"),
        ("export --only reader --listen foo", "--listen: nothing listens with --only reader"),
        ("run --only rtt=5ms", "--only needs an experiment's name"),
        ("run --out {here}", "--out needs an experiment's name"),
        ("run --resume", "--resume needs an experiment's name"),
        ("run demo --dry-run --allow-relogin", "--allow-relogin needs --fleet"),
        ("run demo --dry-run --jobs 2 --fleet hosts.ini", "a fleet's hosts all take part in each run"),
        ("report {here} --json --out {here}/page.html", "--json prints the figures; it cannot be combined with --out"),
        ("report {here} --tree --json", "--tree writes DIR/index.html; it cannot be combined with --json"),
        ("report {here} --tree --out {here}/page.html", "DIR/index.html; it cannot be combined with --out"),
        ("revert wan --unconfirmed", "what nobody confirmed; it cannot be combined with PROFILE"),
        ("revert --unconfirmed=once --force", "what nobody confirmed; it cannot be combined with --force"),
        ("why --end target sda", "--end target looks at all sessions of this target; it cannot be combined with DEV"),
        ("why --end target --target-host filer", "cannot be combined with --target-host"),
        ("why --end target --watch", "cannot be combined with --watch"),
        ("why --fleet hosts.ini --at 4000000000", "cannot be combined with --at"),
        ("lint facts.json --netns target", "facts.json is of its own namespace; it cannot be combined with --netns"),
        ("lab run --accel kvm {here}/script", "--accel kvm: the virtual clock is an emulated CPU's; use --clock real"),
        ("lab shell --clock virtual --accel kvm", "--accel kvm: the virtual clock is an emulated CPU's"),
        ("lab run --accel uml --seed 7 {here}/script", "--seed 7: User Mode Linux takes its random numbers from"),
    ],
)  # fmt: skip
def test_an_option_that_would_do_nothing_is_refused(
    line: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script").write_text("true\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(shlex.split(line.format(here=tmp_path))) == ExitCode.USAGE
    assert says.format(here=tmp_path) in capsys.readouterr().err
    assert not (tmp_path / "cache").exists() and not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rtt", "5ms"], ["no bound is computed: --rtt needs --rate as well"]),
        (["--rate", "1gbit"], ["no bound is computed: --rate needs --rtt as well"]),
        (["--rtt", "5ms", "--rate", "1gbit"], []),
        ([], []),
    ],
)
def test_half_a_path_is_said_to_give_no_bound(
    words: list[str], said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A round trip tells points apart even without a rate, but a bound was expected and nothing was said."""
    asked = ["measure", "latency", "--on", str(tmp_path / "nosuch"), *words, "--out", str(tmp_path)]
    assert main(asked) == ExitCode.USAGE
    notes = [line for line in capsys.readouterr().err.split("\n") if "bound" in line]
    assert notes == [f"fabtune: {one}" for one in said]


def test_an_option_with_the_value_that_it_has_untold_is_none_of_another_mind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["measure", "latency", "--port", "5201", "--windows", "0", "--streams", "1,4"]
    assert main([*words, "--out", str(tmp_path)]) == ExitCode.USAGE
    assert "needs --on" in capsys.readouterr().err


def test_a_directory_of_profiles_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FABTUNE_PROFILES", str(tmp_path / "nosuch"))
    for words in (["profiles"], ["plan", "wan", "--rtt", "5ms", "--rate", "1gbit"]):
        assert main(words) == ExitCode.USAGE
        assert f"FABTUNE_PROFILES {tmp_path}/nosuch: no such directory" in capsys.readouterr().err
    # Without a word of it, the usual one need not be there.
    monkeypatch.setenv("FABTUNE_PROFILES", "")
    assert main(["profiles"]) == ExitCode.DONE
