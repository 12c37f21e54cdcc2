# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host lacks to be an initiator or a target, or to be read completely, and what to do about it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.facts.collect import Facts
from fabtune.host import iscsiadm, targets, tree
from fabtune.model.units import counted


@dataclass(frozen=True)
class Missing:
    """One thing that is not there, and what to do for it."""

    what: str
    fix: str


def unseen() -> str:
    """Return what of this host its user may not see, '' for nothing."""
    # A copied tree needs no rights but the file system's.
    if os.geteuid() == 0 or Path("/") != tree.ROOT:
        return ""
    return "not root: node records, the target and other owners' values stay unseen"


def missing(facts: Facts) -> list[Missing]:
    """Return what this host lacks; an initiator does not lack a target, nor a target a session."""
    found = []
    if hidden := unseen():
        found.append(Missing(hidden, "sudo fabtune show"))
    if not facts.sessions and not facts.tpgs and not facts.srp:
        found += [*_initiator(facts), *_target()]
    if not (tree.SYS / "module/fabstat").is_dir():
        found.append(Missing("module fabstat is not loaded: `fabtune stat` has nothing to show", "modprobe fabstat"))
    return found


def _initiator(facts: Facts) -> Iterator[Missing]:
    try:
        iscsiadm.iscsiadm("--version")
    except UnsupportedError:
        yield Missing("no open-iscsi: iscsiadm is not installed, so this host cannot be an initiator",
                      "install the package open-iscsi (iscsi-initiator-utils on Fedora and RHEL)")  # fmt: skip
        return
    except FabtuneError:
        # It is there, and that is all that was asked.
        pass
    records = list(dict.fromkeys(one.device.label for one in facts.readings if one.device.scope == "record"))
    if records:
        yield Missing(f"no iSCSI session, but records of {counted(len(records), 'target')}: {', '.join(records[:3])}",
                      "iscsiadm -m node -T TARGET -p PORTAL --login")  # fmt: skip
    else:
        yield Missing("no iSCSI session and no record of a target: nothing to tune as an initiator yet",
                      "iscsiadm -m discovery -t sendtargets -p PORTAL, then iscsiadm -m node --login")  # fmt: skip


def _target() -> Iterator[Missing]:
    for kind in targets.kinds():
        lacking = kind.lacking()
        if lacking:
            yield Missing(*lacking)
