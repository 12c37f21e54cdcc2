# SPDX-License-Identifier: GPL-2.0-or-later
"""Finds the rules and asks each of them about a host's facts."""

import importlib
import pkgutil
from functools import cache

from fabtune.catalog.tunable import Catalog
from fabtune.facts.collect import Facts
from fabtune.lint import rules as package
from fabtune.lint.rule import SEVERITIES, Hazard, Rule, Scene
from fabtune.model.path import NetworkPath


@cache
def rules() -> tuple[Rule, ...]:
    """Return every rule in the modules of `fabtune.lint.rules`."""
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return tuple(one for module in modules for one in vars(module).values() if isinstance(one, Rule))


def lint(facts: Facts, catalog: Catalog, path: NetworkPath | None) -> list[Hazard]:
    """Return what every rule finds, worst first."""
    scene = Scene(facts, catalog, path)
    found = [hazard for one in rules() for hazard in one.check(scene)]
    return sorted(found, key=lambda hazard: (SEVERITIES.index(hazard.severity), hazard.rule, hazard.device))
