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
        return [f"{base}/{key}"]
    found = sorted(map(str, Path(base).glob(key)), key=lambda path: [int(part) for part in re.findall(r"\d+", path)])
    if not found:
        raise UnsupportedError(f"{device.label}: has no {key}")
    return found


@lru_cache(maxsize=4)
def _real(directory: str) -> str:
    """Return `directory` without links."""
    return os.path.realpath(directory)


def _leads_out(path: str, sysfs: str) -> bool:
    """Tell whether `path` is shown in `sysfs` and lies elsewhere."""
    # A namespace's own sysfs is a detached mount, which has no path to compare.
    if not _below(path, sysfs):
        return False
    try:
        # The kernel walks the links of sysfs's long paths in one go.
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return not _below(os.path.realpath(path), _real(sysfs))
    try:
        return not _below(os.readlink(f"/proc/self/fd/{fd}"), _real(sysfs))  # noqa: PTH115 - of thousands of places
    finally:
        os.close(fd)


# A device's attributes are in few places.
_directory_leads_out = lru_cache(maxsize=16384)(_leads_out)


def _below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def _refuse_if(outside: bool, path: str, device: Device) -> None:
    if outside:
        raise FabtuneError(f"{device.label}: {path} leads out of {tree.SYS}; it is left alone")


def _text(path: str, device: Device) -> str:
    """Return the text of attribute file `path`.  Raises FabtuneError, OSError."""
    _refuse_if(_directory_leads_out(path.rpartition("/")[0], str(tree.SYS)), path, device)
    try:
        return tree.attribute_text(path, through_link=False)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    _refuse_if(_leads_out(path, str(tree.SYS)), path, device)
    return tree.attribute_text(path)


def read(device: Device, key: str) -> str:
    """Return attribute `key` of `device`, one text for queues that agree.  Raises UnsupportedError, FabtuneError."""
    texts = []
    for path in _paths(device, key):
        with explained(f"{device.label}: {key}"):
            text = _text(path, device)
        chosen = _CHOSEN.search(text) if "[" in text else None
        texts.append(chosen[1] if chosen else text)
    return texts[0] if len(set(texts)) == 1 else " ".join(texts)


def write(device: Device, key: str, value: str) -> None:
    """Set attribute `key` of `device`.  Raises UnsupportedError, FabtuneError."""
    paths = _paths(device, key)
    # Queues that differed are given back each its own value.
    for path in paths:
        _refuse_if(_leads_out(path, str(tree.SYS)), path, device)
    values = value.split() if len(paths) > 1 and len(value.split()) == len(paths) else [value] * len(paths)
    for path, one in zip(paths, values, strict=True):
        with explained(f"{device.label}: {key}={one}"):
            try:
                tree.write_text(path, one)
            except OSError as error:
                if error.errno == errno.EINVAL and device.scope in _DRIVERS_DECIDE:
                    raise UnsupportedError(f"{device.label}: its driver or kernel refuses {key}={one}") from error
                raise
