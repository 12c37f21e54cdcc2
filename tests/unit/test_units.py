# SPDX-License-Identifier: GPL-2.0-or-later
"""The units: well-formed by systemd's own judgement, protected as promised, and there by `make install`."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.tune import armed

TOP = Path(__file__).resolve().parents[2]
UNITS = sorted((TOP / "userspace/systemd").glob("*.*"))
NAMES = {path.name for path in UNITS if path.suffix in (".service", ".socket", ".timer")}
MOST_EXPOSED = 2.0

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where `make install` put the units."""
    root = tmp_path_factory.mktemp("root")
    words = ["make", "-s", "install", f"DESTDIR={root}", "PREFIX=/usr"]
    subprocess.run(words, cwd=TOP, check=True, stdout=subprocess.DEVNULL)
    return root / "usr/lib/systemd/system"


def test_every_unit_is_installed_with_its_program(installed: Path) -> None:
    assert {path.name for path in installed.iterdir()} == NAMES
    for path in installed.iterdir():
        assert "@" not in re.sub(r"~?@[a-z-]+", "", path.read_text()), path.name
        for command in re.findall(r"^ExecStart=-?(\S+)", path.read_text(), re.MULTILINE):
            assert (installed.parents[3] / command.lstrip("/")).exists(), command


def test_what_units_and_pages_refer_to_is_installed(installed: Path) -> None:
    """Under /usr/share/doc a package's pages are where each distribution has them, and compressed by some."""
    root, manual = installed.parents[3], installed.parents[2] / "share/man"
    for unit in installed.iterdir():
        for word in _words(unit, "Documentation"):
            name, section = re.fullmatch(r"man:([a-z-]+)\((\d)\)", word).groups()  # type: ignore[union-attr]
            assert (manual / f"man{section}/{name}.{section}").exists(), f"{unit.name}: {word}"
    pages = [*TOP.glob("Documentation/*.md"), *TOP.glob("userspace/*/*.[cmy]*"), *TOP.glob("userspace/manual/*")]
    named = {
        (page.name, place.rstrip("./"))
        for page in (one for one in pages if one.is_file())
        for place in re.findall(r"/usr/(?:local/)?(?:lib|share)/fabtune[\w./-]*", page.read_text())
    }
    assert len(named) > 5
    assert not [pair for pair in named if not (root / pair[1].lstrip("/")).exists()]


def test_systemd_finds_nothing_wrong_with_them(installed: Path, tmp_path: Path) -> None:
    # The program itself is looked for on this host, where it need not be.
    for path in installed.iterdir():
        (tmp_path / path.name).write_text(re.sub(r"/usr/bin/fabtune(-pull)?\b", "/usr/bin/true", path.read_text()))
    words = ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "fabtune" in line]
    assert not ours


# As Debian's packages have them, in what orders them.
BESIDE = {
    "iscsid.service": """[Unit]
DefaultDependencies=no
Wants=network-online.target remote-fs-pre.target
After=network.target network-online.target
Before=remote-fs-pre.target
[Service]
ExecStart=/bin/true
[Install]
WantedBy=sysinit.target
""",
    "open-iscsi.service": """[Unit]
DefaultDependencies=no
Wants=network-online.target remote-fs-pre.target
After=network-online.target iscsid.service
Before=remote-fs-pre.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
[Install]
WantedBy=sysinit.target
Alias=iscsi.service
""",
    "srp_daemon.service": """[Unit]
DefaultDependencies=no
Before=remote-fs-pre.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
""",
    "rtslib-fb-targetctl.service": """[Unit]
After=network.target local-fs.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
""",
    "tgt.service": """[Unit]
After=network.target
[Service]
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
""",
}
MOUNT = """[Mount]
What=/dev/disk/by-label/state
Where={place}
Options=_netdev
[Install]
WantedBy=remote-fs.target
"""
SERVED_AGAIN = "[Unit]\nAfter=open-iscsi.service\n"
ENABLED = (
    "fabtune-apply.service",
    "fabtune-apply-sessions.service",
    "fabtune-guard.service",
    "fabtune-exporter.service",
)


def _host(root: Path, installed: Path, units: dict[str, str], *enabled: str) -> Path:
    """Make a root with fabtune's units and `units`, of which `enabled` and all of `units` are enabled; return it."""
    at = root / "usr/lib/systemd/system"
    shutil.copytree(installed, at)
    for name, text in units.items():
        (at / name).parent.mkdir(exist_ok=True)
        (at / name).write_text(text)
    shutil.copy("/usr/lib/systemd/system/remote-fs.target", at)
    for name in (*enabled, *(name for name, text in units.items() if "[Install]" in text), "remote-fs.target"):
        subprocess.run(["systemctl", f"--root={root}", "--quiet", "enable", name], check=True)
    return root


def _cycles(root: Path) -> list[str]:
    """Return what systemd says of ordering cycles in the boot of `root`."""
    paths = ":".join(str(root / one) for one in ("etc/systemd/system", "usr/lib/systemd/system"))
    words = ["systemd-analyze", "verify", "--man=no", "multi-user.target"]
    done = subprocess.run(words, capture_output=True, text=True, check=False,
                          env={**os.environ, "SYSTEMD_UNIT_PATH": f"{paths}:"})  # fmt: skip
    return [line for line in done.stderr.splitlines() if "ordering cycle" in line]


@pytest.mark.parametrize("place", ["", "/var", "/var/lib"])
@pytest.mark.parametrize("served_again", [False, True])
def test_no_boot_has_a_cycle_wherever_the_journal_lies_and_whatever_a_target_serves(
    place: str, served_again: bool, installed: Path, tmp_path: Path
) -> None:
    """systemd breaks a cycle by leaving out a job: the logins, or the mounts.

    A file system of a session is mounted after the logins, and most services come after /var is there.
    """
    units = BESIDE | ({f"{place.strip('/').replace('/', '-')}.mount": MOUNT.format(place=place)} if place else {})
    if served_again:
        units |= {f"{name}.service.d/order.conf": SERVED_AGAIN for name in ("rtslib-fb-targetctl", "tgt")}
    assert not _cycles(_host(tmp_path / "without", installed, units))
    assert not _cycles(_host(tmp_path / "with", installed, units, *ENABLED))


# What logs in and what serves is called differently by distributions: open-iscsi's, rdma-core's, LIO's and tgt's units.
LOGIN = {"open-iscsi.service", "iscsi.service", "srp_daemon.service", "srptools.service"}
SERVING = {"rtslib-fb-targetctl.service", "target.service", "targetcli.service", "tgt.service", "tgtd.service"}


def test_values_come_before_the_logins_and_after_what_they_belong_to(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "at-boot").write_text(armed._BOOT_TEXT)
    assert _words(installed / "fabtune-apply.service", "Before") >= LOGIN
    assert _words(installed / "fabtune-apply-sessions.service", "After") >= LOGIN
    # A target's are live ones, and there only once it serves.
    late = installed / "fabtune-apply-late.service"
    assert _words(late, "After") >= SERVING
    assert _words(late, "ExecCondition") >= SERVING
    assert _words(tmp_path / "at-boot", "Before") >= LOGIN | SERVING


@pytest.mark.parametrize(
    ("active", "runs"),
    [("", True), ("fabtune-apply", False), ("fabtune-apply rtslib-fb-targetctl", True), ("fabtune-apply tgtd", True)],
)
def test_what_comes_late_is_written_where_the_first_unit_could_not(
    active: str, runs: bool, installed: Path, tmp_path: Path
) -> None:
    """It found no journal, which is on a session's disk, or the target's configuration was not there yet."""
    assert "fabtune-apply-late.service" in _words(installed / "fabtune-apply.service", "Wants")
    program = tmp_path / "systemctl"
    asked = f'for unit; do case " {active} " in *" ${{unit%.service}} "*) exit 0 ;; esac; done; exit 3'
    program.write_text(f"#!/bin/sh\n{asked}\n")
    program.chmod(0o755)
    late = (installed / "fabtune-apply-late.service").read_text()
    (command,) = re.findall(r"^ExecCondition=(.*)$", late, re.MULTILINE)
    done = subprocess.run(shlex.split(command), env={"PATH": str(tmp_path)}, check=False)
    assert (done.returncode == 0) == runs


def _words(unit: Path, key: str) -> set[str]:
    """Return all that stands behind `key` in the file `unit`."""
    return set(" ".join(re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)).replace('"', "").split())


def test_a_disk_that_appears_starts_nothing_that_nobody_has_enabled(installed: Path, tmp_path: Path) -> None:
    """systemd starts what a device wants whether or not it is enabled: the rule itself must ask."""
    rules = [line for line in (TOP / "userspace/systemd/98-fabtune-sessions.rules").read_text().splitlines()
             if "SYSTEMD_WANTS" in line]  # fmt: skip
    for rule in rules:
        (wanted,) = re.findall(r'ENV\{SYSTEMD_WANTS\}\+="([^"]+)"$', rule)
        (asked,) = re.findall(r' TEST=="/([^"]+)"', rule)
        root = _host(tmp_path / wanted, installed, {}, *(name for name in ENABLED if name != wanted))
        assert not (root / asked).is_symlink()
        subprocess.run(["systemctl", f"--root={root}", "--quiet", "enable", wanted], check=True)
        assert (root / asked).is_symlink()
    assert rules


def test_guard_runs_before_anything_is_applied_and_whatever_ended_it() -> None:
    """Nothing starts it once the first apply has been; and what ends it may be a journald that has died."""
    unit = (TOP / "userspace/systemd/fabtune-guard.service").read_text()
    assert "Condition" not in unit and "Restart=always" in unit


def test_a_guard_that_is_stopped_has_not_failed() -> None:
    """It says with 3 that something is not as applied then; a stop before it watches is 130."""
    unit = (TOP / "userspace/systemd/fabtune-guard.service").read_text()
    assert "\nSuccessExitStatus=3 130\n" in unit


@pytest.mark.parametrize("name", ["fabtune-apply.service", "fabtune-apply-sessions.service"])
def test_what_is_written_again_is_tried_again_only_where_that_may_help(name: str) -> None:
    unit = (TOP / "userspace/systemd" / name).read_text()
    assert "Restart=on-failure" in unit and "RestartPreventExitStatus=2\n" in unit


def test_an_exporter_whose_address_comes_later_is_there_then(capsys: pytest.CaptureFixture[str]) -> None:
    """With systemd's own limit five tries in half a second were all that a host's one address was waited for."""
    unit = (TOP / "userspace/systemd/fabtune-exporter.service").read_text()
    assert "\nStartLimitIntervalSec=0\n" in unit.partition("[Service]")[0]
    assert "\nRestart=on-failure\nRestartPreventExitStatus=2\nRestartSec=5\n" in unit
    # That address may come; what is none never does.
    assert main(["export", "--only", "server", "--listen", "192.0.2.1:0"]) == ExitCode.FAILED
    assert main(["export", "--only", "server", "--listen", "host:http"]) == ExitCode.USAGE
    assert "192.0.2.1:0" in capsys.readouterr().err
    # Five tries, and its socket would fail with it.
    assert "RestartSec=5" in (TOP / "userspace/systemd/fabtune-reader.service").read_text()


@pytest.mark.parametrize("name", ["fabtune-exporter.service", "fabtune-reader.service"])
def test_both_halves_of_the_exporter_are_shut_in(installed: Path, name: str) -> None:
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(installed / name)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert exposure and float(exposure[1]) <= MOST_EXPOSED
