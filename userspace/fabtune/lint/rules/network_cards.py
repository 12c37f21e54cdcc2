# SPDX-License-Identifier: GPL-2.0-or-later
"""NICs: offloads, MTUs, and rings that take the only path down when they change."""

from collections.abc import Iterator

from fabtune.host.nics import Nic
from fabtune.lint.rule import Case, Scene, case, rule
from fabtune.lint.ways import only_ways


@rule(
    "link-flap",
    "notice",
    seen="{nic} carries every path to mounted {disks}",
    so="changing its rings or channels takes the link down for a second or more",
    fix="change nic.rx_ring, nic.tx_ring and nic.channels while the LUN is free, or over a second path",
)
def link_flap(scene: Scene) -> Iterator[Case]:
    """Ring and channel changes restart the queues of most drivers."""
    if not scene.facts.mounted or not any(True for _ in scene.readings("nic.rx_ring", "nic.channels")):
        return
    for nic, carried in only_ways(scene.facts).items():
        disks = [disk for disk in scene.facts.mounted if disk in carried]
        if disks:
            yield case(nic, nic=nic, disks=", ".join(disks))


@rule(
    "lro-on",
    "warning",
    seen="LRO is on below a bridge",
    so="joined packets cannot be forwarded: connections stall",
    fix="set nic.lro to false; GRO does the same safely",
)
def lro_on(scene: Scene) -> Iterator[Case]:
    """LRO breaks forwarding; a bond alone forwards nothing."""
    forwards = _below_bridges(scene.facts.nics)
    for reading, value in scene.readings("nic.lro"):
        if value and reading.device.label in forwards:
            yield case(reading)


def _below_bridges(nics: list[Nic]) -> set[str]:
    """Return the names of those that are ports of a bridge, and of those at the bottom below it."""
    bridges = [nic for nic in nics if nic.driver == "bridge"]
    ports = {name for nic in bridges for name in nic.below} | {nic.name for nic in nics if nic.member_of == "bridge"}
    over = [*bridges, *(nic for nic in nics if nic.name in ports)]
    return ports.union(*(nic.lower for nic in over))


@rule(
    "offload-off",
    "notice",
    seen="{name} is off",
    so="the CPU pays for every 1,448 bytes it sends",
    fix="set {name} to true",
    example={"nic.tso": "0"},
)
def offload_off(scene: Scene) -> Iterator[Case]:
    """Without TSO or GSO each segment walks the stack alone."""
    for reading, value in scene.readings("nic.tso", "nic.gso"):
        if value is False:
            yield case(reading, name=reading.tunable)


@rule(
    "mtu-differs",
    "notice",
    seen="{upper} has MTU {larger}, {lower} below it {smaller}",
    so="packets of the larger size do not leave; the session stalls with the first of them",
    fix="lower the MTU of {upper} to {smaller}, or raise that of {lower} if every hop carries it",
)
def mtu_differs(scene: Scene) -> Iterator[Case]:
    """A layer cannot carry more than what it lies on; less it may, and NICs of other paths have their own."""
    nics = {nic.name: nic for nic in scene.facts.nics}
    for nic in scene.facts.nics:
        below = [nics[name] for name in nic.below or nic.lower if name in nics]
        least = min(below, key=lambda one: one.mtu_bytes, default=nic)
        if least.mtu_bytes < nic.mtu_bytes:
            yield case(nic.name, upper=nic.name, lower=least.name, larger=nic.mtu_bytes, smaller=least.mtu_bytes)
