# SPDX-License-Identifier: GPL-2.0-or-later
"""Finds the rules and asks each of them about a host's facts."""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache

from fabtune.catalog.tunable import Catalog
from fabtune.facts.collect import Facts
from fabtune.lint import rules as package
from fabtune.lint.rule import SEVERITIES, Hazard, Rule, Scene, ToldPath, Unasked
from fabtune.model.path import NetworkPath
from fabtune.tune.path_choice import HalfPath


@cache
def rules() -> tuple[Rule, ...]:
    """Return every rule in the modules of `fabtune.lint.rules`."""
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return tuple(one for module in modules for one in vars(module).values() if isinstance(one, Rule))


def lint(
    facts: Facts,
    catalog: Catalog,
    path: NetworkPath | None,
    planned: Sequence[ToldPath] = (),
    *,
    half: HalfPath | None = None,
    unasked: Callable[[Unasked], None] = lambda _: None,
) -> list[Hazard]:
    """Return what every rule finds, worst first; `planned` are the paths that what is in force was planned for.

    `half` is what is known where the path is not; `unasked` is told of what could not be asked without it.
    """
    told = list(planned)
    if path is not None:
        told.insert(0, ToldPath("the path given", path.rtt_s * 1e3, 8 * path.rate_bytes_per_s, in_force=False))
    scene = Scene(facts, catalog, path, tuple(told), half)
    found: list[Hazard] = []
    for answer in (answer for one in rules() for answer in one.check(scene)):
        if isinstance(answer, Hazard):
            found.append(answer)
        else:
            unasked(answer)
    return sorted(found, key=lambda hazard: (SEVERITIES.index(hazard.severity), hazard.rule, hazard.device))
