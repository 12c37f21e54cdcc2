# SPDX-License-Identifier: GPL-2.0-or-later
"""Other tuners, put in force inside a guest so that profiles can be held against them."""

PEERS = ("default",)


def apply_peer(name: str) -> None:
    """Put the guest into the state that the tuner `name` (one of PEERS) leaves; `default` touches nothing."""
