# SPDX-License-Identifier: GPL-2.0-or-later
"""Read and write one kind of tunable each.

A backend is one module with a `BACKEND` object; its name in a tunable's table is the module's
name.  Values cross this border as the native text the kernel or tool shows, so that what the
journal keeps is exactly what has to go back.
"""

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, cast

from fabtune.errors import FabtuneError
from fabtune.host import tree
from fabtune.model.device import Device

NAMES = (
    "attribute", "conf", "connection", "ethtool", "irq", "link", "mtu", "qdisc", "record", "route", "saveconfig",
    "srp_daemon", "sysctl", "textfile",
)  # fmt: skip


class Backend(Protocol):
    """Reads and writes one kind of tunable as native text."""

    def read(self, device: Device, key: str) -> str:
        """Return the present value.  Raises UnsupportedError, FabtuneError."""

    def write(self, device: Device, key: str, value: str) -> None:
        """Set the value.  Raises UnsupportedError, FabtuneError."""


@dataclass(frozen=True)
class Refusal:
    """Why a value that could be written is left alone; a profile's parameter `unless` overrides it, '' none."""

    reason: str
    unless: str = ""


def why_not(name: str, device: Device, key: str) -> Refusal | None:
    """Return why `device` had better keep its value, None if it may be written.  Raises FabtuneError.

    A backend that ever refuses has a function of this name and these arguments, less the first.
    """
    ask = getattr(get(name), "why_not", None)
    return cast(Refusal | None, ask(device, key)) if ask else None


def without_remark(name: str, value: str) -> str:
    """Return `value` as it may be written back: without what a backend's read says behind it."""
    ask = getattr(get(name), "without_remark", None)
    return cast(str, ask(value)) if ask else value


@cache
def _imported(name: str) -> Backend:
    return cast(Backend, importlib.import_module(f"fabtune.backends.{name}").BACKEND)


def get(name: str) -> Backend:
    """Return the backend called `name`, imported on first use; within `nothing_written` one that writes nothing."""
    return _imported(name) if _unwritten is None else _Unwritten(name, _imported(name), _unwritten)


# What would have been written, by backend, scope, place and key.
_Kept = dict[tuple[str, str, str, str], str]
_unwritten: _Kept | None = None


def _places(device: Device) -> list[str]:
    """Return where `device` is, the surest first: another identity may lead to the same directory of the kernel's."""
    directory = device.where.get("directory", "")
    return [*([directory] if directory.startswith("/") else []), device.identity]


class _Unwritten:
    """A backend whose writes are seen by who reads through one of its kind, and by nobody else."""

    def __init__(self, name: str, backend: Backend, kept: _Kept) -> None:
        self._name, self._backend, self._kept = name, backend, kept

    def read(self, device: Device, key: str) -> str:
        kept = self._kept.get((self._name, device.scope, _places(device)[0], key))
        return self._backend.read(device, key) if kept is None else kept

    def write(self, device: Device, key: str, value: str) -> None:
        self._kept |= {(self._name, device.scope, place, key): value for place in _places(device)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


@contextlib.contextmanager
def nothing_written() -> Iterator[None]:
    """Let no backend write within the block: what would be written is what is read from then on, up to its end.

    So whoever decides by what he reads decides as if he had written, and the host stays as it is.
    """
    global _unwritten
    before, _unwritten = _unwritten, {}
    try:
        yield
    finally:
        _unwritten = before


def limit(name: str, device: Device, key: str) -> int | None:
    """Return the number in `key` that bounds a tunable on this very device, None where it has none."""
    try:
        text = get(name).read(device, key)
    except FabtuneError:
        return None
    return tree.whole(text)
