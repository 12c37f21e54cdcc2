# SPDX-License-Identifier: GPL-2.0-or-later
"""The module's pure headers, compiled for user space with sanitizers, and what must agree with them."""

import graphlib
import re
import subprocess
from pathlib import Path

import pytest

import fabtune
from fabtune.stat.served import ANSWERS
from fabtune.stat.snapshot import FORMAT_VERSION, HELD_EVENTS, OPS, QUEUE_FULL_EVENTS

TOP = Path(__file__).resolve().parents[2]
ABI = (TOP / "Documentation/ABI/testing/debugfs-fabstat").read_text()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("fabstat") / "fabstat_header"
    subprocess.run(
        ["gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined",
         "-fno-sanitize-recover=all", f"-I{TOP / 'kmod'}", str(Path(__file__).with_name("fabstat_header.c")),
         "-o", str(binary)],
        check=True,
    )  # fmt: skip
    return binary


def lines(program: Path, *arguments: str) -> list[str]:
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout.splitlines()


def test_every_property_of_the_headers_holds(program: Path) -> None:
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_bounds_reach_from_one_microsecond_to_a_thousand_seconds_within_the_stated_error(program: Path) -> None:
    bounds = [int(line) for line in lines(program, "bounds")]
    assert bounds[0] == 0 and bounds[-1] >= 1000 * 10**9
    pairs = [(low, high) for low, high in zip(bounds, bounds[1:], strict=False) if low >= 1000]
    assert max((high - low) / low for low, high in pairs) <= 0.0625


def test_every_event_is_documented_in_the_abi_and_no_other(program: Path) -> None:
    names = lines(program, "names")
    assert len(set(names)) == len(names)
    documented = re.findall(r"^\t\t(\w+)\t", ABI.split("Events:")[1].split("What:")[0], re.MULTILINE)
    assert documented == names


def test_userspace_uses_names_that_the_module_has(program: Path) -> None:
    names = lines(program, "names")
    assert set(QUEUE_FULL_EVENTS) | set(HELD_EVENTS) <= set(names)
    held = {name for name in names if name.startswith("held_")}
    assert held == set(HELD_EVENTS)
    source = (TOP / "kmod/classify.h").read_text()
    assert re.findall(r'"(\w+)"', source.split("FABSTAT_OP_NAMES")[1].split("}")[0]) == list(OPS)
    assert re.findall(r'"(\w+)"', source.split("FABSTAT_ANSWER_NAMES")[1].split("}")[0]) == list(ANSWERS)


def test_versions_agree() -> None:
    main = (TOP / "kmod/main.c").read_text()
    dkms = (TOP / "kmod/dkms.conf").read_text()
    show = (TOP / "kmod/show.c").read_text()
    assert f'MODULE_VERSION("{fabtune.__version__}")' in main
    assert f'PACKAGE_VERSION="{fabtune.__version__}"' in dkms
    assert re.findall(r"#define FORMAT_VERSION\s+(\d+)", show) == [str(FORMAT_VERSION)]
    assert f"# fabstat {FORMAT_VERSION}" in ABI


def test_no_file_of_the_module_uses_one_that_uses_it() -> None:
    files = {path.stem: path.read_text() for path in (TOP / "kmod").glob("*.c") if not path.name.endswith(".mod.c")}
    defined = r"^(?!static|extern)[\w ]+?[ *(](fabstat_\w+)(?=[(;)\[]| =)"
    home = {name: file for file, text in files.items() for name in re.findall(defined, text, re.MULTILINE)}
    assert {home["fabstat_lock"], home["fabstat_make"], home["fabstat_clock"]} == {"device", "place", "clock"}
    code = {file: re.sub(r"/\*.*?\*/|struct fabstat_\w+", "", text, flags=re.DOTALL) for file, text in files.items()}
    uses = {file: {home.get(name, file) for name in re.findall(r"\bfabstat_\w+", text)} - {file}
            for file, text in code.items()}  # fmt: skip
    assert uses["main"] >= {"attach", "device"}
    graphlib.TopologicalSorter(uses).prepare()
