#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs fabtune-stuck.drgn.py on a live kernel and on a dump of one that crashed with a request under way.

    crash_dump.py OUT

The guest runs Debian's kernel; its debugging symbols (a package of 1 GB) are fetched once and kept in the lab's cache.
"""

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "userspace"))

from fabtune.errors import FabtuneError  # noqa: E402
from fabtune.host.run import require, run  # noqa: E402
from fabtune.lab import initramfs  # noqa: E402
from fabtune.lab.cache import cache_dir, locked, making  # noqa: E402
from fabtune.lab.image import Image, find_image, in_root  # noqa: E402
from fabtune.lab.qemu_words import in_option  # noqa: E402
from fabtune.lab.vm import Machine, run_guest  # noqa: E402

SUITE = "trixie+ops"
SCRIPT = TOP / "userspace/support/fabtune-stuck.drgn.py"
STUCK_S = 5


def symbols(image: Image) -> Path:
    """Return a squashfs with the kernel's symbols as `vmlinux`, made when the cache has none."""
    release = image.kernel_release
    target = cache_dir() / f"vmlinux-{release}"
    with locked("vmlinux"):
        if not target.exists():
            with making(target) as draft, tempfile.TemporaryDirectory(dir=image.root / "tmp") as name:
                inside = f"/tmp/{Path(name).name}"
                in_root(image.root, ["apt-get", "-q", "update"], what="apt-get update")
                get = f"cd {inside} && chmod 777 . && apt-get -q download linux-image-{release}-dbg"
                in_root(image.root, ["sh", "-c", get], what="fetching the kernel's symbols")
                (deb,) = Path(name).glob("*.deb")
                member = f"./usr/lib/debug/boot/vmlinux-{release}"
                unpack = f"dpkg-deb --fsys-tarfile {deb} | tar --extract --to-stdout {member} > {draft}/vmlinux"
                run(["sh", "-c", unpack], what="unpacking the kernel's symbols")
                run(["mksquashfs", draft / "vmlinux", draft / "vmlinux.squashfs", "-noD", "-no-progress", "-quiet"],
                    what="packing the kernel's symbols")  # fmt: skip
    return target


def job(target: Path) -> None:
    """Write the initramfs with what the guest runs."""
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        stage = Path(name) / "job"
        stage.mkdir()
        here = Path(__file__).parent
        for source, file in (
            (initramfs.GUEST_DIR / "job-init", "init"), (here / "crash_guest.sh", "run"), (SCRIPT, SCRIPT.name),
        ):  # fmt: skip
            (stage / file).write_bytes(source.read_bytes())
            (stage / file).chmod(0o755)
        (stage / "arguments").touch()
        initramfs.pack(Path(name), target)


def dump_when_it_stops(server: socket.socket, vmcore: Path) -> None:
    """Wait until the guest has crashed, write its memory, and end it."""
    connection, _ = server.accept()
    with connection, connection.makefile("rw") as lines:

        def say(command: str, **arguments: object) -> None:
            lines.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
            lines.flush()
            while "return" not in (answer := json.loads(lines.readline())):
                if "error" in answer:
                    raise FabtuneError(f"QEMU: {command}: {answer['error']['desc']}")

        lines.readline()
        say("qmp_capabilities")
        for line in lines:
            if json.loads(line).get("event") in ("STOP", "SHUTDOWN"):
                break
        say("dump-guest-memory", paging=False, protocol=f"file:{vmcore}")
        say("quit")


def main() -> int:
    """Return 0 when both name the request."""
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    image = find_image(SUITE)
    if image is None:
        raise SystemExit(f"fabtune lab build --suite {SUITE}")
    vmlinux = symbols(image)
    with tempfile.TemporaryDirectory(prefix="crash-dump-") as name:
        work = Path(name)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(work / "qmp"))
            server.listen()
            vmcore = work / "vmcore"
            waiting = threading.Thread(target=dump_when_it_stops, args=(server, vmcore), daemon=True)
            waiting.start()
            devices = (
                "-device vmcoreinfo", f"-qmp unix:{in_option(work / 'qmp')}",
                "-action reboot=shutdown,shutdown=pause,panic=pause",
                f"-drive file={in_option(vmlinux / 'vmlinux.squashfs')},if=none,id=symbols,readonly=on,format=raw",
                "-device virtio-blk-pci,drive=symbols",
            )  # fmt: skip
            machine = Machine(image, clock="real", smp=2, memory_mib=2048, devices=devices)
            job(work / "job.cpio")
            # It crashes: no result comes from it.
            with contextlib.suppress(FabtuneError):
                run_guest(machine, work / "job.cpio", out, timeout_s=1500, on_output=print)
            waiting.join(60)
        live = (out / "output.log").read_text()
        # The guest's own drgn reads the dump too.
        mounts = f"mount --bind {work} {image.root}/mnt && mount --bind {vmlinux} {image.root}/media"
        drgn = f"chroot {image.root} drgn -q -c /mnt/vmcore -s /media/vmlinux /mnt/script {STUCK_S}"
        (work / "script").write_bytes(SCRIPT.read_bytes())
        shell = f"{mounts} && {drgn}"
        done = subprocess.run([require("unshare", "util-linux"), "--mount", "sh", "-c", shell],
                              capture_output=True, text=True, check=False)  # fmt: skip
        print("from the dump:", done.stdout + done.stderr)
    right = [text for text in (live, done.stdout) if "sda" in text and "8192 bytes  in flight" in text]
    print(f"the stuck request is named in {len(right)} of 2")
    return 0 if len(right) == 2 else 1


if __name__ == "__main__":
    sys.exit(main())
