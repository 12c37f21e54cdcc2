# SPDX-License-Identifier: GPL-2.0-or-later
"""`apt purge fabtune`: what its script deletes, in a mount namespace whose /etc, /run and /var/lib are its own."""

import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PLACES = "set -e; for place in /etc /run /var/lib; do mount -t tmpfs none $place; done; mkdir -p /var/lib/fabtune"
MOUNT = "mkdir -p {0}; mount -t tmpfs none {0}"
FILL = "cd /var/lib/fabtune; mkdir -p journal; echo '{{}}' > pull.json; echo '{}' > journal/1.jsonl; cd /"
CLOSED = FILL.format('{"kind": "closed"}')

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts of one's own need root")


def _purge(*before: str) -> tuple[int, list[str], str]:
    """Purge after `before`; return the exit status, what is left of fabtune's state, and what was said."""
    script = "\n".join([PLACES, *before, f"sh {TOP}/debian/fabtune.postrm purge || exit", "find /var/lib -mindepth 1"])
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
                          capture_output=True, text=True, check=False)  # fmt: skip
    return done.returncode, sorted(done.stdout.splitlines()), done.stderr


def test_all_that_is_fabtune_s_goes() -> None:
    assert _purge(CLOSED) == (0, [], "")
    assert _purge("rmdir /var/lib/fabtune") == (0, [], "")


def test_a_link_goes_and_not_what_it_leads_to() -> None:
    moved = "mv /var/lib/fabtune /etc/elsewhere; ln -s /etc/elsewhere /var/lib/fabtune"
    assert _purge(CLOSED, moved, "trap 'test -e /etc/elsewhere/pull.json || exit 9' EXIT") == (0, [], "")


def test_a_disk_of_its_own_is_emptied_and_the_purge_does_not_fail() -> None:
    """`fabtune doctor` tells people to mount one there."""
    assert _purge(MOUNT.format("/var/lib/fabtune"), CLOSED) == (0, ["/var/lib/fabtune"], "")


def test_what_is_mounted_deeper_is_left_and_said() -> None:
    journal = "/var/lib/fabtune/journal"
    status, left, said = _purge(MOUNT.format(journal), CLOSED)
    assert (status, left) == (0, ["/var/lib/fabtune", journal, f"{journal}/1.jsonl"]) and journal in said


def test_the_only_record_of_what_is_in_force_stays() -> None:
    status, left, said = _purge(FILL.format('{"kind": "begin"}'))
    assert status == 0 and "/var/lib/fabtune/journal/1.jsonl" in left and "/var/lib/fabtune stays" in said
