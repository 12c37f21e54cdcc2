# SPDX-License-Identifier: GPL-2.0-or-later
"""Write caches that say something else than the truth."""

from collections.abc import Iterator

from fabtune.lint.rule import Case, Scene, case, rule


def _lies(scene: Scene, caches: bool) -> Iterator[Case]:
    """Yield the backstores that cache writes or do not, as `caches` says, and advertise the opposite."""
    for reading, advertised in scene.readings("lio.emulate_write_cache"):
        store = next((one for one in scene.facts.backstores if one.name == reading.device.label), None)
        if store is not None and store.writes_back is caches and advertised != caches:
            yield case(reading)


@rule(
    "write-cache-hidden",
    "danger",
    seen="the file is written through the page cache, and emulate_write_cache is 0",
    so="initiators never flush: a crash of this host loses writes they were told are safe",
    fix="set emulate_write_cache to 1, or make the backstore with write_back=false",
    example={"lio.emulate_write_cache": "0"},
)
def write_cache_hidden(scene: Scene) -> Iterator[Case]:
    """The cache must be advertised where there is one."""
    return _lies(scene, True)


@rule(
    "write-cache-claimed",
    "notice",
    seen="the file is written through, and emulate_write_cache is 1",
    so="initiators send flushes for nothing, a round trip each",
    fix="set emulate_write_cache to 0",
)
def write_cache_claimed(scene: Scene) -> Iterator[Case]:
    """The cache must not be advertised where there is none."""
    return _lies(scene, False)
