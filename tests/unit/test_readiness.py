# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a host is ready, and why the module is not there: each obstacle with what to do about it."""

import ast
import json
from pathlib import Path

import hosttree
import pytest
from sources import trees

from fabtune import __version__
from fabtune.cli.main import VERBS, main
from fabtune.errors import ExitCode, FabtuneError
from fabtune.host import systemd, tools, tree
from fabtune.host.programs import PROGRAMS
from fabtune.stat import loadable
from fabtune.tune import readiness

PACKAGE = Path(__file__).resolve().parents[2] / "userspace/fabtune"
EFI = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SIGNED = "filename: /lib/modules/6.1/updates/dkms/fabstat.ko\nversion:  9.9\nsigner:   DKMS module signing key\n"
UNSIGNED = SIGNED.partition("signer")[0]


def _host(
    root: Path, monkeypatch: pytest.MonkeyPatch, modinfo: str = "", mokutil: str = "", efi: bytes = b"", lock: str = ""
) -> Path:
    """Make a host whose modinfo and mokutil answer as given, '' for none installed; return its root."""
    hosttree.make(root)
    hosttree.put(root / "proc/sys/kernel/osrelease", "6.1.0-9-amd64")
    for name, says in (("modinfo", modinfo), ("mokutil", mokutil)):
        if says:
            program = root / "usr/sbin" / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(f"#!/bin/sh\n/bin/cat <<'E'\n{says}\nE\n")
            program.chmod(0o755)
    if efi:
        (root / EFI).parent.mkdir(parents=True)
        (root / EFI).write_bytes(efi)
    if lock:
        hosttree.put(root / "sys/kernel/security/lockdown", lock)
    for name, place in {"ROOT": "", "SYS": "sys", "PROC": "proc", "ETC": "etc"}.items():
        monkeypatch.setattr(tree, name, root / place)
    monkeypatch.setenv("PATH", str(root / "usr/sbin"))
    monkeypatch.setenv("FABTUNE_STATE_DIR", str(root / "state"))
    return root


SECURE, INSECURE = b"\6\0\0\0\1", b"\6\0\0\0\0"


@pytest.mark.parametrize(
    ("modinfo", "mokutil", "efi", "lock", "told"),
    [
        (SIGNED, "/x is not enrolled", INSECURE, "[none] integrity", "load it with: modprobe fabstat"),
        (UNSIGNED, "", b"", "", "load it with: modprobe fabstat"),
        (SIGNED, "/x is already enrolled", SECURE, "none [integrity]", "load it with: modprobe fabstat"),
        (SIGNED, "/x is not enrolled", SECURE, "", "not enrolled in this machine's firmware, and Secure Boot lets"),
        (SIGNED, "/x is not enrolled", b"", "none [integrity] x", "and lockdown=integrity lets the kernel"),
        (SIGNED, "/x is already in the enrollment request", SECURE, "", "to do: reboot and choose Enrol MOK"),
        (UNSIGNED, "/x is not enrolled", SECURE, "", "fabstat.ko is not signed, and Secure Boot"),
        ("", "", SECURE, "", "not built for the running kernel 6.1.0-9-amd64; to do: apt install"),
    ],
)  # fmt: skip
def test_what_keeps_the_module_away_is_told_with_what_to_do(
    modinfo: str, mokutil: str, efi: bytes, lock: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _host(tmp_path, monkeypatch, modinfo, mokutil, efi, lock)
    assert told in loadable.why_not_loaded()


def test_the_key_to_enrol_is_the_one_that_dkms_is_told_to_sign_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _host(tmp_path, monkeypatch, SIGNED, "not the one: is not enrolled", SECURE)
    assert "to do: mokutil --import /var/lib/dkms/mok.pub, which asks" in loadable.why_not_loaded()
    hosttree.put(root / "etc/dkms/framework.conf", '# mok_certificate=/no\nmok_certificate="/root/mine.der"')
    assert "to do: mokutil --import /root/mine.der, which asks" in loadable.why_not_loaded()
    hosttree.put(root / "etc/dkms/framework.conf.d/site.conf", "mok_certificate=/root/site.der")
    assert "to do: mokutil --import /root/site.der, which asks" in loadable.why_not_loaded()


def test_the_source_without_the_kernel_s_headers_asks_for_these(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _host(tmp_path, monkeypatch)
    hosttree.put(root / f"usr/src/fabstat-{__version__}/dkms.conf", "")
    assert "to do: apt install linux-headers-6.1.0-9-amd64, with which" in loadable.why_not_loaded()
    (root / "lib/modules/6.1.0-9-amd64/build").mkdir(parents=True)
    assert f"to do: dkms install fabstat/{__version__} -k 6.1.0-9-amd64;" in loadable.why_not_loaded()


def _checks(name: str) -> list[readiness.Readiness]:
    return [check for check in readiness.examine() if check.name == name]


def test_the_module_by_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _host(tmp_path, monkeypatch, UNSIGNED)
    (check,) = _checks("module fabstat")
    assert (check.state, check.fix, check.verbs) == (readiness.TO_DO, "modprobe fabstat", ("stat", "stuck"))
    assert check.found == "9.9 is built for 6.1.0-9-amd64 and not loaded"
    hosttree.put(root / "sys/module/fabstat/version", "0.0.1")
    (check,) = _checks("module fabstat")
    assert check.state == readiness.TO_DO and check.found == f"0.0.1 is loaded, and this is fabtune {__version__}"
    hosttree.put(root / "sys/module/fabstat/version", __version__)
    assert [check.state for check in _checks("module fabstat")] == [readiness.READY]
    hosttree.put(root / "sys/kernel/security/lockdown", "none [integrity]")
    assert "is not signed" in _checks("module fabstat at the next boot")[0].found


def test_a_signature_that_nobody_can_judge_is_not_called_good_or_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _host(tmp_path, monkeypatch, SIGNED, "EFI variables are not supported on this system", b"", "none [integrity]")
    told = loadable.why_not_loaded()
    assert "load it with: modprobe fabstat\n  If lockdown=integrity refuses it" in told and "mokutil --import" in told
    (check,) = _checks("module fabstat")
    assert check.state == readiness.UNKNOWN and "mokutil" in check.fix


def test_what_is_missing_is_named_with_its_package_and_who_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _host(tmp_path, monkeypatch)
    assert main(["doctor", "--json"]) == ExitCode.NEEDS_ACTION
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["fabtune", "exit_code", "checks"] and told["exit_code"] == 4
    assert {tuple(check) for check in told["checks"]} == {("name", "state", "found", "fix", "verbs")}
    by_name = {check["name"]: check for check in told["checks"]}
    assert by_name["fio"]["state"] == "optional" and by_name["fio"]["fix"] == "apt install fio"
    assert by_name["tc"]["state"] == "to do" and "plan" in by_name["tc"]["verbs"]
    assert by_name["initiator"]["state"] == "to do" and by_name["initiator"]["fix"] == "apt install open-iscsi"
    assert main(["doctor"]) == ExitCode.NEEDS_ACTION
    text = capsys.readouterr().out
    assert "apt install iproute2" in text and "Traceback" not in text
    assert not (tmp_path / "state").exists()


def test_a_state_directory_that_others_may_write_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _host(tmp_path, monkeypatch)
    assert _checks("state directory")[0].state == readiness.READY
    (root / "state/journal").mkdir(parents=True)
    (root / "state").chmod(0o777)
    (check,) = _checks("state directory")
    assert check.state == readiness.WRONG and "may be written by others" in check.found
    assert readiness.exit_code([check]) == ExitCode.FAILED


def test_a_state_directory_that_a_boot_has_only_after_the_logins_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a boot undoes cannot be written again before the logins, and a power cut would find no way back."""
    root = _host(tmp_path, monkeypatch)
    assert not _checks("state directory at a boot")
    hosttree.put(root / "proc/self/mountinfo", f"28 1 8:16 / {root} rw - ext4 /dev/sdb rw")
    after = ["local-fs-pre.target"]
    monkeypatch.setattr(systemd, "mount_unit", lambda place: ("/run/systemd/generator/var.mount", after))
    monkeypatch.setattr(systemd, "manages_host", lambda: True)
    assert not _checks("state directory at a boot")
    after[:] = ["system.slice", "remote-fs-pre.target"]
    (check,) = _checks("state directory at a boot")
    assert check.state == readiness.TO_DO and check.verbs == ("apply",)
    assert f"{root}/state lies on {root}, which a boot mounts after remote-fs-pre.target" in check.found

    def untold(place: str) -> tuple[str, list[str]]:
        raise FabtuneError("no systemctl here")

    monkeypatch.setattr(systemd, "mount_unit", untold)
    assert not _checks("state directory at a boot")


def test_the_worst_decides_the_exit_code() -> None:
    def code(*states: str) -> ExitCode:
        return readiness.exit_code([readiness.Readiness("x", state, "") for state in states])

    assert code(readiness.READY, readiness.OPTIONAL) == ExitCode.DONE
    assert code(readiness.UNKNOWN, readiness.READY) == ExitCode.CANNOT_TELL
    assert code(readiness.UNKNOWN, readiness.TO_DO) == ExitCode.NEEDS_ACTION
    assert code(readiness.TO_DO, readiness.WRONG) == ExitCode.FAILED


def test_every_program_that_is_run_is_known_with_its_package() -> None:
    known = {(one.name, one.package) for one in PROGRAMS}
    run = set()
    for source in (one for name, one in trees().items() if Path(name).parent.name != "targets"):
        for node in ast.walk(source):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
                "require",
                "run_tool",
                "find",
            ):
                words = [
                    one.value for one in node.args[:2] if isinstance(one, ast.Constant) and isinstance(one.value, str)
                ]
                if len(words) == 2:
                    run.add((words[0], words[1]))
    # iproute.run() and iscsid.py take the name from their callers.
    assert run - known == {("sh", "dash")} and ("fio", "fio") in run
    assert known - run == {("ip", "iproute2"), ("tc", "iproute2")}
    assert {verb for one in PROGRAMS for verb in one.verbs} <= set(VERBS)
    assert tools.find("cat", "coreutils")
