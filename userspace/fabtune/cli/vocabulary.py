# SPDX-License-Identifier: GPL-2.0-or-later
"""tunables, explain and profiles: the vocabulary and the sentences in it."""

import argparse

from fabtune.catalog.profile import available, load_profile
from fabtune.catalog.reference import reference
from fabtune.catalog.tunable import EFFECTS, ROLES, Tunable, shipped_catalog
from fabtune.cli import table, workloads
from fabtune.errors import ExitCode, InputError
from fabtune.facts.collect import Reading, collect
from fabtune.measure import workload
from fabtune.model import typed


def tunable_json(tunable: Tunable) -> dict[str, object]:
    """Return a tunable with stable keys."""
    return {
        "name": tunable.name,
        "summary": tunable.summary,
        "why": tunable.why,
        "backend": tunable.backend,
        "key": tunable.key,
        "scope": tunable.scope,
        "type": tunable.type,
        "unit": tunable.unit,
        "allowed": tunable.allowed(),
        "default": tunable.default,
        "default_since": dict(tunable.default_since),
        "default_note": tunable.default_note,
        "effect": tunable.effect,
        "roles": list(tunable.roles),
        "persist": tunable.persist,
        "persist_as": tunable.persist_as,
        "persist_why": tunable.persist_why,
        "source": tunable.source,
        "note": tunable.note,
    }


def run_tunables(args: argparse.Namespace) -> int:
    """List the vocabulary."""
    if args.markdown and args.json:
        raise InputError("tunables: --markdown prints a page; it cannot be combined with --json")
    found = [one for one in shipped_catalog().tunables.values() if not args.role or args.role in one.roles]
    if args.markdown:
        print(reference(found), end="")
        return ExitCode.DONE
    if args.json:
        table.print_json([tunable_json(one) for one in found])
        return ExitCode.DONE
    rows = [(one.name, one.scope, EFFECTS[one.effect], ", ".join(one.roles), one.summary) for one in found]
    table.table(("tunable", "scope", "effect", "roles", "summary"), rows, wrapped="summary")
    return ExitCode.DONE


def default_text(tunable: Tunable) -> str:
    """Return the default in words, with the kernels that moved it."""
    if tunable.default is None:
        return tunable.default_note or "depends on the device"
    parts = [table.number(tunable.native(tunable.default), tunable.unit)]
    parts += [f"{table.number(tunable.native(value), tunable.unit)} since Linux {since}"
              for since, value in tunable.default_since]  # fmt: skip
    return "; ".join([*parts, *filter(None, [tunable.default_note])])


def run_explain(args: argparse.Namespace) -> int:
    """Say everything about one tunable, with its values on this host and what profiles want of it; or a workload."""
    if args.tunable in workload.names():
        if args.netns:
            raise InputError("explain: a workload is read in no namespace; it cannot be combined with --netns")
        return workloads.show_workloads(args.tunable, args.json)
    tunable = shipped_catalog().tunables.get(args.tunable)
    if tunable is None:
        near = typed.suggestion(args.tunable, [*shipped_catalog().tunables, *workload.names()])
        raise InputError(
            f"no tunable and no workload '{args.tunable}'{near}; see `fabtune tunables` and `fabtune workloads`"
        )
    readings = collect([tunable], args.netns).readings
    wishes = _wishes(tunable)
    if args.json:
        now = [_reading_json(one) for one in readings]
        table.print_json(tunable_json(tunable) | {"now": now, "profiles": wishes})
        return ExitCode.DONE
    table.paragraph(f"{tunable.name}: {tunable.summary}")
    print()
    facts = [
        ("why it matters", tunable.why),
        ("lives in", f"{tunable.backend} {tunable.key} ({tunable.scope})"),
        ("allowed", tunable.allowed()),
        ("default", default_text(tunable)),
        ("takes effect", EFFECTS[tunable.effect]),
        ("roles", ", ".join(tunable.roles)),
        ("kept by", tunable.kept_by()),
        ("note", tunable.note),
        ("source", tunable.source),
    ]
    for name, text in facts:
        if text:
            table.labelled(name, text, 16)
    for reading in readings:
        value = table.number(reading.value, tunable.unit) if reading.value is not None else reading.problem
        table.labelled("now", f"{reading.device.label}: {value}", 16)
    if not readings:
        table.labelled("now", f"this host has no {tunable.scope}", 16)
    for wish in wishes:
        text = f"{wish['profile']} ({wish['role']}): {wish['form']} {wish['wanted']}: {wish['why']}"
        table.labelled("profile", text, 16)
    return ExitCode.DONE


def _reading_json(reading: Reading) -> dict[str, object]:
    return {"device": reading.device.label, "identity": reading.device.identity, "value": reading.value,
            "problem": reading.problem}  # fmt: skip


def _wishes(tunable: Tunable) -> list[dict[str, object]]:
    """Return what each profile wants of `tunable`."""
    found: list[dict[str, object]] = []
    for name in sorted(available()):
        profile = load_profile(name, shipped_catalog())
        for role in ROLES:
            entry = profile.entries[role].get(tunable.name)
            if entry:
                found.append({"profile": name, "role": role, "form": entry.form, "wanted": entry.wanted,
                              "when": entry.when, "why": entry.why})  # fmt: skip
    return found


def run_profiles(args: argparse.Namespace) -> int:
    """List the profiles, shipped and the user's own."""
    profiles = [load_profile(name, shipped_catalog()) for name in sorted(available())]
    if args.json:
        table.print_json(
            [
                {"name": one.name, "summary": one.summary, "path": str(one.path),
                 "parameters": {name: parameter.default for name, parameter in one.parameters.items()}}
                for one in profiles
            ]
        )  # fmt: skip
        return ExitCode.DONE
    table.table(("profile", "summary"), [(one.name, one.summary) for one in profiles], wrapped="summary")
    return ExitCode.DONE
