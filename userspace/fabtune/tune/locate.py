# SPDX-License-Identifier: GPL-2.0-or-later
"""Journalled devices and their values on this host as it is now: where they are, and what became of the rest."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fabtune import backends
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import FabtuneError, InputError, UnsupportedError
from fabtune.facts import devices
from fabtune.facts.collect import this_host
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import namespaces, nics, targets
from fabtune.model.device import Device
from fabtune.tune.transaction import Step

# Objects of the kernel that go with a logout, an unplugged cable or their module, and come back with fresh values.
_BORN_ANEW = ("session", "block", "srp-port", "module")
# The kernel numbers the directories of these, and gives no number twice in a boot.
HAVE_INSTANCES = ("session", "block", "srp-port", "nic")
# What lives in these was never in the kernel alone: files, and targets that are restored from a file.
OUTLIVE_A_BOOT = ("record", "conf", "textfile", "link", "saveconfig", "srp_daemon")
_IN_A_NAMESPACE = ("netns", "nic", "route", "connection")


class Locator:
    """Finds a journalled device on this host, whatever its name is now.

    `steps` are the others of the same transaction: a device that one of them has written is no other's successor.
    """

    def __init__(self, netns: str, steps: Iterable[Step] = ()) -> None:
        self._trouble: FabtuneError | None = None
        try:
            self._around = HostSnapshot(netns)
        except FabtuneError as error:
            # Its links, routes and sysctls are out of reach; sessions, disks and targets are not in it.
            self._trouble = error
            self._around = HostSnapshot()
        self._found: dict[tuple[str, str], Device | None] = {}
        self._boot_id = this_host().boot_id
        self._written = {
            (one.device.scope, one.instance, one.device.identity) for one in steps if one.boot_id == self._boot_id
        }

    def __call__(self, device: Device) -> Device | None:
        """Return the present device with the same identity, None where it is positively absent.

        Raises FabtuneError where that cannot be told.
        """
        if self._trouble and device.scope in _IN_A_NAMESPACE:
            if isinstance(self._trouble, InputError):
                # There is no such namespace.
                return None
            raise self._trouble
        if device.key not in self._found:
            self._found[device.key] = devices.locate(device, self._around)
        return self._found[device.key]

    def of(self, step: Step) -> Device | None:
        """Return the present device of `step`, None where it is absent.  Raises FabtuneError where that cannot be told.

        What has another identity since (a NIC whose name another one has taken, a session whose elder sister of the
        same record was logged out, a disk with another WWID) is still found until the next boot.
        """
        named = self(step.device)
        kind, scope = targets.of_scope(step.device.scope), step.device.scope
        if kind and step.instance and kind.stranger(step.instance):
            return None
        unreached = self._trouble and scope == "nic"
        if scope not in HAVE_INSTANCES or not step.instance or unreached or step.boot_id != self._boot_id:
            return named
        if named is not None and instance(named) == step.instance:
            return named
        key = scope, f"{step.device.identity} {step.instance}"
        if key not in self._found:
            self._found[key] = self._again(step, named)
        return self._found[key]

    def _again(self, step: Step, named: Device | None) -> Device | None:
        """Return the step's device under another identity, else the one `named` so now if ours is nowhere at all."""
        found = devices.again(step.device, step.instance, self._around)
        if found is not None or named is None:
            return found
        if step.device.scope == "nic":
            return None if nics.name_elsewhere(step.instance, named.where["netns"]) else named
        mine = (step.device.scope, instance(named))
        others = any(one[:2] == mine and one[2] != step.device.identity for one in self._written)
        return None if others else named

    def with_users(self, nic: Device) -> Device:
        """Return `nic` with who else uses it, as a plan sees it; where storage does not, nobody has looked."""
        here = self._around.nics if nic.where["netns"] == self._around.netns else []
        found = next((one for one in here if one.name == nic.where["name"]), None)
        shared = found.shared if found else "somebody, perhaps, as nothing of storage's goes over it now"
        return replace(nic, where={**nic.where, "shared": shared})


def current(step: Step, device: Device) -> str:
    """Return what the step's value is now.  Raises UnsupportedError, FabtuneError."""
    _check(step)
    return backends.get(step.backend).read(device, step.key)


def is_as_before(step: Step, device: Device) -> bool:
    """Tell whether the step's value is what it was before it, or nothing is left to have one.  Raises FabtuneError."""
    try:
        return backends.without_remark(step.backend, current(step, device)).split() == step.old.split()
    except UnsupportedError:
        return True


def _check(step: Step) -> None:
    """Raise FabtuneError unless the step names a setting that fabtune knows: a journal must not write anything else."""
    known = shipped_catalog().tunables.values()
    place = step.backend, step.key, step.device.scope
    if any(place == (one.backend, one.key, one.scope) for one in known):
        return
    # What --persist writes; the backends of whole files check their names themselves.
    if step.backend in ("textfile", "link") and step.device.scope == "host":
        return
    if step.backend == "conf" and any(one.key == step.key for one in known if one.persist == "iscsid.conf"):
        return
    if step.backend == "saveconfig" and any(
        (one.key, one.scope) == (step.key, step.device.scope) for one in known if one.persist == "saveconfig"
    ):
        return
    raise FabtuneError(
        f"{step.backend} '{step.key:.80}' of a {step.device.scope} is not a setting known to fabtune; it is left alone"
    )


def instance(device: Device) -> str:
    """Return what distinguishes this device from a later one in its place, '' where nothing does."""
    kind = targets.of_scope(device.scope)
    if kind:
        return kind.instance(device)
    directory = device.where.get("directory")
    if device.scope not in HAVE_INSTANCES or not directory:
        return ""
    try:
        base = namespaces.sysfs(device.where.get("netns", "")) if "netns" in device.where else Path("/")
        # sysfs gives no number twice.
        return str((base / directory).stat().st_ino)
    except (OSError, InputError):
        return ""


def relies(later: Step, step: Step, locate: Locator) -> bool:
    """Tell whether `later` was written where `step` was: what an identity names may be another device since."""
    if later.key != step.key or later.backend != step.backend or later.device.scope != step.device.scope:
        return False
    told = step.boot_id == later.boot_id and "" not in (step.instance, later.instance)
    if not told or step.device.scope not in HAVE_INSTANCES:
        return later.value == step.value
    if step.instance == later.instance or later.value != step.value:
        return step.instance == later.instance
    # The device of `step` may be gone, and its value have come to this one by a file of ours.
    device = locate.of(step)
    return device is not None and instance(device) != step.instance


def rebooted(step: Step, boot_id: str) -> bool:
    """Tell whether the host has rebooted since the step and lost its value."""
    kind = targets.of_scope(step.device.scope)
    of_this_boot = step.backend not in OUTLIVE_A_BOOT and not (kind and kind.outlives_boot)
    return of_this_boot and bool(boot_id) and step.boot_id != boot_id


def reborn(step: Step, device: Device, boot_id: str) -> bool:
    """Tell whether the device was created again since the step; then a value that is not ours is its own."""
    kind = targets.of_scope(device.scope)
    lost = kind.lost(device, step.instance) if kind else instance(device) not in ("", step.instance)
    return rebooted(step, boot_id) or (bool(step.instance) and lost)


def why_nothing_is_owed(step: Step, boot_id: str) -> str:
    """Return why the value of an absent device can never come back, '' if it may return with the device."""
    kind = targets.of_scope(step.device.scope)
    if step.device.scope in _BORN_ANEW or (kind and kind.lost(step.device, step.instance)):
        return "the value is gone with it, and a new one starts with its own"
    return "the boot since has undone the value" if rebooted(step, boot_id) else ""


def why_unseen(step: Step) -> str:
    """Return why an absent device may be there all the same, '' where nothing says so."""
    kind = targets.of_scope(step.device.scope)
    return kind.unseen() if kind and not kind.lost(step.device, step.instance) else ""
