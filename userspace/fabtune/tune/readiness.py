# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether this host is ready for fabtune: Python, programs, the module, rights and the state directory.

Nothing is changed, loaded or created.
"""

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from fabtune import __version__, needs, packages
from fabtune.errors import ExitCode, FabtuneError
from fabtune.host import iscsiadm, mounts, systemd, targets, tree
from fabtune.host.programs import PROGRAMS, Program
from fabtune.installed import data_dir
from fabtune.stat import loadable
from fabtune.stat.snapshot import DIRECTORY
from fabtune.tune import journal

READY, OPTIONAL, TO_DO, WRONG, UNKNOWN = "ready", "optional", "to do", "wrong", "cannot tell"
# What makes a host a target, where no kind of target says it better.
_TARGETCLI = ("targetcli", "targetcli-fb")
# What one state makes of the whole, the worst first.
_EXIT_CODES = {WRONG: ExitCode.FAILED, TO_DO: ExitCode.NEEDS_ACTION, UNKNOWN: ExitCode.CANNOT_TELL}


@dataclass(frozen=True)
class Readiness:
    """One thing that was looked at: `found` says what is there, `fix` what to do, `verbs` who needs it."""

    name: str
    state: str
    found: str
    fix: str = ""
    verbs: tuple[str, ...] = ()


def exit_code(checks: list[Readiness]) -> ExitCode:
    """Return 0 for a host that can be tuned and watched; what is optional does not count."""
    states = {check.state for check in checks}
    return next((code for state, code in _EXIT_CODES.items() if state in states), ExitCode.DONE)


def examine() -> list[Readiness]:
    """Return every check of this host."""
    return [*_python(), *_data(), *_rights(), _state_directory(), *_late_state(), *_module(), *_ends(), *_programs()]


def _python() -> Iterator[Readiness]:
    # A Python that lacks one of them has been told so before anything else ran.
    yield Readiness("Python", READY, f"{platform.python_version()} ({sys.executable})")
    yield Readiness("Python modules", READY, ", ".join(needs.MODULES))


def _data() -> Iterator[Readiness]:
    try:
        place = data_dir("tunables")
        data_dir("profiles")
    except FabtuneError as error:
        yield Readiness("fabtune", WRONG, str(error), "install fabtune anew")
    else:
        yield Readiness("fabtune", READY, f"{__version__} in {place.parent}")


def _rights() -> Iterator[Readiness]:
    if os.geteuid() == 0:
        yield Readiness("rights", READY, "root")
    else:
        yield Readiness(
            "rights", UNKNOWN, f"user {os.geteuid()}, who may not read all that fabtune does", "run it as root"
        )


def _state_directory() -> Readiness:
    directory = journal.state_dir()
    name = "state directory"
    try:
        journal.refuse_others()
        found = journal.transactions()
    except (FabtuneError, OSError) as error:
        if isinstance(error, PermissionError):
            return Readiness(name, UNKNOWN, f"{directory}: {error.strerror}", "run it as root")
        return Readiness(name, WRONG, str(error), f"ls -ld {directory} {directory}/journal shows who may write there")
    above = next(path for path in (directory, *directory.parents) if path.exists())
    if not os.access(above, os.W_OK):
        if os.geteuid():
            return Readiness(name, UNKNOWN, f"{directory}: user {os.geteuid()} may not write there", "run it as root")
        return Readiness(name, WRONG, f"{above} takes no writes, so that nothing could be applied",
                     "mount it writable, or set FABTUNE_STATE_DIR")  # fmt: skip
    if not directory.exists():
        return Readiness(name, READY, f"{directory}: made by the first apply")
    return Readiness(name, READY, f"{directory}: {len(found)} transactions")


def _late_state() -> Iterator[Readiness]:
    """Tell where a boot has the state directory only when sessions have logged in."""
    directory = journal.state_dir().resolve()
    try:
        places = mounts.below(str(directory), mounts.seen_by(tree.PROC / "self")) if systemd.manages_host() else []
        late = [(place, unit) for place in places if (unit := systemd.late(systemd.mount_unit(place)[1]))]
    except FabtuneError:
        # As in a container, whose mounts are not systemd's.
        return
    for place, unit in late:
        found = (
            f"{directory} lies on {place}, which a boot mounts after {unit}: what was applied is written again only "
            "then, after sessions have logged in, and --confirm-within is refused"
        )
        fix = f"mount a local disk, without _netdev, at {directory}"
        yield Readiness("state directory at a boot", TO_DO, found, fix, ("apply",))


def _module() -> Iterator[Readiness]:
    module = loadable.look()
    obstacle = module.obstacle
    name, verbs = "module fabstat", ("stat", "stuck")
    if module.loaded == __version__:
        yield Readiness(name, READY, f"{module.loaded} is loaded")
    elif module.loaded:
        yield Readiness(name, TO_DO, f"{module.loaded} is loaded, and this is fabtune {__version__}",
                    "modprobe -r fabstat && modprobe fabstat", verbs)  # fmt: skip
    elif obstacle:
        yield Readiness(name, TO_DO, *obstacle, verbs)
    elif module.demanded_by and not module.key:
        what = f"{module.file} is signed by '{module.signer}', and {module.demanded_by} asks for a trusted key"
        fix = _program("mokutil").remedy
        yield Readiness(name, UNKNOWN, f"{what}: whether this one is, is not known", fix, verbs)
    else:
        yield Readiness(
            name, TO_DO, f"{module.built} is built for {module.kernel} and not loaded", "modprobe fabstat", verbs
        )
    # One that is loaded need not be one that the next boot could load.
    if module.loaded and obstacle:
        yield Readiness("module fabstat at the next boot", TO_DO, *obstacle, verbs)
    lock = loadable.lockdown()
    yield Readiness("Secure Boot", READY, f"{'on' if loadable.secure_boot() else 'off'}, lockdown {lock or 'unknown'}")
    if module.loaded and os.geteuid() == 0:
        there = (tree.ROOT / DIRECTORY.relative_to("/")).is_dir()
        yield Readiness("debugfs", READY if there else TO_DO, f"{DIRECTORY} is {'there' if there else 'missing'}",
                    "" if there else "mount -t debugfs debugfs /sys/kernel/debug", () if there else verbs)  # fmt: skip


def _ends() -> Iterator[Readiness]:
    """Tell which end of a fabric this host can be."""
    try:
        version = iscsiadm.iscsiadm("--version").strip()
    except FabtuneError as error:
        program = _program("iscsiadm")
        initiator = Readiness("initiator", OPTIONAL, str(error), program.remedy, program.verbs)
    else:
        initiator = Readiness("initiator", READY, version or "iscsiadm is there")
    if any(_serves(kind) for kind in targets.kinds()):
        target = Readiness("target", READY, "serves portal groups")
    else:
        lacks = [one.lacking() for one in targets.kinds()]
        told = next((found for found in lacks if found), ("no target", packages.remedy(tree.ETC, _TARGETCLI)))
        target = Readiness("target", OPTIONAL, *told)
    if initiator.state == target.state == OPTIONAL:
        yield Readiness("initiator", TO_DO, f"{initiator.found}, and this host is no target either", initiator.fix,
                    initiator.verbs)  # fmt: skip
    else:
        yield initiator
    yield target


def _serves(kind: targets.Kind) -> bool:
    try:
        return bool(kind.tpgs())
    except FabtuneError:
        # lacking() says what is wrong.
        return False


def _program(name: str) -> Program:
    return next(one for one in PROGRAMS if one.name == name)


def _programs() -> Iterator[Readiness]:
    # Which end this host is has been told, and what knows the signing key is of use with Secure Boot alone.
    told = ("iscsiadm", "mokutil")
    # Without a device-mapper there is nothing that these two could be asked about.
    maps = (tree.SYS / "class/misc/device-mapper").exists() or (tree.ROOT / "dev/mapper/control").exists()
    for one in (one for one in PROGRAMS if one.name not in told):
        needed = one.tunes and (maps or one.package not in ("multipath-tools", "dmsetup"))
        if one.path:
            yield Readiness(one.name, READY, one.path)
        else:
            yield Readiness(one.name, TO_DO if needed else OPTIONAL, f"not installed: {one.purpose}",
                        one.remedy, one.verbs)  # fmt: skip
