# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads TOML tables strictly: every error names the file, the table, the key, what was found and what is allowed."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabtune.errors import InputError
from fabtune.host import userfile
from fabtune.model.typed import describe, one_of, suggestion

__all__ = ["Key", "check_texts", "describe", "load", "one_of", "read_table", "suggestion"]

_TYPE_NAMES = {bool: "boolean", int: "integer", float: "number", str: "text", list: "array", dict: "table"}
# Ten times the largest that is shipped; its parser takes a second for a megabyte.
_MAX_FILE_BYTES = 128 << 10


@dataclass(frozen=True)
class Key:
    """What one key of a table may hold."""

    types: tuple[type, ...]
    required: bool = False
    allowed: Collection[str] | None = None


def load(path: Path) -> dict[str, Any]:
    """Return the parsed TOML file.  Raises InputError naming it."""
    return userfile.read_toml(path, _MAX_FILE_BYTES)


def read_table(table: object, keys: Mapping[str, Key], where: str) -> dict[str, Any]:
    """Return `table` after checking every key against `keys`.  Raises InputError."""
    if not isinstance(table, dict):
        raise InputError(f"{where}: found {describe(table)}, expected a table with the keys {', '.join(keys)}")
    for name in table:
        one_of(name, keys, where, "key")
    for name, key in keys.items():
        if name not in table:
            if key.required:
                raise InputError(f"{where}: key '{name}' is missing")
            continue
        value = table[name]
        # bool is an int to Python, never to us.
        if type(value) not in key.types:
            allowed = " or ".join(_TYPE_NAMES[kind] for kind in key.types)
            raise InputError(f"{where}: key '{name}': found {describe(value)}, allowed: {allowed}")
        if key.allowed is not None:
            for word in value if isinstance(value, list) else [value]:
                if word not in key.allowed:
                    raise InputError(
                        f"{where}: key '{name}': found {describe(word)}, allowed: {', '.join(sorted(key.allowed))}"
                    )
    return table


def check_texts(values: list[Any], where: str, name: str) -> tuple[str, ...]:
    """Return an array of texts.  Raises InputError."""
    for value in values:
        if not isinstance(value, str):
            raise InputError(f"{where}: key '{name}': found {describe(value)} in the array, allowed: text")
    return tuple(values)
