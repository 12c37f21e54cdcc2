# SPDX-License-Identifier: GPL-2.0-or-later
"""Peers of the WAN bench: what is read from tuned's own profile files."""

from pathlib import Path

import pytest

from fabtune.errors import FabtuneError
from fabtune.experiment.tuners import tuned_sysctls


def write_profile(directory: Path, name: str, text: str) -> None:
    (directory / name).mkdir()
    (directory / name / "tuned.conf").write_text(text)


def test_sysctls_of_a_profile_override_those_of_the_one_it_includes(tmp_path: Path) -> None:
    write_profile(
        tmp_path,
        "base",
        "[main]\nsummary=b\n[disk]\nreadahead=>4096\n[sysctl]\nnet.core.somaxconn=>2048\nvm.swappiness=10\n",
    )
    write_profile(
        tmp_path,
        "net",
        '[main]\ninclude=base\n[sysctl]\n# c\nnet.ipv4.tcp_rmem="4096 131072 16777216"\nvm.swappiness=20\n',
    )
    assert tuned_sysctls("net", tmp_path) == {
        "net.core.somaxconn": ">2048",
        "vm.swappiness": "20",
        "net.ipv4.tcp_rmem": "4096 131072 16777216",
    }


def test_a_missing_profile_is_named(tmp_path: Path) -> None:
    write_profile(tmp_path, "net", "[main]\ninclude=gone\n")
    with pytest.raises(FabtuneError, match=r"gone/tuned\.conf"):
        tuned_sysctls("net", tmp_path)
