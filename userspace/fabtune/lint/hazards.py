# SPDX-License-Identifier: GPL-2.0-or-later
"""Finds the rules and asks each of them about a host's facts."""

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache

from fabtune.catalog.tunable import Catalog
from fabtune.facts.collect import Facts
from fabtune.lint import rules as package
from fabtune.lint.rule import SEVERITIES, Hazard, Rule, Scene, ToldPath
from fabtune.model.path import NetworkPath


@cache
def rules() -> tuple[Rule, ...]:
    """Return every rule in the modules of `fabtune.lint.rules`."""
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return tuple(one for module in modules for one in vars(module).values() if isinstance(one, Rule))


def lint(facts: Facts, catalog: Catalog, path: NetworkPath | None, planned: Sequence[ToldPath] = ()) -> list[Hazard]:
    """Return what every rule finds, worst first; `planned` are the paths that what is in force was planned for."""
    told = () if path is None else (ToldPath("the path given", path.rtt_s * 1e3, 8 * path.rate_bytes_per_s),)
    scene = Scene(facts, catalog, path, (*told, *planned))
    found = [hazard for one in rules() for hazard in one.check(scene)]
    return sorted(found, key=lambda hazard: (SEVERITIES.index(hazard.severity), hazard.rule, hazard.device))
