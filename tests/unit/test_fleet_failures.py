# SPDX-License-Identifier: GPL-2.0-or-later
"""Why a host of a fleet failed, in its own words: real playbooks, with a host's fabtune or ssh made up."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import hosttree
import pytest

from fabtune.errors import FabtuneError
from fabtune.experiment import fleet, fleet_look, inventory
from fabtune.installed import data_dir

pytestmark = pytest.mark.skipif(shutil.which("ansible-playbook") is None, reason="ansible-core is not installed")

_NOT_LOADED = "the fabstat module is not loaded"
_AS_JSON = f'{{"error": {{"kind": "failed", "exit_code": 1, "verb": "why", "message": "{_NOT_LOADED}"}}}}'
_SAYS = f"echo 'looking for 1 s ...' >&2; echo 'fabtune: {_NOT_LOADED}' >&2\n"
# On a terminal, as Ansible asks ssh for one, all is in one stream, and ssh takes its leave in the other.
_SSH = """#!/bin/sh
for last; do :; done
sh -c "$last" 2>&1 | sed 's/$/\\r/'
printf 'Shared connection to far closed.\\r\\n' >&2
exit 1
"""


def _script(path: Path, text: str) -> Path:
    hosttree.put(path, text)
    path.chmod(0o755)
    return path


def _hosts(place: Path, initiators: Sequence[str], far: str) -> inventory.Inventory:
    """Return an inventory of `initiators`, each with its variables, and of the target `far`."""
    path = place / "hosts.ini"
    path.write_text("\n".join(["[initiators]", *initiators, "[targets]", far]) + "\n")
    return inventory.load(path, loaded=False)


@pytest.fixture(autouse=True)
def _shipped_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_CONFIG", str(data_dir("ansible") / "ansible.cfg"))


def test_a_host_that_cannot_look_says_why(tmp_path: Path) -> None:
    """`non-zero return code` was all of it, and a log that was gone."""
    said = _script(tmp_path / "said", f"#!/bin/sh\n{_SAYS}echo '{_AS_JSON}'\nexit 1\n")
    crashed = _script(tmp_path / "crashed", "#!/bin/sh\necho 'a first line' >&2; echo 'out of memory' >&2; exit 1\n")
    ssh = _script(tmp_path / "ssh", _SSH)
    local = "ansible_connection=local fabtune_executable"
    remote = f"ansible_ssh_executable={ssh} fabtune_executable"
    initiators = (f"one {local}={said}", f"two {local}={crashed}", f"three {remote}={said}", f"four {remote}={crashed}")
    hosts = _hosts(tmp_path, initiators, f"far {remote}={tmp_path}/absent")
    with pytest.raises(FabtuneError) as raised:
        fleet_look.over_fleet(hosts, 1.0)
    reasons = dict(one.split(": Look at the sessions: ") for one in str(raised.value).split("; "))
    assert reasons.pop("far").endswith("absent: not found")
    assert reasons == {"one": _NOT_LOADED, "two": "out of memory", "three": _NOT_LOADED, "four": "out of memory"}


def test_a_host_that_cannot_say_what_is_in_force_says_why(tmp_path: Path) -> None:
    """Ansible's own words for it refer to what only the log has, and that is gone."""
    host = f"one ansible_connection=local ansible_python_interpreter={tmp_path}/python"
    _script(tmp_path / "python", "#!/bin/sh\necho 'libpython is missing' >&2; exit 127\n")
    with pytest.raises(FabtuneError) as raised:
        fleet._check_untouched(_hosts(tmp_path, (host,), host))
    assert "one: Ask what is in force: " in str(raised.value) and "libpython is missing" in str(raised.value)
    assert "ansible.log" not in str(raised.value)


def test_a_log_that_stays_is_named(tmp_path: Path) -> None:
    host = f"one ansible_connection=local ansible_python_interpreter={sys.executable} fabtune_executable=/nowhere"
    with pytest.raises(FabtuneError, match=r"ansible\.log has it all"):
        fleet._play("untouched", _hosts(tmp_path, (host,), host), {}, tmp_path)
    assert (tmp_path / "ansible.log").exists()
