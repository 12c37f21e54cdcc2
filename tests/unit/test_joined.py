# SPDX-License-Identifier: GPL-2.0-or-later
"""Several targets' disks as one."""

import pytest

from fabtune.host.targets import null_blk
from fabtune.lab import joined


def test_a_stripe_set_leaves_whole_what_a_limited_disk_takes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 64 KiB joined to 64, 128 and 192 KiB, of which a tick of the limit of 13 MiB/s let 85 % through."""
    asked: list[list[str]] = []
    monkeypatch.setattr(joined, "run", lambda words, what: asked.append(words))
    assert joined.stripe(["sda", "sdb"]) == "md0"
    (chunk,) = (int(word.removeprefix("--chunk=")) for word in asked[-1] if word.startswith("--chunk="))
    assert chunk * 1024 >= null_blk.LIMITED_REQUEST_BYTES
