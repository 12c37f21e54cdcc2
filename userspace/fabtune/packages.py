# SPDX-License-Identifier: GPL-2.0-or-later
"""How this system installs what is missing: the command, and what its packages are called.

Programs and modules are known by their Debian packages.  Also an old Python must be able to read this file.
"""

from pathlib import Path

ETC = Path("/etc")
_APT, _DNF = "apt", "dnf"
# Who says so in ID or ID_LIKE of os-release(5), and what installs packages there.
_SYSTEMS = {"debian": _APT, "ubuntu": _APT, "fedora": _DNF, "rhel": _DNF, "centos": _DNF}
# What Fedora and RHEL call Debian's packages, as far as that is known: what is not in it has no name there.
_RPMS = {
    "ansible-core": "ansible-core",
    "cpio": "cpio",
    "dmsetup": "device-mapper",
    "e2fsprogs": "e2fsprogs",
    "fabstat-dkms": "fabstat-dkms",
    "fio": "fio",
    "iperf3": "iperf3",
    "iproute2": "iproute",
    "iputils-ping": "iputils",
    "kmod": "kmod",
    "libbpf1": "libbpf",
    "mokutil": "mokutil",
    "multipath-tools": "device-mapper-multipath",
    "open-iscsi": "iscsi-initiator-utils",
    "openssh-client": "openssh-clients",
    "python3-attr": "python3-attrs",
    "python3-cattr": "python3-cattrs",
    "python3-jinja2": "python3-jinja2",
    "python3-markupsafe": "python3-markupsafe",
    "python3-rich": "python3-rich",
    "squashfs-tools": "squashfs-tools",
    "sudo": "sudo",
    "systemd": "systemd",
    "targetcli-fb": "targetcli",
    "tgt": "scsi-target-utils",
    "tshark": "wireshark-cli",
    "udev": "systemd-udev",
    "util-linux": "util-linux",
    "wireshark-common": "wireshark-cli",
}
# Of a package that they have in parts, the part with this program.
_PARTS = {"tc": "iproute-tc"}
_DEBS_HEADERS, _RPMS_HEADERS = "linux-headers-", "kernel-devel-"


def is_debians(etc):
    # type: (Path) -> bool
    """Tell whether the system where /etc is `etc` has Debian's packages, by the names that they have there."""
    return _installer(etc) == _APT


def command(etc, *needed, **words):
    # type: (Path, *tuple[str, str], **str) -> str
    """Return what installs `needed`, programs with their Debian packages, where /etc is `etc`; '' if that is not known.

    `apt` says how Debian's command is called, if otherwise.
    """
    names = [package_name(etc, program, package) for program, package in needed]
    if not all(names):
        return ""
    installer = _installer(etc)
    return " ".join([words.get(installer, installer), "install"] + names)


def package_name(etc, program, package):
    # type: (Path, str, str) -> str
    """Return the package that has `program`, in Debian `package`, where /etc is `etc`; '' where that is not known."""
    installer = _installer(etc)
    return package if installer == _APT else rpm(program, package) if installer == _DNF else ""


def remedy(etc, *needed):
    # type: (Path, *tuple[str, str]) -> str
    """Return what to do about programs that are not there, each given with its Debian package, where /etc is `etc`."""
    return command(etc, *needed) or "install " + ", ".join(program for program, _ in needed)


def rpm(program, package):
    # type: (str, str) -> str
    """Return what Fedora and RHEL call the package with `program`, in Debian `package`; '' where that is not known."""
    if package.startswith(_DEBS_HEADERS):
        return _RPMS_HEADERS + package[len(_DEBS_HEADERS) :]
    return _PARTS.get(program, _RPMS.get(package, ""))


def _installer(etc):
    # type: (Path) -> str
    """Return what installs packages, '' where that is not known."""
    said = {}
    for path in (etc / "os-release", etc.parent / "usr/lib/os-release"):
        try:
            said = dict(line.partition("=")[::2] for line in path.read_text(errors="replace").splitlines())
            break
        except OSError:
            continue
    words = " ".join(said.get(key, "").strip("\"'") for key in ("ID", "ID_LIKE"))
    return next((_SYSTEMS[word] for word in words.split() if word in _SYSTEMS), "")
