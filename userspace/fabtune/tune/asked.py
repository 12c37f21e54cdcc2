# SPDX-License-Identifier: GPL-2.0-or-later
"""What `whatif` is asked: a profile, or single values, as changes at the ends that the model can take."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from fabtune.catalog import profile as profiles
from fabtune.catalog.tunable import UNITS, Catalog, Tunable, Value, shipped_catalog
from fabtune.errors import InputError
from fabtune.facts.collect import Reading
from fabtune.host import blocks, targets
from fabtune.model import formula, typed, units
from fabtune.model.change import KNOWN, Change, present
from fabtune.model.device import Device
from fabtune.model.observation import ENDS, TARGET, Observation
from fabtune.tune.plan import better, wanted_value


@attrs.frozen
class Asked:
    """What is to be changed, whole: `changes` are what the model knows of it, `unknown` the names of the rest.

    `named` are those of `changes` by the tunables that were asked for.  `untold` is what one kind of target would have,
    where several are spoken of and not all have it alike: which of them it is nobody tells.
    """

    changes: Mapping[Change, float | str]
    unknown: tuple[str, ...]
    named: Mapping[Change, float | str] = {}
    untold: tuple[str, ...] = ()


def sorted_out(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return those of `words` that ask for a change, and those that name devices."""
    known = profiles.available()
    changes = [word for word in words if "=" in word or word in known or word.endswith(".toml")]
    return changes, [word for word in words if word not in changes]


def check_words(changes: Iterable[str], devices: Iterable[str]) -> None:
    """Raise InputError for a word that cannot be asked of any session, or names nothing here."""
    catalog, known = shipped_catalog(), profiles.available()
    for word in devices:
        if not (Path("/dev", word).exists() or blocks.directory(word).exists()):
            raise InputError(
                f"{word}: no such block device, and no profile{typed.suggestion(word, known)}; "
                f"profiles: {', '.join(sorted(known))}"
            )
    for word in changes:
        if "=" in word:
            _single(word, catalog)
        else:
            profiles.load_profile(word, catalog)


def asked(words: Sequence[str], seen: Observation) -> Asked:
    """Return what `words` ask for on the session of `seen`.  Raises InputError."""
    catalog = shipped_catalog()
    found: dict[Change, float | str] = {}
    for word in words:
        found |= _single(word, catalog) if "=" in word else _of_profile(word, catalog, seen)
    known = {change: value for change, value in found.items() if in_model(change).tunable in KNOWN}
    changes = _of_whatever_target(known)
    named = {change: value for change, value in known.items() if in_model(change) in changes}
    unknown = (change.tunable for change in found if change not in known)
    untold = (change.tunable for change in known if change not in named)
    return Asked(changes, tuple(dict.fromkeys(unknown)), named, tuple(untold))


def in_model(change: Change) -> Change:
    """Return `change` by the name that the model has for it: what a target offers is called alike for all kinds."""
    if change.end != TARGET:
        return change
    keys = targets.offers() | targets.acl_offers()
    return change._replace(tunable=keys.get(change.tunable, change.tunable))


def _of_whatever_target(known: Mapping[Change, float | str]) -> dict[Change, float | str]:
    """Return `known` by the model's names, without what the kinds of target that are spoken of do not have alike."""
    changes: dict[Change, float | str] = {}
    of_kind: dict[str, dict[Change, float | str]] = {}
    # An ACL's value goes before its portal group's.
    for change, value in sorted(known.items(), key=lambda one: one[0].tunable in targets.acl_offers()):
        kind = targets.of_scope(shipped_catalog().tunables[change.tunable].scope)
        (of_kind.setdefault(kind.name, {}) if kind else changes)[in_model(change)] = value
    told = list(of_kind.values())
    alike = {
        key: value
        for one in told[:1]
        for key, value in one.items()
        if all(key in other and other[key] == value for other in told)
    }
    return changes | alike


def _single(word: str, catalog: Catalog) -> dict[Change, float | str]:
    """Return the change of [END:]NAME=VALUE, at each end where the tunable means something."""
    name, _, text = word.partition("=")
    end, colon, rest = name.partition(":")
    if colon and end not in ENDS:
        raise InputError(f"{word}: found the end '{end}', expected one of {', '.join(ENDS)}")
    tunable = catalog.get(rest if colon else name, word)
    if colon and end not in tunable.roles:
        raise InputError(f"{word}: {tunable.name} has no meaning for the {end}; roles: {', '.join(tunable.roles)}")
    value = tunable.check(_typed(text.strip(), tunable, word), word)
    return dict.fromkeys((Change(one, tunable.name) for one in ([end] if colon else tunable.roles)), model_value(value))


def _typed(text: str, tunable: Tunable, word: str) -> Value:
    value = tunable.parse(text)
    if tunable.fits(value) or tunable.type != "int" or not tunable.unit:
        return value
    if tunable.unit == "bytes/s":
        return round(units.parse_bit_per_s(text, word) / 8)
    if tunable.unit in ("s", "ms", "us", "ns"):
        return round(units.parse_ms(text, word) / 1e3 * UNITS[tunable.unit])
    return round(units.parse_bytes(text, word) * UNITS[tunable.unit])


def model_value(value: Value) -> float | str:
    """Return a tunable's value as the model has it: a number, or a text."""
    return value if isinstance(value, str) else float(value)


def _of_profile(name: str, catalog: Catalog, seen: Observation) -> dict[Change, float | str]:
    """Return what a profile asks for at both ends, by the path that was seen."""
    one = profiles.load_profile(name, catalog)
    variables = _variables(seen)
    variables |= one.values({}, variables)
    found: dict[Change, float | str] = {}
    for end in ENDS:
        for entry in one.entries[end].values():
            texts = [entry.when] if entry.when else []
            # Words such as max, and texts, are no formulas.
            if entry.tunable.type == "int" and entry.wanted not in profiles.WORDS:
                texts.append(str(entry.wanted))
            lacking = set().union(*(profiles.needs(text, variables) for text in texts))
            if lacking:
                raise InputError(
                    f"profile '{name}' needs the path's {' and '.join(sorted(lacking))} for {entry.tunable.name}: "
                    + _remedy(variables)
                )
            if entry.when and not formula.evaluate(entry.when, variables, entry.where):
                continue
            value = _wanted(entry, end, seen, variables)
            if value is not None:
                found[Change(end, entry.tunable.name)] = model_value(value)
    return found


def _wanted(entry: profiles.Entry, end: str, seen: Observation, variables: Mapping[str, float]) -> Value | None:
    """Return the value that `entry` would bring about, None where what is there is kept or nothing can be told."""
    tunable = entry.tunable
    blank = Reading(tunable.name, Device(tunable.scope, "", ""), None)
    value, _ = wanted_value(entry, blank, seen.initiator.kernel, variables)
    now = present(seen, in_model(Change(end, tunable.name)))
    if value is None or (now is not None and better(tunable, entry.form, int(now), value)):
        return None
    return value


def _remedy(variables: Mapping[str, float]) -> str:
    """Return what would tell what a profile's formulas lack."""
    if "rtt" not in variables:
        return "its round trip is told by the session's connection, and none is seen in this network namespace"
    return "give --rate"


def _variables(seen: Observation) -> dict[str, float]:
    page = os.sysconf("SC_PAGE_SIZE")
    known = {
        # The target's memory is not told: the profile's limits by it are taken from this host's.
        "memory": float(page * os.sysconf("SC_PHYS_PAGES")), "cpus": float(os.cpu_count() or 1), "page": float(page),
        "sessions": 1.0, "striped": 1.0, "estimated": 0.0,
        "mtu": float(seen.initiator.nic.mtu_bytes if seen.initiator.nic else 1500),
        # Paced by its connection or by fq, the session is the same to the model.
        "by_connection": 1.0, "headers": float(seen.header_bytes),
    }  # fmt: skip
    if seen.rtt_ms is not None:
        known["rtt"] = seen.rtt_ms / 1e3
    if seen.rate_bytes_per_s is not None:
        known["rate"] = seen.rate_bytes_per_s
    if seen.rtt_ms is not None and seen.rate_bytes_per_s is not None:
        known["bdp"] = known["rtt"] * known["rate"]
    return known
