# SPDX-License-Identifier: GPL-2.0-or-later
"""IP addresses as text: the kernel, iscsiadm and people write the same one in several ways."""

import ipaddress
from functools import lru_cache

# All addresses of a host, as a portal that listens on all of them has it.
EVERY = ("0.0.0.0", "::")


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """Return the one way in which an address is compared: shortest form, IPv4 where it is mapped, no scope.

    A scope (``%eth0``) is left out because inet_diag and sysfs do not tell it.  What is no address, such
    as a host's name, is returned as it is.
    """
    try:
        found = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return text
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
