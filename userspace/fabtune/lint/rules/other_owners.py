# SPDX-License-Identifier: GPL-2.0-or-later
"""Other programs and files that set what fabtune sets: two owners of one value undo each other."""

from collections.abc import Iterator

from fabtune.backends.sysctl import split_key
from fabtune.lint.rule import Case, Scene, case, rule

_DOES = {
    "tuned": "its profile sets sysctls, rings and channels again when it starts or changes profile",
    "bpftune": "it moves tcp_rmem, tcp_wmem and congestion control by itself, within its own limits",
    "irqbalance": "it moves NIC interrupts from where nic.irq_affinity put them",
    "NetworkManager": "it sets rings, coalescing and MTU of its connections again when they come up",
    "systemd-networkd": "it sets MTU and queue lengths from .link and .network files when links come up",
}


@rule(
    "sysctl-owned",
    "notice",
    seen="{key} = {value}",
    so="at boot it sets {tunable} again",
    fix="change it there, or remove the line",
)
def sysctl_owned(scene: Scene) -> Iterator[Case]:
    """A file of sysctl.d that is not ours sets a tunable at each boot."""
    known = scene.catalog.tunables.values()
    names = {split_key(tunable.key)[0]: tunable.name for tunable in known if tunable.backend == "sysctl"}
    for owner in scene.facts.owners:
        if owner.who == "sysctl.d" and owner.key in names and "90-fabtune" not in owner.where:
            yield case(owner.where, key=owner.key, value=owner.value, tunable=names[owner.key])


@rule(
    "other-tuner",
    "notice",
    seen="{what}: {where}",
    so="{does}",
    fix="tell {who} to leave these alone, or set them there; do not stop it just for this",
)
def other_tuner(scene: Scene) -> Iterator[Case]:
    """A running program sets these values by itself."""
    for who, does in _DOES.items():
        for owner in [one for one in scene.facts.owners if one.who == who and not one.key][:1]:
            yield case("host", what=f"{who} {owner.value}".strip(), where=owner.where, does=does, who=who)
