# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune-pull: a host comes to what a file names, and nobody's own work is undone; the pod's words are fabtune's."""

import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hosttree
import pytest
import yaml

from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli.main import verb_parser

TOP = Path(__file__).resolve().parents[2]
WORDS = "two --role initiator --rtt 1ms --rate 1gbit"
PROFILE = """summary = "a disk"
[initiator."block.rq_affinity"]
value = {}
why = "a test"
"""


class Host:
    """A tree of its own with a disk, a profile and a file of what is wanted."""

    def __init__(self, root: Path) -> None:
        self.root = hosttree.make(root, 1)
        self.affinity = root / "sys/block/sd1/queue/rq_affinity"
        self.profile = root / "etc/fabtune/profiles/two.toml"
        self.wanted = root / "etc/fabtune/pull"
        hosttree.put(self.profile, PROFILE.format(2))
        hosttree.put(self.wanted, f"# what is wanted\n{WORDS}  # of its disks")

    def run(self, program: str, *words: str) -> tuple[int, str]:
        """Run a program of userspace/bin on this host; return its exit status and all it says."""
        where = {
            "FABTUNE_ROOT": str(self.root), "FABTUNE_STATE_DIR": str(self.root / "state"),
            "FABTUNE_PROFILES": str(self.profile.parent),
            "PATH": f"{self.root}/bin:{os.environ['PATH']}", "HOME": str(self.root),
        }  # fmt: skip
        done = subprocess.run(
            [TOP / "userspace/bin" / program, *words], env=where, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a host that was never tuned."""
    return Host(tmp_path)


def test_a_host_comes_to_what_is_wanted_once(host: Host) -> None:
    status, said = host.run("fabtune-pull")
    assert status in (0, 4) and host.affinity.read_text().strip() == "2", said
    journals = sorted((host.root / "state/journal").iterdir())
    assert host.run("fabtune-pull")[0] == 0
    assert sorted((host.root / "state/journal").iterdir()) == journals
    # A profile that changes is applied again.
    hosttree.put(host.profile, PROFILE.format(0))
    status, said = host.run("fabtune-pull")
    assert status in (0, 4) and host.affinity.read_text().strip() == "0", said


def test_two_at_once_apply_once_and_know_what(host: Host) -> None:
    with ThreadPoolExecutor() as both:
        ends = [one.result() for one in [both.submit(host.run, "fabtune-pull") for _ in range(2)]]
    assert {status for status, _ in ends} <= {0, 4} and len(list((host.root / "state/journal").iterdir())) == 1, ends
    host.run("fabtune", "revert")
    assert host.run("fabtune-pull")[0] == 3


@pytest.mark.parametrize("killed", ["apply", "verify"])
def test_a_fabtune_that_is_killed_has_failed(tmp_path: Path, killed: str) -> None:
    """What a shell calls 137 is -9 here: no status that fabtune has, and it was taken for all being done."""
    for place in ("bin", "etc/profiles", "state"):
        (tmp_path / place).mkdir(parents=True)
    hosttree.put(tmp_path / "etc/pull", WORDS)
    pull = shutil.copy(TOP / "userspace/bin/fabtune-pull", tmp_path / "bin")
    program = tmp_path / "bin/fabtune"
    # A boot has undone nothing.
    kill = f'[ "$1 $2" = "apply --again" ] || [ "$1" != {killed} ] || kill -KILL $$'
    answers = "--version) echo fabtune 0;; history) echo '[]';; verify) echo '{\"drift\": []}';;"
    program.write_text(f'#!/bin/sh\n{kill}\ncase "$1" in {answers} esac\n')
    program.chmod(0o755)
    where = {"FABTUNE_PROFILES": str(tmp_path / "etc/profiles"), "FABTUNE_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run([pull], env=os.environ | where, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and f"fabtune {killed}: killed by signal 9" in done.stderr


def test_a_login_that_is_due_is_told_until_it_has_been(tmp_path: Path) -> None:
    """verify's 4 was taken for well and forgotten: the first pull ended with 4, and every later one with 0."""
    for place in ("bin", "etc/profiles"):
        (tmp_path / place).mkdir(parents=True)
    hosttree.put(tmp_path / "etc/pull", WORDS)
    pull = shutil.copy(TOP / "userspace/bin/fabtune-pull", tmp_path / "bin")
    program, due = tmp_path / "bin/fabtune", tmp_path / "due"
    made = '{"transaction": "T1", "profile": "two", "roles": ["initiator"], "state": "in force"}'
    program.write_text(f"""#!/bin/sh
waits() {{ [ ! -e {due} ] || exit 4; exit 0; }}
case "$1 $2" in
"apply --again") ;;
--version*) echo fabtune 0;;
history*) [ -e {tmp_path}/applied ] && echo '[{made}]' || echo '[]';;
verify*) echo '{{"drift": []}}'; waits;;
apply*) touch {tmp_path}/applied {due}; echo '{made}'; [ ! -e {tmp_path}/logs-in ] || rm {due}; waits;;
esac
""")
    program.chmod(0o755)
    where = {"FABTUNE_PROFILES": str(tmp_path / "etc/profiles"), "FABTUNE_STATE_DIR": str(tmp_path / "state")}

    def run() -> tuple[int, bool]:
        done = subprocess.run([pull], env=os.environ | where, capture_output=True, text=True, check=False)
        return done.returncode, "see `fabtune verify`" in done.stderr

    # The first time apply itself names it.
    assert [run() for _ in range(3)] == [(4, False), (4, True), (4, True)]
    due.unlink()
    assert run() == (0, False)
    # A line that is another one now logs in.
    due.touch()
    (tmp_path / "logs-in").touch()
    hosttree.put(tmp_path / "etc/pull", f"{WORDS} --allow-relogin")
    assert run() == (0, False)


def test_what_a_boot_has_undone_is_written_again(host: Host) -> None:
    host.run("fabtune-pull")
    hosttree.put(host.affinity, "1")
    hosttree.put(host.root / "proc/sys/kernel/random/boot_id", "99999999-2222-3333-4444-555555555555")
    status, said = host.run("fabtune-pull")
    assert status in (0, 4) and host.affinity.read_text().strip() == "2", said


def test_what_somebody_else_has_set_stops_it(host: Host) -> None:
    host.run("fabtune-pull")
    hosttree.put(host.affinity, "0")
    hosttree.put(host.profile, PROFILE.format(1))
    status, said = host.run("fabtune-pull")
    assert status == 3 and "block.rq_affinity" in said
    assert host.affinity.read_text().strip() == "0"


def test_a_damaged_journal_is_no_change_by_somebody_else(host: Host) -> None:
    host.run("fabtune-pull")
    (journal,) = (host.root / "state/journal").iterdir()
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text(lines[0] + lines[1][:-5] + "\n" + "".join(lines[2:]))
    status, said = host.run("fabtune-pull")
    assert status == 3 and "nothing is applied: the journal is damaged; see" in said, said


def test_what_was_taken_back_by_hand_stays_so(host: Host) -> None:
    before = host.affinity.read_text()
    host.run("fabtune-pull")
    host.run("fabtune", "revert")
    assert host.affinity.read_text().strip() == before.strip()
    status, said = host.run("fabtune-pull")
    assert status == 3 and "by hand" in said
    assert host.affinity.read_text().strip() == before.strip()


@pytest.mark.parametrize("change", ["the package", "a profile"])
def test_what_was_taken_back_by_hand_stays_so_over_an_upgrade_and_until_its_line_is_another(
    host: Host, change: str
) -> None:
    """A new version, or any profile that was edited, made each line a new wish."""
    host.run("fabtune-pull")
    host.run("fabtune", "revert")
    if change == "a profile":
        hosttree.put(host.profile.with_name("other.toml"), PROFILE.format(0))
    else:
        note = host.root / "state/pull.json"
        found = json.loads(note.read_text())
        note.write_text(json.dumps({line: one | {"digest": "an older one"} for line, one in found.items()}))
    status, said = host.run("fabtune-pull")
    assert status == 3 and "by hand" in said and host.affinity.read_text().strip() == "1", said
    hosttree.put(host.wanted, WORDS.replace("1ms", "2ms"))
    status, said = host.run("fabtune-pull")
    assert status in (0, 4) and host.affinity.read_text().strip() == "2", said


def test_what_is_no_longer_wanted_is_named_and_stays(host: Host) -> None:
    host.run("fabtune-pull")
    hosttree.put(host.wanted, "")
    status, said = host.run("fabtune-pull")
    assert status == 4 and "fabtune revert --transaction" in said
    assert host.affinity.read_text().strip() == "2"


def test_a_line_that_fails_is_tried_again_and_its_reason_said(host: Host) -> None:
    hosttree.put(host.wanted, "nosuch --role initiator")
    for _ in range(2):
        status, said = host.run("fabtune-pull")
        assert status == 2 and "nosuch" in said
    # What is no line of apply's is named as it stands.
    for line in ('two "--role', "--help"):
        hosttree.put(host.wanted, line)
        status, said = host.run("fabtune-pull")
        assert status == 2 and line in said
    host.wanted.write_bytes(b"\xff\n")
    status, said = host.run("fabtune-pull")
    assert status == 1 and str(host.wanted) in said
    host.wanted.unlink()
    assert host.run("fabtune-pull")[0] == 0


@pytest.mark.parametrize("content", ["", "{", "[]", '{"two": 1}', '{"two": {"digest": "x"}}', "\xff"])
def test_a_damaged_note_is_said_and_taken_for_none(host: Host, content: str) -> None:
    host.run("fabtune-pull")
    note = host.root / "state/pull.json"
    kept = note.read_text()
    note.write_bytes(content.encode("latin-1"))
    status, said = host.run("fabtune-pull")
    assert status in (0, 4) and f"{note}: damaged" in said, said
    assert host.affinity.read_text().strip() == "2" and note.read_text() == kept
    assert "damaged" not in host.run("fabtune-pull")[1]


def test_a_profile_that_is_no_text_is_named(host: Host) -> None:
    host.profile.write_bytes(b"\xff\n")
    status, said = host.run("fabtune-pull")
    assert status == 1 and str(host.profile) in said


def test_a_line_that_was_edited_lives_on_what_the_old_one_wrote(host: Host) -> None:
    host.run("fabtune-pull")
    hosttree.put(host.wanted, WORDS.replace("1ms", "2ms"))
    # The old line's transaction holds what the new one wants: nobody is told to take it back, now or later.
    for _ in range(2):
        status, said = host.run("fabtune-pull")
        assert status == 0 and "revert" not in said, said
    # Who does so all the same is told what it did, and once nothing is wanted it is named.
    hosttree.put(host.wanted, "")
    status, said = host.run("fabtune-pull")
    assert status == 4 and "fabtune revert --transaction" in said
    hosttree.put(host.wanted, WORDS.replace("1ms", "2ms"))
    host.run("fabtune", "revert")
    status, said = host.run("fabtune-pull")
    assert status == 3 and "by hand" in said


def test_a_line_that_found_all_as_wanted_is_applied_once_it_is_not(host: Host) -> None:
    hosttree.put(host.affinity, "2")
    assert host.run("fabtune-pull")[0] == 0 and not list((host.root / "state/journal").glob("*"))
    hosttree.put(host.affinity, "1")
    status, said = host.run("fabtune-pull")
    assert status in (0, 4) and host.affinity.read_text().strip() == "2", said


def test_the_pod_runs_what_there_is(tmp_path: Path) -> None:
    config, daemons = yaml.safe_load_all((TOP / "userspace/container/daemonset.yaml").read_text())
    pod: dict[str, Any] = daemons["spec"]["template"]["spec"]
    assert pod["hostPID"] and pod["hostNetwork"]
    for container in pod["containers"]:
        if "args" in container:
            verb, *words = container["args"]
            verb_parser(verb).parse_args(words)
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert {one["name"] for container in [*pod["initContainers"], *pod["containers"]]
            for one in container["volumeMounts"]} == set(volumes)  # fmt: skip
    # Its profile is one, and its line names it.
    (tmp_path / "storage.toml").write_text(config["data"]["storage.toml"])
    assert load_profile(str(tmp_path / "storage.toml"), shipped_catalog())
    profile, *words = config["data"]["pull"].split()
    assert profile == "storage"
    verb_parser("apply").parse_args([profile, *words])
    items = {one["key"] for one in volumes["wanted"]["configMap"]["items"]}
    assert items == set(config["data"])


@pytest.mark.parametrize("status", [0, 1, 2, 3, 4, 5, 130, 137])
def test_a_node_is_watched_and_an_update_goes_on_with_whatever_the_unit_takes_for_well(
    tmp_path: Path, status: int
) -> None:
    """Kubernetes starts the first container again until it ends with 0, and no other before: the metrics' neither."""
    _, daemons = yaml.safe_load_all((TOP / "userspace/container/daemonset.yaml").read_text())
    (first,) = daemons["spec"]["template"]["spec"]["initContainers"]
    program = tmp_path / "fabtune-pull"
    program.write_text(f"#!/bin/sh\nexit {status}\n")
    program.chmod(0o755)
    words = [word.replace("/usr/bin/fabtune-pull", "fabtune-pull") for word in first["command"]]
    done = subprocess.run(words, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False)
    unit = (TOP / "userspace/systemd/fabtune-pull.service").read_text()
    (accepted,) = re.findall("^SuccessExitStatus=(.*)$", unit, re.MULTILINE)
    assert done.returncode == (0 if str(status) in ["0", *accepted.split()] else status)


def test_what_was_taken_back_in_part_is_not_written_again(host: Host) -> None:
    """He had set one value himself, which revert left to him, and then set it back."""
    hosttree.put(host.profile, f'{PROFILE.format(2)}[initiator."tcp.mtu_probing"]\nvalue = 1\nwhy = "a test"\n')
    host.run("fabtune-pull")
    hosttree.put(host.affinity, "0")
    assert host.run("fabtune", "revert")[0] == 3
    hosttree.put(host.affinity, "1")
    for _ in range(2):
        status, said = host.run("fabtune-pull")
        assert status == 3 and "nothing is applied" in said, said
        assert host.affinity.read_text().strip() == "1"


def test_a_line_that_is_no_longer_wanted_goes_by_the_command_that_is_named_after_a_boot_as_well(host: Host) -> None:
    host.run("fabtune-pull")
    for number in (2, 3):
        hosttree.put(host.affinity, "1")
        hosttree.put(host.root / "proc/sys/kernel/random/boot_id", f"{number:08}-2222-3333-4444-555555555555")
        host.run("fabtune-pull")
        assert host.affinity.read_text().strip() == "2"
    hosttree.put(host.wanted, "")
    status, said = host.run("fabtune-pull")
    assert status == 4
    assert host.run("fabtune", "revert", "--transaction", said.split("--transaction ")[1].split()[0])[0] == 0
    assert host.affinity.read_text().strip() == "1"
    assert host.run("fabtune-pull")[0] == 0
