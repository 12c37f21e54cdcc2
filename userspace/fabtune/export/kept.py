# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of one document by which verbs that look at the host now and then reach the metrics."""

import json
import os
from pathlib import Path
from typing import ClassVar, TypeVar

import attrs

from fabtune.errors import InputError
from fabtune.host import files, tree, userfile
from fabtune.model import typed

_MAX_BYTES = 16 << 20
_Document = TypeVar("_Document", bound="Document")


@attrs.frozen
class Document:
    """What the metrics read of another verb: FILE is its name in the runtime directory."""

    FILE: ClassVar[str]


def runtime_dir() -> Path:
    """Return where what is good until the next boot is kept: the reader's socket, and these documents."""
    return Path(os.environ.get("FABTUNE_RUNTIME_DIR", tree.ROOT / "run/fabtune"))


def save(document: Document) -> None:
    """Write `document` in the place of the last one.  Raises OSError."""
    path = runtime_dir() / document.FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    files.keep(path, (json.dumps(attrs.asdict(document)) + "\n").encode(), 0o644, over=True)


def renewable(kind: type[Document]) -> bool:
    """Tell whether something was saved that we may write anew."""
    directory = runtime_dir()
    return os.access(directory, os.W_OK | os.X_OK) and (directory / kind.FILE).exists()


def unpublish(kind: type[Document]) -> None:
    """Remove what was saved: nobody stands for it any more.  Raises OSError."""
    (runtime_dir() / kind.FILE).unlink(missing_ok=True)


def saved(kind: type[_Document]) -> _Document | None:
    """Return what was saved last; None where there is nothing.  Raises InputError for what cannot be read."""
    path = runtime_dir() / kind.FILE
    if not path.exists():
        return None
    try:
        raw = json.loads(userfile.read_text(path, _MAX_BYTES))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    return typed.STRICT.read(kind, raw, str(path))
