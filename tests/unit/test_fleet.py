# SPDX-License-Identifier: GPL-2.0-or-later
"""What a fleet refuses before anything starts."""

import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import attrs
import jinja2
import pytest
import yaml
from run_records import make_record

from fabtune.cli.main import main
from fabtune.errors import FabtuneError, InputError
from fabtune.experiment import at_once, batch, definition, fleet, inventory, publish
from fabtune.experiment.summary import summarise
from fabtune.installed import data_dir
from fabtune.measure import recordfile
from fabtune.model.observation import EndSeen
from fabtune.model.results import Point
from fabtune.progress import Progress

pytestmark = pytest.mark.skipif(shutil.which("ansible-inventory") is None, reason="ansible-core is not installed")
AT_ONCE = {"wanted_unix_s": 0, "begun_unix_s": 0, "clock_offset_ms": 0, "clock_uncertainty_ms": 0}


@pytest.fixture(autouse=True)
def _untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of these hosts is there to be asked what is in force: test_fleet_others.py."""
    monkeypatch.setattr(fleet, "_check_untouched", lambda _: None)


def _inventory(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "hosts.ini"
    path.write_text(text)
    return path


def test_hosts_come_by_role_groups_of_groups_too(tmp_path: Path) -> None:
    text = (
        "[rack1]\na fabtune_device=/dev/sdb\n[initiators:children]\nrack1\n"
        "[initiators]\nb fabtune_device=/srv\n[targets]\nt\n"
    )
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
    with pytest.raises(InputError, match="factors.loss: fabtune cannot set the loss of a fleet"):
        fleet.check_definition(definition.load(str(path)))
    for fixed in ('fabric = "srp"', "clients = 4", "mtu = 9000"):
        path.write_text(f'[factors]\nprofile = ["wan"]\n[fixed]\n{fixed}\n')
        with pytest.raises(InputError, match=f"fixed.{fixed.split()[0]}: fabtune cannot set"):
            fleet.check_definition(definition.load(str(path)))
    for text in ('[fixed]\nworkload = "net"\n', '[factors]\nworkload = ["xdd", "net"]\n'):
        path.write_text(text)
        with pytest.raises(InputError, match="workload = net: found the network alone, expected a load on disks"):
            fleet.check_definition(definition.load(str(path)))
    path.write_text('[factors]\nprofile = ["untouched", "wan"]\n[fixed]\nrtt = "20ms"\n')
    fleet.check_definition(definition.load(str(path)))


@pytest.mark.parametrize("profile", ["tune", "fasterdata", "bpftune"])
def test_what_only_the_lab_s_guests_are_tuned_by_is_refused(tmp_path: Path, profile: str) -> None:
    path = tmp_path / "exp.toml"
    for text in (f'[factors]\nprofile = ["untouched", "{profile}"]\n', f'[fixed]\nprofile = "{profile}"\n'):
        path.write_text(text)
        with pytest.raises(InputError, match=f"profile = {profile}: found what tunes the lab's guests"):
            fleet.check_definition(definition.load(str(path)))


def test_points_are_a_host_each_and_their_sum(tmp_path: Path) -> None:
    path = tmp_path / "exp.toml"
    path.write_text('seeds = 1\n[factors]\nprofile = ["wan"]\n')
    wanted = definition.load(str(path))
    (run,) = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    for host, rate, late_s in (("a", 100, 0.002), ("b", 50, 0.001)):
        recordfile.write(make_record(rate), run.directory / host / f"read{recordfile.SUFFIX}")
        start = {
            "wanted_unix_s": 1e9,
            "begun_unix_s": 1e9 + late_s,
            "clock_offset_ms": 1.0,
            "clock_uncertainty_ms": 0.5,
        }
        (run.directory / host / "read.start.json").write_text(json.dumps(start))
        (run.directory / host / "mixed.start.json").write_text(json.dumps(start))
        recordfile.write(make_record(rate), run.directory / host / f"mixed{recordfile.SUFFIX}")
    hosts = inventory.Inventory(path, ("a", "b"), ("t",))
    points = fleet._points(run, hosts, "read")
    assert [(one["host"], one["op"], one["mb_per_s"]) for one in points] == [
        ("a", "read", 100), ("b", "read", 50), ("all", "read", 150),
    ]  # fmt: skip
    # The instant is that of true time: the host's clock was 1 ms ahead.
    assert [one["begun_late_ms"] for one in points] == [1.0, 0.0, 1.0]
    assert fleet._points(run, hosts, "mixed") == points
    for text, says in (
        ("{", "no JSON in what it printed"),
        ('{"wanted_unix_s": "x"}', "key 'wanted_unix_s': found 'x'"),
    ):
        (run.directory / "b" / "read.start.json").write_text(text)
        with pytest.raises(InputError, match=f"b/read.start.json: {says}"):
            fleet._points(run, hosts, "read")


@pytest.mark.parametrize(
    ("rates", "verdict"), [((0.0845, 0.0855), "no practical difference"), ((0.0760, 0.0836), "better")]
)
def test_what_is_slow_is_judged_by_more_than_a_hundredth_of_a_megabyte(
    rates: tuple[float, float], verdict: str, tmp_path: Path
) -> None:
    """4 KiB at a time over 50 ms are 0.08 MB/s: 1 % more was 12.5 %, and 10 % more was none at all."""
    path = tmp_path / "exp.toml"
    path.write_text('seeds = 5\n[factors]\nprofile = ["untouched", "wan"]\n')
    wanted = definition.load(str(path))
    rows = []
    for run in batch.runs_of(wanted, wanted.combinations(), tmp_path / "out"):
        rate = rates[run.settings.profile == "wan"] * (1 + 0.0005 * run.number)
        for host in ("a", "b"):
            recordfile.write(make_record(rate, seconds=600), run.directory / host / f"read{recordfile.SUFFIX}")
            (run.directory / host / "read.start.json").write_text(json.dumps(AT_ONCE))
        points = fleet._points(run, inventory.Inventory(path, ("a", "b"), ("t",)), "read")
        rows += [(run.combination.factors, point | {"seed": run.number}) for point in points]
    judged = {str(one.point["host"]): one.point for one in summarise(rows) if one.point.get("verdict")}
    assert {host: point["verdict"] for host, point in judged.items()} == dict.fromkeys(("a", "b", "all"), verdict)
    assert all(point["gain"] == pytest.approx(rates[1] / rates[0], rel=1e-3) for point in judged.values())


def test_the_percentiles_of_all_hosts_are_those_of_all_their_requests(tmp_path: Path) -> None:
    path = tmp_path / "exp.toml"
    path.write_text('seeds = 1\n[factors]\nprofile = ["wan"]\n')
    wanted = definition.load(str(path))
    (run,) = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    # 100,000 requests of about 0.01 ms and 100 of about 10 ms: of all together not even one in a hundred is slow.
    for host, rate in (("a", 100), ("b", 0.1)):
        recordfile.write(make_record(rate), run.directory / host / f"read{recordfile.SUFFIX}")
        (run.directory / host / "read.start.json").write_text(json.dumps(AT_ONCE))
    slow, every = fleet._points(run, inventory.Inventory(path, ("a", "b"), ("t",)), "read")[1:]
    assert (slow["p99_ms"], every["p50_ms"], every["p99_ms"]) == (13.0, 0.011, 0.013)


def _runs(tmp_path: Path, rates: Sequence[float], more: str = "") -> tuple[definition.Definition, list[batch.Run]]:
    """Return a definition, and its runs on a fleet of one host, one with each of `rates`."""
    path = tmp_path / "exp.toml"
    path.write_text(f'seeds = {len(rates)}\n[factors]\nprofile = ["wan"]\n[fixed]\nop = "read"\n{more}')
    wanted = definition.load(str(path))
    runs = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out", inventory.Inventory(path, ("a",), ("t",)))
    for run, rate in zip(runs, rates, strict=True):
        recordfile.write(make_record(rate, "wan"), run.directory / "a" / f"read{recordfile.SUFFIX}")
        (run.directory / "a" / "read.start.json").write_text(json.dumps(AT_ONCE))
        run.keep(fleet._points(run, inventory.Inventory(path, ("a",), ("t",)), "read"))
    return wanted, runs


@pytest.mark.parametrize(("rates", "holds"), [((50, 150, 130), None), ((100, 101, 102), True), ((80, 81, 82), False)])
def test_what_is_expected_of_a_fleet_is_judged_by_the_interval_over_its_runs(
    rates: Sequence[float], holds: bool | None, tmp_path: Path
) -> None:
    """A fleet's points have no seed: all runs were one, and their mean of 110 was taken at its word."""
    wanted, runs = _runs(tmp_path, rates, '[[expect]]\nsays = "fast"\nat_least = 90\n')
    (judged,) = batch.judge(wanted, runs)
    assert judged.holds is holds and " to " in judged.found, judged


def test_seeds_of_a_fleet_that_fall_into_two_groups_are_said(tmp_path: Path) -> None:
    """They were "100, 50, 100": median, low and high, without a word."""
    _, runs = _runs(tmp_path, (50, 50.1, 100, 100.1, 100.2))
    notes = publish.of_fleet(batch.summary_of(runs), "", tmp_path / "out").texts
    assert [note.split(": ")[0] for note in notes] == ["host a", "host all"]
    assert all("the seeds fall into two groups, 50.05 (2) and 100.1 (3) MB/s" in note for note in notes)


def test_why_a_fleet_s_rows_tell_nothing_is_said_once_for_all_hosts(tmp_path: Path) -> None:
    rows = [
        ({"profile": profile, "depth": "8"}, Point({"profile": profile, "op": "read", "host": host, "seed": 1}) | more)
        for profile, more in (("untouched", Point({"mb_per_s": 100.0})), ("wan", Point({"untold": "failed"})))
        for host in ("a", "b", "c", "d", "all")
    ]
    recordfile.write(make_record(100), tmp_path / "a" / f"read{recordfile.SUFFIX}")
    notes = publish.of_fleet(summarise(rows), "", tmp_path).texts
    assert notes == ("profile wan, depth 8, read, a, b, c and 2 more: cannot tell: 1 of 1 run of wan failed",)
    # Nothing to hold it against.
    alone = publish.of_fleet(summarise(rows[5:]), "", tmp_path).texts
    assert alone == ("profile wan, depth 8, read, a, b, c and 2 more: 1 of 1 run of wan failed",)


def test_a_fleet_s_rows_tell_each_setting_that_varies(tmp_path: Path) -> None:
    """Two depths were two rows with the same name."""
    rows = [
        ({"profile": "wan", "op": "both", "depth": depth},
         Point({"profile": "wan", "op": op, "host": "a", "seed": 1, "mb_per_s": 100.0}))
        for depth in ("8", "32") for op in ("read", "write")
    ]  # fmt: skip
    recordfile.write(make_record(100), tmp_path / "a" / f"read{recordfile.SUFFIX}")
    (table,) = publish.of_fleet(summarise(rows), "", tmp_path).tables
    assert [column.title for column in table.columns[:4]] == ["profile", "op", "depth", "host"]
    told = [row[:4] for row in table.rows]
    assert sorted(told) == sorted(("wan", op, depth, "a") for depth in ("8", "32") for op in ("read", "write"))


def test_a_host_s_latency_and_that_of_all_are_of_the_step_whose_throughput_stands_beside_them(tmp_path: Path) -> None:
    """Two hosts that are alike had a p50 of 0.1 ms each, and of 0.001 ms together: with the cached step's."""
    path = tmp_path / "exp.toml"
    path.write_text('seeds = 1\n[factors]\nprofile = ["wan"]\n')
    wanted = definition.load(str(path))
    (run,) = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    cached, disk = make_record(1000, "wan"), make_record(10, "wan")
    both = attrs.evolve(cached, steps=(*cached.steps, *disk.steps))
    for host in "ab":
        recordfile.write(both, run.directory / host / f"read{recordfile.SUFFIX}")
        (run.directory / host / "read.start.json").write_text(json.dumps(AT_ONCE))
    points = fleet._points(run, inventory.Inventory(path, ("a", "b"), ("t",)), "read")
    assert [one["mb_per_s"] for one in points] == [10, 10, 20]
    assert [one["p50_ms"] for one in points] == [pytest.approx(0.1, rel=0.2)] * 3
    assert len({one["p50_ms"] for one in points}) == 1


def test_each_seed_of_a_fleet_has_an_order_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "exp.toml"
    path.write_text('seeds = 3\n[factors]\nprofile = ["untouched", "wan"]\ndepth = [1, 2, 4, 8]\n')
    wanted = definition.load(str(path))
    runs = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")
    started: list[batch.Run] = []
    monkeypatch.setattr(fleet, "_run", lambda _, run, *rest: started.append(run))
    hosts = inventory.Inventory(path, ("a",), ("t",))
    fleet.run_all(wanted, runs, hosts, allow_relogin=False, resume=False, progress=Progress(quiet=True))
    assert [run.number for run in started] == [run.number for run in runs]
    assert started != runs and sorted(run.name for run in started) == sorted(run.name for run in runs)


def test_a_run_of_a_fleet_that_failed_is_not_said_to_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "exp.toml"
    path.write_text('seeds = 1\n[factors]\nprofile = ["untouched", "wan"]\n')
    wanted = definition.load(str(path))
    runs = batch.runs_of(wanted, wanted.combinations(), tmp_path / "out")

    def unreachable(_: object, run: batch.Run, *rest: object) -> None:
        if run is runs[0]:
            raise FabtuneError("a: unreachable")

    monkeypatch.setattr(fleet, "_run", unreachable)
    hosts = inventory.Inventory(path, ("a",), ("t",))
    with pytest.raises(FabtuneError, match=r"(?s)1 of 2 runs failed:.*a: unreachable"):
        fleet.run_all(wanted, runs, hosts, allow_relogin=False, resume=False, progress=Progress())
    said = capsys.readouterr().err
    assert f"{runs[0].name}: ended after" in said and f"{runs[0].name}: done" not in said
    assert f"{runs[1].name}: done" in said


@pytest.mark.parametrize(
    ("config", "forks"),
    [(None, "2"), ("[defaults]\ntimeout = 15\n", "2"), ("[defaults]\nforks = 7\n", None), ("forks = 7\n", None)],
)
def test_how_many_hosts_at_once_is_what_the_user_s_configuration_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str | None, forks: str | None
) -> None:
    hosts = inventory.load(_inventory(tmp_path, "[initiators]\na fabtune_device=/dev/sdb\n[targets]\nt\n"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ANSIBLE_CONFIG", "ANSIBLE_FORKS"):
        monkeypatch.delenv(name, raising=False)
    if config is not None:
        (tmp_path / "ansible.cfg").write_text(config)
    given: list[str | None] = []

    def ran(_: object, environment: dict[str, str], __: object) -> int:
        given.append(environment.get("ANSIBLE_FORKS"))
        return 0

    monkeypatch.setattr(fleet, "_to_its_end", ran)
    fleet.play_why(hosts, 1.0, tmp_path)
    # What the environment says comes first.
    monkeypatch.setenv("ANSIBLE_FORKS", "3")
    fleet.play_why(hosts, 1.0, tmp_path)
    assert given == [forks, "3"]


def test_a_look_at_a_fleet_s_target_is_one_into_its_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the target was told to serve nobody."""
    play = yaml.safe_load((data_dir("ansible") / "ansible_collections/fabtune/fleet/playbooks/why.yml").read_text())[0]
    environment = jinja2.Environment()
    environment.filters["quote"] = shlex.quote
    command = environment.from_string(play["tasks"][0]["ansible.builtin.raw"])
    known = {"groups": {"targets": ["filer"], "initiators": ["one"]}, "fabtune_netns": "two words"}
    asked: list[tuple[float, str]] = []

    def look(seconds: float, at_unix_s: float | None = None, netns: str = "") -> list[EndSeen]:
        asked.append((seconds, netns))
        return []

    monkeypatch.setattr("fabtune.cli.why.target_ends", look)
    assert main(shlex.split(command.render(**known, inventory_hostname="filer"))[1:]) == 0
    assert asked == [(10, "two words")]
    # Initiators' sessions are looked at where they are.
    assert "two words" not in command.render(**known, inventory_hostname="one")


def test_no_more_hosts_at_once_than_memory_is_there_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = "".join(f"h{number} fabtune_device=/dev/sdb\n" for number in range(60))
    hosts = inventory.load(_inventory(tmp_path, f"[initiators]\n{names}[targets]\nt\n"))
    (tmp_path / "meminfo").write_text("MemFree:  1000 kB\nMemAvailable:    1048576 kB\n")
    monkeypatch.setattr(at_once, "_MEMINFO", tmp_path / "meminfo")
    assert fleet._at_once(hosts) == 20


@pytest.mark.parametrize(("at_least", "code", "said"), [(140, 0, "as expected"), (160, 1, "NOT AS EXPECTED")])
def test_what_a_definition_expects_is_judged_of_all_hosts_together(
    at_least: int, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Of a fleet nothing was judged, nor said not to be: `run --fleet` ended with 0 whatever came out."""
    path = tmp_path / "exp.toml"
    text = '[factors]\nprofile = ["wan"]\n[fixed]\nop = "read"\n'
    path.write_text(f'seeds = 1\n{text}[[expect]]\nsays = "a fast fleet"\nat_least = {at_least}\n')
    hosts = "[initiators]\na fabtune_device=/dev/sdb\nb fabtune_device=/dev/sdb\n[targets]\nt\n"

    def measured(_: object, run: batch.Run, *rest: object) -> None:
        points = []
        for host, rate in (("a", 100.0), ("b", 50.0), ("all", 150.0)):
            points.append(Point({"profile": "wan", "host": host, "op": "read", "mb_per_s": rate}))
            if host != "all":
                recordfile.write(make_record(rate), run.directory / host / f"read{recordfile.SUFFIX}")
        run.keep(points)

    monkeypatch.setattr(fleet, "_run", measured)
    asked = ["run", str(path), "--fleet", str(_inventory(tmp_path, hosts)), "--out", str(tmp_path / "out")]
    assert main(asked) == code
    assert f"{said}: a fast fleet (150)" in capsys.readouterr().out


HOSTS = "[initiators]\na fabtune_device=/dev/sdb\n[targets]\nfiler1\n"


def _fleet_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *seen: tuple[str, str]) -> list[str]:
    """Return the words that measure a run with each disk, by its WWID, and kernel that one host is `seen` with."""
    path, waiting = tmp_path / "exp.toml", list(seen)
    path.write_text(f'seeds = {len(seen)}\n[factors]\nprofile = ["untouched"]\n[fixed]\nop = "read"\n')

    def play(_: str, __: object, ___: object, directory: Path) -> None:
        taken = make_record(100, "untouched", start=float(len(waiting)))
        wwid, kernel = waiting.pop(0)
        taken = attrs.evolve(taken, target=attrs.evolve(taken.target, wwid=wwid))
        taken = attrs.evolve(taken, host=attrs.evolve(taken.host, kernel=kernel))
        recordfile.write(taken, directory / "a" / f"read{recordfile.SUFFIX}")
        (directory / "a" / "read.start.json").write_text(json.dumps(AT_ONCE))

    monkeypatch.setattr(fleet, "_play", play)
    return ["run", str(path), "--fleet", str(_inventory(tmp_path, HOSTS)), "--out", str(tmp_path / "out")]


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        (HOSTS, ""),
        (HOSTS.replace("sdb", "sdc"), "the device was a: /dev/sdb, is a: /dev/sdc"),
        (HOSTS.replace("filer1", "filer2"), "the target host was filer1, is filer2"),
    ],
)
def test_what_was_measured_on_another_disk_or_target_is_measured_again(
    hosts: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--resume kept /dev/sda's figures of filer1 as those of an inventory with /dev/sdb and filer2, without a word."""
    asked = _fleet_of(tmp_path, monkeypatch, ("naa.1", "6.1"), ("naa.1", "6.1"))
    assert main(asked) == 0
    assert "kinds of" not in capsys.readouterr().err
    _inventory(tmp_path, hosts)
    assert main([*asked, "--resume", "--dry-run"]) == 0
    told = capsys.readouterr()
    assert told.out.count("run ") == (2 if said else 0) and told.err.count(said or "measured again") == 2 * bool(said)
    assert f"{2 * bool(said)} runs, about {3 * bool(said)} minutes on the fleet, one run after another" in told.err


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (("naa.2", "6.1"), "runs of 2 kinds of disk together: a: naa.1, a: naa.2"),
        (("naa.1", "6.12"), "runs of 2 kinds of kernel together: a: 6.1, a: 6.12"),
    ],
)
def test_one_name_of_a_device_that_was_two_disks_is_said(
    other: tuple[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = _fleet_of(tmp_path, monkeypatch, ("naa.1", "6.1"), other)
    assert main(asked) == 0
    assert said in " ".join(capsys.readouterr().err.split())
