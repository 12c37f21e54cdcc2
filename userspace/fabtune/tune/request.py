# SPDX-License-Identifier: GPL-2.0-or-later
"""What a user asks of a host, and the plan that this makes of the host as it is now."""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from fabtune.catalog.profile import Profile, load_profile
from fabtune.catalog.tunable import ROLES, shipped_catalog
from fabtune.errors import FabtuneError, InputError
from fabtune.facts.collect import Facts, collect
from fabtune.host import namespaces, targets
from fabtune.model import units
from fabtune.tune import journal, nextlogin, persist, rounded, saved_plan, shared_pace
from fabtune.tune import path_choice as tune_path
from fabtune.tune.plan import Plan, make_plan, narrowed, tunables_of
from fabtune.tune.saved_plan import SavedPlan

# What stands in a rate's place when the path shall be asked.
MEASURE = "measure"
_CONNECTION = "connection"


@dataclass(frozen=True)
class Request:
    """A profile for this host, checked before anything of the host is read or locked."""

    profile: Profile
    role: str | None
    netns: str
    rtt_ms: float | None
    rate_bit_per_s: float | None
    measure_rate: bool
    parameters: Mapping[str, float]
    # Whether nobody vouches for `rate_bit_per_s`.
    estimated: bool = False
    # Whether only what concerns the storage path's own sessions is to be written.
    narrow: bool = False
    # The only tunables to plan for; none means all.
    only: frozenset[str] = frozenset()


def request(
    profile: str,
    role: str | None,
    netns: str,
    rtt: str | None,
    rate: str | None,
    settings: Iterable[str],
    narrow: bool = False,
    *,
    only: Collection[str] = (),
    estimated: bool = False,
) -> Request:
    """Return what these words of a command line ask for.  Raises InputError."""
    found = load_profile(profile, shipped_catalog())
    return Request(
        profile=_with_only(found, only) if only else found,
        role=role,
        netns=netns,
        rtt_ms=None if rtt is None else units.parse_ms(rtt, "--rtt"),
        rate_bit_per_s=units.parse_bit_per_s(rate, "--rate") if rate is not None and rate != MEASURE else None,
        measure_rate=rate == MEASURE,
        parameters=_parameters(found, settings),
        narrow=narrow,
        only=frozenset(only),
        estimated=estimated,
    )


def _with_only(profile: Profile, names: Collection[str]) -> Profile:
    """Return `profile` with no entries but those of `names`, and those that decide on others.  Raises InputError."""
    catalog = shipped_catalog()
    wanted = {catalog.get(name, "--only").name for name in names}
    entries = {
        # Whether connections can be given options of their own decides on other entries.
        role: {name: one for name, one in of.items() if name in wanted or catalog.tunables[name].scope == _CONNECTION}
        for role, of in profile.entries.items()
    }
    return replace(profile, entries=entries)


def _parameters(profile: Profile, settings: Iterable[str]) -> dict[str, float]:
    found = {}
    for word in settings:
        name, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"--set {word}: expected NAME=VALUE, such as --set io_size=64KiB")
        profile.check_parameter(name)
        found[name] = float(units.parse_bytes(value, f"--set {name}"))
    return found


def roles_of(role: str | None, facts: Facts | None = None) -> tuple[str, ...]:
    """Return the roles to plan for: as asked, else what this host has, else both."""
    if role == "both":
        return ROLES
    if role:
        return (role,)
    if facts is None:
        return ROLES
    present = {
        "initiator": bool(facts.sessions) or _has(facts, "record"),
        "target": any(_has(facts, scope) for scope in targets.group_scopes()),
    }
    return tuple(name for name in ROLES if present[name]) or ROLES


def _has(facts: Facts, scope: str) -> bool:
    return any(reading.device.scope == scope for reading in facts.readings)


def plan_for(asked: Request) -> tuple[Plan, Facts]:
    """Return the plan that `asked` makes of this host as it is now, and what was read for it."""
    mine = tunables_of(asked.profile)
    facts = collect([*mine, *nextlogin.tunables_needed(one.name for one in mine)], asked.netns)
    rate_bit_per_s = tune_path.measure_rate_bit_per_s(facts) if asked.measure_rate else asked.rate_bit_per_s
    path = tune_path.choose(facts, asked.rtt_ms, rate_bit_per_s, asked.measure_rate or asked.estimated)
    plan = make_plan(asked.profile, roles_of(asked.role, facts), facts, path, asked.parameters)
    # Who may not read the journal plans without it.
    with contextlib.suppress(FabtuneError):
        rounded.mark_rounded(plan, journal.transactions())
    if asked.narrow:
        narrowed(plan)
    if asked.only:
        plan.rows = [row for row in plan.rows if row.tunable.name in asked.only]
    plan.whole = not (asked.narrow or asked.only or asked.parameters)
    nextlogin.guard(plan, facts)
    shared_pace.spare_others(plan, facts)
    return plan, facts


def plan_as_of_now(wanted: Request | SavedPlan) -> tuple[Plan, Facts]:
    """Return the plan for this host as it is now, and what was read for it.

    Raises HostChangedError if the host no longer fits a saved plan.
    """
    return plan_for(wanted) if isinstance(wanted, Request) else _resumed(wanted)


def _resumed(kept: SavedPlan) -> tuple[Plan, Facts]:
    facts = collect(kept.tunables, kept.netns)
    plan = saved_plan.resume(kept, facts)
    # The target may have changed where the host has not.
    facts.readings += collect(nextlogin.tunables_needed(one.name for one in kept.tunables), kept.netns).readings
    nextlogin.guard(plan, facts)
    shared_pace.spare_others(plan, facts)
    return plan, facts


def portals_elsewhere(plan: Plan, facts: Facts) -> list[str]:
    """Return a sentence for each portal of a target that other NICs and TCP values serve than the plan's."""
    told = []
    for address, places in facts.elsewhere.items() if "target" in plan.roles else ():
        where = f", but in {' and '.join(places)}" if places else ""
        option = f"--netns {places[0] if places else 'NAME'}"
        told.append(
            f"portal {address} is at no address of {f'network namespace {plan.netns}' if plan.netns else 'this host'}"
            f"{where}: the NICs and TCP values that serve it are not the ones here; plan for them with {option}"
        )
    return told


def keep_at_boot(plan: Plan) -> list[str]:
    """Add to `plan` what sets its values at boot; return a remark for each that nothing can keep."""
    more, remarks = persist.rows(plan)
    plan.rows += more
    return remarks


def check_namespace(netns: str) -> None:
    """Raise InputError for a namespace that is neither there nor in the journal, which knows those that are gone."""
    if netns and netns not in {transaction.header.netns for transaction in journal.transactions()}:
        namespaces.netns_path(netns)
