# SPDX-License-Identifier: GPL-2.0-or-later
"""iSCSI over TCP: open-iscsi and a target of any kind; the one fabric of several clients, sessions and targets.

clients:    each has a name and a session of its own, to one LUN that all share or to a LUN each
sessions:   one initiator, a portal and a session each, joined by dm-multipath
targets:    one session to each of them, striped by md RAID-0
"""

from fabtune.host import targets
from fabtune.host.targets import Kind
from fabtune.lab import iscsi_initiator, joined, security, topology
from fabtune.lab.disks import add_store
from fabtune.lab.fabrics import Fabric, Injection
from fabtune.lab.shell import nsenter
from fabtune.lab.waiting import until
from fabtune.model.factors import Settings, differs

TARGET_IQN = "iqn.2026-01.lab.fabtune:target"
PORTAL = f"{topology.TARGET_ADDRESS}:3260"
# How long the initiator's transport waits for a cut path before it fails over.
_REPLACEMENT_S = 5


class Iscsi(Fabric):
    """A real target and a real open-iscsi initiator."""

    NAME = "iscsi"
    FACTORS = frozenset({
        "clients", "lun", "sessions", "cut", "targets", "target", "target_rate", "stall",
        "cmds_max", "cmdsn_depth", "unsolicited", "security",
    })  # fmt: skip
    RELOGIN_BY_FABTUNE = True
    TUNED_BY_ITSELF = True
    # The kernel's module that carries the sessions.
    TRANSPORT = "iscsi_tcp"

    @classmethod
    def refusal(cls, settings: Settings) -> str:
        """Return which of the factors a target of that kind cannot be built with."""
        kind = targets.named(settings.target)
        of_some = {name for one in targets.kinds() for name in one.factors}
        refused = [name for name in sorted(of_some - kind.factors) if differs(settings, name)]
        return f"target = {kind.name} takes only the default of {' and '.join(refused)}" if refused else ""

    @property
    def kind(self) -> Kind:
        """The kind of its target."""
        return targets.named(self.settings.target)

    def start_target(self) -> None:
        """Export the disk: from each of the targets, or on each of the sessions' portals, or a LUN for each client."""
        settings = self.settings
        topology.add_portals(max(settings.sessions, settings.targets))
        inside = nsenter(topology.target_namespace())
        if settings.targets > 1:
            for number, name in enumerate(self._targets()):
                self.kind.add_target(name, (_portal(number),), (add_store(self.kind, self.disk, number),), inside)
            return
        # A single client has its LUN to itself anyhow.
        own_luns = settings.clients if settings.lun == "own" and settings.clients > 1 else 0
        stores = [add_store(self.kind, self.disk, number) for number in range(own_luns or 1)]
        portals = [_portal(number) for number in range(settings.sessions)]
        self.kind.add_target(TARGET_IQN, portals, stores, inside)
        for number in range(own_luns):
            self.kind.map_lun(TARGET_IQN, iscsi_initiator.client_name(number), number)

    def start_initiator(self) -> None:
        """Start iscsid, discover the targets, and give their records and the targets what the settings say."""
        settings = self.settings
        iscsi_initiator.start(self.TRANSPORT)
        iscsi_initiator.discover(_portal(0))
        interfaces: list[str] = []
        if settings.clients > 1:
            interfaces = iscsi_initiator.add_clients(settings.clients)
            iscsi_initiator.forget_nodes()
            iscsi_initiator.discover(_portal(0), interfaces)
        for number in range(1, settings.targets):
            iscsi_initiator.discover(_portal(number))
        nodes, target = self._values()
        for key, value in target.items():
            self.kind.set_everywhere(key, value)
        if moved := security.protect_path(settings.security):
            portal = f"{moved}:3260"
            self.kind.open_portal(TARGET_IQN, portal, nsenter(topology.target_namespace()))
            self.kind.close_portal(TARGET_IQN, PORTAL)
            iscsi_initiator.forget_nodes()
            iscsi_initiator.discover(portal, interfaces)
        for key, value in nodes.items():
            iscsi_initiator.update_node(key, value)

    def _values(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return what the records and what the targets are given."""
        settings = self.settings
        nodes, target = (dict(values) for values in security.VALUES[settings.security])
        if settings.cmds_max:
            # The kernel rounds cmds_max down to a power of two; one LUN may use it all.
            nodes |= dict.fromkeys(("node.session.cmds_max", "node.session.queue_depth"), str(settings.cmds_max))
        if settings.cmdsn_depth:
            target["attrib/default_cmdsn_depth"] = str(settings.cmdsn_depth)
        if settings.unsolicited != "default":
            some, everything = settings.unsolicited != "none", settings.unsolicited == "all"
            burst = str(settings.size_bytes if everything else 65536)
            words = {
                "InitialR2T": "No" if everything else "Yes", "ImmediateData": "Yes" if some else "No",
                "FirstBurstLength": burst, "MaxBurstLength": burst,
            }  # fmt: skip
            for name, value in words.items():
                nodes[f"node.session.iscsi.{name}"] = target[f"param/{name}"] = value
        if settings.cut_s:
            nodes["node.session.timeo.replacement_timeout"] = str(_REPLACEMENT_S)
        return nodes, target

    def login(self) -> list[str]:
        """Log every session in and return their disks once all can be opened."""
        for name in self._targets():
            iscsi_initiator.login(name)
        return self.disks()

    def logout(self) -> None:
        """Log every session out and wait until their disks are gone."""
        for name in self._targets():
            iscsi_initiator.logout(name)
        until(lambda: not iscsi_initiator.disks(), "the disks to go")

    def disks(self) -> list[str]:
        """Return the sessions' disks once all can be opened."""
        settings = self.settings
        return iscsi_initiator.wait_for_disks(max(settings.clients, settings.sessions, settings.targets))

    def renew(self) -> None:
        """Log in anew: a target's new command window is for initiators that it does not remember."""
        remembered = self.kind.remembered()
        self.logout()
        self.kind.forget(remembered)
        self.login()

    def join(self, disks: list[str]) -> list[str]:
        """Join the disks of several sessions by dm-multipath, those of several targets by md RAID-0."""
        if self.settings.targets > 1:
            return [joined.stripe(disks)]
        return [joined.multipath(disks)] if self.settings.sessions > 1 else disks

    def part(self) -> None:
        """Take the device that joins the disks apart where there is one."""
        joined.part()

    def injections(self) -> list[Injection]:
        """Return what the settings ask for: a path that is cut, or a target that stalls."""
        cut = Injection(
            "the second path is cut", self.settings.cut_s, lambda: topology.cut(1), lambda: topology.mend(1)
        )
        return super().injections() + ([cut] if self.settings.cut_s else [])

    def figures(self) -> dict[str, int]:
        """Return how many of several sessions' paths have failed."""
        return {"paths_failed": joined.paths_failed()} if self.settings.sessions > 1 else {}

    def _targets(self) -> list[str]:
        count = self.settings.targets
        return [TARGET_IQN + (str(number + 1) if number else "") for number in range(count)]


def _portal(number: int) -> str:
    return f"{topology.portal_address(number)}:3260"


FABRIC = Iscsi
