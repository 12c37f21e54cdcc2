# SPDX-License-Identifier: GPL-2.0-or-later
"""InfiniBand: rows of the studies that need hardware."""

from fabtune.lab.fabrics import Fabric


class InfiniBand(Fabric):
    """Known so that its rows can be said to be missing."""

    NAME = "infiniband"
    MISSING = "not available here: no InfiniBand adapter; SRP and iSER run over soft RoCE instead"


FABRIC = InfiniBand
