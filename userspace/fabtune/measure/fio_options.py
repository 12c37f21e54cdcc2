# SPDX-License-Identifier: GPL-2.0-or-later
"""What a workload may ask of fio: to shape the load, at the place that was given, and nothing else.

fio runs as root, and workloads are files that people give each other.  fio can run programs (exec_prerun, the engine
exec), load code (ioengine=external:FILE), and read and write any file; a line break in a value adds options.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import PurePath

from fabtune.errors import InputError
from fabtune.model.typed import describe, suggestion

Value = int | float | str
Options = dict[str, Value]

ENGINES = (
    "filecreate", "filedelete", "filestat", "io_uring", "libaio", "mmap", "posixaio", "psync", "pvsync", "pvsync2",
    "sync", "vsync",
)  # fmt: skip
_PLACES = ("directory", "filename", "filename_format")
_COUNTS = ("iodepth", "numjobs")
# fio's words for sizes, order, depth, rate, checking and data; none of them names a program, a library or a file.
_SHAPES = """
    allow_file_create allrandrepeat atomic blockalign bs bs_unaligned bsrange bssplit buffer_compress_chunk
    buffer_compress_percentage buffered clocksource continue_on_error cpus_allowed cpus_allowed_policy
    create_fsync create_on_open create_only create_serialize dedupe_percentage direct do_verify end_fsync exit_what
    exitall exitall_on_error fadvise_hint fallocate fdatasync file_append file_service_type filesize fill_device
    fixedbufs flow flow_id flow_sleep fsync fsync_on_close gtod_reduce hipri ignore_error invalidate io_size
    io_submit_mode iodepth_batch iodepth_batch_complete_max iodepth_batch_complete_min iodepth_low latency_percentile
    latency_run latency_target latency_window loops max_latency norandommap nrfiles numa_cpu_nodes numa_mem_policy
    number_ios offset offset_align offset_increment openfiles overwrite percentage_random pre_read random_distribution
    random_generator randrepeat randseed rate rate_cycle rate_ignore_thinktime rate_iops rate_iops_min rate_min
    rate_process refill_buffers registerfiles runtime rw rw_sequencer rwmixread rwmixwrite scramble_buffers
    serialize_overlap size sqthread_poll startdelay stonewall sync sync_file_range thinktime thinktime_blocks
    thinktime_blocks_type thinktime_iotime thinktime_spin thread time_based trim_backlog trim_backlog_batch
    trim_percentage trim_verify_zero unlink unlink_each_loop userspace_reap verify verify_async verify_backlog
    verify_backlog_batch verify_fatal verify_interval verify_offset verify_only write_barrier
    write_hint zero_buffers
"""
_KNOWN = {*_SHAPES.split(), "ioengine", *_PLACES, *_COUNTS}
_FILLED = re.compile(r"\$\{(\w+)\}")
_SECTION = re.compile(r"(?!global$)[\w .,+-]+")


def _wrong(where: str, value: object, allowed: str) -> InputError:
    return InputError(f"{where}: found {describe(value)}, allowed: {allowed}")


def check_section(name: str, where: str) -> None:
    """Raise InputError, which begins with `where`, unless `name` can stand in brackets, for one section of jobs."""
    if not _SECTION.fullmatch(name):
        raise InputError(
            f"{where}: found the section {name!r}, allowed: letters, digits and the signs . , + - _, but not 'global'"
        )


def check_text(value: Value, where: str) -> None:
    """Raise InputError, which begins with `where`, if `value` is text that is not one line."""
    if isinstance(value, str) and not value.isprintable():
        raise _wrong(where, value, "one line of printable text")


def check_template(value: Value, known: Collection[str], where: str) -> None:
    """Raise InputError, which begins with `where`, if `value` has a ``${NAME}`` that is not one of `known`."""
    check_text(value, where)
    if not isinstance(value, str):
        return
    if "${" in _FILLED.sub("", value) or not set(_FILLED.findall(value)) <= set(known):
        raise _wrong(where, value, f"${{NAME}} with NAME one of {', '.join(known)}")


def check_options(options: Options, parameters: Mapping[str, Value], places: Collection[str], where: str) -> None:
    """Raise InputError, which begins with `where` and the key, for what a workload may not ask.

    `parameters` has a value of each parameter, `places` the other names that are filled in.
    """
    for key, value in options.items():
        at = f"{where}.{key}'"
        if key not in _KNOWN:
            raise InputError(
                f"{at}: no option of fio that a workload may set{suggestion(key, _KNOWN)}; "
                "allowed are those that shape the load (see measure/fio_options.py)"
            )
        check_template(value, [*parameters, *places], at)
        if key == "ioengine" and value not in ENGINES:
            raise _wrong(at, value, ", ".join(ENGINES))
        if key in _PLACES and not all(_is_inside(part, parameters) for part in str(value).split(":")):
            raise _wrong(at, value, "names in ${directory}, or ${file}, with no text parameter in them")
        if key in _COUNTS and not _is_count(value, parameters):
            raise _wrong(at, value, "an integer of at least 1, or ${NAME} with NAME a parameter that has integers")


def _is_inside(place: str, parameters: Mapping[str, Value]) -> bool:
    """Tell whether `place` can only be the given file, or something in the given directory."""
    names = _FILLED.findall(place)
    if any(isinstance(parameters.get(name), str) for name in names):
        return False
    if "file" in names or "own_directories" in names or "file_list" in names:
        return _FILLED.fullmatch(place) is not None
    path = PurePath(place.removeprefix("${directory}/"))
    return not path.is_absolute() and ".." not in path.parts and "${directory}" not in path.parts[1:]


def _is_count(value: Value, parameters: Mapping[str, Value]) -> bool:
    name = _FILLED.fullmatch(value) if isinstance(value, str) else None
    found = parameters.get(name[1]) if name else value
    return type(found) is int and found >= 1
