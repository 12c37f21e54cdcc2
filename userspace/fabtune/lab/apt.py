# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's own Debian archive and apt settings, read from apt itself."""

from dataclasses import dataclass
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host.run import run

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# Settings of the host's apt that decide whether the archive can be reached at all.
_TRANSPORT = ("Acquire::http", "Acquire::https", "Acquire::Retries", "Acquire::ForceIPv4")


@dataclass(frozen=True)
class AptCache:
    """Where packages come from: an archive URI, the keyring that signs it, and apt options."""

    uri: str
    keyring: Path
    apt_options: tuple[str, ...]


def host_archive() -> AptCache:
    """Return the Debian archive that this host's apt is configured with.

    Raises FabtuneError when apt knows none (its lists were never fetched, or the host is not Debian).
    """
    listed = run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(RELEASE)|$(REPO_URI)", "Created-By: Packages"],
        what="asking apt for its archives",
    )
    rows = [line.split("|") for line in listed.splitlines()]
    uris = [uri for origin, release, uri in rows if origin == "Debian" and not release.endswith("-security")]
    if not uris:
        raise FabtuneError("apt knows no Debian archive on this host; run 'apt-get update' and try again")
    if not _KEYRING.exists():
        raise FabtuneError(f"{_KEYRING} not found; install it with: apt-get install debian-archive-keyring")
    return AptCache(uris[0], _KEYRING, _transport_options())


def _transport_options() -> tuple[str, ...]:
    dump = run(["apt-config", "dump", "--no-empty", *_TRANSPORT], what="reading apt's configuration")
    return tuple(line for line in dump.splitlines() if line.endswith(";"))
