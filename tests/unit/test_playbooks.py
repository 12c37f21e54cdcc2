# SPDX-License-Identifier: GPL-2.0-or-later
"""What the fleet's playbooks that only look do in Ansible's check mode: the same, as they change nothing."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import hosttree
import pytest

from fabtune.installed import data_dir

pytestmark = pytest.mark.skipif(shutil.which("ansible-playbook") is None, reason="ansible-core is not installed")

_VERIFIED = """#!/bin/sh
echo '{"checked": 5, "drift": [{"tunable": "tcp.rmem_max"}], "remarks": []}'
exit 3
"""
_LOOKED = """#!/bin/sh
echo '{"devices": []}'
"""


def _played(place: Path, name: str, said: str, words: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run the playbook `name` in check mode on one host whose fabtune is the script `said`."""
    hosttree.put(place / "fabtune", said)
    (place / "fabtune").chmod(0o755)
    host = f"one ansible_connection=local fabtune_executable={place}/fabtune"
    hosttree.put(place / "hosts.ini", f"[targets]\n[initiators]\n{host}\n")
    command = ["ansible-playbook", "--check", "-i", str(place / "hosts.ini"), *words, f"fabtune.fleet.{name}"]
    environment = {
        "PATH": "/usr/bin:/bin", "HOME": str(place), "ANSIBLE_COLLECTIONS_PATH": str(data_dir("ansible")),
        "ANSIBLE_CONFIG": str(data_dir("ansible") / "ansible.cfg"),
    }  # fmt: skip
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_verify_names_what_differs(tmp_path: Path) -> None:
    """It failed on every host, with an error in its template."""
    done = _played(tmp_path, "verify", _VERIFIED)
    assert done.returncode != 0 and "1 of 5 values differ: tcp.rmem_max" in done.stdout


def test_a_look_is_taken(tmp_path: Path) -> None:
    done = _played(tmp_path, "why", _LOOKED, ["--extra-vars", f"results={tmp_path}"])
    assert done.returncode == 0, done.stdout
