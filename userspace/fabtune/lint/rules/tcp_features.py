# SPDX-License-Identifier: GPL-2.0-or-later
"""What TCP needs on a long path, and settings of it that do nothing."""

from collections.abc import Iterator

from fabtune.catalog.tunable import kernel_version
from fabtune.lint.rule import Case, Scene, case, rule

_LOST = {
    "tcp.window_scaling": "no connection carries more than 64 KiB each round trip",
    "tcp.timestamps": "round trips are measured once a window, and wrapped sequence numbers go unnoticed",
    "tcp.sack": "each further loss in a window costs a round trip of its own",
    "tcp.moderate_rcvbuf": "connections keep the receive buffer they started with",
}


@rule("tcp-feature-off", "warning", seen="{name} is off", so="{lost}", fix="set {name} to 1", example={"tcp.sack": "0"})
def tcp_feature_off(scene: Scene) -> Iterator[Case]:
    """Window scaling, timestamps, SACK and autotuning carry every long path."""
    for reading, value in scene.readings(*_LOST):
        if not value:
            yield case(reading, name=reading.tunable, lost=_LOST[reading.tunable])


def _wanted(scene: Scene) -> Iterator[tuple[str, str, str]]:
    """Yield label, tunable and congestion control wherever one is asked for by name."""
    for reading, value in scene.readings("iscsi.congestion_control", "route.congctl", "tcp.congestion_control"):
        wanted = str(value).removeprefix("lock ").strip()
        if wanted:
            yield reading.device.label, reading.tunable, wanted


@rule(
    "congestion-control-missing",
    "warning",
    seen="{name} asks for {wanted}; loaded: {available}",
    so="connections silently use the default instead",
    fix="modprobe tcp_{wanted}",
    example={"tcp.congestion_control": "bbr"},
)
def congestion_control_missing(scene: Scene) -> Iterator[Case]:
    """A name the kernel has not loaded is silently replaced by the default."""
    available = scene.facts.congestion_controls
    for label, name, wanted in _wanted(scene):
        if available and wanted not in available:
            yield case(label, name=name, wanted=wanted, available=", ".join(available))


@rule(
    "bbr-without-fq",
    "notice",
    seen="bbr with qdisc {kinds}",
    so="TCP paces with a timer for each socket instead of the qdisc's one: more CPU",
    fix="set qdisc.kind to fq",
    example={"tcp.congestion_control": "bbr"},
)
def bbr_without_fq(scene: Scene) -> Iterator[Case]:
    """bbr paces every segment (net/ipv4/tcp_bbr.c)."""
    kinds = {str(kind).removesuffix(" by hand") for _, kind in scene.readings("qdisc.kind")}
    for label, _, wanted in _wanted(scene):
        if wanted == "bbr" and kinds and "fq" not in kinds:
            yield case(label, kinds=", ".join(sorted(kinds)))


@rule(
    "dead-knob",
    "notice",
    seen="{knob} is {value}",
    so="without effect {since}",
    fix="{fix}",
    example={"iscsi.xmit_thread_priority": "-20"},
)
def dead_knob(scene: Scene) -> Iterator[Case]:
    """Settings that newer kernels ignore."""
    version = kernel_version(scene.facts.host.kernel)
    for reading, priority in scene.numbers("iscsi.xmit_thread_priority"):
        if priority and version >= (6, 0):
            yield case(
                reading, knob="xmit_thread_priority", value=priority, since="on this kernel", fix="leave it at 0"
            )
    for reading, scale in scene.numbers("tcp.adv_win_scale"):
        if version >= (6, 6) and scale != scene.default("tcp.adv_win_scale"):
            yield case(
                reading, knob="tcp_adv_win_scale", value=scale, since="since Linux 6.6", fix="remove it from sysctl.d"
            )
