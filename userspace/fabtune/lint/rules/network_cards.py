# SPDX-License-Identifier: GPL-2.0-or-later
"""NICs: offloads, MTUs, and rings that take the only path down when they change."""

from collections.abc import Iterator

from fabtune.lint.rule import Case, Scene, case, rule


@rule(
    "link-flap",
    "warning",
    seen="{nic} carries the only path to mounted {disks}",
    so="changing its rings or channels takes the link down for a second or more",
    fix="change nic.rx_ring, nic.tx_ring and nic.channels while the LUN is free, or over a second path",
)
def link_flap(scene: Scene) -> Iterator[Case]:
    """Ring and channel changes restart the queues of most drivers."""
    if not scene.facts.mounted or len(scene.facts.nics) != 1:
        return
    name = scene.facts.nics[0].name
    if any(True for _ in scene.readings("nic.rx_ring", "nic.channels")):
        yield case(name, nic=name, disks=", ".join(scene.facts.mounted))


@rule(
    "lro-on",
    "warning",
    seen="LRO is on below a bridge or bond",
    so="joined packets cannot be forwarded: connections stall",
    fix="set nic.lro to false; GRO does the same safely",
)
def lro_on(scene: Scene) -> Iterator[Case]:
    """LRO breaks forwarding."""
    forwards = any(nic.driver in ("bridge", "bond") for nic in scene.facts.nics)
    for reading, value in scene.readings("nic.lro"):
        if value and forwards:
            yield case(reading)


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
    seen="storage NICs have MTU {sizes}",
    so="a path with one small hop drops large packets; without ICMP the session stalls",
    fix="check the path with `ping -M do -s 8972`, then set one MTU on all",
)
def mtu_differs(scene: Scene) -> Iterator[Case]:
    """A jumbo MTU on one of several storage NICs only is rarely meant."""
    sizes = sorted({nic.mtu_bytes for nic in scene.facts.nics})
    if len(sizes) > 1:
        yield case(", ".join(nic.name for nic in scene.facts.nics), sizes=", ".join(map(str, sizes)))
