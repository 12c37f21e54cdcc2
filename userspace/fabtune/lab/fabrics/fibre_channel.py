# SPDX-License-Identifier: GPL-2.0-or-later
"""Fibre Channel: rows of the studies that need hardware."""

from fabtune.lab.fabrics import Fabric


class FibreChannel(Fabric):
    """Known so that its rows can be said to be missing."""

    NAME = "fc"
    MISSING = "not available here: no Fibre Channel adapter and no software that stands in for one on both ends"


FABRIC = FibreChannel
