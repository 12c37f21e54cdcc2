# SPDX-License-Identifier: GPL-2.0-or-later
"""What a fleet refuses before anything starts."""

import shutil
from pathlib import Path

import pytest

from fabtune.errors import InputError
from fabtune.experiment import definition, fleet, inventory

pytestmark = pytest.mark.skipif(shutil.which("ansible-inventory") is None, reason="ansible-core is not installed")


def _inventory(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "hosts.ini"
    path.write_text(text)
    return path


def test_hosts_come_by_role_groups_of_groups_too(tmp_path: Path) -> None:
    text = "[rack1]\na fabtune_device=/dev/sdb\n[initiators:children]\nrack1\n[initiators]\nb fabtune_device=/srv\n[targets]\nt\n"
    found = inventory.load(_inventory(tmp_path, text))
    assert (sorted(found.initiators), found.targets) == (["a", "b"], ("t",))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[initiators]\na fabtune_device=/dev/sdb\n", "no host in the group 'targets'"),
        ("[targets]\nt\n", "no host in the group 'initiators'"),
        ("[initiators]\na\n[targets]\nt\n", "initiator 'a' has no fabtune_device"),
    ],
)
def test_a_missing_host_or_device_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        inventory.load(_inventory(tmp_path, text))
    with pytest.raises(InputError, match="no such file"):
        inventory.load(tmp_path / "absent.ini")


def test_what_only_the_lab_can_vary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "exp.toml"
    path.write_text('[factors]\nloss = ["0%", "1%"]\n')
    with pytest.raises(InputError, match="factors.loss: a fleet's loss cannot be varied"):
        fleet.check(definition.load(str(path)))
    path.write_text('[factors]\nprofile = ["default", "wan"]\n[fixed]\nrtt = "20ms"\n')
    fleet.check(definition.load(str(path)))
