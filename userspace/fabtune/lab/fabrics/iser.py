# SPDX-License-Identifier: GPL-2.0-or-later
"""iSER over soft RoCE: the iSCSI target and initiator, their data moved by RDMA."""

from fabtune.host.targets.lio import KIND
from fabtune.lab import iscsi_initiator, rdma
from fabtune.lab.fabrics.iscsi import PORTAL, TARGET_IQN, Iscsi
from fabtune.model.factors import Settings

_OF_TCP = ("digests", "ipsec", "wireguard")


class Iser(Iscsi):
    """iSCSI's knobs, one session."""

    NAME = "iser"
    FACTORS = Iscsi.FACTORS - {"clients", "lun", "sessions", "cut", "target", "targets"}
    ONE_NAMESPACE = True
    TUNED_BY_ITSELF = False
    TRANSPORT = "ib_iser"

    @staticmethod
    def refusal(settings: Settings) -> str:
        """Refuse what protects TCP alone (RFC 7145, 6.1: no digests; soft RoCE sends past IP's filters)."""
        return "expected security = none or chap" if settings.security in _OF_TCP else ""

    def start_target(self) -> None:
        """Export the disk over iSER beside TCP, which discovery goes on using."""
        rdma.start()
        super().start_target()
        KIND.offer_iser(TARGET_IQN, PORTAL)

    def start_initiator(self) -> None:
        """Start iscsid, discover the target, and let its record log in by iSER."""
        super().start_initiator()
        iscsi_initiator.update_node("iface.transport_name", "iser")


FABRIC = Iser
