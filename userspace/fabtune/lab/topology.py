# SPDX-License-Identifier: GPL-2.0-or-later
"""The iSCSI/TCP path inside one guest: initiator, shaper, WAN and target, each in its own place.

    initiator (init_net) --- shaper --- wan --- target
       i0 10.1.0.1        s0     s1   w0   w1    t0 10.2.0.1

With neighbours, s0 and w1 are bridges, and at each stands another host (cross, cross-far) whose traffic shares the
shaper's queues and the wan with the initiator's and the target's.

The initiator must live in init_net, where iscsid's netlink socket is.  The shaper alone limits the
rate, the wan alone delays and loses, half of the RTT in each direction, so that neither shares its
queue limit with the other and neither sits on an end host's own device.

RDMA's soft RoCE devices, and LIO's RDMA listeners, exist in init_net alone: for them the target's end
lies there too, and routing rules send what the host addresses to itself out through the routers.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host import iproute
from fabtune.host.run import finish, run
from fabtune.lab.shell import ip_batch, nsenter, tc_batch, write_sysctl
from fabtune.model import losses, typed
from fabtune.model.factors import Settings

INITIATOR_ADDRESS = "10.1.0.1"
TARGET_ADDRESS = "10.2.0.1"
SHAPER, WAN, TARGET = "shaper", "wan", "target"
# Other hosts beside initiator and target, each with its router's device that becomes a bridge, and its address.
CROSS, CROSS_FAR = "cross", "cross-far"
CROSS_FAR_ADDRESS = "10.2.0.200"
_NEIGHBOURS = {
    CROSS: (SHAPER, "s0", "10.1.0.200", "10.1.0.254"), CROSS_FAR: (WAN, "w1", CROSS_FAR_ADDRESS, "10.2.0.254"),
}  # fmt: skip
NEIGHBOUR_DEVICE = "c0"
_SHAPED = ("s0", "s1", "w0", "w1")
# (namespace, device) of both ends of each of the three links, initiator to target.
_LINKS = (((None, "i0"), (SHAPER, "s0")), ((SHAPER, "s1"), (WAN, "w0")), ((WAN, "w1"), (TARGET, "t0")))
_DEVICES = tuple(end for link in _LINKS for end in link)
_ADDRESSES = {
    "i0": "10.1.0.1/24", "s0": "10.1.0.254/24", "s1": "10.3.0.1/24", "w0": "10.3.0.2/24",
    "w1": "10.2.0.254/24", "t0": f"{TARGET_ADDRESS}/24",
}  # fmt: skip
_ROUTES = (
    (None, "10.2.0.0/24", "10.1.0.254"), (SHAPER, "10.2.0.0/24", "10.3.0.2"),
    (WAN, "10.1.0.0/24", "10.3.0.1"), (TARGET, "10.1.0.0/24", "10.2.0.254"),
)  # fmt: skip
# Both ends in init_net: packets that arrive are local, all others for the other end's network leave by a
# table of their own, and only then the table of local addresses is asked.
_SELF_ROUTES = (
    "route add default via 10.1.0.254 dev i0 src 10.1.0.1 table 100",
    "route add default via 10.2.0.254 dev t0 src 10.2.0.1 table 101",
    "rule add pref 10 iif i0 lookup local", "rule add pref 11 iif t0 lookup local",
    "rule add pref 20 to 10.2.0.0/24 lookup 100", "rule add pref 21 to 10.1.0.0/24 lookup 101",
    "rule add pref 30 lookup local", "rule del pref 0",
)  # fmt: skip
# Deep enough that nothing is dropped unless a buffer size is asked for.
_DEEP_LIMIT = 100_000
# netem keeps the order of packets whose delays differ where it has a rate as well, however high.
_IN_ORDER = "rate 1tbit"
_HEADER_BYTES = 14
# Packets of a burst of loss, on average.
_BURST = 3


@dataclass(frozen=True)
class EmulatedPath:
    """What the path does to packets; each direction gets half of `rtt_ms`.

    `loss` is a share of one a direction, `loss_model` one of random or gemodel (bursts of 3 on average);
    `buffer_bytes` is the bottleneck's queue, None for one that never drops; towards the initiator it is as much of
    what that direction holds.  With `seed` the same packets of each
    direction are lost, counted from `lose_anew` on, whatever else the seed of the guest decides; from Linux 6.6 on.
    `jitter_ms` is how far a lone packet's round trip varies to either side; in order, which makes it longer for close
    ones.  Of the packets of a direction the share `reorder` overtakes all others on the way, and the share `duplicate`
    arrives twice.  `rate_back_bit_per_s` is the rate towards the initiator, None for the same.  `neighbours` puts other
    hosts beside both ends.  `nic_rate_bit_per_s` is what each end's NIC sends at, None for as fast as it comes.
    Without `offloads` each packet is handled on its own, as it always is where the path treats packets differently.
    """

    rtt_ms: float = 0.0
    rate_bit_per_s: float = 1e9
    loss: float = 0.0
    loss_model: str = "random"
    mtu: int = 1500
    buffer_bytes: int | None = None
    seed: int | None = None
    offloads: bool = True
    jitter_ms: float = 0.0
    reorder: float = 0.0
    duplicate: float = 0.0
    rate_back_bit_per_s: float | None = None
    neighbours: bool = False
    nic_rate_bit_per_s: float | None = None

    @property
    def packets_alone(self) -> bool:
        """Whether no device may hand super-packets on."""
        treated = self.loss or self.jitter_ms or self.reorder or self.duplicate or self.nic_rate_bit_per_s
        treated = treated or self.buffer_bytes is not None
        return bool(treated) or not self.offloads


def impossible(settings: Settings) -> str:
    """Return what of `settings` no path can do, with what is expected and why; '' where one can."""
    rtt_ms, expected = settings.rtt_ms, "expected a round trip of more than 0ms, since"
    if settings.jitter_ms > rtt_ms:
        found = f"jitter = {settings.jitter_ms:g}ms with rtt = {rtt_ms:g}ms"
        return f"{found}: expected no more than the round trip, since nothing arrives before it is sent"
    if settings.buffer_bdp and not rtt_ms:
        return f"buffer = {settings.buffer_bdp:g} with rtt = 0ms: {expected} a path without delay holds nothing"
    if settings.reorder and not rtt_ms:
        return f"reorder = {100 * settings.reorder:g}% with rtt = 0ms: {expected} a packet overtakes only what waits"
    return ""


def emulated_path(settings: Settings) -> EmulatedPath:
    """Return the path that `settings` ask for; its buffer is a share of what the forward direction holds."""
    bdp_bytes = settings.rate_bit_per_s / 8 * settings.rtt_ms / 1e3
    return EmulatedPath(
        rtt_ms=settings.rtt_ms, rate_bit_per_s=settings.rate_bit_per_s, loss=settings.loss,
        loss_model=settings.loss_model, mtu=settings.mtu, seed=settings.seed, offloads=settings.offloads == "on",
        buffer_bytes=math.ceil(settings.buffer_bdp * bdp_bytes) if settings.buffer_bdp else None,
        jitter_ms=settings.jitter_ms, reorder=settings.reorder, duplicate=settings.duplicate,
        rate_back_bit_per_s=settings.rate_back_bit_per_s or None, neighbours=settings.cross != "none",
        nic_rate_bit_per_s=settings.nic_rate_bit_per_s or None,
    )  # fmt: skip


def up(path: EmulatedPath, *, one_namespace: bool = False) -> None:
    """Make namespaces, links, addresses and routes, then `shape` the path.

    `one_namespace` puts the target's end into init_net, for fabrics that exist nowhere else.
    """
    for name in (SHAPER, WAN) if one_namespace else (SHAPER, WAN, TARGET):
        run(["ip", "netns", "add", name], what=f"adding namespace {name}")
        run(["ip", "-n", name, "link", "set", "lo", "up"], what=f"starting namespace {name}")
    for (near_ns, near), (far_ns, far) in _LINKS:
        peer = _place(far_ns)
        ip_batch(near_ns, [f"link add {near} type veth peer name {far}" + (f" netns {peer}" if peer else " netns 1")])
    if path.neighbours:
        _add_neighbours(path)
    for namespace, device in _DEVICES:
        address = [f"addr add {_ADDRESSES[device]} dev {device}", f"link set {device} mtu {path.mtu} up"]
        ip_batch(_place(namespace), address)
    for namespace, prefix, gateway in _ROUTES:
        if not one_namespace or namespace in (SHAPER, WAN):
            ip_batch(namespace, [f"route add {prefix} via {gateway}"])
    if one_namespace:
        for device in ("all", "i0", "t0"):
            write_sysctl(None, f"net.ipv4.conf.{device}.rp_filter", "0")
            write_sysctl(None, f"net.ipv4.conf.{device}.accept_local", "1")
        ip_batch(None, _SELF_ROUTES)
    for router in (SHAPER, WAN):
        write_sysctl(router, "net.ipv4.ip_forward", "1")
    shape(path)


def _add_neighbours(path: EmulatedPath) -> None:
    """Make a bridge of each router's outer device, and put another host beside the one that is there."""
    for name, (router, device, address, gateway) in _NEIGHBOURS.items():
        run(["ip", "netns", "add", name], what=f"adding namespace {name}")
        ip_batch(router, [
            f"link set {device} name {device}a", f"link add {device} type bridge",
            f"link add {device}b type veth peer name {NEIGHBOUR_DEVICE} netns {name}",
            *(f"link set {device}{port} mtu {path.mtu} master {device} up" for port in "ab"),
        ])  # fmt: skip
        ip_batch(name, [
            "link set lo up", f"addr add {address}/24 dev {NEIGHBOUR_DEVICE}",
            f"link set {NEIGHBOUR_DEVICE} mtu {path.mtu} up", f"route add default via {gateway}",
        ])  # fmt: skip


def target_namespace() -> str | None:
    """Return the namespace of the target's end, None where that is init_net."""
    return TARGET if Path("/run/netns", TARGET).exists() else None


def shape(path: EmulatedPath) -> None:
    """Give the path its rate, delay and loss; the links must be idle or the change hits packets in flight.

    Packets are lost one by one only if no device hands super-packets on, so loss and the like turn every
    device's segmentation offloads off, and their absence turns them on again unless they are not wanted.
    """
    offload = "off" if path.packets_alone else "on"
    ends = [(_place(namespace), device) for namespace, device in _DEVICES]
    if path.neighbours:
        ends += [(name, NEIGHBOUR_DEVICE) for name in _NEIGHBOURS]
        ends += [(router, device + port) for router, device, _, _ in _NEIGHBOURS.values() for port in "ab"]
    for namespace, device in ends:
        run(
            [*nsenter(namespace), "ethtool", "-K", device, "tso", offload, "gso", offload, "gro", "off"],
            what=f"switching {device}'s offloads {offload}",
        )
    for device, bit_per_s in (("s0", path.rate_back_bit_per_s or path.rate_bit_per_s), ("s1", path.rate_bit_per_s)):
        limit = _DEEP_LIMIT
        if path.buffer_bytes is not None:
            buffer_bytes = path.buffer_bytes * bit_per_s / path.rate_bit_per_s
            limit = max(2, math.ceil(buffer_bytes / (path.mtu + _HEADER_BYTES)))
        tc_batch(SHAPER, [f"qdisc replace dev {device} root netem rate {bit_per_s:.0f}bit limit {limit}"])
    _limit_nics(path)
    _delay_and_lose(path)


def _limit_nics(path: EmulatedPath) -> None:
    """Let each end's NIC send at its own rate: an end's own device is its tuner's, so its router takes care of it."""
    for router, device in ((SHAPER, "s0"), (WAN, "w1")):
        link = f"{device}a" if path.neighbours else device
        nic = f"{device}nic"
        if finish(["ip", "-n", router, "link", "show", nic]).status == 0:
            tc_batch(router, [f"qdisc del dev {link} clsact"])
            ip_batch(router, [f"link del {nic}"])
        if path.nic_rate_bit_per_s:
            ip_batch(router, [f"link add {nic} type ifb", f"link set {nic} mtu {path.mtu} up"])
            tc_batch(router, [
                f"qdisc add dev {nic} root netem rate {path.nic_rate_bit_per_s:.0f}bit limit {_DEEP_LIMIT}",
                f"qdisc add dev {link} clsact",
                f"filter add dev {link} ingress matchall action mirred egress redirect dev {nic}",
            ])  # fmt: skip


def lose_anew(path: EmulatedPath) -> None:
    """Begin the path's pattern of losses and the like from its first packet: each measured part has the same."""
    if path.loss or path.jitter_ms or path.reorder or path.duplicate:
        _delay_and_lose(path)


def _delay_and_lose(path: EmulatedPath) -> None:
    for number, device in enumerate(("w0", "w1")):
        words = []
        if path.rtt_ms or path.jitter_ms:
            words.append(f"delay {path.rtt_ms * 500:.0f}us")
        if path.jitter_ms:
            words += [f"{path.jitter_ms * 500:.0f}us", _IN_ORDER]
        if path.loss:
            words.append(_loss_words(path))
        for what, share in (("reorder", path.reorder), ("duplicate", path.duplicate)):
            words += [f"{what} {100 * share:g}%"] if share else []
        if path.jitter_ms or path.loss or path.reorder or path.duplicate:
            # Linux commit 4072d97ddc44 (in v6.6): "netem: add prng attribute to netem_sched_data".
            words += [] if path.seed is None else [f"seed {2 * path.seed + number}"]
        if words:
            tc_batch(WAN, [f"qdisc replace dev {device} root netem {' '.join(words)} limit {_DEEP_LIMIT}"])
        else:
            tc_batch(WAN, [f"qdisc replace dev {device} root pfifo limit {_DEEP_LIMIT}"])


def portal_address(number: int) -> str:
    """Return the target's address `number`, counted from 0."""
    return f"10.2.0.{1 + number}"


def add_portals(count: int) -> None:
    """Give the target's end `count` addresses in all."""
    ip_batch(target_namespace(), [f"addr add {portal_address(number)}/24 dev t0" for number in range(1, count)])


def cut(number: int) -> None:
    """Let the WAN swallow whatever is for portal `number`, without a word to the sender."""
    ip_batch(WAN, [f"route add blackhole {portal_address(number)}/32"])


def mend(number: int) -> None:
    """Let the WAN pass on again what is for portal `number`."""
    ip_batch(WAN, [f"route del blackhole {portal_address(number)}/32"])


def forget_paths() -> None:
    """Drop what TCP remembers of earlier connections, so that no point inherits another's ssthresh or RTT."""
    for namespace in dict.fromkeys((None, target_namespace())):
        run([*nsenter(namespace), "ip", "tcp_metrics", "flush", "all"], what="flushing TCP's metrics")


@dataclass(frozen=True)
class _Counters:
    """What tc says of one queueing discipline, as far as it is looked at."""

    dev: str
    packets: int
    bytes: int
    drops: int
    overlimits: int
    root: bool = False


def qdisc_counters() -> dict[str, dict[str, int]]:
    """Return packets, bytes, drops and overlimits of each router's qdisc, by device."""
    counters = {}
    for namespace in (SHAPER, WAN):
        rows = iproute.read_json("tc", "-s", "qdisc", "show", netns=f"/run/netns/{namespace}")
        for one in typed.TOLERANT.read(tuple[_Counters, ...], rows, "tc -s qdisc show"):
            if one.root and one.dev in _SHAPED:
                counters[one.dev] = {
                    "packets": one.packets, "bytes": one.bytes, "drops": one.drops, "overlimits": one.overlimits,
                }  # fmt: skip
    return counters


def assert_clean(before: dict[str, dict[str, int]], after: dict[str, dict[str, int]], path: EmulatedPath) -> None:
    """Raise FabtuneError when the path dropped packets that it was not told to, or none passed at all.

    Of each direction the WAN has to lose as many as chance makes of the loss that was asked for; a queue of which a
    size was asked for may drop any number.
    """
    for device, row in after.items():
        dropped = row["drops"] - before[device]["drops"]
        passed = row["packets"] - before[device]["packets"]
        loses = path.loss > 0 and device.startswith("w")
        if dropped and not loses and (device.startswith("w") or path.buffer_bytes is None):
            raise FabtuneError(
                f"{device} dropped {dropped} packets on a path without loss; its queue limit is too small"
            )
        if passed == 0:
            raise FabtuneError(f"no packet passed {device}; the traffic went around the emulated path")
        if loses:
            _assert_lost(device, dropped, passed, path)


def _assert_lost(device: str, dropped: int, passed: int, path: EmulatedPath) -> None:
    """Raise FabtuneError where `dropped` packets are more or fewer than chance makes of the loss that was asked for."""
    tried, burst = dropped + passed, 1.0 if path.loss_model == "random" else _BURST
    # One that is to be lost and to arrive twice arrives once: netem counts no drop.
    fewest, _ = losses.by_chance(tried, path.loss * (1 - path.duplicate), burst)
    _, most = losses.by_chance(tried, path.loss, burst)
    if not fewest <= dropped <= most:
        raise FabtuneError(
            f"{device} lost {dropped} of {tried} packets where {100 * path.loss:g}% were asked for: expected "
            f"{math.ceil(fewest)} to {math.floor(most)}"
        )


def _place(namespace: str | None) -> str | None:
    """Return where a device of `namespace` really lives: the target's may be init_net."""
    return target_namespace() if namespace == TARGET else namespace


def _loss_words(path: EmulatedPath) -> str:
    percent = 100 * path.loss
    if path.loss_model == "random":
        return f"loss random {percent:g}%"
    # Gilbert's model: leave the bad state so that bursts have their length, enter it so that the share fits.
    leave = 100 / _BURST
    enter = path.loss * leave / (1 - path.loss)
    return f"loss gemodel {enter:g}% {leave:g}%"
