# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of --persist that an initramfs was packed with: taken back in /etc, they set their values from there.

A kernel's upgrade makes an initramfs with whatever /etc has by then.
"""

import calendar
import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from fabtune import backends
from fabtune.errors import FabtuneError
from fabtune.facts.early_boot import Initramfs, every_initramfs
from fabtune.host import tree
from fabtune.tune.pending import INITRAMFS, Pending
from fabtune.tune.transaction import Step, Transaction

_TIME = "%Y-%m-%dT%H:%M:%SZ"


def still_packed(taken_back: Iterable[Transaction], everything: Sequence[Transaction], boot_id: str) -> list[Pending]:
    """Return each initramfs that was made while a file was there that has gone, or changed, with `taken_back`.

    `everything` is the journal, oldest first.
    """
    images = list(every_initramfs())
    files: dict[Initramfs, dict[str, None]] = {}
    for transaction in taken_back if images else ():
        for step in transaction.steps:
            if not (step.restored and _is_file(step)) or _is_there(step):
                continue
            since_s, until_s = _since_s(step, transaction, everything), _changed_s(step)
            for image in images:
                if image.may_hold(step.key) and since_s <= image.made_s <= until_s:
                    files.setdefault(image, {})[f"/{step.key}"] = None
    return [
        Pending(
            INITRAMFS, image.path, image.path, "", boot_id,
            f"made since {' and '.join(names)} was written; {image.remedy} makes it anew",
        )
        for image, names in files.items()
    ]  # fmt: skip


def _is_file(step: Step) -> bool:
    return step.backend in ("textfile", "link") and not (step.empty or step.key.endswith("/"))


def _is_there(step: Step) -> bool:
    """Tell whether the file has all that `step` wanted of it: another profile wants it as well."""
    return _has_all(step, _text(step))


def _text(step: Step) -> str:
    try:
        return backends.get(step.backend).read(step.device, step.key)
    except FabtuneError:
        # What is no plain file any more may still lead to one.
        return _on_disk(step)


def _on_disk(step: Step) -> str:
    return tree.read_text(tree.ROOT / step.key) or ""


def _has_all(step: Step, text: str) -> bool:
    return set((step.share or step.holds or step.wrote).splitlines()) <= set(text.splitlines())


def _since_s(step: Step, transaction: Transaction, everything: Sequence[Transaction]) -> float:
    """Return since when the file of `step` has been there: an earlier transaction may have handed it on."""
    since_s = _begun_s(transaction)
    for one in reversed(everything):
        if one.name < transaction.name and any(other.value == step.value for other in one.steps):
            if _ended_s(one) < since_s:
                break
            since_s = min(since_s, _begun_s(one))
    return since_s


def _begun_s(transaction: Transaction) -> float:
    try:
        return calendar.timegm(time.strptime(transaction.header.time or "", _TIME))
    except ValueError:
        # At any time.
        return -math.inf


def _ended_s(transaction: Transaction) -> float:
    try:
        return transaction.path.stat().st_mtime if transaction.closed else math.inf
    except OSError:
        return math.inf


def _changed_s(step: Step) -> float:
    """Return when the file of `step` went or changed, at the latest: that is a change of its directory."""
    if _has_all(step, _on_disk(step)):
        # It is only going to.
        return math.inf
    for place in Path(step.key).parents:
        try:
            return (tree.ROOT / place).stat().st_mtime
        except OSError:
            continue
    return math.inf
