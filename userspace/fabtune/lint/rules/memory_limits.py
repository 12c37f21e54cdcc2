# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory that data in flight may need at worst, against what there is."""

from collections.abc import Iterator

from fabtune.host import targets
from fabtune.lint.rule import MIB, Case, Scene, case, rule


@rule(
    "tcp-memory",
    "notice",
    seen="{count} connections x ({receive} + {send}) bytes = {worst:.0f} MiB, pressure starts at {pressure:.0f} MiB",
    so="under pressure no window grows",
    fix="fewer sessions, smaller maxima, or a larger tcp.mem_pressure",
    example={"tcp.mem_pressure": "100"},
)
def tcp_memory(scene: Scene) -> Iterator[Case]:
    """Above tcp_mem's pressure mark no buffer grows."""
    pressure = scene.number("tcp.mem_pressure")
    receive, send = scene.number("tcp.rmem_max"), scene.number("tcp.wmem_max")
    if pressure is None or receive is None or send is None:
        return
    count, limit = len(scene.facts.sockets), pressure * scene.facts.host.page_bytes
    worst = count * (receive + send)
    if count and worst > limit:
        yield case("host", count=count, receive=receive, send=send, worst=worst / MIB, pressure=limit / MIB)


@rule(
    "unsolicited-memory",
    "warning",
    seen="{sessions} sessions x {depth} commands x {first} bytes of FirstBurst = {worst:.0f} MiB",
    so="{percent:.0f} % of this host's {memory:.0f} MiB at worst",
    fix="lower {burst} or {window}",
    example={"lio.first_burst": "16777212", "lio.default_cmdsn_depth": "512"},
)
def unsolicited_memory(scene: Scene) -> Iterator[Case]:
    """Unsolicited data needs a buffer before the target can refuse it."""
    memory = scene.facts.host.memory_bytes
    names = {kind.offer("FirstBurstLength"): kind.offer("cmdsn_depth") for kind in targets.serving()}
    for reading, first in scene.numbers(*names):
        window = names[reading.tunable]
        depth = scene.number(window, reading.device.identity)
        tpg = next((one for one in scene.facts.tpgs if one.identity == reading.device.identity), None)
        if depth is None or tpg is None or not memory:
            continue
        sessions = max(1, len(tpg.logins))
        worst = sessions * depth * first
        if worst > memory / 8:
            percent = 100 * worst / memory
            yield case(reading, sessions=sessions, depth=depth, first=first, worst=worst / MIB, percent=percent,
                       memory=memory / MIB, burst=reading.tunable, window=window)  # fmt: skip
