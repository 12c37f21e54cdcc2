# SPDX-License-Identifier: GPL-2.0-or-later
"""The additions of CONTRIBUTING.md, each made to a copy of the tree as it says there, in as many files as it says."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import hosttree
import pytest

TOP = Path(__file__).resolve().parents[2]


class Tree:
    """A copy of what is installed, to which things are added."""

    def __init__(self, top: Path) -> None:
        self.top = top
        for name in ("userspace", "tunables", "profiles"):
            shutil.copytree(TOP / name, top / name, ignore=shutil.ignore_patterns("__pycache__"))
        self.touched: set[str] = set()

    def write(self, file: str, text: str) -> None:
        """Make a new file."""
        assert not (self.top / file).exists()
        (self.top / file).write_text(text)
        self.touched.add(file)

    def insert(self, file: str, before: str, text: str) -> None:
        """Put lines into a file, before the only line that begins with `before`; at its end without one."""
        lines = (self.top / file).read_text().splitlines(keepends=True)
        places = [number for number, line in enumerate(lines) if before and line.startswith(before)] or [len(lines)]
        assert len(places) == 1
        (self.top / file).write_text("".join([*lines[: places[0]], text, *lines[places[0] :]]))
        self.touched.add(file)

    def fabtune(self, *words: str, root: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run fabtune as this tree has it."""
        environment = os.environ | {"PYTHONPATH": str(self.top / "userspace"), "COLUMNS": "200"}
        if root is not None:
            environment |= {"FABTUNE_ROOT": str(root), "PATH": f"{root}/bin:{os.environ['PATH']}"}
        command = [sys.executable, "-m", "fabtune", *words]
        return subprocess.run(command, cwd=self.top, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "tree")


def shown(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


TUNABLE = """
[rx_mini_ring]
summary = "descriptors of the receive queue for small packets"
why = "A burst of small packets that is longer is lost."
backend = "ethtool"
key = "rings.rx_mini"
scope = "nic"
type = "int"
minimum = 0
limit = "rings.rx_mini_max"
default_note = "set by the driver"
effect = "live"
roles = ["initiator", "target"]
persist = "link"
persist_as = "RxMiniBufferSize"
source = "Documentation/networking/ethtool-netlink.rst"
"""


def test_a_tunable_that_is_kept_over_a_reboot_is_one_file(tree: Tree) -> None:
    tree.insert("tunables/nic.toml", "", TUNABLE)
    assert "kept by: link (RxMiniBufferSize)" in shown(tree.fabtune("explain", "nic.rx_mini_ring"))
    assert json.loads(tree.fabtune("explain", "--json", "nic.rx_mini_ring").stdout)["persist_as"] == "RxMiniBufferSize"
    assert "RxMiniBufferSize" in shown(tree.fabtune("tunables", "--markdown"))
    assert len(tree.touched) == 1


WORKLOAD = """
summary = "two readers at once"
source = "a stranger"
description = "Two jobs read the same file from its beginning."
target = "directory"

[parameters]
block_bytes = [65536]

[time]
runtime_s = 1
ramp_s = 0

[options]
ioengine = "psync"
directory = "${directory}"
bs = "${block_bytes}"
size = "1m"
numjobs = 2

[[steps]]
name = "reads"
jobs = { readers = { rw = "read", time_based = 1 } }
"""


def test_a_workload_is_one_file_and_runs(tree: Tree, tmp_path: Path) -> None:
    tree.write("userspace/fabtune/measure/workloads/tworeaders.toml", WORKLOAD)
    assert "tworeaders two readers at once" in shown(tree.fabtune("workloads"))
    assert "Two jobs read the same file" in shown(tree.fabtune("explain", "tworeaders"))
    (tmp_path / "data").mkdir()
    words = ("--on", str(tmp_path / "data"), "--runtime", "1s", "--ramp", "0s", "--label", "mine")
    shown(tree.fabtune("measure", "tworeaders", *words, "--out", str(tmp_path / "runs")))
    assert len(list((tmp_path / "runs").glob("*-tworeaders-mine.run.json.gz"))) == 1
    assert len(tree.touched) == 1


FABRIC = '''
"""The iSCSI session without its own multipath device."""

from fabtune.lab.fabrics import iscsi


class Plain(iscsi.FABRIC):
    """As iscsi, under a name of its own."""

    NAME = "plain-iscsi"


FABRIC = Plain
'''
DEFINITION = """
summary = "something new"
source = "a stranger"

[factors]
rtt = ["0ms", "10ms"]

[fixed]
{fixed}
runtime = "2s"

[plot]
x = "rtt"
"""


def dry(tree: Tree, fixed: str) -> "subprocess.CompletedProcess[str]":
    (tree.top / "mine.toml").write_text(DEFINITION.format(fixed=fixed))
    return tree.fabtune("run", "mine.toml", "--dry-run")


def test_a_fabric_is_one_file_and_experiments_take_it(tree: Tree) -> None:
    before = dry(tree, 'fabric = "plain-iscsi"')
    assert before.returncode == 2 and "plain-iscsi" in before.stderr
    tree.write("userspace/fabtune/lab/fabrics/plain.py", FABRIC)
    shown(dry(tree, 'fabric = "plain-iscsi"\nsessions = 2'))
    assert len(tree.touched) == 1


def test_an_experiment_factor_is_two_files(tree: Tree) -> None:
    tree.insert(
        "userspace/fabtune/model/factors.py",
        "    ramp_s: float",
        '    queues: int = _factor(_integer(0, 64), "0", "queue pairs of the controller, 0 for its default")\n',
    )
    nvme = tree.top / "userspace/fabtune/lab/fabrics/nvme.py"
    nvme.write_text(nvme.read_text().replace("FACTORS = frozenset({", 'FACTORS = frozenset({"queues", '))
    tree.touched.add("userspace/fabtune/lab/fabrics/nvme.py")
    shown(dry(tree, 'fabric = "nvme-tcp"\nqueues = 4'))
    out_of_range = dry(tree, 'fabric = "nvme-tcp"\nqueues = 65')
    assert out_of_range.returncode == 2
    assert "queues = '65': expected a whole number from 0 to 64" in out_of_range.stderr
    endless = dry(tree, f'fabric = "nvme-tcp"\nqueues = "{"9" * 5000}"')
    assert endless.returncode == 2 and "Traceback" not in endless.stderr
    elsewhere = dry(tree, "queues = 4")
    assert elsewhere.returncode == 2 and "queues with fabric = iscsi: it is only for nvme-tcp" in elsewhere.stderr
    assert len(tree.touched) <= 2


RULE = '''
"""Pings of a session."""

from collections.abc import Iterator

from fabtune.lint.rule import Case, Scene, case, rule


@rule(
    "pings-seldom",
    "notice",
    seen="a ping every {value} s",
    so="a dead path is found late",
    fix="lower iscsi.noop_interval to 5",
    example={"iscsi.noop_interval": "600"},
)
def pings_seldom(scene: Scene) -> Iterator[Case]:
    """A ping is what finds a path that is silent for good."""
    for reading, value in scene.numbers("iscsi.noop_interval"):
        if value > 300:
            yield case(reading, value=value)
'''


def test_a_lint_rule_is_one_file(tree: Tree, tmp_path: Path) -> None:
    root = hosttree.make(tmp_path / "host", sessions=1)
    record = root / f"records/{hosttree.iqn(1)}"
    record.write_text(record.read_text().replace("noop_out_interval = 5", "noop_out_interval = 600"))
    tree.write("userspace/fabtune/lint/rules/pings.py", RULE)
    done = tree.fabtune("lint", "--json", root=root)
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    mine = [one for one in found["findings"] if one["hazard"] == "pings-seldom"]
    assert [one["fix"] for one in mine] == ["lower iscsi.noop_interval to 5"]
    assert len(tree.touched) == 1


TARGET = '''
"""A target that only the tests have."""

from fabtune.host.targets.kind import Kind


class _Mine(Kind):
    name, title = "mine", "my target"
    scopes, group = ("mine-target",), "mine-target"
    offers = {"mine.burst": "MaxBurstLength", "mine.window": "cmdsn_depth"}


KIND = _Mine()
'''
OFFERED = """
[{name}]
summary = "{name} this target offers"
why = "both ends agree on the smaller value"
backend = "attribute"
key = "{name}"
scope = "mine-target"
type = "int"
minimum = 1
default = 65536
effect = "reconnect"
roles = ["target"]
persist = "none"
persist_why = "it forgets"
source = "a stranger"
"""
ASKING = """
import gzip, json, sys
from fabtune.model import typed
from fabtune.model.observation import Observation
from fabtune.tune.asked import asked
from fabtune.why.judging import every_limiter
kept = json.loads(gzip.open(sys.argv[1]).read())
wanted = asked(["mine.burst=1048576", "mine.window=64"], typed.STRICT.read(Observation, kept["depth1"], "kept"))
print(*(change.tunable for change in wanted.changes), wanted.unknown, end=" ")
print(*(one.name for one in every_limiter() if {"mine.burst", "mine.window"} & set(one.lifts)))
"""


def test_a_kind_of_target_is_one_file_beside_its_tunables_which_why_and_whatif_know(tree: Tree) -> None:
    tree.write("userspace/fabtune/host/targets/mine.py", TARGET)
    tree.write("tunables/mine.toml", "".join(OFFERED.format(name=name) for name in ("burst", "window")))
    assert "mine-target" in shown(tree.fabtune("explain", "mine.burst"))
    done = subprocess.run(
        [sys.executable, "-c", ASKING, TOP / "tests/unit/data/observations.json.gz"],
        env=os.environ | {"PYTHONPATH": str(tree.top / "userspace")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert shown(done) == "MaxBurstLength cmdsn_depth () r2t command-window"
    assert len(tree.touched) == 2


LIMITER = '''
"""What a stranger takes for the reason."""

from fabtune.why.limiter import STOPPED, Limiter

HUM = Limiter(
    name="hum", stage=STOPPED, order=-1, claim=lambda _: 1.0, subject=lambda _: "a hum in the line",
    evidence=lambda _: (), lifts=("iscsi.tcp_window",), doing="path",
)
LIMITERS = (HUM,)
'''
JUDGING = """
import gzip, json, sys
from fabtune.model import typed
from fabtune.model.observation import Observation
from fabtune.why import in_common, judging, words
kept = json.loads(gzip.open(sys.argv[1]).read())
one, = judging.judged(typed.STRICT.read(Observation, kept["depth1"], "kept"))
told = in_common.in_common([in_common.Member(f"i{n}", f"t{n % 2}", f"p{n % 2}", one) for n in range(4)])
print(words.verdict(one), *one.liftable[0].lifts, in_common._doing(told.limiter))
"""


def test_a_limiter_is_one_file(tree: Tree) -> None:
    tree.write("userspace/fabtune/why/limiters/hum.py", LIMITER)
    done = subprocess.run(
        [sys.executable, "-c", JUDGING, TOP / "tests/unit/data/observations.json.gz"],
        env=os.environ | {"PYTHONPATH": str(tree.top / "userspace")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert shown(done).endswith("by a hum in the line (100 % of the time) iscsi.tcp_window path")
    assert len(tree.touched) == 1
