# SPDX-License-Identifier: GPL-2.0-or-later
"""Profiles: what each role should have, and why; parsed from ``profiles/*.toml`` with includes resolved."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import attrs

from fabtune.catalog.tunable import MAX_FILE_BYTES, ROLES, Catalog, Tunable, Value
from fabtune.errors import InputError
from fabtune.host import targets, userfile
from fabtune.installed import data_dir
from fabtune.model import formula, typed

FORMS = ("value", "at_least", "at_most")
# What a formula may use besides the profile's own parameters: the path, then the host.
PATH_VARIABLES = ("rtt", "rate", "bdp", "estimated")
HOST_VARIABLES = ("mtu", "headers", "memory", "cpus", "sessions", "striped", "page", "by_connection")
WORDS = ("max", "auto", "default")
# The scopes of which each device belongs to certain sessions, and so to a path.
OF_A_PATH = ("route", "record", "session", "block")
# The profile that is made of the vocabulary's own defaults, and where these are the same on every host.
DEFAULT = "default"
_DEFAULTS_OF = {
    ("sysctl", "netns"): "the kernel's", ("sysctl", "host"): "the kernel's", ("record", "record"): "open-iscsi's",
}  # fmt: skip
# What a formula says of a zero in its way.
_DIVIDES = "divides by zero"
# Includes in a row, and files that one profile may be made of in all.
_MAX_DEPTH, _MAX_FILES = 8, 16


@attrs.frozen
class _EntryTable:
    """The table of one wanted value: one form, or `drop` to leave out what an include wants."""

    value: Value | None = None
    at_least: Value | None = None
    at_most: Value | None = None
    when: str | None = None
    own_path: bool = False
    why: str = ""
    drop: bool = False


@attrs.frozen
class _ParameterTable:
    """The table of one parameter."""

    default: str | int
    summary: str


@attrs.frozen
class _ProfileTable:
    """A whole file; its entries are read one by one, for errors that name their tables."""

    summary: str
    include: tuple[str, ...] = ()
    parameters: dict[str, Any] = attrs.field(factory=dict)
    both: dict[str, Any] = attrs.field(factory=dict)
    initiator: dict[str, Any] = attrs.field(factory=dict)
    target: dict[str, Any] = attrs.field(factory=dict)


@dataclass(frozen=True)
class Entry:
    """One wanted value: a form (`value`, `at_least`, `at_most`), its value or formula, and the reason.

    With `own_path` it is for sessions of the planned path alone, where this host has others.
    """

    tunable: Tunable
    form: str
    wanted: int | bool | str
    why: str
    when: str
    where: str
    own_path: bool = False


@dataclass(frozen=True)
class Parameter:
    """A number of the workload that formulas use and `--set` overrides."""

    name: str
    default: str
    summary: str
    where: str


@dataclass(frozen=True)
class Profile:
    """A named set of entries for each role, includes merged in."""

    name: str
    summary: str
    path: Path
    parameters: dict[str, Parameter]
    entries: dict[str, dict[str, Entry]]

    def values(self, overrides: Mapping[str, float], host: Mapping[str, float]) -> dict[str, float]:
        """Return every parameter's value; a default may use the path, the host and other parameters.

        One that needs a path which is not known is left out.  Raises InputError.
        """
        for name in overrides:
            self.check_parameter(name)
        known = {**host, **overrides}
        left = {name: one for name, one in self.parameters.items() if name not in overrides}
        while ready := [name for name, one in left.items() if not needs(one.default, known)]:
            known |= {name: self._evaluated(left.pop(name), known, overrides) for name in ready}
        self._refuse_circles({name: needs(one.default, known) for name, one in left.items()})
        return {name: known[name] for name in self.parameters if name in known}

    def check_parameter(self, name: str) -> None:
        """Raise InputError if the profile has no parameter `name`."""
        typed.one_of(name, self.parameters, f"profile '{self.name}'", "parameter")

    def _evaluated(self, parameter: Parameter, known: Mapping[str, float], overrides: Mapping[str, float]) -> float:
        try:
            return formula.evaluate(parameter.default, known, parameter.where)
        except InputError as error:
            if (blamed := self.blamed(error, [parameter.default], overrides)) is not error:
                raise blamed from None
            # The default may be an included profile's, the value that it cannot use this one's.
            raise error if str(self.path) in str(error) else InputError(f"{self.path}: {error}") from None

    def blamed(self, error: InputError, formulas: Iterable[str], overrides: Mapping[str, float]) -> InputError:
        """Return `error` of `formulas`, with the `--set` that made one of them divide by zero, if any did."""
        if _DIVIDES not in str(error):
            return error
        used: set[str] = set()
        left = set().union(*map(formula.variables, formulas))
        while left:
            name = left.pop()
            used.add(name)
            if name in self.parameters and name not in overrides:
                left |= formula.variables(self.parameters[name].default) - used
        zeros = sorted(name for name in used if overrides.get(name) == 0)
        return InputError(f"--set {zeros[0]}=0: expected above 0: {error}") if zeros else error

    def _refuse_circles(self, wanting: dict[str, set[str]]) -> None:
        """Raise InputError where parameters depend only on each other; `wanting` has what each lacks, by name."""
        while waits := [name for name, lacks in wanting.items() if lacks - wanting.keys()]:
            for name in waits:
                del wanting[name]
        for name, lacks in wanting.items():
            where = self.parameters[name].where
            raise InputError(f"{where}: needs {', '.join(sorted(lacks))}, which cannot be known before '{name}' is")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # A name that no file can have.
        return False


def needs(text: str, known: Mapping[str, float]) -> set[str]:
    """Return the variables that formula `text` uses and `known` lacks."""
    return formula.variables(text) - known.keys()


def directories() -> list[Path]:
    """Return where profiles are looked for; a later directory wins.  Raises InputError for one that is not there."""
    named = os.environ.get("FABTUNE_PROFILES")
    # The shipped profile of a name must not stand in for the administrator's own.
    if named and not Path(named).is_dir():
        raise InputError(f"FABTUNE_PROFILES {named}: no such directory; expected that of your own profiles")
    return [data_dir("profiles"), Path(named or "/etc/fabtune/profiles")]


def available() -> dict[str, Path]:
    """Return every profile's file by name; that of the profile of defaults is the vocabulary."""
    files = {path.stem: path for directory in directories() for path in sorted(directory.glob("*.toml"))}
    return {DEFAULT: data_dir("tunables")} | files


def _defaults(catalog: Catalog, path: Path) -> Profile:
    """Return the profile of what an untouched system does."""
    known = dict(_DEFAULTS_OF)
    for kind in targets.serving():
        offered = (one for one in catalog.tunables.values() if one.name in (*kind.offers, *kind.acl_offers))
        known |= {(one.backend, one.scope): f"{kind.title}'s" for one in offered}
    entries: dict[str, dict[str, Entry]] = {role: {} for role in ROLES}
    for tunable in catalog.tunables.values():
        whose = known.get((tunable.backend, tunable.scope))
        if whose and tunable.in_default and tunable.default is not None:
            for role in tunable.roles:
                entries[role][tunable.name] = Entry(
                    tunable, "value", "default", f"{whose} own default", "", f"{path}: {tunable.name}"
                )
    summary = "what an untouched system does: the kernel's, open-iscsi's and the target's own values"
    return Profile(DEFAULT, summary, path, {}, entries)


def load_profile(name: str, catalog: Catalog) -> Profile:
    """Return the profile called `name`, or the one in the file `name` (with a slash or .toml).  Raises InputError."""
    loader = _Loader(catalog)
    if "/" in name or name.endswith(".toml"):
        return loader.load(Path(name), ())
    known = available()
    if name not in known:
        raise InputError(f"unknown profile '{name}'{typed.suggestion(name, known)}; known: {', '.join(sorted(known))}")
    return loader.load(known[name], ())


class _Loader:
    """Loads one profile with all that it includes: each file once, so that its cost grows with their number."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._loaded: dict[Path, Profile] = {}

    def load(self, path: Path, including: tuple[Path, ...]) -> Profile:
        """Return the profile in `path`, reached through the files `including`.  Raises InputError."""
        if path == data_dir("tunables"):
            return _defaults(self._catalog, path)
        same = Path(os.path.realpath(path))
        chain = " -> ".join(step.stem for step in (*including, same))
        if same in including:
            raise InputError(f"{path}: profiles include each other in a circle: {chain}")
        if len(including) > _MAX_DEPTH:
            raise InputError(f"{path}: included {len(including)} profiles deep, allowed: {_MAX_DEPTH}: {chain}")
        if same not in self._loaded:
            if len(self._loaded) >= _MAX_FILES:
                raise InputError(f"{path}: a profile of more than {_MAX_FILES} files; include fewer")
            self._loaded[same] = _read(path, self._catalog, lambda found: self.load(found, (*including, same)))
        return self._loaded[same]


def _read(path: Path, catalog: Catalog, load: Callable[[Path], Profile]) -> Profile:
    table = typed.STRICT.read(_ProfileTable, userfile.read_toml(path, MAX_FILE_BYTES), str(path))
    parameters: dict[str, Parameter] = {}
    entries: dict[str, dict[str, Entry]] = {role: {} for role in ROLES}
    if len(table.include) > _MAX_FILES:
        raise InputError(f"{path}: key 'include': found {len(table.include)} profiles, allowed: {_MAX_FILES}")
    for word in table.include:
        # A profile may extend a shipped one of its own name, so its own file is no candidate.
        candidates = [directory / f"{word}.toml" for directory in (path.parent, *reversed(directories()))]
        found = next((file for file in candidates if _is_file(file) and file != path), None)
        if found is None and word == DEFAULT:
            found = data_dir("tunables")
        if found is None:
            typed.one_of(word, set(available()) - {path.stem}, f"{path}: key 'include'", "profile")
            raise InputError(f"{path}: key 'include': profile '{word}' not found")
        base = load(found)
        parameters |= base.parameters
        for role in ROLES:
            entries[role] |= base.entries[role]
    parameters |= _parameters(table.parameters, path, parameters)
    variables = dict.fromkeys((*PATH_VARIABLES, *HOST_VARIABLES, *parameters), 1.0)
    sections = {"both": table.both, "initiator": table.initiator, "target": table.target}
    for section, tables in sections.items():
        roles = ROLES if section == "both" else (section,)
        for name, raw in tables.items():
            where = f'{path}: [{section}."{name}"]'
            entry = _entry(catalog.get(name, where), raw, where, variables, section)
            for role in roles:
                if entry is None:
                    entries[role].pop(name, None)
                else:
                    entries[role][name] = entry
    return Profile(path.stem, table.summary, path, parameters, entries)


def _parameters(table: Mapping[str, Any], path: Path, included: Iterable[str]) -> dict[str, Parameter]:
    parameters: dict[str, Parameter] = {}
    for name, raw in table.items():
        where = f"{path}: [parameters.{name}]"
        if not name.isidentifier() or name != name.lower() or name in (*PATH_VARIABLES, *HOST_VARIABLES):
            raise InputError(f"{where}: expected a new name in lower case that is not a variable of the path or host")
        data = typed.STRICT.read(_ParameterTable, raw, where)
        parameters[name] = Parameter(name, str(data.default), data.summary, where)
    sample = dict.fromkeys((*PATH_VARIABLES, *HOST_VARIABLES, *included, *parameters), 1.0)
    for parameter in parameters.values():
        _check_formula(parameter.default, sample, parameter.where)
    return parameters


def _check_formula(text: str, variables: Mapping[str, float], where: str) -> None:
    """Check names and syntax; a value only real variables can decide (a division by zero) is left to the plan."""
    try:
        formula.evaluate(text, variables, where)
    except InputError as error:
        if _DIVIDES not in str(error):
            raise


def _entry(tunable: Tunable, raw: object, where: str, variables: Mapping[str, float], section: str) -> Entry | None:
    data = typed.STRICT.read(_EntryTable, raw, where)
    if data.drop:
        return None
    forms = {form: value for form in FORMS if (value := getattr(data, form)) is not None}
    if len(forms) != 1:
        raise InputError(f"{where}: expected exactly one of {', '.join(FORMS)}, found {', '.join(forms) or 'none'}")
    if not data.why:
        raise InputError(f"{where}: key 'why' is missing: every value needs its reason")
    wrong = [role for role in (ROLES if section == "both" else (section,)) if role not in tunable.roles]
    if wrong:
        raise InputError(f"{where}: {tunable.name} has no meaning for a {wrong[0]}; roles: {', '.join(tunable.roles)}")
    ((form, wanted),) = forms.items()
    if form != "value" and tunable.type != "int":
        raise InputError(f"{where}: '{form}' needs a number, and {tunable.name} is {tunable.type}; use 'value'")
    if data.own_path and tunable.scope not in OF_A_PATH:
        raise InputError(
            f"{where}: key 'own_path': {tunable.name} has the scope '{tunable.scope}', allowed: {', '.join(OF_A_PATH)}"
        )
    if data.when is not None:
        _check_formula(data.when, variables, f"{where}: when")
    entry = Entry(tunable, form, wanted, data.why, data.when or "", where, data.own_path)
    if form == "value" and isinstance(wanted, str) and wanted in dict(tunable.words):
        return replace(entry, wanted=dict(tunable.words)[wanted])
    if isinstance(wanted, str) and wanted in WORDS:
        if form != "value" or (wanted == "auto" and tunable.auto is None):
            raise InputError(f"{where}: '{form} = \"{wanted}\"' is not possible for {tunable.name}")
    elif tunable.type == "int" and isinstance(wanted, str):
        _check_formula(wanted, variables, where)
    else:
        tunable.check(wanted, where)
    return entry
