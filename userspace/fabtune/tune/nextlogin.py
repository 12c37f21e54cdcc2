# SPDX-License-Identifier: GPL-2.0-or-later
"""What the next login would make of a plan: a value with which it fails, or may fail, is not written.

A session lives on after its record has changed; a value that its target refuses shows only at the next
login, which may be the next boot.  The same goes for what a target on this host no longer offers to the
initiators that are logged in.  What a target offers is known where LIO serves it
on this host.  Elsewhere the live session tells: a value agreed on below our own is the target's, and
otherwise no more than that the target accepts it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from fabtune.catalog.tunable import ROLES, Tunable, shipped_catalog
from fabtune.errors import FabtuneError
from fabtune.facts.collect import Facts
from fabtune.host import targets, tree
from fabtune.host.sessions import Session
from fabtune.model.device import Device
from fabtune.model.login_target import serves
from fabtune.model.negotiate import Agreed, Value, preview
from fabtune.tune import journal
from fabtune.tune.logins import RECORD_KEYS, acl_of, groups_of, readings_of
from fabtune.tune.plan import CHANGE, REFUSED, Plan, Row

# Where this parameter of a profile is set, the user answers for the logins.
TRUST = "trust_logins"
_DIGESTS = ("HeaderDigest", "DataDigest")
_R2T = "MaxOutstandingR2T"


def tunables_needed(names: Iterable[str]) -> list[Tunable]:
    """Return what a plan of the tunables `names` must know besides these to preview the next login."""
    spoken = set(names)
    if not spoken & RECORD_KEYS.keys():
        return []
    catalog = shipped_catalog().tunables
    return [catalog[name] for name in (*RECORD_KEYS, *targets.offers(), *targets.acl_offers()) if name not in spoken]


def guard(plan: Plan, facts: Facts) -> None:
    """Refuse the rows of `plan` after which a login of this host's records, or to its targets, fails or may fail."""
    if plan.parameters.get(TRUST):
        return
    for index, row in enumerate(plan.rows):
        if row.state == CHANGE and targets.offers().get(row.tunable.name) in _DIGESTS and (note := _digest_taken(row)):
            plan.rows[index] = replace(row, state=REFUSED, note=note)
    mine: dict[Device, dict[str, int]] = {}
    for index, row in enumerate(plan.rows):
        if row.state == CHANGE and row.tunable.name in RECORD_KEYS and row.device is not None:
            mine.setdefault(row.device, {})[RECORD_KEYS[row.tunable.name]] = index
    # The first of each record.
    sessions = {one.identity: one for one in reversed(facts.sessions)}
    for device, rows in mine.items():
        for key, note in _reasons(plan, facts, sessions.get(device.identity), device, rows):
            plan.rows[rows[key]] = replace(plan.rows[rows[key]], state=REFUSED, note=note)


def why_not_for_all(tunable: Tunable, wanted: str, now: str) -> str:
    """Return why `wanted` must not be every target's in place of `now` ('' for open-iscsi's own), '' if it may be."""
    key = RECORD_KEYS.get(tunable.name, "")
    value, ours = tunable.parse(wanted), tunable.parse(now) if now else tunable.default
    if key in _DIGESTS and "None" not in wanted.split(",") and wanted != now:
        return f"a target that knows no {wanted} could not be logged in to; '{wanted},None' works with every target"
    if key == _R2T and isinstance(value, int) and isinstance(ours, int) and value > ours:
        return f"a target that offers another number than a power of two below {value} could not be logged in to"
    return ""


def _digest_taken(row: Row) -> str:
    """Return why the target must go on taking the digests that it takes, '' where nobody may depend on them."""
    lost = [one for one in (row.now or "").split(",") if one not in (row.wanted or "").split(",")]
    there = targets.logins(row.device) if row.device and lost else []
    if not there:
        return ""
    who = there[0].initiator + (f" and {len(there) - 1} more" if len(there) > 1 else "")
    return (
        f"{who} may ask for nothing but {lost[0]}, and could not log in again; '{row.now}' still works; "
        f"--set {TRUST}=1 writes it all the same"
    )


@dataclass(frozen=True)
class _Offer:
    """The values of one TPG on this host by RFC name: after the plan, now, or once they have gone back."""

    who: str
    values: Mapping[str, Value]


def _reasons(
    plan: Plan, facts: Facts, session: Session | None, record: Device, rows: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Yield key and reason of each row of `record` that must not be written; `rows` are those that would be."""
    now = readings_of(facts, RECORD_KEYS, record)
    after = now | {key: _wanted(plan.rows[index]) for key, index in rows.items()}
    offers = list(_offers(plan, facts, record))
    for offer in offers:
        for agreed in preview(after, offer.values):
            if agreed.problem and agreed.name in rows:
                yield agreed.name, f"{offer.who} offers {agreed.target}: {agreed.problem}; {_would_work(agreed)}"
    if offers:
        return
    for key in rows:
        note = _unknown_target(key, now, after, session)
        if note:
            yield key, note


def _wanted(row: Row) -> Value:
    return row.tunable.parse(row.wanted or "")


def _offers(plan: Plan, facts: Facts, record: Device) -> Iterator[_Offer]:
    """Yield what each TPG on this host that serves `record` will offer, and what it may offer again.

    A record outlives a reboot; what LIO was told outlives neither a restart of the target nor a revert.
    """
    keys = targets.offers()
    for tpg in groups_of(facts):
        if not serves(tpg, record):
            continue
        now = readings_of(facts, keys, tpg)
        acl = acl_of(facts, tpg, record)
        now |= readings_of(facts, targets.acl_offers(), acl) if acl else {}
        changes = [row for row in plan.rows if row.role == ROLES[1] and row.state == CHANGE and row.device == tpg]
        planned = {keys[row.tunable.name]: _wanted(row) for row in changes if row.tunable.name in keys}
        after = now | planned
        yield _Offer(f"target {tpg.label} on this host", after)
        for before in dict.fromkeys((now.get(_R2T), *_given_back(tpg))):
            if before is not None and before != after.get(_R2T):
                yield _Offer(
                    f"target {tpg.label} on this host, once it is restarted or taken back,", after | {_R2T: before}
                )


def _given_back(tpg: Device) -> list[Value]:
    """Return the MaxOutstandingR2T that reverts would give back to `tpg`."""
    try:
        known = journal.transactions()
    except (FabtuneError, OSError):
        # A plan that is not root's; apply, which must read the journal, asks again.
        return []
    steps = [step for transaction in known for step in transaction.open_steps]
    return [
        shipped_catalog().tunables[step.tunable].parse(step.old)
        for step in steps
        if targets.offers().get(step.tunable) == _R2T and step.device.key == tpg.key
    ]


def _would_work(agreed: Agreed) -> str:
    if agreed.name in _DIGESTS:
        return f"'{agreed.initiator},{agreed.target}' would work"
    if agreed.name == _R2T and agreed.target is not None:
        return f"{1 << (int(agreed.target).bit_length() - 1)} would work"
    return "see `fabtune negotiate`"


def _unknown_target(key: str, now: Mapping[str, Value], after: Mapping[str, Value], session: Session | None) -> str:
    """Return why `key` must not be written where the target's own side is not known, '' if it may be."""
    if key in _DIGESTS:
        known = {"None"} | ({session.negotiated.get(key, "None")} if session else set())
        offered = str(after[key]).split(",")
        if known & set(offered):
            return ""
        return (
            f"nobody knows whether the target takes {after[key]}, and without a digest in common the next login "
            f"fails; '{after[key]},None' works with every target; --set {TRUST}=1 writes it all the same"
        )
    if key != _R2T:
        return ""
    wanted, ours = int(after[key]), int(now.get(key, 1))
    agreed = (tree.whole(session.negotiated.get(key)) if session else None) or 0
    # Below ours it is the target's own, and the outcome of every higher wish.
    if wanted <= (agreed or ours) or 0 < agreed < ours:
        return ""
    seen = f"the live session agreed on {agreed}" if agreed else f"the record says {ours}"
    return (
        f"the target's own value is not known ({seen}); if it is below {wanted} and not a power of two, the next login "
        f"fails; `fabtune negotiate --target FACTS` tells, --set {TRUST}=1 writes it all the same"
    )
