# SPDX-License-Identifier: GPL-2.0-or-later
"""Hazards of the host on either side: TCP and core settings, NICs, and who else sets them."""

from collections.abc import Iterator

from fabtune.backends.sysctl import split_key
from fabtune.tune.lint import Finding, Hazard, Scene

_MIB = 1 << 20


def lowered_buffers(scene: Scene) -> Iterator[Finding]:
    """Old guides set maxima that today's kernels exceed by themselves."""
    for name in ("tcp.rmem_max", "tcp.wmem_max", "net.rmem_max", "net.wmem_max"):
        default = scene.default(name)
        for reading, value in scene.numbers(name):
            # The kernel itself takes less on hosts with little memory (net/ipv4/tcp.c, tcp_init).
            small = scene.facts.host.memory_bytes < 4096 * _MIB and name.startswith("tcp.")
            if isinstance(default, int) and value < default and not small:
                yield Finding(
                    "buffer-below-default",
                    "warning",
                    reading.device.label,
                    f"{name} is {value} bytes, this kernel's own default {default}",
                    f"connections get {100 * value / default:.0f} % of what an untouched host gives them",
                    "remove the setting (see `fabtune show` for the file that makes it)",
                )


def needed_features(scene: Scene) -> Iterator[Finding]:
    """Window scaling, timestamps, SACK and autotuning carry every long path."""
    consequences = {
        "tcp.window_scaling": "no connection carries more than 64 KiB each round trip",
        "tcp.timestamps": "round trips are measured once a window, and wrapped sequence numbers go unnoticed",
        "tcp.sack": "each further loss in a window costs a round trip of its own",
        "tcp.moderate_rcvbuf": "connections keep the receive buffer they started with",
    }
    for name, consequence in consequences.items():
        for reading, value in scene.readings(name):
            if not value:
                yield Finding(
                    "tcp-feature-off",
                    "warning",
                    reading.device.label,
                    f"{name} is off",
                    consequence,
                    f"set {name} to 1",
                )


def congestion_control(scene: Scene) -> Iterator[Finding]:
    """A name the kernel has not loaded is silently replaced by the default."""
    available = scene.facts.congestion_controls
    for name in ("iscsi.congestion_control", "route.congctl", "tcp.congestion_control"):
        for reading, value in scene.readings(name):
            wanted = str(value).removeprefix("lock ").strip()
            if not wanted:
                continue
            if available and wanted not in available:
                yield Finding(
                    "congestion-control-missing",
                    "warning",
                    reading.device.label,
                    f"{name} asks for {wanted}; loaded: {', '.join(available)}",
                    "connections silently use the default instead",
                    f"modprobe tcp_{wanted}",
                )
            kinds = {str(kind).removesuffix(" by hand") for _, kind in scene.readings("qdisc.kind")}
            if wanted == "bbr" and kinds and "fq" not in kinds:
                yield Finding(
                    "bbr-without-fq",
                    "notice",
                    reading.device.label,
                    f"bbr with qdisc {', '.join(sorted(kinds))}",
                    "TCP paces with a timer for each socket instead of the qdisc's one: more CPU",
                    "set qdisc.kind to fq",
                )


def other_owners(scene: Scene) -> Iterator[Finding]:
    """Two owners of one value undo each other at boot, or in between."""
    keys: dict[str, str] = {}
    for tunable in scene.catalog.tunables.values():
        if tunable.backend == "sysctl":
            keys[split_key(tunable.key)[0]] = tunable.name
    for owner in scene.facts.owners:
        if owner.who == "sysctl.d" and owner.key in keys and "90-fabtune" not in owner.where:
            yield Finding(
                "sysctl-owned",
                "notice",
                owner.where,
                f"{owner.key} = {owner.value}",
                f"at boot it sets {keys[owner.key]} again",
                "change it there, or remove the line",
            )
    consequences = {
        "tuned": "its profile sets sysctls, rings and channels again when it starts or changes profile",
        "bpftune": "it moves tcp_rmem, tcp_wmem and congestion control by itself, within its own limits",
        "irqbalance": "it moves NIC interrupts from where nic.irq_affinity put them",
        "NetworkManager": "it sets rings, coalescing and MTU of its connections again when they come up",
        "systemd-networkd": "it sets MTU and queue lengths from .link and .network files when links come up",
    }
    for who, consequence in consequences.items():
        for owner in [one for one in scene.facts.owners if one.who == who and not one.key][:1]:
            detail = f"{who} {owner.value}".strip()
            yield Finding(
                "other-tuner",
                "notice",
                "host",
                f"{detail}: {owner.where}",
                consequence,
                f"tell {who} to leave these alone, or set them there; never stop it for this",
            )


def link_flap(scene: Scene) -> Iterator[Finding]:
    """Ring and channel changes restart the queues of most drivers."""
    if not scene.facts.mounted or len(scene.facts.nics) != 1:
        return
    nic = scene.facts.nics[0]
    readings = [*scene.facts.of("nic.rx_ring"), *scene.facts.of("nic.channels")]
    if any(reading.value is not None for reading in readings):
        yield Finding(
            "link-flap",
            "warning",
            nic.name,
            f"{nic.name} carries the only path to mounted {', '.join(scene.facts.mounted)}",
            "changing its rings or channels takes the link down for a second or more",
            "change nic.rx_ring, nic.tx_ring and nic.channels while the LUN is free, or over a second path",
        )


def offloads(scene: Scene) -> Iterator[Finding]:
    """LRO breaks forwarding; without GRO or TSO each segment walks the stack alone."""
    forwards = any(nic.driver in ("bridge", "bond") for nic in scene.facts.nics)
    for reading, value in scene.readings("nic.lro"):
        if value and forwards:
            yield Finding(
                "lro-on",
                "warning",
                reading.device.label,
                "LRO is on below a bridge or bond",
                "joined packets cannot be forwarded: connections stall",
                "set nic.lro to false; GRO does the same safely",
            )
    for name in ("nic.tso", "nic.gso"):
        for reading, value in scene.readings(name):
            if value is False:
                yield Finding(
                    "offload-off",
                    "notice",
                    reading.device.label,
                    f"{name} is off",
                    "the CPU pays for every 1,448 bytes it sends",
                    f"set {name} to true",
                )


def mtu_mismatch(scene: Scene) -> Iterator[Finding]:
    """A jumbo MTU on one of several storage NICs only is rarely meant."""
    sizes = {nic.mtu_bytes for nic in scene.facts.nics}
    if len(sizes) > 1:
        yield Finding(
            "mtu-differs",
            "notice",
            ", ".join(nic.name for nic in scene.facts.nics),
            f"storage NICs have MTU {', '.join(str(size) for size in sorted(sizes))}",
            "a path with one small hop drops large packets; without ICMP the session stalls",
            "check the path with `ping -M do -s 8972`, then set one MTU on all",
        )


def tcp_memory(scene: Scene) -> Iterator[Finding]:
    """Above tcp_mem's pressure mark no buffer grows."""
    pressure = scene.number("tcp.mem_pressure")
    receive, send = scene.number("tcp.rmem_max"), scene.number("tcp.wmem_max")
    if pressure is None or receive is None or send is None or not scene.facts.sockets:
        return
    worst = len(scene.facts.sockets) * (receive + send)
    pressure_bytes = pressure * scene.facts.host.page_bytes
    if worst > pressure_bytes:
        yield Finding(
            "tcp-memory",
            "notice",
            "host",
            f"{len(scene.facts.sockets)} connections x ({receive} + {send}) bytes = {worst / _MIB:.0f} MiB, "
            f"pressure starts at {pressure_bytes / _MIB:.0f} MiB",
            "under pressure no window grows",
            "fewer sessions, smaller maxima, or a larger tcp.mem_pressure",
        )


HAZARDS: tuple[Hazard, ...] = (
    lowered_buffers, needed_features, congestion_control, other_owners, link_flap, offloads, mtu_mismatch, tcp_memory,
)  # fmt: skip
