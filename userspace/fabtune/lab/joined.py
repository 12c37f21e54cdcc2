# SPDX-License-Identifier: GPL-2.0-or-later
"""The disks of several sessions as one device: paths to one LUN under dm-multipath, targets under md RAID-0."""

from pathlib import Path

from fabtune.host.run import run
from fabtune.host.targets.null_blk import LIMITED_REQUEST_BYTES
from fabtune.lab.disks import mapped

_PATHS, _STRIPES = "lab-paths", "md0"
# A limited disk's largest request goes to one member, whole: its pieces, joined with their neighbours' here and there,
# would not fill the ticks of the limit.
_CHUNK_KIB = LIMITED_REQUEST_BYTES // 1024
_SECTOR_BYTES = 512


def stripe(disks: list[str]) -> str:
    """Stripe `disks` and return the device's name."""
    run(["modprobe", "raid0"], what="loading raid0")
    members = [f"/dev/{disk}" for disk in disks]
    words = ["--level=0", f"--chunk={_CHUNK_KIB}", f"--raid-devices={len(disks)}", *members]
    run(["mdadm", "--build", f"/dev/{_STRIPES}", *words], what="building the stripe set")
    return _STRIPES


def multipath(disks: list[str]) -> str:
    """Join `disks`, paths to one LUN, by dm-multipath and return the device's name.

    The kernel's part alone: it chooses the path with the shortest queue, takes a failed one out and asks
    the others; nobody brings a path back, which is multipathd's part.
    """
    for module in ("dm_multipath", "dm_queue_length"):
        run(["modprobe", module], what=f"loading {module}")
    sectors = Path(f"/sys/block/{disks[0]}/size").read_text().strip()
    paths = " ".join(f"{Path(f'/sys/block/{disk}/dev').read_text().strip()} 1" for disk in disks)
    table = f"0 {sectors} multipath 1 queue_if_no_path 0 1 1 queue-length 0 {len(disks)} 1 {paths}"
    run(["dmsetup", "create", _PATHS, "--noudevsync", "--table", table], what="creating the multipath device")
    return mapped(_PATHS)


def paths_failed() -> int:
    """Return how many paths of the multipath device the kernel has given up."""
    words = run(["dmsetup", "status", _PATHS], what="asking for the paths").split()
    return words.count("F")


def moved_bytes(device: str) -> dict[str, int]:
    """Return what each disk below `device` has moved since it came, nothing for a disk that joins no others."""
    found = {}
    for slave in Path(f"/sys/block/{device}/slaves").glob("*"):
        words = (slave / "stat").read_text().split()
        # Documentation/block/stat.rst: read and write sectors.
        found[slave.name] = _SECTOR_BYTES * (int(words[2]) + int(words[6]))
    return found


def part() -> None:
    """Take either device apart where it is there; its disks are in use no longer."""
    if _PATHS in {path.read_text().strip() for path in Path("/sys/block").glob("dm-*/dm/name")}:
        run(["dmsetup", "remove", "--retry", _PATHS], what="removing the multipath device")
    if Path("/sys/block", _STRIPES, "md").is_dir():
        run(["mdadm", "--stop", f"/dev/{_STRIPES}"], what="stopping the stripe set")
