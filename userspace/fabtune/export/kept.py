# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of one document by which verbs that look at the host now and then reach the metrics."""

import json
from pathlib import Path
from typing import TypeVar

import attrs

from fabtune.errors import InputError
from fabtune.host import files, userfile
from fabtune.model import typed

_MAX_BYTES = 16 << 20
_Document = TypeVar("_Document", bound=attrs.AttrsInstance)


def save(document: attrs.AttrsInstance, path: Path) -> None:
    """Write `document` to `path` in the place of what is there.  Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.keep(path, (json.dumps(attrs.asdict(document)) + "\n").encode(), 0o644, over=True)


def saved(kind: type[_Document], path: Path) -> _Document | None:
    """Return what was saved to `path`; None where there is nothing.  Raises InputError for what cannot be read."""
    if not path.exists():
        return None
    try:
        raw = json.loads(userfile.read_text(path, _MAX_BYTES))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    return typed.STRICT.read(kind, raw, str(path))
