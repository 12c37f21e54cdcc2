# SPDX-License-Identifier: GPL-2.0-or-later
"""The few calls of libbpf that load a compiled object, keep it in the kernel by name, and reach its maps."""

import contextlib
import ctypes
import os
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from fabtune import packages
from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.host import detached, tree

_LIBRARY = "libbpf.so.1"
# kernfs counts its inodes from the real root, which a container does not see.
_ROOT_INODE = 1
_READ_BYTES = 1 << 16
_LINK_INFO, _LINK_INFO_BYTES = struct.Struct("=16xQ"), 128

_POINTERS = (
    "bpf_object__open_file", "bpf_object__find_map_by_name", "bpf_object__find_program_by_name",
    "bpf_program__attach", "bpf_program__attach_cgroup", "bpf_program__attach_iter",
)  # fmt: skip


@cache
def _libbpf() -> ctypes.CDLL:
    """Return the library.  Raises UnsupportedError without it."""
    try:
        library = ctypes.CDLL(_LIBRARY, use_errno=True)
    except OSError:
        name = packages.package_name(tree.ETC, _LIBRARY, "libbpf1")
        raise UnsupportedError(f"{_LIBRARY} is not installed{name and f' (package {name})'}") from None
    for name in _POINTERS:
        getattr(library, name).restype = ctypes.c_void_p
    # What it would print is for its developers; what failed is said here.
    library.libbpf_set_print(None)
    return library


def check_library() -> None:
    """Raise UnsupportedError without the library."""
    _libbpf()


def _call(what: str, name: str, *arguments: object) -> int:
    """Call a function of the library; return its result.  Raises UnsupportedError where the kernel refuses."""
    ctypes.set_errno(0)
    found: int | None = getattr(_libbpf(), name)(*arguments)
    failed = found is None if name in _POINTERS else found is not None and found < 0
    if failed:
        number = ctypes.get_errno() or -(found or 0)
        raise UnsupportedError(f"{what}: the kernel refuses: {os.strerror(number)}")
    return found or 0


class Loaded:
    """One object in the kernel, there as long as this process, or what it has pinned, is."""

    def __init__(
        self, path: Path, programs: Collection[str], maps: dict[str, Path], functions: Mapping[str, str] | None = None
    ) -> None:
        """Load the object `path` with `programs` alone; `maps` are taken from where they are pinned.

        `functions` says of programs which ``module:function`` each is of: libbpf from 1.5 on then does not look through
        all modules, which takes a tenth of a second a program.  Raises UnsupportedError.
        """
        what = f"loading {path.name}"
        self._links: list[ctypes.c_void_p] = []
        self._object = ctypes.c_void_p(_call(what, "bpf_object__open_file", os.fsencode(path), None))
        try:
            for program in self._programs():
                _call(what, "bpf_program__set_autoload", program, program_name(program) in programs)
            for name, pinned in maps.items():
                fd = _call(what, "bpf_obj_get", os.fsencode(pinned))
                with _closing(fd):
                    _call(what, "bpf_map__reuse_fd", self._map(name), fd)
            for name, function in (functions or {}).items():
                # A library that cannot do it says so and changes nothing.
                _libbpf().bpf_program__set_attach_target(self._program(name), 0, function.encode())
            _call(what, "bpf_object__load", self._object)
        except BaseException:
            self.close()
            raise

    def _programs(self) -> Iterator[ctypes.c_void_p]:
        following = _libbpf().bpf_object__next_program
        following.restype = ctypes.c_void_p
        place = following(self._object, None)
        while place:
            yield ctypes.c_void_p(place)
            place = following(self._object, ctypes.c_void_p(place))

    def _map(self, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(_call(f"map {name}", "bpf_object__find_map_by_name", self._object, name.encode()))

    def _program(self, name: str) -> ctypes.c_void_p:
        what = f"program {name}"
        return ctypes.c_void_p(_call(what, "bpf_object__find_program_by_name", self._object, name.encode()))

    def map_fd(self, name: str) -> int:
        """Return the descriptor of map `name`, closed with the object."""
        return _call(f"map {name}", "bpf_map__fd", self._map(name))

    def pin_map(self, name: str, path: Path) -> None:
        """Keep map `name` under `path`."""
        _call(f"pinning {path}", "bpf_map__pin", self._map(name), os.fsencode(path))

    def attach_to_root(self, name: str, path: Path) -> None:
        """Attach program `name` to the root of the control groups, beside whatever is there, kept under `path`."""
        with _root_of_cgroups() as cgroup:
            link = _call(f"attaching {name}", "bpf_program__attach_cgroup", self._program(name), cgroup)
        self._links.append(ctypes.c_void_p(link))
        _call(f"pinning {path}", "bpf_link__pin", self._links[-1], os.fsencode(path))

    def attach(self, name: str) -> None:
        """Attach program `name` where its section says, as long as the object is there."""
        link = _call(f"attaching {name}", "bpf_program__attach", self._program(name))
        self._links.append(ctypes.c_void_p(link))

    def iterate(self, name: str, within: Callable[[], contextlib.AbstractContextManager[None]]) -> bytes:
        """Run the iterator `name` once, opened in the namespace that `within` enters, and return what it wrote."""
        what = f"iterator {name}"
        link = ctypes.c_void_p(_call(what, "bpf_program__attach_iter", self._program(name), None))
        try:
            with within():
                fd = _call(what, "bpf_iter_create", _call(what, "bpf_link__fd", link))
            with _closing(fd):
                parts = []
                while part := os.read(fd, _READ_BYTES):
                    parts.append(part)
                return b"".join(parts)
        except OSError as error:
            raise FabtuneError(f"{what}: {error.strerror}") from error
        finally:
            _libbpf().bpf_link__destroy(link)

    def close(self) -> None:
        """Let go of the object; what is pinned stays."""
        for link in self._links:
            _libbpf().bpf_link__destroy(link)
        _libbpf().bpf_object__close(self._object)


def program_name(program: ctypes.c_void_p) -> str:
    """Return what a program of an object is called."""
    name = _libbpf().bpf_program__name
    name.restype = ctypes.c_char_p
    return bytes(name(program)).decode()


@contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _root_of_cgroups() -> Iterator[int]:
    """Yield a descriptor of the root of cgroup v2, mounted for nobody to see.  Raises UnsupportedError."""
    try:
        root = detached.mount_unseen("cgroup2")
    except OSError as error:
        raise UnsupportedError(f"cgroup v2: {error.strerror}") from None
    with _closing(root):
        if os.fstat(root).st_ino != _ROOT_INODE:
            raise UnsupportedError("cgroup v2: its root is not to be seen from this container")
        yield root


def attached(path: Path) -> bool:
    """Tell whether the link that is kept under `path` still is attached; anybody may detach it by its number."""
    fd = _call(str(path), "bpf_obj_get", os.fsencode(path))
    info, size = ctypes.create_string_buffer(_LINK_INFO_BYTES), ctypes.c_uint32(_LINK_INFO_BYTES)
    with _closing(fd):
        _call(str(path), "bpf_obj_get_info_by_fd", fd, info, ctypes.byref(size))
    # struct bpf_link_info of a control group's link: type, id, prog_id, cgroup_id, attach_type.
    return bool(_LINK_INFO.unpack_from(info.raw)[0])


class PinnedMap:
    """A map that is kept under a path; keys and values are bytes."""

    def __init__(self, path: Path, value_bytes: int) -> None:
        """Open it.  Raises OSError, UnsupportedError without the library."""
        ctypes.set_errno(0)
        self._fd: int = _libbpf().bpf_obj_get(os.fsencode(path))
        if self._fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
        self._bytes, self._what = value_bytes, str(path)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None without one."""
        return look_up(self._fd, key, self._bytes)

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of `key`."""
        update(self._fd, key, value, self._what)

    def remove(self, key: bytes) -> None:
        """Remove `key`, if it is there."""
        _libbpf().bpf_map_delete_elem(self._fd, key)

    def empty(self, key_bytes: int) -> bool:
        """Tell whether there is no key at all."""
        return bool(_libbpf().bpf_map_get_next_key(self._fd, None, ctypes.create_string_buffer(key_bytes)) < 0)

    def close(self) -> None:
        """Let go of it."""
        os.close(self._fd)


def look_up(fd: int, key: bytes, value_bytes: int) -> bytes | None:
    """Return the value of `key` in the map `fd`, None without one."""
    value = ctypes.create_string_buffer(value_bytes)
    return None if _libbpf().bpf_map_lookup_elem(fd, key, value) < 0 else value.raw


def update(fd: int, key: bytes, value: bytes, what: str) -> None:
    """Set the value of `key` in the map `fd`.  Raises UnsupportedError."""
    _call(what, "bpf_map_update_elem", fd, key, value, ctypes.c_uint64(0))
