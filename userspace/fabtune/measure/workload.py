# SPDX-License-Identifier: GPL-2.0-or-later
"""Workloads as data: fio job templates with what they stand for, read from TOML and expanded to steps."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import attrs

from fabtune.errors import InputError
from fabtune.host import userfile
from fabtune.model.units import parse_bytes

SHIPPED = Path(__file__).resolve().parent / "workloads"

Value = int | float | str
Options = dict[str, Value]

_MAX_BYTES = 128 << 10
_TARGETS = ("any", "device", "directory")
_STEP_KEYS = {"name", "cache", "options", "jobs", "per_process", "flip_byte_at", "must_fail"}
_KEYS = {
    "summary", "source", "description", "target", "parameters", "options", "steps", "time", "space", "stuck_after_s",
}  # fmt: skip


@attrs.frozen
class StepTemplate:
    """One fio invocation before its parameters are filled in.

    `jobs` maps section names to options; `per_process` makes one section a process instead,
    with ``${process}`` and ``${neighbour}`` filled in.  `must_fail` names the kind of failure
    (``verify``) without which the step has not passed.
    """

    name: str
    jobs: dict[str, Options]
    per_process: Options | None
    cache: str | None
    flip_byte_at: int | None
    must_fail: str | None


@attrs.frozen
class Workload:
    """A template of one or more steps and the parameters over which they repeat."""

    name: str
    text: str
    summary: str
    source: str
    description: str
    target: str
    parameters: dict[str, list[Value]]
    options: Options
    steps: tuple[StepTemplate, ...]
    runtime_s: float | None
    ramp_s: float
    space: tuple[str, ...]
    stuck_after_s: float | None

    def with_parameters(self, settings: Sequence[str]) -> "Workload":
        """Return the workload with ``NAME=VALUE[,VALUE...]`` in place of its own lists.

        Raises InputError for an unknown name or a value of the wrong kind.
        """
        parameters = dict(self.parameters)
        for setting in settings:
            name, equals, values = setting.partition("=")
            if not equals or name not in parameters:
                known = ", ".join(f"{key}={_join(value)}" for key, value in self.parameters.items())
                raise InputError(f"--set {setting}: workload '{self.name}' has the parameters {known}")
            parameters[name] = [_parse_like(parameters[name][0], word, name) for word in values.split(",")]
        return attrs.evolve(self, parameters=parameters)

    def combinations(self) -> Iterator[dict[str, Value]]:
        """Yield every combination of the parameters' values, the last parameter varying first."""
        names = list(self.parameters)
        for values in itertools.product(*self.parameters.values()):
            yield dict(zip(names, values, strict=True))


@attrs.frozen
class Step:
    """One fio invocation with everything filled in; `jobs` maps section names to options.

    `phase` is what it is called whatever its parameters: the template of its name.
    """

    name: str
    phase: str
    parameters: dict[str, Value]
    jobs: dict[str, Options]
    cache: str | None
    flip_byte_at: int | None
    must_fail: str | None

    @property
    def writes(self) -> bool:
        """Whether any job changes what is stored; verify_only changes nothing."""
        return any(
            str(job.get("rw", "read")) not in ("read", "randread") and not job.get("verify_only")
            for job in self.jobs.values()
        )

    @property
    def depth(self) -> int:
        """Requests that the jobs keep outstanding together."""
        return sum(
            int(job.get("numjobs", 1)) * (1 if job.get("ioengine") == "psync" else int(job.get("iodepth", 1)))
            for job in self.jobs.values()
        )

    @property
    def closed_loop(self) -> bool:
        """Whether the depth is always kept full: no rate limit, no think time, not a check."""
        return not any({"rate", "rate_iops", "thinktime", "verify"} & job.keys() for job in self.jobs.values())

    def job_file(self) -> str:
        """Return the fio job file."""
        lines = []
        for name, options in self.jobs.items():
            lines.append(f"[{name}]")
            lines += [f"{key}={value}" for key, value in options.items()]
        return "\n".join(lines) + "\n"


@attrs.frozen
class Place:
    """Where a step runs: what the built-in names ``${file}``, ``${directory}``, ... stand for.

    `size_bytes` is the size of the device, or None where a file is laid out as large as asked for.
    """

    file: Path
    directory: Path
    size_bytes: int | None = None


def names() -> list[str]:
    """Return the names of the shipped workloads."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load(name: str) -> Workload:
    """Return the shipped workload `name`, or the one in a file when `name` holds a slash.

    Raises InputError for an unknown name or a faulty file, with the key.
    """
    path = Path(name) if "/" in name else SHIPPED / f"{name}.toml"
    if not path.exists():
        raise InputError(f"no workload '{name}': known are {', '.join(names())}, or give the path of a file")
    return parse(userfile.read_text(path, _MAX_BYTES), path)


def parse(text: str, path: Path) -> Workload:
    """Return the workload that `text` describes.  Raises InputError naming `path` and the key."""
    data = userfile.parse_toml(text, path)
    read = _Reader(path)
    read.only(data, _KEYS, "")
    target = read.take(data, "target", str)
    if target not in _TARGETS:
        raise InputError(f"{path}: target is '{target}', expected one of {', '.join(_TARGETS)}")
    parameters = read.take(data, "parameters", dict, {})
    for name, values in parameters.items():
        if not isinstance(values, list) or not values or len({type(value) for value in values}) != 1:
            raise InputError(f"{path}: parameters.{name}: expected a list of one or more values of one type")
    time = read.take(data, "time", dict, {})
    read.only(time, {"runtime_s", "ramp_s"}, "time.")
    options = read.take(data, "options", dict, {})
    steps = read.take(data, "steps", list)
    if not steps:
        raise InputError(f"{path}: no [[steps]]: a workload needs at least one")
    space = tuple(read.take(data, "space", list, []))
    for name in space:
        if name not in parameters:
            raise InputError(f"{path}: space names '{name}', which is not a parameter")
    return Workload(
        name=path.stem,
        text=text,
        summary=read.take(data, "summary", str),
        source=read.take(data, "source", str),
        description=read.take(data, "description", str).strip(),
        target=target,
        parameters=parameters,
        options=options,
        steps=tuple(_step(read, step, f"steps[{index}].", path.stem) for index, step in enumerate(steps)),
        runtime_s=read.take(time, "runtime_s", (int, float), None),
        ramp_s=read.take(time, "ramp_s", (int, float), 0),
        space=space,
        stuck_after_s=read.take(data, "stuck_after_s", (int, float), None),
    )


def expand(workload: Workload, place: Place, *, runtime_s: float | None, ramp_s: float) -> list[Step]:
    """Return the steps of `workload` at `place`, one for each template and parameter combination.

    With `runtime_s` every step runs that long after `ramp_s`; without, until its data is moved.
    Raises InputError when a template names what does not exist.
    """
    timing: Options = {}
    if runtime_s:
        timing = {"time_based": 1, "runtime": f"{runtime_s * 1000:.0f}ms", "ramp_time": f"{ramp_s * 1000:.0f}ms"}
    steps = []
    several = [name for name, values in workload.parameters.items() if len(values) > 1]
    for parameters in workload.combinations():
        names = parameters | _places(workload, parameters, place)
        for template in workload.steps:
            filler = _Filler(workload.name, names)
            jobs = template.jobs
            if template.per_process is not None:
                jobs = {}
                for index in range(int(parameters["processes"])):
                    around = {"process": index, "neighbour": (index + 1) % int(parameters["processes"])}
                    jobs[f"process{index}"] = _Filler(workload.name, names | around).fill(template.per_process)
            filled = {name: filler.fill(workload.options | options) | timing for name, options in jobs.items()}
            if not workload.options.get("ioengine") and not any(job.get("ioengine") for job in filled.values()):
                raise InputError(f"workload '{workload.name}': no ioengine is set")
            steps.append(
                Step(
                    name=_step_name(workload.name, template.name, parameters, several),
                    phase=template.name,
                    parameters=parameters,
                    jobs=filled,
                    cache=template.cache,
                    flip_byte_at=template.flip_byte_at,
                    must_fail=template.must_fail,
                )
            )
    return steps


def _step_name(workload: str, template: str, parameters: Mapping[str, Value], several: Sequence[str]) -> str:
    """Return the name of one step, with those of `several` parameters in it that the template leaves out."""
    said = {name: said_value(name, value) for name, value in parameters.items()}
    missing = [f"{name} {said[name]}" for name in several if f"${{{name}}}" not in template]
    return ", ".join([str(_Filler(workload, said).text(template)), *missing])


def said_value(name: str, value: Value) -> Value:
    """Return a parameter's value as a reader wants it: sizes in binary units where they are whole, rates in MB/s."""
    if name.endswith("_bytes_per_s"):
        return f"{float(value) / 1e6:g} MB/s"
    if not name.endswith("_bytes"):
        return value
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if int(value) >= size and int(value) % size == 0:
            return f"{int(value) // size} {unit}"
    return f"{value} bytes"


def space_bytes(workload: Workload, parameters: Mapping[str, Value]) -> int:
    """Return the bytes of files that a directory must have room for."""
    total = 1
    for name in workload.space:
        total *= int(parameters[name])
    return total if workload.space else 0


def _places(workload: Workload, parameters: Mapping[str, Value], place: Place) -> dict[str, Value]:
    """Return the built-in names of a template."""
    wanted = int(parameters.get("total_bytes", 2**30))
    size = min(wanted, place.size_bytes) if place.size_bytes else wanted
    processes = int(parameters.get("processes", 1))
    # Slices start on a whole MiB, so that every process is aligned alike.
    block = max(2**20, int(parameters.get("block_bytes", 1)))
    own = [f"{place.directory}/own{index}" for index in range(processes)]
    return {
        "file": str(place.file),
        "directory": str(place.directory),
        "own_directories": ":".join(own),
        # Named one by one: of jobs that make the same names with filename_format, fio lets only the first have them.
        "file_list": ":".join(f"data.{index}" for index in range(int(parameters.get("files", 0)))),
        "size_bytes": size,
        "slice_bytes": max(block, size // processes // block * block),
        "space_bytes": space_bytes(workload, parameters),
    }


class _Filler:
    """Fills ``${name}`` in, keeping fio's own ``$jobnum`` and ``$filenum``."""

    def __init__(self, workload: str, names: Mapping[str, Value]) -> None:
        self._workload = workload
        self._names = names

    def text(self, value: Value) -> Value:
        if not isinstance(value, str):
            return value
        filled = Template(value).safe_substitute({name: str(known) for name, known in self._names.items()})
        unknown = re.search(r"\$\{(\w+)\}", filled)
        if unknown:
            raise InputError(
                f"workload '{self._workload}': '{value}' names {unknown[1]}; known are {', '.join(self._names)}"
            )
        return filled

    def fill(self, options: Options) -> Options:
        return {key: self.text(value) for key, value in options.items()}


class _Reader:
    """Takes typed values out of a parsed file and says which key is wrong."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self, table: Mapping[str, Any], key: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        value = table.get(key, default)
        if value is ...:
            raise InputError(f"{self.path}: no '{key}', which every workload needs")
        if value is not default and not isinstance(value, kind):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            raise InputError(f"{self.path}: {key} is {value!r}, expected {' or '.join(k.__name__ for k in kinds)}")
        return value

    def only(self, table: Mapping[str, Any], allowed: set[str], where: str) -> None:
        unknown = sorted(table.keys() - allowed)
        if unknown:
            raise InputError(f"{self.path}: unknown key {where}{unknown[0]}; allowed are {', '.join(sorted(allowed))}")


def _step(read: _Reader, table: Any, where: str, name: str) -> StepTemplate:
    if not isinstance(table, dict):
        raise InputError(f"{read.path}: {where.rstrip('.')}: expected a table")
    read.only(table, _STEP_KEYS, where)
    options = read.take(table, "options", dict, {})
    jobs = read.take(table, "jobs", dict, {name: {}})
    return StepTemplate(
        name=read.take(table, "name", str),
        jobs={section: options | own for section, own in jobs.items()},
        per_process=read.take(table, "per_process", dict, None),
        cache=read.take(table, "cache", str, None),
        flip_byte_at=read.take(table, "flip_byte_at", int, None),
        must_fail=read.take(table, "must_fail", str, None),
    )


def _parse_like(example: Value, word: str, name: str) -> Value:
    """Return `word` as the type of `example`; sizes may carry a unit."""
    if isinstance(example, str):
        return word
    if name.endswith("_bytes"):
        value: Value = parse_bytes(word, name)
    else:
        try:
            value = type(example)(word)
        except ValueError:
            raise InputError(f"--set {name}={word}: expected a number such as {example}") from None
    if value <= 0:  # type: ignore[operator]
        raise InputError(f"--set {name}={word}: expected more than zero")
    return value


def _join(values: Sequence[Value]) -> str:
    return ",".join(str(value) for value in values)


def explain(workload: Workload) -> str:
    """Return what the workload is, where it comes from and what may be set, as text for a terminal."""
    runtime = (
        f"{workload.runtime_s:g} s after {workload.ramp_s:g} s of ramp" if workload.runtime_s else "until all is moved"
    )
    target = "a block device or a directory" if workload.target == "any" else f"a {workload.target}"
    lines = [f"{workload.name}: {workload.summary}", "", workload.description, "", f"Source   {workload.source}"]
    lines += [f"Runs on  {target}", f"Each step runs {runtime}", "", "Parameters (--set NAME=VALUE[,VALUE...]):"]
    lines += [f"  {name} = {_join(values)}" for name, values in workload.parameters.items()]
    lines += [
        "",
        "Steps:",
        *(
            "  " + re.sub(r"\$\{(\w+)\}", r"<\1>", step.name) + (f" ({step.cache})" if step.cache else "")
            for step in workload.steps
        ),
    ]
    return "\n".join(lines)
