# SPDX-License-Identifier: GPL-2.0-or-later
"""Per-route TCP metrics (``congctl``, ``initcwnd``, ``initrwnd``, ``quickack``, ``rto_min``, ``window``) to a peer.

``ip route change`` replaces all of a route, so each write gives back every word of it with one
metric changed.  The words come from the plain listing, which is what the command takes: its JSON
leaves out which metrics are locked.  An empty value means that the route does not set the metric.
A route with a word that could get lost on this way is left alone.
"""

import re

from fabtune.backends import Refusal
from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.host import iproute
from fabtune.model.device import Device

# The one metric that is a time; it has no plain number in listing or command.
_TIME = "rto_min"
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?s")
# States that a listing shows and a command does not take.
_STATES = {"linkdown", "dead", "offload", "offload_failed", "rt_offload", "rt_trap", "trap"}
# What listing and command share: words of their own, metrics, words with a value.
_FLAGS = {"onlink", "lock", "inet6", "nexthop", "fastopen_no_cookie"}
_METRICS = {
    "mtu", "advmss", "hoplimit", "initcwnd", "initrwnd", "window", "rtt", "rttvar", "ssthresh", "cwnd", "reordering",
    _TIME, "features", "quickack", "congctl",
}  # fmt: skip
_WITH_VALUE = _METRICS | {"via", "dev", "proto", "scope", "src", "metric", "nhid", "weight", "pref"}
_MAIN = "main"


def _words(device: Device) -> list[str]:
    """Return the words of the route.  Raises UnsupportedError when it is gone."""
    where = device.where
    words = ("-oneline", where["family"], "route", "show", "table", where.get("table", _MAIN))
    try:
        text = iproute.run("ip", *words, "exact", where["destination"], netns=where.get("netns", ""))
    except FabtuneError as error:
        if "does not exist" not in str(error):
            raise
        text = ""
    lines = [[word for word in line.replace("\\", " ").split() if word not in _STATES] for line in text.splitlines()]
    found = [line for line in lines if line[:1] == [where["destination"]] and _is(line, where)]
    if not found:
        raise UnsupportedError(f"route {device.label}: gone")
    if len(found) > 1:
        raise UnsupportedError(
            f"route {device.label}: {len(found)} routes look the same, so that a change cannot name one of them"
        )
    return found[0]


def _is(words: list[str], where: dict[str, str]) -> bool:
    """Tell whether `words` are the route's among those to one destination: its metric is, or its device."""
    if "metric" in where:
        return _value(words, "metric") == where["metric"].split()
    return f" dev {where['name']} " in f"{' '.join(words)} "


def _value(words: list[str], key: str) -> list[str]:
    """Return the words of metric `key` after its name: its value, after `lock` if it is locked."""
    if key not in words[1:]:
        return []
    place = words.index(key, 1) + 1
    return words[place : place + 1 + (words[place : place + 1] == ["lock"])]


def _ms(words: list[str]) -> str:
    """Return a time as the listing shows it (``lock 300ms``, ``1.5s``) in whole milliseconds."""
    text = words[-1] if words else ""
    if text.endswith("ms"):
        return text.removesuffix("ms")
    return f"{float(text[:-1]) * 1000:.0f}" if _SECONDS.fullmatch(text) else text


def _command(words: list[str]) -> list[str]:
    """Return listed `words` as the command takes them."""
    # The command locks rto_min by itself, and refuses the word that its listing shows.
    words = [word for place, word in enumerate(words) if (word, words[place - 1]) != ("lock", _TIME)]
    if "nhid" not in words:
        return words
    # A nexthop object brings device and gateway; the command refuses them beside it.
    kept, skip = [], 0
    for place, word in enumerate(words[: words.index("nexthop")] if "nexthop" in words else words):
        if word in ("via", "dev") and place:
            skip = 3 if words[place + 1 : place + 2] == ["inet6"] else 2
        if skip:
            skip -= 1
        elif word != "onlink":
            kept.append(word)
    return kept


def _strange(words: list[str]) -> str:
    """Return the first word of a route that might not survive being written back, '' for none."""
    place = 1
    while place < len(words):
        if words[place] in _WITH_VALUE:
            place += 1 + (words[place + 1 : place + 2] in (["lock"], ["inet6"]))
        elif words[place] not in _FLAGS:
            return words[place]
        place += 1
    return ""


class _Route:
    def read(self, device: Device, key: str) -> str:
        value = _value(_words(device), key)
        return _ms(value) if key == _TIME else " ".join(value)

    def write(self, device: Device, key: str, value: str) -> None:
        words = _words(device)
        if strange := _strange(words):
            raise UnsupportedError(f"route {device.label}: has '{strange}', which a change might lose")
        old = _value(words, key)
        rest = list(words)
        if old:
            place = rest.index(key, 1)
            del rest[place : place + 1 + len(old)]
        new = [key, *(f"{value}ms" if key == _TIME else value).split()] if value else []
        place = rest.index("nexthop") if "nexthop" in rest else len(rest)
        self._change(device, words, [*rest[:place], *new, *rest[place:]])
        now = _words(device)
        if value := " ".join(_value(now, key)):
            place = now.index(key, 1)
            del now[place : place + 1 + len(value.split())]
        if sorted(now) != sorted(rest):
            self._change(device, now, words)
            raise UnsupportedError(f"route {device.label}: a change of {key} moves more than that; it is as before")

    @staticmethod
    def _change(device: Device, before: list[str], after: list[str]) -> None:
        """Make the route `after`.  Raises UnsupportedError where the kernel refuses and it still is `before`."""
        where = device.where
        table = ["table", where["table"]] if where.get("table", _MAIN) != _MAIN else []
        command = [where["family"], "route", "change", *_command(after)]
        # The table's word must not stand among the nexthops.
        command[4:4] = table
        try:
            iproute.run("ip", *command, netns=where.get("netns", ""))
        except FabtuneError as error:
            if sorted(_words(device)) == sorted(before):
                raise UnsupportedError(str(error)) from error
            raise

    def why_not(self, device: Device, _: str) -> Refusal | None:
        """Return why the route is left alone: what would not survive a change, or comes and goes by itself."""
        words = _words(device)
        if "expires" in words:
            return Refusal("this route expires, and whoever renews it would do so without the metric")
        if "nhid" in words and device.where["family"] == "-4" and not _METRICS.intersection(words):
            # fib_find_info_nh() takes the route's former self for the one without metrics (net/ipv4/fib_semantics.c).
            return Refusal("the kernel would not take the last metric of a route over a nexthop object away again")
        strange = _strange(words)
        return Refusal(f"this route has '{strange}', which a change might lose") if strange else None


BACKEND = _Route()
