# SPDX-License-Identifier: GPL-2.0-or-later
"""Run records as files: one immutable gzip JSON file with everything one run of a workload read and did."""

import gzip
import io
import json
import re
import tempfile
import time
import zlib
from pathlib import Path

import attrs

from fabtune.errors import FabtuneError, InputError
from fabtune.host import files, userfile
from fabtune.model import runrecord
from fabtune.model.origin import digest_of
from fabtune.model.runrecord import SCHEMA, RunRecord
from fabtune.model.typed import describe

SUFFIX = ".run.json.gz"

# What a record may take on disk and unpacked: hundreds of times a long run's.
_MAX_BYTES, _MAX_JSON_BYTES = 64 << 20, 256 << 20


def write(record: RunRecord, path: Path) -> Path:
    """Write `record` to a new file and make it read-only; an existing file is never replaced.

    Raises FabtuneError when the file exists or there is no room; nothing partial is left.
    """
    text = json.dumps(runrecord.as_json(record), sort_keys=True, separators=(",", ":"), allow_nan=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FabtuneError(f"{path.parent}: cannot keep the run record here: {error.strerror}") from None
    try:
        files.keep(path, gzip.compress(text.encode(), 6, mtime=0), 0o444, over=False)
    except FileExistsError:
        raise FabtuneError(f"{path}: exists already; a run record is never overwritten") from None
    except OSError as error:
        raise FabtuneError(f"{path}: cannot keep the run record: {error.strerror}") from None
    return path


def keep(record: RunRecord, directory: Path, before: str = "") -> tuple[Path, str]:
    """Write `record` to `directory`, or where that cannot be to the system's directory for temporary files.

    Its file's name begins with what stands `before`.
    Return where it is, and why it is there: what took hours to measure is not lost to a full disk.
    """
    path = directory / f"{before}{file_name(record)}"
    try:
        return write(record, path), ""
    except FabtuneError as error:
        return write(record, Path(tempfile.gettempdir()) / path.name), str(error)


def file_name(record: RunRecord) -> str:
    """Return a file name that sorts by time: start, workload, label."""
    start = record.started_unix_s
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(start)) + f".{int(start % 1 * 1000):03d}"
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", record.label)
    return "-".join(part for part in (stamp, record.workload.name, label) if part) + SUFFIX


def read(path: Path) -> RunRecord:
    """Return the record in `path`.  Raises InputError when it is none or of another version."""
    data = _document(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: not a run record: found {describe(data)}, allowed: a table")
    if (schema := data.get("schema")) != SCHEMA:
        later = isinstance(schema, str) and schema.startswith(SCHEMA.rstrip("1"))
        what = "a run record of another version of fabtune" if later else "not a run record"
        raise InputError(f"{path}: {what}: key 'schema': found {describe(schema)}, allowed: {SCHEMA}")
    return attrs.evolve(runrecord.read(data, str(path)), file=str(path))


def content_digest(path: Path) -> str:
    """Return a digest of what a record says, however it is packed and its keys are ordered.  Raises InputError."""
    try:
        return digest_of(json.dumps(_document(path), sort_keys=True).encode())
    except RecursionError:
        raise InputError(f"{path}: nested too deeply for a run record") from None


def _document(path: Path) -> object:
    """Return the JSON in `path`.  Raises InputError where it is not whole, or too large for a record."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(userfile.read_bytes(path, _MAX_BYTES))) as file:
            text = file.read(_MAX_JSON_BYTES + 1)
        if len(text) > _MAX_JSON_BYTES:
            raise InputError(f"{path}: unpacks to more than {_MAX_JSON_BYTES} bytes, so it is not a run record")
        return json.loads(text)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or 'not a gzip file, so not a run record'}") from None
    except (EOFError, zlib.error, ValueError, RecursionError):
        raise InputError(f"{path}: damaged or cut short: not a whole gzip JSON file") from None


def seen_below(directory: Path, pattern: str) -> list[Path]:
    """Return what matches `pattern` below `directory`, in name order; what is out of sight there is no result."""
    found = sorted(directory.rglob(pattern))
    return [path for path in found if not any(part[0] == "." for part in path.relative_to(directory).parts)]


def find(directory: Path) -> list[Path]:
    """Return the run records below `directory`, in name order.  Raises InputError when there is none."""
    if not directory.is_dir():
        raise InputError(f"{directory}: not a directory; expected one with files *{SUFFIX}")
    found = seen_below(directory, f"*{SUFFIX}")
    if not found:
        raise InputError(f"{directory}: no run records (*{SUFFIX}) here; make some with `fabtune measure`")
    return found
