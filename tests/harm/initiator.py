# SPDX-License-Identifier: GPL-2.0-or-later
"""The initiator of a random host: iscsid, discovery, logins and logouts as an administrator does them."""

import os
import shutil
import subprocess
from pathlib import Path

import network
import readers
import target
from draw import Host
from shell import HostError, run, until


def start_iscsid() -> None:
    """Start iscsid, once a guest; it outlives every host."""
    Path("/etc/iscsi/initiatorname.iscsi").write_text(f"InitiatorName={target.INITIATOR}\n")
    subprocess.Popen(
        ["iscsid", "-f"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    until(lambda: _status("-m", "session") in (0, 21), "iscsid to answer")


def _status(*words: str) -> int:
    return subprocess.run(["iscsiadm", *words], capture_output=True, check=False).returncode


def discover(host: Host) -> None:
    """Discover at every portal, which writes the records anew."""
    for number in range(max(one.portals for one in host.targets)):
        run("iscsiadm", "-m", "discovery", "-t", "st", "-p", network.portal(host, number))


def set_records(host: Host) -> None:
    """Give the records what the administrator set by hand."""
    if host.record_setting:
        key, value = host.record_setting.split()
        run("iscsiadm", "-m", "node", "-o", "update", "-n", key, "-v", value)
    for number, wish in enumerate(host.targets):
        if wish.access == "chap":
            for key, value in (("authmethod", "CHAP"), ("username", target.USER), ("password", target.PASSWORD)):
                words = ["-n", f"node.session.auth.{key}", "-v", value]
                run("iscsiadm", "-m", "node", "-T", target.iqn(number), "-o", "update", *words)
        if wish.nr_sessions > 1:
            name = target.iqn(number)
            run(
                "iscsiadm",
                "-m",
                "node",
                "-T",
                name,
                "-o",
                "update",
                "-n",
                "node.session.nr_sessions",
                "-v",
                str(wish.nr_sessions),
            )


def login(host: Host, number: int | None = None) -> None:
    """Log in to target `number`, or to all; sessions that are there already stay as they are."""
    words = [] if number is None else ["-T", target.iqn(number)]
    status = _status("-m", "node", *words, "--login")
    # 15: a session exists already, which is what was asked for.
    if status not in (0, 15):
        raise HostError(f"login to {words or 'all'}: exit {status}: {run('dmesg').splitlines()[-3:]}")
    wait(host, number)


def wait(host: Host, number: int | None = None) -> None:
    """Wait until every session of target `number`, or of all, has its disk, and multipathd has seen it."""
    indices = [index for index in range(len(host.targets)) if number in (None, index)]
    wanted = {name for index in indices for name in names(host, index)}
    of_multipathd = {name for index in indices if host.targets[index].use == "mpath" for name in names(host, index)}

    def ready() -> bool:
        here = {name: directory for name, _, directory in readers.sessions()}
        disks = {name: readers.disks_of(directory) for name, directory in here.items()}
        # multipathd gives its own fast_io_fail_tmo to the sessions of its paths, a moment later.
        return all(disks.get(name) and os.access(f"/dev/{disks[name][0]}", os.R_OK) for name in wanted) and all(
            readers.text_of(here[name] / "recovery_tmo") == "5" for name in of_multipathd
        )

    until(ready, f"the disks of {sorted(wanted)}")


def names(host: Host, number: int) -> list[str]:
    """Return what the sessions to target `number` are called in a snapshot."""
    wish = host.targets[number]
    return [
        f"{target.iqn(number)},{network.address(host, portal)},3260,{session}"
        for portal in range(wish.portals) for session in range(wish.nr_sessions)
    ]  # fmt: skip


def logout(number: int | None = None) -> None:
    """Log out of target `number`, or of all."""
    words = [] if number is None else ["-T", target.iqn(number)]
    status = _status("-m", "node", *words, "--logout")
    if status not in (0, 21):
        raise HostError(f"logout from {words or 'all'}: exit {status}")


def forget() -> None:
    """End every session and delete every record, damaged ones too."""
    _status("-m", "node", "--logout")
    for _, sid, _ in readers.sessions():
        _status("-m", "session", "-r", str(sid), "-u")
    until(lambda: not list(readers.sessions()), "the last session to end")
    for place in ("nodes", "send_targets"):
        shutil.rmtree(readers.RECORDS / place, ignore_errors=True)
        (readers.RECORDS / place).mkdir()
