# SPDX-License-Identifier: GPL-2.0-or-later
"""Soft RoCE (rdma_rxe) on both ends of the path; it exists in init_net alone."""

from pathlib import Path

from fabtune.host.run import run

INITIATOR_DEVICE, TARGET_DEVICE = "rxe_i", "rxe_t"
_ON = {INITIATOR_DEVICE: "i0", TARGET_DEVICE: "t0"}


def start() -> None:
    """Put a soft RoCE device on each end's network device; a second call changes nothing."""
    run(["modprobe", "rdma_rxe"], what="loading rdma_rxe")
    for device, network in _ON.items():
        if not Path("/sys/class/infiniband", device).exists():
            run(["rdma", "link", "add", device, "type", "rxe", "netdev", network], what=f"adding {device} on {network}")


def gid(device: str) -> str:
    """Return the device's first GID, eight groups of four hex digits."""
    return Path("/sys/class/infiniband", device, "ports/1/gids/0").read_text().strip()
