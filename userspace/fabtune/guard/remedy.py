# SPDX-License-Identifier: GPL-2.0-or-later
"""What puts a value right that healing never writes, such as a node record that a discovery has reset."""

from collections.abc import Sequence

from fabtune.catalog.tunable import shipped_catalog
from fabtune.guard.follow import LIVE
from fabtune.tune import again
from fabtune.tune.journal import Transaction
from fabtune.tune.verify import Drift


def put_right_by(drift: Drift, known: Sequence[Transaction]) -> str:
    """Return what is to be said of a value that `--heal` leaves as it is whatever it was, '' where it may write it."""
    tunable = shipped_catalog().tunables.get(drift.tunable)
    if tunable is None or drift.found is None:
        return ""
    by_again = again.may_write(tunable.backend, tunable.effect)
    if by_again and tunable.effect == LIVE:
        return ""
    if by_again:
        return "--heal leaves what does not count at once; `fabtune apply --again` writes it if nobody has set it since"
    what = "no node record" if tunable.backend == "record" else "nothing that a login, a load or a boot must bring"
    anew = "`fabtune apply` of its profile"
    for one in reversed(known):
        if any(step.tunable == drift.tunable and _is_of(drift, step.device.identity) for step in one.open_steps):
            anew = f"`fabtune apply` of '{one.profile}' with what transaction {one.name} was told"
            break
    return f"--heal and `apply --again` write {what}: {anew} puts it right"


def _is_of(drift: Drift, identity: str) -> bool:
    return identity == (drift.identity or drift.device)
