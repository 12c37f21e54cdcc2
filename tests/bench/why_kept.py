# SPDX-License-Identifier: GPL-2.0-or-later
"""The runs that the tables of Documentation/why.md were made from, kept beside them and judged anew without a guest."""

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "Documentation/results/why/runs.tar.xz"


def pack(out: Path, names: Iterable[str], file: Path = FILE) -> None:
    """Keep the runs of the cases `names` that are in `out`; the same runs make the same bytes."""
    with tarfile.open(file, "w:xz") as kept:
        for name in sorted(names):
            data = (out / f"{name}.json").read_bytes()
            one = tarfile.TarInfo(f"{name}.json")
            one.size = len(data)
            kept.addfile(one, io.BytesIO(data))


def unpack(out: Path, file: Path = FILE) -> None:
    """Put the kept runs of cases that are not in `out` there."""
    with tarfile.open(file) as kept:
        for one in kept:
            place, data = out / Path(one.name).name, kept.extractfile(one)
            if data and not place.exists():
                place.write_bytes(data.read())
