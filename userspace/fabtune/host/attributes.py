# SPDX-License-Identifier: GPL-2.0-or-later
"""Attribute files below a device's directory, as the kernel shows them.

``queue/scheduler``-like files, which list every choice with the active one in brackets, read as the active one.
"""

import errno
import os
import re
from functools import lru_cache
from pathlib import Path

from fabtune.errors import FabtuneError, UnsupportedError, explained
from fabtune.host import namespaces, tree
from fabtune.model.device import Device

# What these take depends on driver and kernel; for the others a refusal is a mistake of ours.
_DRIVERS_DECIDE = ("block", "nic")
_CHOSEN = re.compile(r"(?:^|\s)\[([^\]]+)\](?:\s|$)")


def _paths(device: Device, key: str) -> list[str]:
    """Return the files of `key`; one with a star (``queues/rx-*/rps_cpus``) is a file for each queue.

    A key may come from a journal, so it may leave the device's directory only through sysfs's own links.
    """
    directory = device.where.get("directory")
    if not directory:
        raise UnsupportedError(f"{device.label}: has no attribute '{key}'")
    if key.startswith("/") or ".." in key.split("/"):
        raise FabtuneError(f"{device.label}: '{key:.80}' is not an attribute of a device; it is left alone")
    base = f"{namespaces.sysfs(device.where['netns']) / directory}" if "netns" in device.where else directory
    if "*" not in key:
        return [_confined(f"{base}/{key}", device)]
    found = sorted(map(str, Path(base).glob(key)), key=lambda path: [int(part) for part in re.findall(r"\d+", path)])
    if not found:
        raise UnsupportedError(f"{device.label}: has no {key}")
    return [_confined(path, device) for path in found]


@lru_cache(maxsize=4)
def _real(directory: str) -> str:
    """Return `directory` without links."""
    return os.path.realpath(directory)


@lru_cache(maxsize=16384)
def _leads_out(path: str, sysfs: str) -> bool:
    """Tell whether `path` is shown in `sysfs` and lies elsewhere.  A device's attributes are in few places."""
    return _below(path, sysfs) and not _below(os.path.realpath(path), _real(sysfs))


def _below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def _confined(path: str, device: Device) -> str:
    """Return `path` if it stays where the kernel keeps attributes.  Raises FabtuneError."""
    # A namespace's own sysfs is a detached mount, which has no path to compare.
    link = os.path.islink(path)  # noqa: PTH114 - twelve thousand of them for a thousand sessions
    sysfs = str(tree.SYS)
    if _leads_out.__wrapped__(path, sysfs) if link else _leads_out(path.rpartition("/")[0], sysfs):
        raise FabtuneError(f"{device.label}: {path} leads out of {tree.SYS}; it is left alone")
    return path


def read(device: Device, key: str) -> str:
    """Return attribute `key` of `device`, one text for queues that agree.  Raises UnsupportedError, FabtuneError."""
    texts = []
    for path in _paths(device, key):
        with explained(f"{device.label}: {key}"):
            text = tree.stripped_text(path)
        chosen = _CHOSEN.search(text)
        texts.append(chosen[1] if chosen else text)
    return texts[0] if len(set(texts)) == 1 else " ".join(texts)


def write(device: Device, key: str, value: str) -> None:
    """Set attribute `key` of `device`.  Raises UnsupportedError, FabtuneError."""
    paths = _paths(device, key)
    # Queues that differed are given back each its own value.
    values = value.split() if len(paths) > 1 and len(value.split()) == len(paths) else [value] * len(paths)
    for path, one in zip(paths, values, strict=True):
        with explained(f"{device.label}: {key}={one}"):
            try:
                tree.write_text(path, one)
            except OSError as error:
                if error.errno == errno.EINVAL and device.scope in _DRIVERS_DECIDE:
                    raise UnsupportedError(f"{device.label}: its driver or kernel refuses {key}={one}") from error
                raise
