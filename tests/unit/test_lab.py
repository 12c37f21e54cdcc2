# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's parts that need no guest: archives, command lines, recipes, paths."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from fabtune.errors import FabtuneError, InputError
from fabtune.host.run import run
from fabtune.installed import PACKAGE
from fabtune.lab import cache, debug_kernel, image, initramfs, job, own_kernel, topology, uml_virtual, vm
from fabtune.lab.recipe import DEBUG_KERNELS, SUITES, UML_VIRTUAL, recipe_for
from fabtune.model import losses


def _tree(base: Path, mtime: int) -> Path:
    (base / "b/deep").mkdir(parents=True)
    (base / "b/deep/file").write_text("content")
    (base / "a").write_text("first")
    (base / "a").chmod(0o755)
    for path in base.rglob("*"):
        os.utime(path, (mtime, mtime))
    return base


def test_archives_of_equal_trees_are_equal_to_the_byte(tmp_path: Path) -> None:
    for name, mtime in (("one", 1_000_000), ("two", 2_000_000)):
        initramfs.pack(_tree(tmp_path / name, mtime), tmp_path / f"{name}.cpio")
    assert (tmp_path / "one.cpio").read_bytes() == (tmp_path / "two.cpio").read_bytes()


@pytest.fixture
def uncompiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> image.Image:
    """An image without a Python: the package goes in as it is."""
    monkeypatch.setattr(job, "copy_package", lambda _, target: shutil.copytree(PACKAGE / "lab", target / "lab"))
    return _image(tmp_path / "image", "trixie")


def test_a_job_carries_script_arguments_and_package(tmp_path: Path, uncompiled: image.Image) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho hello\n")
    job.write_job(tmp_path / "job.cpio", script, ["two words", ""], image=uncompiled)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    subprocess.run(["cpio", "-idm", "--quiet", "-F", tmp_path / "job.cpio"], cwd=unpacked, check=True)
    assert (unpacked / "job/run").read_text() == script.read_text()
    assert (unpacked / "job/arguments").read_bytes() == b"two words\0\0"
    assert (unpacked / "fabtune/userspace/fabtune/lab/guest.py").exists()
    assert (unpacked / "fabtune/profiles/wan.toml").exists()


def _image(directory: Path, suite: str) -> image.Image:
    (directory / "root/boot").mkdir(parents=True)
    (directory / "root.squashfs").write_bytes(b"\0" * 4096)
    (directory / "image.json").write_text('{"kernel_release": "6.0-test"}')
    return image.Image(directory, suite)


def test_the_virtual_clock_has_no_device_that_the_host_times(tmp_path: Path) -> None:
    words = vm.qemu_command(vm.Machine(_image(tmp_path, "trixie"), seed=7), ["file,path=console"])
    assert words[words.index("-icount") + 1].startswith("shift=0,sleep=off,rr=record")
    assert words[words.index("-cpu") + 1] == "max,-cx16"
    assert words[words.index("-seed") + 1] == "7"
    assert words[words.index("-smp") + 1] == "1"
    devices = [words[place + 1].split(",")[0] for place, word in enumerate(words) if word == "-device"]
    assert set(devices) == {"nvdimm", "isa-serial"}
    assert "-nodefaults" in words and not {"-drive", "-netdev", "-virtfs", "-nic"} & set(words)


def test_a_kernel_of_another_suite_brings_its_modules(tmp_path: Path) -> None:
    machine = vm.Machine(_image(tmp_path / "one", "trixie"), _image(tmp_path / "two", "sid"))
    words = vm.qemu_command(machine, [])
    assert str(tmp_path / "two/root/boot/vmlinuz-6.0-test") in words
    assert machine.kernel.suite == "sid"
    assert "lab.modules=pmem1" in words[words.index("-append") + 1]


def test_every_suite_has_a_recipe_of_its_own_name() -> None:
    digests = {recipe_for(suite).digest for suite in SUITES}
    assert len(digests) == len(SUITES)
    assert recipe_for("trixie").digest == recipe_for("trixie").digest


def test_an_unknown_suite_is_bad_input() -> None:
    with pytest.raises(InputError, match="trixie"):
        image.find_image("nosuch")


def test_a_draft_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), cache.making(tmp_path / "target") as draft:
        (draft / "half").write_text("done")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_too_little_space_is_said_before_work_starts(tmp_path: Path) -> None:
    with pytest.raises(FabtuneError, match="GiB"):
        cache.require_space(tmp_path, 2**60, "building")


def test_a_failed_command_tells_its_end_and_its_exit_code() -> None:
    with pytest.raises(FabtuneError, match=r"(?s)listing failed \(exit 3\).*the reason"):
        run(["sh", "-c", "echo the reason >&2; exit 3"], what="listing")


@pytest.mark.parametrize(("loss", "burst_share"), [(0.01, 1 / 3), (0.2, 1 / 3)])
def test_gilberts_model_loses_the_share_it_was_asked_for(loss: float, burst_share: float) -> None:
    words = topology._loss_words(topology.EmulatedPath(loss=loss, loss_model="gemodel")).split()
    enter, leave = (float(word.rstrip("%")) / 100 for word in words[2:4])
    assert leave == pytest.approx(burst_share, rel=1e-4)
    assert enter / (enter + leave) == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize(
    ("drops", "packets", "path", "complaint"),
    [
        (1, 10, topology.EmulatedPath(), "dropped 1"),
        (0, 0, topology.EmulatedPath(), "no packet passed"),
        (1, 10, topology.EmulatedPath(loss=0.1), None),
        (0, 10, topology.EmulatedPath(), None),
        (0, 100_000, topology.EmulatedPath(loss=0.1), "lost 0 of 100000 packets where 10% .*expected 93.. to 106.."),
        (99_999, 1, topology.EmulatedPath(loss=0.0001), "lost 99999 of 100000 packets where 0.01% were asked for"),
        (500, 99_500, topology.EmulatedPath(loss=0.01), "lost 500 of 100000 packets"),
        (700, 99_300, topology.EmulatedPath(loss=0.01, loss_model="gemodel"), None),
        (400, 99_600, topology.EmulatedPath(loss=0.01, loss_model="gemodel"), "lost 400 of 100000 packets"),
        # Of 10 that are to be lost none may be.
        (0, 1000, topology.EmulatedPath(loss=0.01), None),
        (8_000, 92_000, topology.EmulatedPath(loss=0.1, duplicate=0.2), None),
        (0, 100_000, topology.EmulatedPath(loss=0.1, duplicate=0.2), "lost 0 of 100000 packets"),
    ],
)
def test_a_point_whose_path_misbehaved_fails(
    drops: int, packets: int, path: topology.EmulatedPath, complaint: str | None
) -> None:
    before = {"w0": {"packets": 5, "bytes": 0, "drops": 2, "overlimits": 0}}
    after = {"w0": {"packets": 5 + packets, "bytes": 0, "drops": 2 + drops, "overlimits": 0}}
    if complaint is None:
        topology.assert_clean(before, after, path)
    else:
        with pytest.raises(FabtuneError, match=complaint):
            topology.assert_clean(before, after, path)


@pytest.mark.parametrize(("share", "burst"), [(0.0001, 1), (0.01, 1), (0.3, 1), (0.0001, 3), (0.01, 3), (0.3, 3)])
def test_no_honest_loss_is_taken_for_another(share: float, burst: int) -> None:
    """Netem's own two models: losses on their own, and Gilbert's with bursts of three."""
    for seed in range(200):
        draw, bad, lost = random.Random(seed).random, False, 0
        tried = 100 * 10 ** (seed % 3)
        for _ in range(tried):
            if burst == 1:
                lost += draw() < share
            elif bad:
                lost, bad = lost + 1, draw() >= 1 / burst
            else:
                bad = draw() < share / burst / (1 - share)
        fewest, most = losses.by_chance(tried, share, burst)
        assert fewest <= lost <= most, (seed, tried, lost)


def test_a_debug_kernel_without_a_wanted_option_is_noticed() -> None:
    wanted = own_kernel.wanted_options("scsi-builtin")
    assert wanted["CONFIG_SCSI"] == "y" and wanted["CONFIG_CPU_MITIGATIONS"] == "n"
    config = "".join(f"{key}={value}\n" if value != "n" else f"# {key} is not set\n" for key, value in wanted.items())
    assert own_kernel.missing_options("scsi-builtin", config) == []
    assert own_kernel.missing_options("scsi-builtin", config.replace("CONFIG_SCSI=y", "CONFIG_SCSI=m")) == [
        "CONFIG_SCSI=y"
    ]


def test_every_kernel_of_our_own_has_a_fragment() -> None:
    for name in (*DEBUG_KERNELS, UML_VIRTUAL):
        assert len(own_kernel.wanted_options(name)) > 80


def test_a_kernel_that_was_not_built_says_how(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match="lab build --suite rt"):
        debug_kernel.find_debug_kernel("rt")
    with pytest.raises(InputError, match="lab build --suite uml-virtual"):
        uml_virtual.find_virtual_uml()
