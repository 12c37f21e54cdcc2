# SPDX-License-Identifier: GPL-2.0-or-later
"""What a kind of target answers, and in which types."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from fabtune.errors import UnsupportedError
from fabtune.host import attributes
from fabtune.model.device import Device


@dataclass(frozen=True)
class Login:
    """One initiator logged in to a TPG; `negotiated` is empty where it is not shown (LIO's dynamic ACLs, tgt)."""

    initiator: str
    dynamic: bool
    negotiated: dict[str, str] = field(hash=False)
    sid: str = ""


@dataclass(frozen=True)
class Tpg:
    """One iSCSI target portal group."""

    identity: str
    enabled: bool
    portals: tuple[str, ...]
    luns: tuple[str, ...]
    logins: tuple[Login, ...]


@dataclass(frozen=True)
class Backstore:
    """One backstore; `writes_back` tells a fileio store that really caches (its mode, not the advertised bit)."""

    name: str
    plugin: str
    writes_back: bool | None


@dataclass(frozen=True)
class Export:
    """What a kernel's target holds without a process: block devices by number and path, a SCSI device by address."""

    who: str
    numbers: tuple[tuple[int, int], ...] = ()
    paths: tuple[str, ...] = ()
    # Host, channel, id and LUN; empty for none.
    address: tuple[int, ...] = ()


@dataclass(frozen=True)
class Store:
    """What the lab puts behind a LUN: the block device `device`, else RAM; data that is not kept needs no memory."""

    index: int
    size_mib: int
    keeps_data: bool
    device: Path | None = None


class Kind:
    """One kind of target; the methods here are the answers of a kind that lacks the thing asked for."""

    name: ClassVar[str]
    # What people call it.
    title: ClassVar[str]
    # The Debian package that it needs besides the kernel ('' for none).
    package: ClassVar[str] = ""
    # What its tunables belong to, and which of these is an iSCSI portal group ('' for none).
    scopes: ClassVar[tuple[str, ...]] = ()
    group: ClassVar[str] = ""
    # The tunables of a portal group and of an ACL that a login negotiates, with the name in RFC 7143.
    offers: ClassVar[Mapping[str, str]] = {}
    acl_offers: ClassVar[Mapping[str, str]] = {}
    # What an experiment may ask of those that the lab builds, by the factors' names.
    factors: ClassVar[frozenset[str]] = frozenset()
    # Whether the boot gives it back what it was told; else that goes with its process.
    outlives_boot: ClassVar[bool] = True
    # Whether it stands for the target that a host does not have yet.
    usual: ClassVar[bool] = False

    def offer(self, key: str) -> str:
        """Return the tunable by which a portal group offers `key` of RFC 7143."""
        return next(tunable for tunable, offered in self.offers.items() if offered == key)

    def devices(self, scope: str) -> list[Device]:
        """Return the devices of `scope`, one of `scopes`."""
        return []

    def tpgs(self) -> list[Tpg]:
        """Return the iSCSI portal groups."""
        return []

    def backstores(self) -> list[Backstore]:
        """Return the backstores."""
        return []

    def logins(self, device: Device) -> list[Login]:
        """Return who is logged in by the portal group or ACL `device`."""
        return []

    def instance(self, device: Device) -> str:
        """Return what distinguishes `device` from a later one in its place, '' where nothing does."""
        return ""

    def stranger(self, instance: str) -> bool:
        """Tell whether what is seen has nothing to do with what was told as `instance`, and is not its successor."""
        return False

    def lost(self, device: Device, instance: str) -> bool:
        """Tell whether the values of `device`, when it was `instance`, are known to be gone for good."""
        return bool(instance) and self.instance(device) not in ("", instance)

    def unseen(self) -> str:
        """Return why a device that is not seen may exist all the same, '' without a reason to think so."""
        return ""

    def in_use(self, device: Device) -> bool:
        """Tell whether a live session depends on `device`."""
        return bool(self.logins(device))

    def read(self, device: Device, key: str) -> str:
        """Return what `device` holds now.  Raises UnsupportedError, FabtuneError."""
        return attributes.read(device, key)

    def write(self, device: Device, key: str, value: str) -> None:
        """Set a value of `device`.  Raises UnsupportedError, FabtuneError."""
        attributes.write(device, key, value)

    def read_saved(self, device: Device, key: str) -> str:
        """Return what the next boot gives `device`, '' for nothing.  Raises UnsupportedError, FabtuneError."""
        raise UnsupportedError(f"{device.label}: nothing gives {self.name} its parameters back at a boot")

    def write_saved(self, device: Device, key: str, value: str) -> None:
        """Set what the next boot gives `device`, '' for nothing.  Raises UnsupportedError, FabtuneError."""
        raise UnsupportedError(f"{device.label}: nothing gives {self.name} its parameters back at a boot")

    def exports(self) -> Iterator[Export]:
        """Yield what it holds without a process."""
        return iter(())

    def hidden(self) -> str:
        """Return why what it exports cannot be seen from here, '' if it can."""
        return ""

    def lacking(self) -> tuple[str, str] | None:
        """Return why it serves no portal group on this host and how to get one, None if this host does not use it."""
        return None

    # The lab's part: a target of this kind in a guest.

    def add_store(self, store: Store) -> str:
        """Make what a LUN exports and return the name by which `add_target` knows it.  Raises FabtuneError."""
        raise NotImplementedError

    def add_target(self, name: str, portals: Sequence[str], stores: Sequence[str], inside: Sequence[str]) -> None:
        """Export `stores` as LUN 0, 1, ... of `name` on `portals` to any initiator.  Raises FabtuneError.

        `inside` are the words that run a command in the portals' network namespace.
        """
        raise NotImplementedError

    def open_portal(self, name: str, portal: str, inside: Sequence[str]) -> None:
        """Let target `name` listen on `portal` too.  Raises FabtuneError."""
        raise NotImplementedError

    def close_portal(self, name: str, portal: str) -> None:
        """Let target `name` listen on `portal` no longer."""
        raise NotImplementedError

    def map_lun(self, name: str, initiator: str, number: int) -> None:
        """Let `initiator` see LUN `number` of target `name` alone, as its LUN 0."""
        raise NotImplementedError

    def set_everywhere(self, key: str, value: str) -> None:
        """Set a value of each iSCSI target.  Raises FabtuneError."""
        raise NotImplementedError

    def remembered(self) -> list[str]:
        """Return the initiators logged in that the target will remember by what they have now."""
        return []

    def forget(self, initiators: Iterable[str]) -> None:
        """End what the target remembers of initiators that have logged out."""
