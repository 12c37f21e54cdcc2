# SPDX-License-Identifier: GPL-2.0-or-later
"""One random host in this guest: built, booted anew, and taken down until nothing of it is left."""

import contextlib
import os
import re
import shutil
import subprocess
import uuid
from pathlib import Path

import initiator
import network
import readers
import target
from draw import Host
from shell import HostError, run, until
from users import User

STATE = Path("/var/lib/fabtune")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RUN = Path("/run/harm")
_STATE_KIB, _ETC_KIB, _RECORDS_KIB = 512, 8192, 1024
# Directories that live on small file systems of their own, so that they can be full or read-only.
PLACES = {"state": STATE, "etc": Path("/etc"), "records": readers.RECORDS}
_FILES = {
    "sysctl": ("/etc/sysctl.d/95-local.conf", "net.core.rmem_max = 5000000\n"),
    "link": ("/etc/systemd/network/70-san0.link", "[Match]\nOriginalName=i0\n\n[Link]\nName=san0\n"),
    "modprobe": ("/etc/modprobe.d/local.conf", "options iscsi_tcp debug_iscsi_tcp=0\n"),
}  # fmt: skip
_CUSTOM = """summary = "an administrator's own"
include = ["low-latency"]

[initiator."iscsi.queue_depth"]
value = 40
why = "as measured here"

[both."net.rmem_max"]
at_least = 8388608
why = "as measured here"

[both."nic.txqueuelen"]
value = 2000
why = "as measured here"

[target."lio.default_cmdsn_depth"]
at_least = 100
why = "as measured here"
"""


def prepare_guest() -> None:
    """Make what all hosts of this guest share: modules, iscsid, small file systems, a boot id that can change."""
    for module in (
        "iscsi_tcp", "sd_mod", "sg", "iscsi_target_mod", "target_core_iblock", "target_core_file", "loop", "8021q",
        "sch_fq", "sch_cake", "sch_htb", "sch_prio", "sch_fq_codel", "tcp_bbr", "ext4", "dm_mod", "dm_multipath",
        "dm_round_robin", "dm_service_time", "raid1",
    ):  # fmt: skip
        run("modprobe", module, check=False)
    run("modprobe", "bonding", "max_bonds=0", check=False)
    _RUN.mkdir(exist_ok=True)
    STATE.mkdir(exist_ok=True)
    for name, size in (("etc", _ETC_KIB), ("records", _RECORDS_KIB), ("state", _STATE_KIB)):
        _own_file_system(PLACES[name], size)
    for directory in ("sysctl.d", "modprobe.d", "udev/rules.d", "systemd/network", "rtslib-fb-target/backup", "iscsi"):
        Path("/etc", directory).mkdir(parents=True, exist_ok=True)
    for directory in ("nodes", "send_targets", "ifaces"):
        (readers.RECORDS / directory).mkdir(parents=True, exist_ok=True)
    Path("/run/harm/custom.toml").write_text(_CUSTOM)
    # A login that must fail shall do so soon.
    conf = Path("/etc/iscsi/iscsid.conf")
    text = conf.read_text()
    for key, value in (("node.session.initial_login_retry_max", 2), ("node.conn[0].timeo.login_timeout", 6)):
        text = re.sub(rf"^{re.escape(key)} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
    conf.write_text(text)
    _new_boot_id()
    run("mount", "--bind", str(_RUN / "boot_id"), str(_BOOT_ID))
    initiator.start_iscsid()
    # targetcli asks on the system bus who else offers backstores.
    Path("/run/dbus").mkdir(exist_ok=True)
    run("dbus-daemon", "--system", "--fork")
    shutil.copytree("/etc", _RUN / "etc", symlinks=True)


def _own_file_system(place: Path, size_kib: int) -> None:
    """Put a tmpfs of `size_kib` over `place`, with what is there."""
    draft = _RUN / f"fs-{place.name}"
    draft.mkdir(parents=True)
    run("mount", "-t", "tmpfs", "-o", f"size={size_kib}k,mode=755", "tmpfs", str(draft))
    run("cp", "-a", f"{place}/.", str(draft))
    run("mount", "--move", str(draft), str(place))


def _new_boot_id() -> None:
    # The same file stays mounted over the kernel's.
    (_RUN / "boot_id").write_text(f"{uuid.uuid4()}\n")


class Multipathd:
    """udevd and multipathd, as long as a host wants them; targets with one path are left to others."""

    def __init__(self, host: Host) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        if not any(one.use == "mpath" for one in host.targets):
            return
        others = "".join(
            f' device {{\n  vendor "LIO-ORG"\n  product "^b{number}$"\n }}\n'
            for number, one in enumerate(host.targets) if one.use != "mpath"
        )  # fmt: skip
        Path("/etc/multipath.conf").write_text(
            "defaults {\n find_multipaths no\n user_friendly_names no\n path_checker tur\n polling_interval 2\n}\n"
            f'blacklist {{\n devnode "^(ram|loop|dm-|md|pmem|zram|ubd)"\n{others}}}\n'
        )
        udevd = next(
            path for path in ("/usr/lib/systemd/systemd-udevd", "/lib/systemd/systemd-udevd") if Path(path).exists()
        )
        self._start(udevd)
        until(lambda: Path("/run/udev/control").exists(), "udevd")
        self._start("multipathd", "-d")
        until(lambda: "pid" in run("multipathd", "show", "daemon", check=False), "multipathd")

    def _start(self, *words: str) -> None:
        null = subprocess.DEVNULL
        self.processes.append(subprocess.Popen(words, stdin=null, stdout=null, stderr=null, start_new_session=True))

    def stop(self) -> None:
        """End both and forget what they kept."""
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.processes:
            # What multipathd was about to make when its paths went.
            run("dmsetup", "remove_all", "--retry", check=False)
            shutil.rmtree("/run/udev", ignore_errors=True)
            shutil.rmtree("/etc/multipath", ignore_errors=True)
            Path("/etc/multipath.conf").unlink(missing_ok=True)
        self.processes.clear()


class Machine:
    """A host under test."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.users: dict[int, User] = {}
        # Targets that somebody else than fabtune logged out.
        self.logged_out: set[int] = set()
        self.kernel_sysctls: dict[str, str] = {}
        self.multipathd: Multipathd | None = None

    def build(self) -> None:
        """Make the host as its administrator would: files, network, targets, sessions, users."""
        self._write_files()
        if self.host.sysctl:
            key, _, value = self.host.sysctl.partition(" ")
            Path("/etc/sysctl.d/60-admin.conf").write_text(f"{key} = {value}\n")
        self.kernel_sysctls = dict(_raw_sysctls())
        _boot_sysctls(fabtune_too=True)
        network.up(self.host)
        target.up(self.host)
        initiator.discover(self.host)
        initiator.set_records(self.host)
        self.multipathd = Multipathd(self.host)
        initiator.login(self.host)

    def _write_files(self) -> None:
        kind = self.host.file
        conf = Path("/etc/iscsi/iscsid.conf")
        if kind in _FILES:
            name, text = _FILES[kind]
            Path(name).write_text(text)
        elif kind == "symlink":
            conf.rename("/etc/iscsi/site.conf")
            conf.symlink_to("site.conf")
        elif kind == "mode":
            conf.chmod(0o640)
            os.chown(conf, 0, 4)

    def use(self, number: int) -> bool:
        """Let target `number` be used as the host says; False when it is used or away."""
        if number >= len(self.host.targets) or number in self.users or number in self.logged_out:
            return False
        wish = self.host.targets[number]
        names = initiator.names(self.host, number)
        disks = {name: readers.disks_of(directory) for name, _, directory in readers.sessions()}
        if wish.use == "none" or not all(disks.get(name) for name in names):
            return False
        # With two paths and no multipath, one session's disk is used and the other's is not.
        names = names if wish.use == "mpath" else names[-1:]
        user = User(wish.use, disks[names[0]][0], tuple(names))
        user.start()
        self.users[number] = user
        return True

    def release(self, number: int) -> None:
        """End the use of target `number`."""
        if number in self.users:
            self.users.pop(number).stop()

    def missing(self) -> list[str]:
        """Return the sessions that should be there and are not; one that iscsid is reconnecting gets its time."""
        wanted = [name for number in range(len(self.host.targets)) if number not in self.logged_out
                  for name in initiator.names(self.host, number)]  # fmt: skip

        def states() -> dict[str, str]:
            return {name: readers.text_of(directory / "state") or "" for name, _, directory in readers.sessions()}

        there = [name for name in wanted if name in states()]
        with contextlib.suppress(HostError):
            until(lambda: all(states().get(name) == "LOGGED_IN" for name in there), "sessions to reconnect", 30)
        now = states()
        return [name for name in wanted if now.get(name) != "LOGGED_IN"]

    def reboot(self) -> readers.Snapshot:
        """Lose all that a boot loses, then boot; return the sysctls as they would be without fabtune's files."""
        for number in list(self.users):
            self.release(number)
        initiator.logout()
        until(lambda: not list(readers.sessions()), "the sessions to end")
        target.clear()
        network.down()
        _write_sysctls(self.kernel_sysctls)
        shutil.rmtree("/run/fabtune", ignore_errors=True)
        _new_boot_id()
        _boot_sysctls(fabtune_too=False)
        plain = {name: value for name, value in readers.network("init").items() if name.startswith("sysctl ")}
        _write_sysctls(self.kernel_sysctls)
        _boot_sysctls(fabtune_too=True)
        network.up(self.host)
        if Path("/etc/rtslib-fb-target/saveconfig.json").exists():
            target.targetcli(["restoreconfig"])
        else:
            target.up(self.host)
        self.logged_out.clear()
        initiator.login(self.host)
        return plain

    def take_down(self) -> None:
        """Remove the host.  Raises HostError when something resists."""
        for number in list(self.users):
            self.release(number)
        initiator.forget()
        if self.multipathd is not None:
            self.multipathd.stop()
        target.down()
        network.down()
        shutil.rmtree("/run/fabtune", ignore_errors=True)
        for path in STATE.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        run("rsync", "-a", "--delete", f"{_RUN}/etc/", "/etc/") if shutil.which("rsync") else _restore_etc()
        _write_sysctls(self.kernel_sysctls)


def _restore_etc() -> None:
    """Give the directories of /etc that anybody writes to their first content."""
    for directory in ("iscsi", "sysctl.d", "modprobe.d", "udev", "systemd", "rtslib-fb-target", "multipath"):
        if directory == "iscsi" and Path("/etc/iscsi") == readers.RECORDS:
            for path in Path("/etc/iscsi").iterdir():
                if path.is_file() or path.is_symlink():
                    path.unlink()
            for path in (_RUN / "etc/iscsi").iterdir():
                if path.is_file():
                    shutil.copy2(path, Path("/etc/iscsi"))
            continue
        shutil.rmtree(Path("/etc", directory), ignore_errors=True)
        if (_RUN / "etc" / directory).exists():
            shutil.copytree(_RUN / "etc" / directory, Path("/etc", directory), symlinks=True)


def _raw_sysctls() -> dict[str, str]:
    found = {}
    for directory in ("net/core", "net/ipv4"):
        for path in Path("/proc/sys", directory).iterdir():
            value = readers.text_of(path) if path.is_file() and path.stat().st_mode & 0o200 else None
            if value:
                found[str(path)] = value
    return found


def _write_sysctls(values: dict[str, str]) -> None:
    for name, value in values.items():
        if readers.text_of(Path(name)) != value:
            try:
                Path(name).write_text(value)
            except OSError as error:
                raise HostError(f"{name} = {value}: {error}") from None


def _boot_sysctls(fabtune_too: bool) -> None:
    """Set what /etc/sysctl.d says, in the order of names, as systemd-sysctl does."""
    for path in sorted(Path("/etc/sysctl.d").glob("*.conf")):
        if not fabtune_too and "fabtune" in path.name:
            continue
        for line in path.read_text().splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.startswith(("#", ";")):
                place = Path("/proc/sys", *key.strip().lstrip("-").replace("/", ".").split("."))
                try:
                    place.write_text(value.strip())
                except OSError:
                    continue
