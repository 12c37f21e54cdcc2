# SPDX-License-Identifier: GPL-2.0-or-later
"""Workload files: every shipped one expands to a job that fio accepts, and faults are named."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from fabtune.cli.main import main
from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.measure import measurement, workload
from fabtune.measure.target import Target
from fabtune.measure.workload import Place
from fabtune.measure.workload_run import check_target
from fabtune.model.runrecord import PathTold

PLACE = Place(Path("/dev/sdx"), Path("/mnt/work"), 2**30)
MINIMAL = """
summary = "s"
source = "s"
description = "d"
target = "any"
[parameters]
block_bytes = [4096, 8192]
op = ["read"]
[options]
ioengine = "psync"
[[steps]]
name = "${op} ${block_bytes}"
options = { rw = "${op}", bs = "${block_bytes}" }
"""


def parse(text: Any) -> Any:
    return workload.parse(text, Path("/w/mine.toml"))


def steps(name: Any, *settings: Any, runtime_s: Any = None) -> Any:
    load = workload.load(name).with_parameters(settings)
    return workload.expand(load, PLACE, runtime_s=runtime_s, ramp_s=2)


@pytest.mark.parametrize("name", workload.names())
def test_fio_accepts_every_shipped_job(name: str, tmp_path: Path) -> None:
    load = workload.load(name)
    place = Place(tmp_path / "data", tmp_path, 2**30)
    job = tmp_path / "job.fio"
    steps = workload.expand(load, place, runtime_s=load.time.runtime_s, ramp_s=load.time.ramp_s)
    job.write_text("".join(step.job_file() for step in steps))
    done = subprocess.run(["fio", "--parse-only", str(job)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", workload.names())
def test_every_shipped_workload_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workloads", name]) == ExitCode.DONE
    text = capsys.readouterr().out
    assert text.startswith(f"{name}: ") and "Source" in text and "${" not in text


def test_the_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workloads"]) == ExitCode.DONE
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:] if not line.startswith(" ")]
    assert listed == workload.names() and {"xdd", "oltp", "ioverify"} < set(listed)


def test_steps_are_every_combination() -> None:
    found = workload.expand(parse(MINIMAL), PLACE, runtime_s=None, ramp_s=0)
    assert [step.name for step in found] == ["read 4 KiB", "read 8 KiB"]
    assert found[1].job_file() == "[mine]\nioengine=psync\nrw=read\nbs=8192\n"


def test_steps_that_differ_have_names_that_differ() -> None:
    assert [step.name for step in steps("oltp", "queue_depth=1,16")] == [
        "4 KiB 70/30, queue_depth 1",
        "4 KiB 70/30, queue_depth 16",
    ]
    assert steps("oltp", "block_bytes=1000")[0].name == "1000 bytes 70/30"
    for name in workload.names():
        load = workload.load(name)
        twice = [f"{key}={','.join(map(str, [*values, values[0] + 512]))}" for key, values in load.parameters.items()
                 if not isinstance(values[0], str)]  # fmt: skip
        found = [step.name for step in steps(name, *twice)]
        assert len(set(found)) == len(found)


@pytest.mark.parametrize("values", ["1m,1024k", "4k,8k,4096", "256k,256k"])
def test_a_value_that_is_set_twice_is_refused(values: str) -> None:
    """Its steps of one run, all of one name, were three runs in `report`, with an interval."""
    with pytest.raises(InputError, match=f"--set block_bytes={values}: .* stands there twice, expected each"):
        steps("xdd", f"block_bytes={values}")
    with pytest.raises(InputError, match=r"parameters.op.: 'read' stands there twice"):
        parse(MINIMAL.replace('["read"]', '["read", "write", "read"]'))


def test_two_steps_of_one_name_are_refused() -> None:
    """`compare` took the last one alone, `report` both for runs."""
    twice = MINIMAL + '[[steps]]\nname = "read ${block_bytes}"\noptions = { rw = "read", bs = "512" }\n'
    with pytest.raises(InputError, match="workload 'mine': names of steps: 'read 4 KiB' stands there twice"):
        workload.expand(parse(twice), PLACE, runtime_s=None, ramp_s=0)


@pytest.mark.parametrize("words", [["--windows", "1m,0,1024k"], ["--streams", "1,4,1"]])
def test_a_test_of_the_network_is_asked_for_once(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "net", "--peer", "nowhere.invalid", *words]) == ExitCode.USAGE
    assert "a value stands there twice" in capsys.readouterr().err


def test_run_time_makes_a_step_time_based() -> None:
    job = steps("xdd", runtime_s=3)[0].job_file()
    assert "time_based=1\nruntime=3000ms\nramp_time=2000ms\n" in job
    assert "time_based" not in steps("xdd")[0].job_file()


def test_what_writes_is_known() -> None:
    assert [step.writes for step in steps("xdd")] == [False, True]
    assert [step.writes for step in steps("ioverify")] == [True, False]
    assert steps("oltp")[0].writes and not steps("latency")[0].writes


def test_depth_counts_jobs_and_queue() -> None:
    assert steps("xdd")[0].depth == 32
    assert [step.depth for step in steps("stress128", "op=read")] == [8, 128]
    assert steps("pileup", "threads=8")[0].depth == 8
    assert not steps("daq")[0].closed_loop


def test_processes_have_slices_of_their_own() -> None:
    for step in steps("pioraw", "total_bytes=1g", "block_bytes=1m", "op=write"):
        job = step.jobs["pioraw"]
        assert job["offset_increment"] == job["size"] == str(2**28)


def test_rotated_reads_are_the_neighbours_file() -> None:
    rotated = next(step for step in steps("mptio-files", "processes=3") if step.name == "disk rotate read")
    assert [job["filename"] for job in rotated.jobs.values()] == [f"/mnt/work/disk.{n}" for n in (1, 2, 0)]


def test_mptio_is_eight_processes_on_a_raw_device_each_in_a_region_of_its_own() -> None:
    """GUPFS FY2003, C.3.1: --raw /dev/raw/raw1 --num-thread 8 --recsz 1024K."""
    assert workload.load("mptio").target == "device"
    found = {step.name: step.jobs.values() for step in steps("mptio")}
    assert list(found) == [f"{where} {how}" for where in ("cache", "disk") for how in ("write", "read", "rotate read")]
    for name, jobs in found.items():
        assert len(jobs) == 8 and {(job["filename"], job["direct"], job["bs"]) for job in jobs} == {
            ("/dev/sdx", 1, str(2**20))
        }
        region = 2**26 if name.startswith("cache") else 2**30
        shift = 1 if "rotate" in name else 0
        assert [job["offset"] for job in jobs] == [str((n + shift) % 8 * region) for n in range(8)]
        assert {job["size"] for job in jobs} == {str(region)}


def test_mptio_of_one_file_is_eight_processes_in_it() -> None:
    """GUPFS FY2003, 6.1: parallel I/O processes reading/writing the same file simultaneously."""
    for step in steps("mptio-shared", "part_bytes=1m"):
        assert {job["filename"] for job in step.jobs.values()} == {"/dev/sdx"}
        assert [job["offset"] for job in step.jobs.values()] == [str(n << 20) for n in range(8)]


def test_pioraw_is_four_processes_in_the_cache_and_out_of_it() -> None:
    """GUPFS FY2003, D.3.2: 4 I/O processes per host, file sizes 128 MB and 16 GB, I/O sizes 1 KB to 16 MB."""
    load = workload.load("pioraw")
    assert load.parameters["processes"] == [4] and load.parameters["total_bytes"] == [128 << 20, 16 << 30]
    assert load.parameters["block_bytes"] == [1024 * 4**n for n in range(8)]
    # A device of 1 GiB is all there is of the larger one.
    sizes = [step.jobs["pioraw"]["size"] for step in steps("pioraw", "op=read", "block_bytes=1m")]
    assert sizes == [str(32 << 20), str(256 << 20)]


def test_lmdd_is_one_two_and_four_jobs_with_a_file_each() -> None:
    """CASPUR: lmdd of=/LD/file bs=1000k count=10000 fsync=1, 1, 2 and 4 jobs."""
    found = [(step.jobs["lmdd"]["rw"], step.jobs["lmdd"]["numjobs"]) for step in steps("lmdd")]
    assert found == [(rw, jobs) for jobs in ("1", "2", "4") for rw in ("write", "read")]
    job = steps("lmdd")[0].jobs["lmdd"]
    assert (job["filename_format"], job["bs"], job["size"]) == ("lmdd.$jobnum", str(1000 * 1024), str(1024 * 10**7))


def test_pileup_reads_through_the_page_cache_from_any_byte_and_hints_nothing() -> None:
    """CASPUR: an arbitrary offset; how the client read ahead was of crucial importance."""
    job = steps("pileup")[0].jobs["pileup"]
    assert (job["direct"], job["fadvise_hint"], job["blockalign"]) == (0, 0, 1)
    # fio rounds shares down to whole percents and gives the rest to one size: without shares, 21 sizes are uneven.
    assert str(job["bssplit"]).split(":") == [f"{size}/5" for size in range(50250, 60000, 500)]


def test_only_the_writers_of_daq_are_moderated() -> None:
    """CASPUR: a DAQ manager may moderate the data influx; on writer nodes we could moderate the speed."""
    for step in steps("daq"):
        assert step.jobs["writers"]["rate"] and "rate" not in step.jobs["readers"]
        assert {job["numjobs"] for job in step.jobs.values()} == {"8"}


def test_the_stress_tests_are_told_apart() -> None:
    """GUPFS FY2003, D.3.6: MPTIO, 1 MB, up to 128 processes; C.2.4: PIORAW, 64 processes, all sizes, one minute."""
    for step in steps("stress128"):
        job = step.jobs["stress128"]
        assert (job["bs"], job["iodepth"]) == (str(2**20), "1") and job["rw"] in ("read", "write")
    load = workload.load("stress64")
    assert load.parameters["processes"] == [64] and load.time.runtime_s == 300 and load.stuck_after_s == 60
    assert sorted(load.parameters["block_bytes"]) == [1024 * 4**n for n in range(8)]


def test_a_device_that_is_too_small_for_the_regions_is_refused() -> None:
    device = Target(Path("/dev/sdx"), "device", 2**30, None, "", "", 512, ())
    check_target(workload.load("mptio").with_parameters(["disk_file_bytes=128m"]), device)
    with pytest.raises(FabtuneError, match=r"1.1 GB large, workload 'mptio' needs 8.6 GB; make it smaller with --set"):
        check_target(workload.load("mptio"), device)
    # One that runs on either makes do with what there is.
    check_target(workload.load("ioverify").with_parameters(["total_bytes=2g"]), device)


def test_a_region_is_of_a_parameter() -> None:
    text = (workload.SHIPPED / "mptio-shared.toml").read_text()
    with pytest.raises(InputError, match="region names 'part', which is not a parameter"):
        parse(text.replace('region = "part_bytes"', 'region = "part"', 1))
    with pytest.raises(InputError, match=r"per_process.offset'.*NAME one of"):
        parse(text.replace('region = "part_bytes"', "", 1))


def test_settings_replace_lists_and_take_units() -> None:
    load = workload.load("pioraw").with_parameters(["block_bytes=4k,1MiB", "op=write"])
    assert load.parameters["block_bytes"] == [4096, 2**20]
    assert load.parameters["op"] == ["write"]


@pytest.mark.parametrize("setting", ["nope=1", "block_bytes", "block_bytes=many", "block_bytes=0", "processes=-1"])
def test_bad_settings_are_refused(setting: Any) -> None:
    with pytest.raises(InputError, match=setting.split("=")[0]):
        workload.load("pioraw").with_parameters([setting])


@pytest.mark.parametrize("word", ["nan", "inf", "1e999"])
def test_no_number_that_is_none_is_set(word: str) -> None:
    """A rate of nan requests a second was taken, and ended the run before its first request."""
    text = f"{MINIMAL}\n".replace("[parameters]", "[parameters]\nper_s = [200.0]", 1)
    with pytest.raises(InputError, match=f"--set per_s={word}: expected a number such as 200.0"):
        parse(text).with_parameters([f"per_s={word}"])
    assert parse(text).with_parameters(["per_s=0.5"]).parameters["per_s"] == [0.5]
    if word != "1e999":
        with pytest.raises(InputError, match=r"key 'parameters.per_s\[0\]': found .*allowed: a finite number"):
            parse(text.replace("200.0", word))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("target =", "targt ="), r"unknown key 'targt' \(did you mean 'target'\?\)"),
        (('"any"', '"disk"'), "key 'target': found 'disk' .text., allowed: any, device, directory"),
        (("[4096, 8192]", "[]"), "key 'parameters.block_bytes': found .. .array., allowed: an array of one or more"),
        (("[4096, 8192]", '[4096, "8k"]'), "one type"),
        (("[[steps]]", "[steps]"), "key 'steps': found .*allowed: array"),
        (('name = "${op}', 'names = "${op}'), r"unknown key 'steps\[0\].names' \(did you mean 'name'\?\)"),
        (('summary = "s"', ""), "key 'summary' is missing"),
        (('summary = "s"', "summary = 1"), "key 'summary': found 1 .integer., allowed: text"),
        (("[parameters]", 'space = ["size"]\n[parameters]'), "space names 'size'"),
        (("[parameters]", "[parameters"), "mine.toml"),
    ],
)
def test_faulty_files_are_named(change: Any, says: Any) -> None:
    assert change[0] in MINIMAL
    with pytest.raises(InputError, match=says):
        parse(MINIMAL.replace(change[0], change[1], 1))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        # What runs a program, or loads one.
        (("[options]", '[options]\nexec_prerun = "id"'), "key 'options.exec_prerun': no option of fio that a workload"),
        (('bs = "$', 'exec_postrun = "id", bs = "$'), "key 'steps[0].options.exec_postrun': no option of fio"),
        (('"psync"', '"exec"'), "key 'options.ioengine': found 'exec' (text), allowed: filecreate, filedelete"),
        (('"psync"', '"external:/tmp/x.so"'), "key 'options.ioengine': found 'external:/tmp/x.so' (text), allowed: "),
        (('"psync"', '"${op}"'), "key 'options.ioengine': found '${op}' (text), allowed: filecreate"),
        (("[options]", "[options]\nexecprerun = 1"), "no option of fio that a workload may set"),
        (("[options]", "[options]\niodepht = 1"), "(did you mean 'iodepth'?)"),
        # What opens a section, or adds a line.
        (('"psync"', r'"psync\nexec_prerun=id"'), "key 'options.ioengine': found 'psync\\nexec_prerun=id' (text)"),
        (('rw = "${op}"', r'rw = "read\n[x]"'), "key 'steps[0].options.rw': found 'read\\n[x]' (text), allowed: one l"),
        (('["read"]', r'["read\nexec_prerun=id"]'), "key 'parameters.op[0]': found 'read\\nexec_prerun=id' (text), al"),
        (("[options]", '[options]\n"rw\\n[x]" = 1'), "no option of fio that a workload may set"),
        (("[options]", '[options]\n"exec_prerun=id;x" = 1'), "no option of fio that a workload may set"),
        (("options = { rw", 'jobs."a]\\n[b" = { rw'), "key 'steps[0].jobs': found the section 'a]\\n[b', allowed: let"),
        (("options = { rw", "jobs.global = { rw"), "key 'steps[0].jobs': found the section 'global', allowed: letters"),
        # What is not the place that was asked for.
        (("[options]", '[options]\nfilename = "/dev/sda"'), "key 'options.filename': found '/dev/sda' (text), allowed"),
        (("[options]", '[options]\nfilename = "${file}:/dev/sda"'), "allowed: names in ${directory}, or ${file}"),
        (("[options]", '[options]\nfilename = "${directory}/../x"'), "allowed: names in ${directory}, or ${file}"),
        (("[options]", '[options]\nfilename = "${directory}/${op}"'), "allowed: names in ${directory}, or ${file}"),
        (("[options]", '[options]\nfilename = "${file}${block_bytes}"'), "allowed: names in ${directory}, or ${file}"),
        (("[options]", '[options]\ndirectory = ".."'), "key 'options.directory': found '..' (text)"),
        (("[options]", '[options]\nfilename_format = "/etc/$jobnum"'), "key 'options.filename_format': found"),
        # What cannot be filled in.
        (('"${op}", bs', '"${op", bs'), "key 'steps[0].options.rw': found '${op' (text), allowed: ${NAME} with NAME o"),
        (('"${op}", bs', '"${}", bs'), "key 'steps[0].options.rw': found '${}' (text), allowed: ${NAME} with NAME one"),
        (('bs = "${block_bytes}"', 'bs = "${block_size}"'), "with NAME one of block_bytes, op, file, directory, "),
        (('name = "${op}', 'name = "${file}'), "key 'steps[0].name': found '${file} ${block_bytes}' (text), allowed:"),
        (("[4096, 8192]", "[4096, -1]"), "key 'parameters.block_bytes[1]': found -1 (integer), allowed: more than 0"),
        (("[4096, 8192]", "[0]"), "key 'parameters.block_bytes[0]': found 0 (integer), allowed: more than 0"),
        (("[parameters]", '[parameters]\nprocesses = ["x"]'), "key 'parameters.processes[0]': found 'x' (text), allow"),
        (("[options]", '[options]\niodepth = "many"'), "key 'options.iodepth': found 'many' (text), allowed: an integ"),
        (("[options]", '[options]\nnumjobs = "${op}"'), "key 'options.numjobs': found '${op}' (text), allowed: an int"),
        (("options = { rw", "per_process = { rw"), "key 'steps[0].per_process': needs a parameter 'processes'"),
        (("[options]", "[time]\nruntime_s = -1\n[options]"), "key 'time.runtime_s': found -1 (integer), allowed: 0 or"),
    ],
)  # fmt: skip
def test_a_workload_runs_nothing_but_its_load_and_nowhere_else(change: Any, says: str) -> None:
    """A workload is a file that colleagues give each other; fio runs as root."""
    assert change[0] in MINIMAL
    with pytest.raises(InputError) as caught:
        parse(MINIMAL.replace(change[0], change[1], 1))
    assert str(caught.value).startswith("/w/mine.toml: ") and says in str(caught.value)


def test_a_section_of_fio_s_own_is_no_workload_s_name() -> None:
    for name in ("global.toml", "a]b.toml", "a\nb.toml"):
        with pytest.raises(InputError, match="the file's name"):
            workload.parse(MINIMAL, Path(name))


@pytest.mark.parametrize("value", ["read\nexec_prerun=id", "read\r[x]"])
def test_no_value_said_on_the_command_line_adds_a_line(value: str) -> None:
    with pytest.raises(InputError, match="one line"):
        workload.load("pioraw").with_parameters([f"op={value}"])


def test_no_place_adds_a_line() -> None:
    place = Place(Path("/dev/sdx"), Path("/mnt/a\nexec_prerun=id"))
    with pytest.raises(InputError, match="one line"):
        workload.expand(workload.load("daq"), place, runtime_s=None, ramp_s=0)


def test_a_file_of_ones_own_is_taken_by_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.toml").write_text(MINIMAL)
    assert main(["workloads", str(tmp_path / "mine.toml")]) == ExitCode.DONE
    assert main(["workloads", "unheard-of"]) == ExitCode.USAGE
    assert "known are daq" in capsys.readouterr().err


def test_an_unknown_workload_is_named_before_what_it_would_need() -> None:
    with pytest.raises(InputError, match="no workload 'xddd': known are"):
        measurement.of("xddd", None, (), PathTold())
