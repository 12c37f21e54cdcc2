# SPDX-License-Identifier: GPL-2.0-or-later
"""Every program of others that fabtune runs, with its Debian package and the verbs that need it.

A kind of target that is a program says so itself (host/targets).
"""

from dataclasses import dataclass

from fabtune import packages
from fabtune.errors import UnsupportedError
from fabtune.host import tools, tree

# Verbs that look at a host and tune it: what they lack, a host in production lacks.
TUNING = ("show", "lint", "plan", "apply", "verify", "revert")
_WRITES = ("apply", "revert")
_MEASURES = ("measure", "ab", "run")
_LAB = ("lab", "run")


@dataclass(frozen=True)
class Program:
    """A program, the Debian package that has it, the verbs that need it, what for, and which releases alone have it."""

    name: str
    package: str
    verbs: tuple[str, ...]
    purpose: str
    releases: str = ""

    @property
    def path(self) -> str:
        """Return where it is, '' if it is not installed."""
        try:
            return tools.find(self.name, self.package)
        except UnsupportedError:
            return ""

    @property
    def remedy(self) -> str:
        """Return how to get it."""
        how = packages.remedy(tree.ETC, (self.name, self.package))
        return f"{how} ({self.releases})" if self.releases and packages.is_debians(tree.ETC) else how

    @property
    def tunes(self) -> bool:
        """Whether looking at a host and tuning it needs this."""
        return bool(set(self.verbs) & set(TUNING))


PROGRAMS = (
    Program("ip", "iproute2", TUNING, "routes and links"),
    Program("tc", "iproute2", TUNING, "queueing disciplines"),
    Program("udevadm", "udev", _WRITES, "waiting for disks, and which rules win at boot"),
    Program(
        "setpriv", "util-linux", (*_WRITES, *_MEASURES), "programs that must not outlive fabtune, or need fewer rights"
    ),
    Program("systemctl", "systemd", _WRITES, "--reconnect, --confirm-within"),
    Program("systemd-run", "systemd", _WRITES, "--reconnect, --confirm-within"),
    Program("systemd-escape", "systemd", _WRITES, "--confirm-within"),
    Program("iscsiadm", "open-iscsi", TUNING, "node records and sessions of an iSCSI initiator"),
    Program("multipathd", "multipath-tools", _WRITES, "re-login below multipath devices"),
    Program("dmsetup", "dmsetup", _WRITES, "re-login below multipath devices"),
    Program("modinfo", "kmod", ("doctor", "stat"), "what the kernel would load as fabstat"),
    Program("mokutil", "mokutil", ("doctor", "stat"), "whether this machine's firmware trusts the key of fabstat"),
    Program("fio", "fio", _MEASURES, "the loads"),
    Program("iperf3", "iperf3", ("measure", "run"), "the network without storage"),
    Program("ping", "iputils-ping", ("measure",), "round-trip time"),
    Program("dumpcap", "wireshark-common", ("measure",), "--capture"),
    Program("tshark", "tshark", ("measure",), "--capture"),
    Program("ssh", "openssh-client", ("ab", "tune", "why"), "--target-host"),
    Program("ansible-playbook", "ansible-core", ("run",), "--fleet"),
    Program("ansible-inventory", "ansible-core", ("run",), "--fleet"),
    # Not in Debian before 13: guests of that release have it whatever the host is.
    Program("bpftune", "bpftune", ("run",), "experiments that compare with it", "Debian 13 and later"),
    Program("qemu-system-x86_64", "qemu-system-x86", _LAB, "guests"),
    Program("mmdebstrap", "mmdebstrap", _LAB, "guests' images"),
    Program("mksquashfs", "squashfs-tools", _LAB, "guests' images"),
    Program("cpio", "cpio", _LAB, "guests' images"),
    Program("depmod", "kmod", _LAB, "guests' images"),
    Program("modprobe", "kmod", _LAB, "guests' images"),
    Program("unshare", "util-linux", _LAB, "guests' images"),
    Program("mkfs.ext4", "e2fsprogs", _LAB, "guests' disks"),
    Program("sudo", "sudo", _LAB, "guests' images, where you are not root"),
)
