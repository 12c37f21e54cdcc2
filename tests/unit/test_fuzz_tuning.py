# SPDX-License-Identifier: GPL-2.0-or-later
"""The short form of `make fuzz`, some dozens of cases of every kind, and proof that the guard around them bites."""

import json
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pytest
from length import FULL

FUZZ = Path(__file__).resolve().parents[1] / "fuzz"
sys.path.insert(0, str(FUZZ))

import fuzz  # noqa: E402
from guard import COMMAND  # noqa: E402

_ATTEMPTS = """
import os, subprocess, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import guard
outside, scratch = Path(sys.argv[2]), Path(sys.argv[3])
guard.enclose(scratch)
watch = guard.Watch(scratch)

def told(action):
    try:
        action()
    except BaseException as error:
        return type(error).__name__
    return "done"

(scratch / "sub").mkdir()
attempts = {
    "a child": lambda: subprocess.run(["sh", "-c", f"echo x > {outside}"], check=True, stderr=subprocess.DEVNULL),
    "root's way out": lambda: subprocess.run(
        ["mount", "-o", "remount,bind,rw", "/"], check=True, stderr=subprocess.DEVNULL
    ),
    "a sysctl": lambda: Path("/proc/sys/net/ipv4/tcp_sack").write_text("1"),
    "without the hook": lambda: outside.write_text("x"),
    "a device": lambda: os.mknod(scratch / "disk", 0o60600, os.makedev(8, 0)),
}
for name, action in attempts.items():
    print(name, told(action))
watch.armed = True
attempts = {
    "write": lambda: outside.write_text("x"),
    "os.open": lambda: os.open(outside, os.O_RDWR),
    "rename": lambda: os.rename(scratch / "file", outside),
    "symlink": lambda: ((scratch / "link").symlink_to(outside), (scratch / "link").write_text("x")),
    "unlink": lambda: outside.unlink(),
    "mkdir": lambda: outside.with_name("directory").mkdir(),
    "program": lambda: subprocess.run(["true"]),
    "read": lambda: outside.read_text(),
    "scratch": lambda: (scratch / "file").write_text("x"),
}
for name, action in attempts.items():
    print(name, told(action))
print("written", sorted(os.path.basename(name) for name in watch.written))
"""


def _namespaces() -> bool:
    return subprocess.run([*COMMAND, "true"], capture_output=True, check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(not _namespaces(), reason="this host lets nobody make a user namespace")


@needs_namespaces
def test_the_guard_refuses_each_way_to_write_outside(tmp_path: Path) -> None:
    outside, scratch = tmp_path / "outside", tmp_path / "scratch"
    outside.write_text("mine")
    scratch.mkdir()
    done = subprocess.run(
        [*COMMAND, sys.executable, "-c", _ATTEMPTS, str(FUZZ), str(outside), str(scratch)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines() if not line.startswith("written"))
    assert told == {
        "a child": "CalledProcessError", "root's way out": "CalledProcessError", "a sysctl": "OSError",
        "without the hook": "OSError", "a device": "PermissionError", "write": "ForbiddenError",
        "os.open": "ForbiddenError", "rename": "ForbiddenError", "symlink": "ForbiddenError",
        "unlink": "ForbiddenError", "mkdir": "ForbiddenError", "program": "ForbiddenError", "read": "done",
        "scratch": "done",
    }  # fmt: skip
    assert "written ['file', 'link']" in done.stdout
    assert outside.read_text() == "mine" and list(scratch.iterdir()) == []


@needs_namespaces
def test_broken_input_is_refused_clearly_and_changes_nothing(tmp_path: Path) -> None:
    cases = 3000 if FULL else 1000
    done = subprocess.run(
        [sys.executable, str(FUZZ / "fuzz.py"), "--cases", str(cases), "--out", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "fuzz.json").read_text())
    assert result["cases"] == cases and result["failed"] == 0
    for name, kind in result["kinds"].items():
        # Cases that are all accepted, or all refused, would show little.
        assert kind["accepted"] > 0 and (
            kind["accepted"] < kind["cases"] or name in ("record", "ip and tc", "host text")
        )


@needs_namespaces
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("nothing", "holds"),
        ("loop", "hang"),
        ("die", "status -9"),
        ("write", "forbidden: [\"open '/etc/fabtune-fuzz'\"]"),
    ],
)
def test_a_case_that_hangs_dies_or_writes_is_told(how: str, told: str, tmp_path: Path) -> None:
    case = {"kind": "pretended", "seed": 1, "number": 1, "files": {"how": b64encode(how.encode()).decode()}}
    (tmp_path / "case.json").write_text(json.dumps(case))
    command = [sys.executable, str(FUZZ / "fuzz.py"), "--replay", str(tmp_path / "case.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == (how != "nothing") and told in done.stdout


@needs_namespaces
@pytest.mark.parametrize(("how", "place"), [("wait", "hang"), ("work", "")])
def test_waiting_is_a_hang_and_work_that_takes_its_time_is_none(
    how: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "WAIT_S", 1.0)
    case = {"kind": "pretended", "seed": 1, "number": 1, "files": {"how": b64encode(how.encode()).decode()}}
    assert fuzz.run_alone(case)["place"] == place
