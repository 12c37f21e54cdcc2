# SPDX-License-Identifier: GPL-2.0-or-later
"""tgt, the iSCSI target of user space: one daemon, read and set through the text output of tgtadm.

Its parameters belong to a target and count from the next login; nothing of them is in targets.conf, so that they go
with the daemon.  Only the daemon of the first control port is seen.
"""

import os
import re
import socket
import struct
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.host import tools, tree
from fabtune.host.run import run
from fabtune.host.targets.kind import Kind, Login, Store, Tpg
from fabtune.model.device import Device

_TARGET = re.compile(r"^Target (\d+): (\S+)$", re.MULTILINE)
_NEXUS = re.compile(r"^ +I_T nexus: (\d+)\n +Initiator: (\S+)", re.MULTILINE)
_LUN = re.compile(r"^ +LUN: (\d+)\n(.*?)(?=^ +LUN:|^ {4}\S|\Z)", re.MULTILINE | re.DOTALL)
_STATE = re.compile(r"^ +State: (\S+)", re.MULTILINE)
_PORTAL = re.compile(r"^Portal: (\S+),\d+$", re.MULTILINE)
_PARAMETER = re.compile(r"^(\w+)=(.*)$", re.MULTILINE)
_WAIT_S = 30
# What it only shows it has at hand: longer than this nobody who came for something else shall wait.
_SHOW_S = 5
_CONNECT_S = 1
# Why a daemon was given up, and when, by its socket: nobody waits for it twice, but those who go on looking for a
# minute do not take it for mute for ever.
_mute: dict[tuple[Path, str], tuple[str, float]] = {}
_MUTE_S = 60.0
_DIGESTS = ("HeaderDigest", "DataDigest")


def _socket() -> Path:
    # As tgtadm finds it.
    return Path(f"{os.environ.get('TGT_IPC_SOCKET', tree.ROOT / 'run/tgtd/socket')}.0")


def _born() -> str:
    """Return what distinguishes this daemon from the next: each creates its own socket; '' where it cannot be seen.

    The number of the socket comes last: with another path or file system it is another daemon's, not a later one.
    """
    try:
        found = _socket().stat()
    except OSError:
        return ""
    return f"{_socket()}:{found.st_dev}:{found.st_ino}"


def _hear() -> None:
    """Raise FabtuneError for a daemon that was asked a while ago and gave no answer."""
    why, at_s = _mute.get((_socket(), _born()), ("", 0.0))
    if why and time.monotonic() - at_s < _MUTE_S:
        raise FabtuneError(why)


def _give_up(why: str) -> FabtuneError:
    _mute[_socket(), _born()] = why, time.monotonic()
    return FabtuneError(why)


def _runs() -> bool:
    """Tell whether the daemon runs; a killed one leaves a socket that nobody listens on.

    Raises FabtuneError where it does not answer, or does not answer this user.
    """
    _hear()
    try:
        _socket().stat()
        with socket.socket(socket.AF_UNIX) as probe:
            # How long to wait for room in the queue of a daemon that takes nobody from it.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _CONNECT_S, 0))
            probe.connect(str(_socket()))
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        return False
    except BlockingIOError:
        raise _give_up(f"tgtd does not answer within {_CONNECT_S} s") from None
    except OSError as error:
        raise FabtuneError(f"tgtd cannot be asked: {error.strerror or error}") from None
    return True


def _ask(*words: str) -> str:
    """Return what tgtadm prints.  Raises UnsupportedError without it, FabtuneError where it fails."""
    shows = words[:2] == ("--op", "show")
    limit_s = _SHOW_S if shows else _WAIT_S
    _hear()
    try:
        done = tools.run_tool("tgtadm", "tgt", "--lld", "iscsi", *words, timeout_s=limit_s, keeps_lock=not shows)
    except UnsupportedError:
        raise
    except FabtuneError as error:
        raise _give_up(str(error)) from None
    if done.status:
        raise FabtuneError(f"tgtadm {' '.join(words)}: {tools.last_words(done)}")
    return done.stdout


def _targets() -> dict[tuple[str, str], str]:
    """Return what tgtadm shows of each target, by its number and name; nothing where no daemon runs."""
    if not _runs():
        return {}
    text = _ask("--op", "show", "--mode", "target")
    # What stands before the first one, then number, name and lines of each.
    words = iter(_TARGET.split(text)[1:])
    return {(tid, name): lines for tid, name, lines in zip(words, words, words, strict=True)}


def _parameters(*place: str) -> dict[str, str]:
    return dict(_PARAMETER.findall(_ask("--op", "show", *place)))


def _portals() -> list[str]:
    """Return the portals: each target of the daemon is on all of them."""
    return _PORTAL.findall(_ask("--op", "show", "--mode", "portal"))


def _logins(text: str) -> list[Login]:
    # The daemon refuses to show what a session has agreed on.
    return [Login(initiator, False, {}, sid) for sid, initiator in _NEXUS.findall(text)]


def _luns(text: str) -> tuple[str, ...]:
    """Return what is behind each LUN; LUN 0 is the daemon's own controller."""
    found = []
    for _, lines in _LUN.findall(text):
        words = dict(re.findall(r"^ +(Type|Backing store type|Backing store path): (.*)$", lines, re.MULTILINE))
        if words.get("Type") != "controller":
            found.append(f"{words.get('Backing store type', '?')}:{words.get('Backing store path', '?')}")
    return tuple(found)


class _Tgt(Kind):
    name = title = "tgt"
    package = "tgt"
    scopes = ("tgt-target",)
    group = "tgt-target"
    outlives_boot = False
    factors = frozenset({"target_rate"})
    offers = {
        "tgt.initial_r2t": "InitialR2T",
        "tgt.immediate_data": "ImmediateData",
        "tgt.first_burst": "FirstBurstLength",
        "tgt.max_burst": "MaxBurstLength",
        "tgt.max_outstanding_r2t": "MaxOutstandingR2T",
        # What the initiator may send at most is what the target declares to receive.
        "tgt.max_recv_segment": "MaxXmitDataSegmentLength",
        "tgt.header_digest": "HeaderDigest",
        "tgt.data_digest": "DataDigest",
        "tgt.max_connections": "MaxConnections",
        "tgt.error_recovery_level": "ErrorRecoveryLevel",
        "tgt.max_queue_cmd": "cmdsn_depth",
    }

    def devices(self, scope: str) -> list[Device]:
        found = _targets()
        portals = " ".join(_portals()) if found else ""
        return [
            Device(scope, f"{name},tgt", f"{name.rpartition(':')[2] or name} tgt", {"tid": tid, "portals": portals})
            for tid, name in found
        ]

    def tpgs(self) -> list[Tpg]:
        found = _targets()
        portals = tuple(_portals()) if found else ()
        return [
            Tpg(f"{name},tgt", bool((state := _STATE.search(text)) and state[1] == "ready"), portals, _luns(text),
                tuple(_logins(text)))
            for (_, name), text in found.items()
        ]  # fmt: skip

    def logins(self, device: Device) -> list[Login]:
        wanted = device.identity.removesuffix(",tgt")
        return [one for (_, name), text in _targets().items() if name == wanted for one in _logins(text)]

    def instance(self, device: Device) -> str:
        return _born()

    def stranger(self, instance: str) -> bool:
        return _born().rpartition(":")[0] != instance.rpartition(":")[0]

    def lost(self, device: Device, instance: str) -> bool:
        if not instance or self.stranger(instance):
            return False
        try:
            # A socket made anew, or left by who no longer listens: its lock lets no two daemons live at once.
            return _born() != instance or device.identity not in [f"{name},tgt" for _, name in _targets()]
        except FabtuneError:
            return False

    def unseen(self) -> str:
        return f"the tgtd that was told is not seen at {_socket()}"

    def read(self, device: Device, key: str) -> str:
        found = _parameters("--mode", "target", "--tid", self._tid(device))
        if "RedirectAddress" in found or "RedirectCallback" in found:
            raise UnsupportedError(
                f"{device.label}: tgtadm shows no parameters of a target that redirects its initiators"
            )
        if key not in found:
            raise UnsupportedError(f"{device.label}: tgtd has no {key}")
        # None is always among what it takes (digest_str_to_val in its param.c): CRC32C alone is the same to it.
        return "CRC32C,None" if key in _DIGESTS and found[key] == "CRC32C" else found[key]

    def write(self, device: Device, key: str, value: str) -> None:
        place = ("--mode", "target", "--tid", self._tid(device))
        _ask("--op", "update", *place, "--name", key, "--value", value)

    def _tid(self, device: Device) -> str:
        tid = device.where.get("tid", "")
        if not tid:
            raise UnsupportedError(f"{device.label}: tgtd has no such target")
        return tid

    def lacking(self) -> tuple[str, str] | None:
        try:
            runs = _runs()
        except FabtuneError as error:
            return f"no target: tgtd cannot be asked: {error}", "as root, or once tgtd answers: systemctl status tgt"
        return ("no target: tgtd runs, but has no target", "for a target on this host: tgt-admin") if runs else None

    def add_store(self, store: Store) -> str:
        if store.device is None and store.keeps_data:
            # Sparse: what was never written takes no memory.
            path = Path(f"/dev/shm/fabtune-lab-disk{store.index}")
            path.touch()
            run(["truncate", "-s", f"{store.size_mib}M", str(path)], what="making the target's file")
            return str(path)
        return str(store.device or "")

    def add_target(self, name: str, portals: Sequence[str], stores: Sequence[str], inside: Sequence[str]) -> None:
        # A re-login asks every LUN, and LUN 0, the daemon's controller, has no other node to be asked by.
        run(["modprobe", "sg"], what="loading sg")
        tell = partial(self._tell, str(len(_targets()) + 1))
        if not _runs():
            self._start(portals, inside)
        tell("--op", "new", "--mode", "target", "-T", name)
        for number, store in enumerate(stores, 1):
            # A store of nothing claims to be 1 TiB; its path is never opened.
            words = ["--bstype", "rdwr" if store else "null", "--backing-store", store or "/dev/null"]
            tell("--op", "new", "--mode", "logicalunit", "--lun", str(number), *words)
        tell("--op", "bind", "--mode", "target", "-I", "ALL")

    def _tell(self, tid: str, *words: str) -> None:
        _ask(*words, "--tid", tid)

    def _start(self, portals: Sequence[str], inside: Sequence[str]) -> None:
        """Start the daemon in the portals' namespace; all of its targets are on all of these."""
        words = [word for portal in portals for word in ("--iscsi", f"portal={portal}")]
        run([*inside, tools.find("tgtd", "tgt"), *words], what="starting tgtd", timeout_s=_WAIT_S)
        deadline = time.monotonic() + _WAIT_S
        while not _runs():
            if time.monotonic() > deadline:
                raise FabtuneError(f"tgtd does not answer after {_WAIT_S} s")
            time.sleep(0.05)

    def set_everywhere(self, key: str, value: str) -> None:
        for tid, _ in _targets():
            _ask("--op", "update", "--mode", "target", "--tid", tid, "--name", key, "--value", value)


KIND = _Tgt()
