# SPDX-License-Identifier: GPL-2.0-or-later
"""What goes into a guest's root: suites, packages, and the hash that names the result."""

import hashlib
import json
from dataclasses import asdict, dataclass

from fabtune.host import targets

SUITES = ("trixie", "bookworm", "sid")
# What watches hosts and is asked for help with them: Prometheus, PCP, sos, drgn.
_EXTRAS = {"ops": ("prometheus", "pcp", "python3-pcp", "python3-requests", "sosreport", "python3-drgn")}
# Images that few guests need: the default suite with more, or with a target that is a package of its own.
IMAGES = (*SUITES, *(f"{SUITES[0]}+{extra}" for extra in (*(kind.package for kind in targets.kinds() if kind.package),
                                                          *_EXTRAS)))  # fmt: skip
# Kernels with sanitizers, which stand in for an image's.
DEBUG_KERNELS = ("kasan", "kcsan", "rt", "scsi-builtin")
# User Mode Linux with a virtual clock.
UML_VIRTUAL = "uml-virtual"

# The kernel, what compiles a module for it, and what a guest needs to boot, without systemd or with it.
_BASE = (
    "linux-image-amd64", "linux-headers-amd64", "make", "perl", "kmod", "busybox-static", "procps", "iproute2",
    "ethtool", "iputils-ping", "udev", "e2fsprogs", "xfsprogs", "python3", "bats", "bats-assert",
    "bats-support", "systemd-sysv",
)  # fmt: skip
# What fabtune drives and depends on.  rtslib-fb comes with targetcli; tests make whole targets with it.
_FABRIC = (
    "open-iscsi", "multipath-tools", "mdadm", "sg3-utils", "rdma-core", "srptools", "nvme-cli", "fio", "iperf3",
    "targetcli-fb", "openssh-server", "chrony",
    "python3-rtslib-fb", "python3-attr", "python3-cattr", "python3-rich", "python3-jinja2",
)  # fmt: skip
# Peers and instruments that the benches compare with; only the default suite carries them.
_PEERS = ("tuned", "bpftune", "bpftrace", "libbpf-tools", "blktrace", "tshark", "tcpdump", "strace", "wireguard-tools")
# What targetcli asks for other targets' backstores; among the peers, TuneD brings it.
_BUS = ("dbus-daemon", "dbus-system-bus-common")

# Files that no guest reads.  They make the toolchain and the image smaller, not different.
UNWANTED_PATHS = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
# Needed to build a module, not to boot: kept in the root directory, left out of the image.
TOOLCHAIN_PATHS = (
    "boot", "usr/src", "usr/lib/gcc", "usr/libexec/gcc", "usr/include", "usr/lib/llvm*/include",
    "usr/lib/linux-kbuild-*", "var/lib/apt", "var/cache", "lib/modules/*/kernel/drivers/gpu",
    "lib/modules/*/kernel/drivers/media", "lib/modules/*/kernel/sound", "lib/modules/*/kernel/drivers/net/wireless",
    "usr/lib/modules/*/kernel/drivers/gpu", "usr/lib/modules/*/kernel/drivers/media", "usr/lib/modules/*/kernel/sound",
    "usr/lib/modules/*/kernel/drivers/net/wireless",
)  # fmt: skip

# Raise when the build procedure itself changes in a way that the fields below do not show.
_FORMAT = 2


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the content of one guest image, apart from the archive's own state."""

    suite: str
    packages: tuple[str, ...]
    unwanted: tuple[str, ...] = UNWANTED_PATHS
    toolchain: tuple[str, ...] = TOOLCHAIN_PATHS
    build_format: int = _FORMAT

    @property
    def digest(self) -> str:
        """Return 16 hex digits that name the recipe."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def image_for(target: str) -> str:
    """Return the image with what a target of the kind `target` needs.  Raises InputError for an unknown one."""
    package = targets.named(target).package
    return f"{SUITES[0]}+{package}" if package else SUITES[0]


def recipe_for(name: str) -> Recipe:
    """Return the recipe of the image `name`, one of IMAGES."""
    suite, _, extra = name.partition("+")
    more = _PEERS if suite == SUITES[0] else _BUS
    return Recipe(suite, _BASE + _FABRIC + more + _EXTRAS.get(extra, (extra,) if extra else ()))
