# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether fabstat.ko is loaded, and if not, what keeps it away: not built, not signed, or by a key nobody trusts."""

import os
import re
from dataclasses import dataclass

from fabtune import __version__, packages
from fabtune.errors import FabtuneError
from fabtune.host import tools, tree
from fabtune.host.tree import read_text

_SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_DKMS_CERTIFICATE = "/var/lib/dkms/mok.pub"
ENROLLED, PENDING, ABSENT = "enrolled", "pending", "absent"
# What `mokutil --test-key` says, and what that makes of the key.
_KEY_SAYS = {"already enrolled": ENROLLED, "in the enrollment request": PENDING, "is not enrolled": ABSENT}


@dataclass(frozen=True)
class Loadable:
    """The module on this host, '' where a text is not known.

    `loaded` and `built` are versions; `built` is of the file that this kernel would load.  `demanded_by` says what
    makes the kernel refuse modules without a trusted signature; `key` is how the firmware has the signing key:
    enrolled, pending (until somebody confirms it at a boot), absent, or '' where nobody could tell.
    """

    kernel: str
    loaded: str
    file: str
    built: str
    signer: str
    demanded_by: str
    certificate: str
    key: str

    @property
    def obstacle(self) -> tuple[str, str] | None:
        """Return what keeps the module from being loaded, and what to do about it; None for nothing."""
        if not self.file:
            return f"fabstat is not built for the running kernel {self.kernel}", _how_to_build(self.kernel)
        if not self.demanded_by:
            return None
        if not self.signer:
            return (
                f"{self.file} is not signed, and {self.demanded_by} lets the kernel load signed modules only",
                "let DKMS build and sign it (package fabstat-dkms), or see Documentation/fabstat.md, Secure Boot",
            )
        if self.key not in (ABSENT, PENDING):
            return None
        enrol = "reboot and choose Enrol MOK, with the password that was given to mokutil"
        if self.key == ABSENT:
            enrol = f"mokutil --import {self.certificate}, which asks for a password of your choice; then {enrol}"
        return (
            f"{self.file} is signed by '{self.signer}', whose key is not enrolled in this machine's firmware, and "
            f"{self.demanded_by} lets the kernel load no other modules",
            enrol,
        )


def look() -> Loadable:
    """Return what is known of the module on this host; needs no rights."""
    kernel = read_text(tree.PROC / "sys/kernel/osrelease") or os.uname().release
    loaded = ""
    if (tree.SYS / "module/fabstat").is_dir():
        loaded = read_text(tree.SYS / "module/fabstat/version") or "unknown"
    fields = _modinfo(kernel)
    certificate = _certificate()
    demanded_by = _demanded_by()
    key = _key(certificate) if demanded_by and fields.get("signer") else ""
    return Loadable(
        kernel, loaded, fields.get("filename", ""), fields.get("version", ""), fields.get("signer", ""), demanded_by,
        certificate, key,
    )  # fmt: skip


def why_not_loaded() -> str:
    """Return what to tell who wants to read the module while it is not loaded."""
    module = look()
    if module.obstacle is None:
        load = "the fabstat module is not loaded; load it with: modprobe fabstat"
        if not module.demanded_by or module.key:
            return load
        return (
            f"{load}\n  If {module.demanded_by} refuses it, the key of its signer '{module.signer}' is not enrolled: "
            f"mokutil --import {module.certificate}, then reboot and choose Enrol MOK"
        )
    what, fix = module.obstacle
    return f"the fabstat module is not loaded: {what}; to do: {fix}"


def _modinfo(kernel: str) -> dict[str, str]:
    """Return what modinfo knows of the file that `kernel` would load, nothing if there is none."""
    try:
        done = tools.run_tool("modinfo", "kmod", "--set-version", kernel, "fabstat")
    except FabtuneError:
        return {}
    return (
        dict(re.findall(r"^(filename|version|signer):\s+(.+)$", done.stdout, re.MULTILINE)) if not done.status else {}
    )


def _demanded_by() -> str:
    """Return what makes this kernel refuse modules without a trusted signature, '' for nothing."""
    if secure_boot():
        return "Secure Boot"
    if lockdown() not in ("", "none"):
        return f"lockdown={lockdown()}"
    enforced = read_text(tree.SYS / "module/module/parameters/sig_enforce")
    return "module.sig_enforce" if enforced == "Y" else ""


def secure_boot() -> bool:
    """Tell whether the firmware booted this kernel with Secure Boot."""
    try:
        # Four bytes of attributes, then the value.
        return (tree.SYS / _SECURE_BOOT).read_bytes()[4:5] == b"\1"
    except OSError:
        return False


def lockdown() -> str:
    """Return the kernel's lockdown: none, integrity, confidentiality; '' where it does not say."""
    found = re.search(r"\[(\w+)\]", read_text(tree.SYS / "kernel/security/lockdown") or "")
    return found[1] if found else ""


def _certificate() -> str:
    """Return the certificate of the key that DKMS signs with."""
    found = _DKMS_CERTIFICATE
    for path in (tree.ETC / "dkms/framework.conf", *sorted((tree.ETC / "dkms/framework.conf.d").glob("*.conf"))):
        for value in re.findall(r"^\s*mok_certificate=(.*)$", read_text(path) or "", re.MULTILINE):
            found = value.strip().strip("\"'")
    return found


def _key(certificate: str) -> str:
    """Return how the firmware has the key of `certificate`, '' where nobody can tell."""
    try:
        done = tools.run_tool("mokutil", "mokutil", "--test-key", certificate)
    except FabtuneError:
        return ""
    return next((key for says, key in _KEY_SAYS.items() if says in done.stdout + done.stderr), "")


def _how_to_build(kernel: str) -> str:
    source = any((tree.ROOT / "usr/src").glob("fabstat-*/dkms.conf"))
    headers = (tree.ROOT / "lib/modules" / kernel / "build").exists()
    with_headers = (f"the headers of kernel {kernel}", f"linux-headers-{kernel}")
    if not source:
        how = packages.remedy(tree.ETC, ("fabstat-dkms", "fabstat-dkms"), with_headers)
        return f"{how} (from a checkout: make -C kmod, insmod kmod/fabstat.ko)"
    if not headers:
        return f"{packages.remedy(tree.ETC, with_headers)}, with which DKMS builds it"
    return (
        f"dkms install fabstat/{__version__} -k {kernel}; what went wrong is in /var/lib/dkms/fabstat/*/build/make.log"
    )
