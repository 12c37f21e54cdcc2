# SPDX-License-Identifier: GPL-2.0-or-later
"""Facts as a file: `fabtune show --json` writes it, `fabtune lint FILE` reads another host's."""

import json
from pathlib import Path
from typing import Any, cast

from fabtune import __version__
from fabtune.catalog.tunable import LEAST, MOST
from fabtune.errors import InputError
from fabtune.facts.collect import Facts
from fabtune.host import tree, userfile
from fabtune.model import typed
from fabtune.model.document import Json
from fabtune.model.typed import WrongError

VERSION = 1
# Of a thousand sessions it is 22 MB.
_MAX_BYTES = 64 << 20


def _whole(raw: Any) -> int:
    if type(raw) is not int:
        raise WrongError(raw, "integer")
    if not LEAST <= raw <= MOST:
        raise WrongError(raw, "a number of at most 64 bits")
    return raw


# Facts of a later fabtune may have more keys.
_FORMAT = typed.Format(unknown_keys=True)
# True is an int too, and stays itself.
_FORMAT.convert(int, cast(Any, Any), _whole, lambda value: value)


def to_json(facts: Facts) -> dict[str, Json]:
    """Return the facts of this host with stable keys, and with what whoever reads a bug report asks first."""
    return {"fabtune_facts": VERSION, "made_with": _made_with(), **_FORMAT.write(facts)}


def _made_with() -> dict[str, Json]:
    """Return versions by name; null for what is not there."""
    release = dict(line.partition("=")[::2] for line in (tree.read_text(tree.ETC / "os-release") or "").splitlines())
    modules = {name: tree.read_text(tree.SYS / "module" / name / "version") for name in ("fabstat", "iscsi_tcp")}
    return {"fabtune": __version__, "distribution": release.get("PRETTY_NAME", "").strip('"') or None, **modules}


def load(path: Path) -> Facts:
    """Return the facts saved in `path`.  Raises InputError naming the key that is wrong."""
    data = userfile.read_bytes(path, _MAX_BYTES)
    try:
        table = json.loads(data, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    version = table.pop("fabtune_facts", None) if isinstance(table, dict) else None
    if type(version) is not int or version != VERSION:
        raise InputError(f"{path}: not a facts file of version {VERSION}; make one with `fabtune show --json`")
    return _FORMAT.read(Facts, table, str(path))


def _refused(word: str) -> float:
    raise ValueError(f"{word} is not a number")
