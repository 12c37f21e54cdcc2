# SPDX-License-Identifier: GPL-2.0-or-later
"""The vocabulary as a reference page (Documentation/tunables.md), made from the tables alone."""

from collections.abc import Iterable

from fabtune.catalog.tunable import EFFECTS, Tunable
from fabtune.host import targets

_TITLES = {
    "block": "Disks of the initiator",
    "iscsi": "open-iscsi",
    "net": "Core network settings",
    "nic": "NICs",
    "qdisc": "Queueing disciplines",
    "route": "Routes",
    "srp": "SRP initiator",
    "srpt": "SRP target",
    "tcp": "TCP",
    **{kind.name: kind.title for kind in targets.serving()},
}


def _default(tunable: Tunable) -> str:
    if tunable.default is None:
        return tunable.default_note or "set by the driver"
    parts = [tunable.native(tunable.default) or "(empty)"]
    parts += [f"{tunable.native(value)} since Linux {since}" for since, value in tunable.default_since]
    return "; ".join([*parts, *filter(None, [tunable.default_note])])


def _facts(tunable: Tunable) -> Iterable[tuple[str, str]]:
    """Yield name and text of each line of a tunable's entry."""
    yield "Where", f"`{tunable.key}` ({tunable.backend}, one for each {tunable.scope})"
    yield "Values", tunable.allowed()
    yield "Default", _default(tunable)
    yield "Takes effect", EFFECTS[tunable.effect]
    yield "Touches", tunable.touches
    yield "Roles", ", ".join(tunable.roles)
    yield "Kept by", tunable.kept_by()
    if tunable.after:
        yield "Written after", ", ".join(f"`{name}`" for name in tunable.after)
    if tunable.not_above:
        yield "Never above", f"`{tunable.not_above}`"
    if tunable.disturbs:
        yield "Moves too", ", ".join(f"`{name}`" for name in tunable.disturbs)
    if tunable.note:
        yield "Note", tunable.note
    yield "Source", tunable.source


def reference(tunables: Iterable[Tunable]) -> str:
    """Return the page."""
    lines = [
        "<!-- SPDX-License-Identifier: GPL-2.0-or-later -->",
        "<!-- Made by `fabtune tunables --markdown`; edit tunables/*.toml instead. -->",
        "# Tunables",
        "",
        "This page lists every value that fabtune can show, plan, write and restore: where it lives, what it may be",
        "and when a change takes effect.  `fabtune explain NAME` adds its value on your host and what each profile",
        "wants of it.",
    ]
    group = ""
    for tunable in tunables:
        prefix = tunable.name.partition(".")[0]
        if prefix != group:
            group = prefix
            lines += ["", f"## {_TITLES.get(group, group)}"]
        lines += [
            "",
            f"### {tunable.name}",
            "",
            f"{tunable.summary[0].upper()}{tunable.summary[1:]}.  {tunable.why}",
            "",
        ]
        lines += [f"- {name}: {text}" for name, text in _facts(tunable)]
    return "\n".join(lines) + "\n"
