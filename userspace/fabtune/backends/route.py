# SPDX-License-Identifier: GPL-2.0-or-later
"""Per-route TCP metrics (``congctl``, ``initcwnd``, ``initrwnd``, ``quickack``) of the route to a peer.

``ip route change`` replaces all metrics of a route, so each write restates the ones that stay.
An empty value means that the route does not set the metric.
"""

from typing import Any

from fabtune.backends import UnsupportedError, iproute
from fabtune.model.device import Device

_KEYS = ("congctl", "initcwnd", "initrwnd", "quickack", "rto_min", "window")


def _find(device: Device) -> dict[str, Any]:
    where = device.where
    words = ["route", "show", where["destination"]]
    words += ["dev", where["name"]] if where.get("name") else []
    rows = iproute.read_json("ip", *where["family"].split(), *words, netns=where.get("netns", ""))
    if not rows:
        raise UnsupportedError(f"route {device.label}: gone")
    return rows[0]


def _metrics(route: dict[str, Any]) -> dict[str, str]:
    """Return the metrics of `route` as words for `ip route`."""
    found: dict[str, str] = {}
    for row in route.get("metrics", []):
        for key, value in row.items():
            found[key] = str(value)
    return found


class _Route:
    def read(self, device: Device, key: str) -> str:
        return _metrics(_find(device)).get(key, "")

    def write(self, device: Device, key: str, value: str) -> None:
        route = _find(device)
        metrics = _metrics(route)
        if value:
            metrics[key] = value
        else:
            metrics.pop(key, None)
        words = [str(route["dst"])]
        for name, word in (("gateway", "via"), ("dev", "dev"), ("prefsrc", "src"), ("metric", "metric")):
            words += [word, str(route[name])] if name in route else []
        words += ["proto", str(route["protocol"])] if "protocol" in route else []
        words += ["scope", str(route["scope"])] if "scope" in route else []
        for name, text in metrics.items():
            words += [name, text]
        where = device.where
        iproute.run("ip", *where["family"].split(), "route", "change", *words, netns=where.get("netns", ""))


BACKEND = _Route()
