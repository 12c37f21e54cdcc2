# SPDX-License-Identifier: GPL-2.0-or-later
"""Facts as a file: `fabtune show --json` writes it, `fabtune lint FILE` reads another host's."""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fabtune.catalog.tunable import LEAST, MOST
from fabtune.errors import InputError
from fabtune.facts.collect import Facts
from fabtune.host import userfile

VERSION = 1
_MAX_BYTES = 16 << 20


def to_json(facts: Facts) -> dict[str, Any]:
    """Return the facts with stable keys."""
    return {"fabtune_facts": VERSION, **dataclasses.asdict(facts)}


def load(path: Path) -> Facts:
    """Return the facts saved in `path`.  Raises InputError naming the key that is wrong."""
    data = userfile.read_bytes(path, _MAX_BYTES)
    try:
        table = json.loads(data, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    if not isinstance(table, dict) or table.pop("fabtune_facts", None) != VERSION:
        raise InputError(f"{path}: not a facts file of version {VERSION}; make one with `fabtune show --json`")
    return typing.cast(Facts, _structure(Facts, table, str(path)))


def _structure(kind: Any, value: Any, where: str) -> Any:
    """Return `value` as type `kind`: a dataclass, list, tuple, dict, optional or plain value.  Raises InputError."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, where)
    if origin in (list, tuple):
        if not isinstance(value, list):
            raise _wrong(value, "an array", where)
        return origin(_structure(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(value, "an object", where)
        return {str(key): _structure(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _structure(arguments[0], value, where)
    if type(value) is int and not LEAST <= value <= MOST:
        raise _wrong(value, "a number of at most 64 bits", where)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind or value in (math.inf, -math.inf):
        raise _wrong(value, kind.__name__, where)
    return value


def _refused(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise _wrong(value, "an object", where)
    hints = typing.get_type_hints(kind)
    fields = {}
    for field in dataclasses.fields(kind):
        if field.name in value:
            fields[field.name] = _structure(hints[field.name], value[field.name], f"{where}: {field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise InputError(f"{where}: key '{field.name}' is missing")
    return kind(**fields)


def _wrong(value: object, wanted: str, where: str) -> InputError:
    return InputError(f"{where}: found {str(value)[:60]!r}, expected {wanted}")
