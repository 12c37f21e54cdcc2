# SPDX-License-Identifier: GPL-2.0-or-later
"""What is missing is to be installed by the names that packages have on this system, where they are known."""

import json
import re
import sys
from pathlib import Path

import hosttree
import pytest

from fabtune import needs, packages
from fabtune.cli.main import main
from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.host import libbpf, run, targets, tools
from fabtune.host.programs import PROGRAMS
from fabtune.stat import loadable

TOP = Path(__file__).resolve().parents[2]
DEBIAN, UBUNTU = "ID=debian\n", 'ID=ubuntu\nID_LIKE="debian"\n'
FEDORA, ROCKY = "NAME=x\nID=fedora\n", "ID='rocky'\nID_LIKE=\"rhel centos fedora\"\n"
SUSE = 'ID="opensuse-leap"\nID_LIKE="suse opensuse"\n'


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return /etc/os-release of a host on which nothing is installed."""
    hosttree.make(tmp_path)
    (tmp_path / "usr/lib/os-release").unlink()
    hosttree.enter(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    return tmp_path / "etc/os-release"


@pytest.mark.parametrize("release", [DEBIAN, UBUNTU])
def test_on_debian_and_what_is_like_it_nothing_has_changed(system: Path, release: str) -> None:
    hosttree.put(system, release)
    for one in PROGRAMS:
        more = " (Debian 13 and later)" if one.name == "bpftune" else ""
        assert one.remedy == f"apt install {one.package}{more}"
    with pytest.raises(UnsupportedError, match=r"^no-such is not installed \(package iproute2\)$"):
        tools.find("no-such", "iproute2")
    with pytest.raises(FabtuneError, match=r"^no-such not found; install it with: apt-get install udev$"):
        run.require("no-such", "udev")


@pytest.mark.parametrize("release", [FEDORA, ROCKY])
def test_where_dnf_installs_its_packages_names_are_told(system: Path, release: str) -> None:
    hosttree.put(system, release)
    by_program = {one.name: one.remedy for one in PROGRAMS}
    assert by_program["iscsiadm"] == "dnf install iscsi-initiator-utils"
    assert (by_program["ip"], by_program["tc"]) == ("dnf install iproute", "dnf install iproute-tc")
    assert by_program["ping"] == "dnf install iputils" and by_program["fio"] == "dnf install fio"
    # Nobody has looked what has them there.
    assert by_program["bpftune"] == "install bpftune" and by_program["qemu-system-x86_64"].startswith("install qemu-")
    with pytest.raises(UnsupportedError, match=r"^no-such is not installed \(package device-mapper-multipath\)$"):
        tools.find("no-such", "multipath-tools")
    with pytest.raises(FabtuneError, match=r"^no-such not found; install it with: dnf install openssh-clients$"):
        run.require("no-such", "openssh-client")
    with pytest.raises(FabtuneError, match=r"^no-such not found$"):
        run.require("no-such", "mmdebstrap")


@pytest.mark.parametrize("release", [SUSE, "", None])
def test_elsewhere_the_program_alone_is_named(system: Path, release: str | None) -> None:
    if release is not None:
        hosttree.put(system, release)
    assert {one.remedy for one in PROGRAMS} == {f"install {one.name}" for one in PROGRAMS}
    with pytest.raises(UnsupportedError, match=r"^no-such is not installed$"):
        tools.find("no-such", "iproute2")
    with pytest.raises(FabtuneError, match=r"^no-such not found$"):
        run.require("no-such", "udev")


def test_a_system_that_says_who_it_is_under_usr_is_heard(system: Path) -> None:
    hosttree.put(system.parents[1] / "usr/lib/os-release", FEDORA)
    assert packages.command(system.parent, ("iscsiadm", "open-iscsi")) == "dnf install iscsi-initiator-utils"


@pytest.mark.parametrize(
    ("release", "initiator", "target", "module"),
    [
        (DEBIAN, "apt install open-iscsi", "apt install targetcli-fb",
         "apt install fabstat-dkms linux-headers-6.1.0-x ("),
        (FEDORA, "dnf install iscsi-initiator-utils", "dnf install targetcli",
         "dnf install fabstat-dkms kernel-devel-6.1.0-x ("),
        (SUSE, "install iscsiadm", "install targetcli",
         "install fabstat-dkms, the headers of kernel 6.1.0-x ("),
    ],
)  # fmt: skip
def test_doctor_tells_how_each_system_gets_what_it_lacks(
    system: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], release: str, initiator: str,
    target: str, module: str,
) -> None:  # fmt: skip
    hosttree.put(system, release)
    hosttree.put(system.parents[1] / "proc/sys/kernel/osrelease", "6.1.0-x")
    monkeypatch.setattr(targets, "kinds", tuple)
    main(["doctor", "--json"])
    fixes = {one["name"]: one["fix"] for one in json.loads(capsys.readouterr().out)["checks"]}
    assert (fixes["initiator"], fixes["target"]) == (initiator, target)
    assert fixes["module fabstat"].startswith(module)
    (system.parents[1] / "usr/src/fabstat-9").mkdir(parents=True)
    hosttree.put(system.parents[1] / "usr/src/fabstat-9/dkms.conf", "")
    headers = module.replace("fabstat-dkms, ", "").replace("fabstat-dkms ", "").removesuffix(" (")
    assert loadable.why_not_loaded().endswith(f"to do: {headers}, with which DKMS builds it")


def test_the_library_that_loads_bpf_is_named_as_the_system_has_it(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosttree.put(system, FEDORA)
    monkeypatch.setattr(libbpf, "_LIBRARY", "no-such.so")
    with pytest.raises(UnsupportedError, match=r"^no-such.so is not installed \(package libbpf\)$"):
        libbpf._libbpf.__wrapped__()


@pytest.mark.parametrize(
    ("release", "says"),
    [
        (DEBIAN, "lacks attrs (Debian package python3-attr): apt install python3-attr"),
        (FEDORA, "lacks attrs (package python3-attrs): dnf install python3-attrs"),
        (SUSE, "lacks attrs: install attrs"),
    ],
)
def test_a_python_that_lacks_a_module_is_told_so_as_its_system_calls_it(
    system: Path, monkeypatch: pytest.MonkeyPatch, release: str, says: str
) -> None:
    hosttree.put(system, release)
    monkeypatch.setattr(packages, "ETC", system.parent)
    monkeypatch.setattr(needs, "absent_modules", lambda: [("attrs", "python3-attr")])
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert needs.complaint("x") == f"fabtune: /usr/bin/python3 {says}"


def test_the_rpm_asks_for_what_debian_s_package_depends_on() -> None:
    spec = (TOP / "userspace/rpm/fabtune.spec").read_text().partition("\n%description\n")[0]
    required = set(re.findall(r"^Requires:\s+([\w-]+)", spec, re.MULTILINE))
    control = (TOP / "debian/control").read_text().partition("\nPackage: fabtune\n")[2].partition("Recommends:")[0]
    depends = set(re.findall(r"^ ([\w-]+)", control, re.MULTILINE))
    pairs = [(one.name, one.package) for one in PROGRAMS] + list(needs.MODULES.items()) + [("", "libbpf1")]
    assert depends <= {package for _, package in pairs}
    for program, package in pairs:
        # Which of these two a host has is for its system to say.
        if package in depends:
            assert packages.package_name(TOP / "none", program, package) == ""
            assert packages.rpm(program, package) in required, program
