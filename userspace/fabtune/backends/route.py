# SPDX-License-Identifier: GPL-2.0-or-later
"""Per-route TCP metrics (``congctl``, ``initcwnd``, ``initrwnd``, ``quickack``, ``rto_min``, ``window``) to a peer.

``ip route change`` replaces all of a route, so each write gives back every word of it with one
metric changed.  The words come from the plain listing, which is what the command takes: its JSON
leaves out which metrics are locked.  An empty value means that the route does not set the metric.
"""

from fabtune.backends import UnsupportedError, iproute
from fabtune.model.device import Device

# The one metric that is a time; it has no plain number in listing or command.
_TIME = "rto_min"
# States that a listing shows and a command does not take.
_STATES = {"linkdown", "dead", "offload", "offload_failed", "rt_offload", "rt_trap", "trap"}


def _words(device: Device) -> list[str]:
    """Return the words of the route.  Raises UnsupportedError when it is gone."""
    where = device.where
    text = iproute.run("ip", where["family"], "route", "show", where["destination"], netns=where.get("netns", ""))
    for line in text.splitlines():
        words = line.split()
        if words[:1] == [where["destination"]] and f" dev {where['name']} " in f"{line} ":
            return [word for word in words if word not in _STATES]
    raise UnsupportedError(f"route {device.label}: gone")


def _value(words: list[str], key: str) -> list[str]:
    """Return the words of metric `key` after its name: its value, after `lock` if it is locked."""
    if key not in words[1:]:
        return []
    place = words.index(key, 1) + 1
    return words[place : place + 1 + (words[place] == "lock")]


def _ms(words: list[str]) -> str:
    """Return a time as the listing shows it (``lock 300ms``, ``1.5s``) in whole milliseconds."""
    text = words[-1] if words else ""
    if text.endswith("ms"):
        return text.removesuffix("ms")
    return f"{float(text.removesuffix('s')) * 1000:.0f}" if text.endswith("s") else text


class _Route:
    def read(self, device: Device, key: str) -> str:
        value = _value(_words(device), key)
        return _ms(value) if key == _TIME else " ".join(value)

    def write(self, device: Device, key: str, value: str) -> None:
        words = _words(device)
        old = _value(words, key)
        if old:
            place = words.index(key, 1)
            del words[place : place + 1 + len(old)]
        words += [key, *(f"{value}ms" if key == _TIME else value).split()] if value else []
        # The command locks rto_min by itself, and refuses the word that its listing shows.
        words = [word for place, word in enumerate(words) if (word, words[place - 1]) != ("lock", _TIME)]
        where = device.where
        iproute.run("ip", where["family"], "route", "change", *words, netns=where.get("netns", ""))


BACKEND = _Route()
