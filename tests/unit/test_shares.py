# SPDX-License-Identifier: GPL-2.0-or-later
"""A file that several profiles persist into holds the lines of those in force, whichever goes first."""

import itertools
import os
from pathlib import Path

import hosttree
import pytest

from fabtune.backends import textfile
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import ExitCode
from fabtune.facts.collect import collect
from fabtune.tune import journal, persist, shares
from fabtune.tune.apply import apply
from fabtune.tune.pending import Leave
from fabtune.tune.plan import make_plan, tunables_of
from fabtune.tune.undo import Report, undo
from fabtune.tune.verify import verify

FILE = "etc/sysctl.d/90-fabtune.conf"
NAMES = {
    "net.netdev_max_backlog": "net.core.netdev_max_backlog",
    "tcp.mtu_probing": "net.ipv4.tcp_mtu_probing",
    "tcp.no_metrics_save": "net.ipv4.tcp_no_metrics_save",
}
PROFILES = {
    "a": {"net.netdev_max_backlog": "2000", "tcp.mtu_probing": "1"},
    "b": {"net.netdev_max_backlog": "3000", "tcp.no_metrics_save": "true"},
    "c": {"tcp.mtu_probing": "1", "tcp.no_metrics_save": "true"},
}


@pytest.fixture(params=["with the directory", "without"])
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    root = hosttree.make(tmp_path / "host")
    if request.param == "with the directory":
        (root / "etc/sysctl.d").mkdir(parents=True)
    else:
        (root / "etc").mkdir()
    hosttree.enter(root, monkeypatch)
    return root


def keep(host: Path, name: str) -> None:
    rows = "".join(f'[initiator."{key}"]\nvalue = {value}\nwhy = "x"\n' for key, value in PROFILES[name].items())
    file = host / f"{name}.toml"
    file.write_text(f'summary = "x"\n{rows}')
    with journal.locked():
        loaded = load_profile(str(file), shipped_catalog())
        plan = make_plan(loaded, ("initiator",), collect(tunables_of(loaded)), None, {})
        plan.rows += persist.rows(plan)[0]
        apply(plan, collect([]).host, Leave(), lambda _: None)


def back(profile: str) -> Report:
    return undo(profile, None, None, "", False, Leave(), lambda _: None)


def lines(host: Path) -> dict[str, str]:
    pairs = [line.split(" = ") for line in (host / FILE).read_text().splitlines()[1:]]
    return dict(pairs)


def wanted(names: list[str]) -> dict[str, str]:
    rows = {key: value for name in names for key, value in PROFILES[name].items()}
    return {NAMES[key]: "1" if value == "true" else value for key, value in rows.items()}


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_profiles_leave_a_file_in_any_order(host: Path, order: tuple[str, ...]) -> None:
    left = list("abc")
    before = sorted(host.glob("etc/*"))
    for name in left:
        keep(host, name)
    assert lines(host) == wanted(left)
    for name in order:
        report = back(name)
        assert report.exit_code == ExitCode.DONE, [one.as_json() for one in report.outcomes]
        left.remove(name)
        assert [drift for drift in verify(None, ("initiator",), "") if drift.drifted] == []
        assert not left or lines(host) == wanted(left)
    assert not (host / FILE).exists() and sorted(host.glob("etc/*")) == before
    assert {one.state for one in journal.transactions()} == {"taken back"}


def test_a_file_that_somebody_edited_keeps_its_lines(host: Path) -> None:
    keep(host, "a")
    keep(host, "b")
    file = host / FILE
    file.write_text(file.read_text() + "net.ipv4.tcp_sack = 0\n")
    assert "foreign" in [str(one.state) for one in back("a").outcomes]
    assert "tcp_sack" in file.read_text()


def test_a_revert_killed_before_the_file_is_written_is_finished_by_the_next(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(host, "a")
    keep(host, "b")
    pid = os.fork()
    if pid == 0:
        monkeypatch.setattr(textfile.BACKEND, "write", _killed)
        back("a")
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert verify(None, ("initiator",), "")
    assert back("a").exit_code == ExitCode.DONE
    assert lines(host) == wanted(["b"])
    assert back("b").exit_code == ExitCode.DONE
    assert not (host / FILE).exists()


def _killed(*_: object) -> None:
    os._exit(9)


def test_what_is_left_keeps_the_order_in_which_udev_sets_it() -> None:
    disk = 'ACTION=="add", SUBSYSTEM=="block", ATTR{device/wwid}=="naa.1"'
    scheduler, requests = f'{disk}, ATTR{{queue/scheduler}}="none"', f'{disk}, ATTR{{queue/nr_requests}}="64"'
    text = f'{textfile.HEADER}\n{scheduler}\n{requests}\n{disk}, ATTR{{queue/rq_affinity}}="2"\n'
    assert shares.left(text, "", [requests, scheduler]) == f"{textfile.HEADER}\n{scheduler}\n{requests}\n"
    before = f'{textfile.HEADER}\n{disk}, ATTR{{queue/nr_requests}}="32"\n'
    assert shares.left(text, before, [scheduler]).endswith('nr_requests}="32"\n')


def test_every_line_of_a_name_stays_in_a_copied_link_file() -> None:
    copied = "[Match]\nPath=pci-0000:01:00.0\n\n[Link]\nProperty=A=1\nNamePolicy=keep\nProperty=B=2\n"
    first, second = f"{copied}MTUBytes=9000\n", f"{copied}MTUBytes=9000\nRxBufferSize=4096\n"
    share = f"{copied}RxBufferSize=4096\n"
    assert shares.left(f"{textfile.HEADER}\n{second}", "", [share]) == f"{textfile.HEADER}\n{share}"
    # The other way round nothing of the first profile's is lost.
    assert (
        shares.left(f"{textfile.HEADER}\n{second}", f"{textfile.HEADER}\n{first}", []) == f"{textfile.HEADER}\n{first}"
    )
