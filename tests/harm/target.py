# SPDX-License-Identifier: GPL-2.0-or-later
"""The targets of a random host, made, saved, cleared and restored with targetcli itself."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import network
import readers
from command import program, python
from draw import Host
from shell import HostError, run

SIZE_MIB = 24
USER, PASSWORD = "harmuser", "harmpassword1"
INITIATOR = "iqn.2026-01.lab.fabtune:initiator"
_PREFERENCES = (
    "set global auto_save_on_exit=false auto_add_default_portal=false auto_add_mapped_luns=false color_mode=false "
    "loglevel_console=error"
)


def iqn(number: int) -> str:
    """Return the name of target `number`."""
    return f"iqn.2026-01.lab.harm:t{number}"


def targetcli(lines: Sequence[str]) -> str:
    """Give `lines` to targetcli inside the target's network namespace.  Raises HostError."""
    os.environ["TARGETCLI_HOME"] = "/run/harm/targetcli"
    path = shutil.which("targetcli")
    if path is None:
        raise HostError("targetcli is not installed")
    # It keeps its preferences.
    first = [] if Path("/run/harm/targetcli/prefs.bin").exists() else [_PREFERENCES]
    done = program(
        path, [], "\n".join([*first, *lines, "exit"]) + "\n",
        lambda: readers.enter(readers.NETNS) if Path("/run/netns", readers.NETNS).exists() else None,
    )  # fmt: skip
    wrong = [
        line
        for line in (done.out + done.err).splitlines()
        if ("rror" in line and "loglevel" not in line) or "ot a valid" in line or "No such path" in line
    ]
    if done.code or wrong:
        raise HostError(f"targetcli: exit {done.code}: {wrong or done.err[-300:]}\n" + "\n".join(lines))
    return done.out


def up(host: Host) -> None:
    """Make every target of `host`."""
    lines: list[str] = []
    for number, wish in enumerate(host.targets):
        store = _backstore(number, wish.backstore, lines)
        name = iqn(number)
        lines.append(f"/iscsi create {name}")
        for tag in range(1, wish.tpgs + 1):
            tpg = f"/iscsi/{name}/tpg{tag}"
            if tag > 1:
                lines.append(f"/iscsi/{name} create {tag}")
            portals = range(wish.portals) if wish.tpgs == 1 else [tag - 1]
            lines += [f"{tpg}/portals create ip_address={network.address(host, one)} ip_port=3260" for one in portals]
            lines.append(f"{tpg}/luns create {store} lun0")
            if wish.access == "demo":
                lines.append(
                    f"{tpg} set attribute generate_node_acls=1 cache_dynamic_acls=1 demo_mode_write_protect=0 "
                    "authentication=0"
                )
            else:
                lines.append(f"{tpg}/acls create {INITIATOR} false")
                lines.append(f"{tpg}/acls/{INITIATOR} create 0 {store}")
                lines.append(f"{tpg} set attribute authentication={int(wish.access == 'chap')} generate_node_acls=0")
            if wish.access == "chap":
                lines.append(f"{tpg}/acls/{INITIATOR} set auth userid={USER} password={PASSWORD}")
            if host.target_setting:
                key, value = host.target_setting.split()
                lines.append(f"{tpg} set parameter {key}={value}")
            lines.append(f"{tpg} enable")
    if host.saved:
        lines.append("saveconfig")
    targetcli(lines)


def _backstore(number: int, kind: str, lines: list[str]) -> str:
    """Add the commands that make backstore `number`; return its path."""
    if kind == "ramdisk":
        lines.append(f"/backstores/ramdisk create name=b{number} size={SIZE_MIB}M")
        return f"/backstores/ramdisk/b{number}"
    image = f"/run/harm/b{number}.img"
    with Path(image).open("wb") as stream:
        stream.truncate(SIZE_MIB << 20)
    if kind == "fileio":
        lines.append(f"/backstores/fileio create name=b{number} file_or_dev={image} write_back=false")
        return f"/backstores/fileio/b{number}"
    device = run("losetup", "--show", "-f", image).strip()
    lines.append(f"/backstores/block create name=b{number} dev={device}")
    return f"/backstores/block/b{number}"


def clear() -> None:
    """Remove every target and backstore from the kernel, by the library that targetcli stands on."""

    def action() -> None:
        from rtslib_fb import RTSRoot

        RTSRoot().clear_existing(confirm=True)

    done = python(action)
    if done.code:
        raise HostError(f"clearing the targets: exit {done.code}: {done.err[-300:]}")


def down() -> None:
    """Remove every target and backstore, and what they were made from."""
    clear()
    run("losetup", "-D", check=False)
    for image in Path("/run/harm").glob("b*.img"):
        image.unlink()
