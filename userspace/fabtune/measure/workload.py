# SPDX-License-Identifier: GPL-2.0-or-later
"""Workloads as data: fio job templates with what they stand for, read from TOML and expanded to steps."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Annotated, Any, Literal

import attrs

from fabtune.errors import InputError
from fabtune.host import userfile
from fabtune.measure import fio_options, open_loop
from fabtune.measure.fio_options import Options, Value
from fabtune.measure.open_loop import Schedule
from fabtune.model import typed
from fabtune.model.offered import Replayed
from fabtune.model.typed import at_least
from fabtune.model.units import parse_bytes

SHIPPED = Path(__file__).resolve().parent / "workloads"

_MAX_BYTES = 128 << 10
_ONE_TYPE = typed.Check[list[Value]](
    lambda values: len({type(value) for value in values}) == 1, "an array of one or more values of one type"
)
# What is filled in besides the parameters: everywhere, and in what is of one process.
_BUILT_IN = ("file", "directory", "own_directories", "file_list", "size_bytes", "slice_bytes", "space_bytes")
_OF_PROCESS = ("process", "neighbour")
_OF_REGION = ("own_offset", "neighbour_offset")
# Parameters that the built-in names are computed from.
_INTEGERS = ("total_bytes", "processes", "block_bytes", "files")
_SOME_STEPS = typed.Check(bool, "one or more tables [[steps]]")


@attrs.frozen(kw_only=True)
class StepTemplate:
    """One fio invocation before its parameters are filled in.

    `jobs` maps section names to options, without it there is one section called like the workload; `options` are of
    all.  `per_process` makes one section a process instead, with ``${process}`` and ``${neighbour}`` filled in; where
    `region` names the parameter with the bytes that each process has of one device or file, also where they begin.
    `must_fail` names the kind of failure (``verify``) without which the step has not passed.
    """

    name: str
    options: Options = attrs.field(factory=dict)
    jobs: dict[str, Options] | None = None
    per_process: Options | None = None
    region: str | None = None
    cache: str | None = None
    flip_byte_at: Annotated[int, at_least(0)] | None = None
    must_fail: str | None = None

    def sections(self, workload: str) -> dict[str, Options]:
        """Return the options of each section; those of `per_process` are the caller's."""
        return {name: self.options | own for name, own in (self.jobs or {workload: {}}).items()}

    def of_process(self, index: int, parameters: Mapping[str, Value]) -> dict[str, Value]:
        """Return what is filled in for process `index` alone."""
        neighbour = (index + 1) % int(parameters["processes"])
        region = int(parameters[self.region]) if self.region else 0
        values = (index, neighbour, index * region, neighbour * region)
        return dict(zip((*_OF_PROCESS, *_OF_REGION), values, strict=True))


@attrs.frozen(kw_only=True)
class _Time:
    """How long a step runs; one that `ends_with_data` is of a given amount, and no run time can be set."""

    runtime_s: Annotated[float, at_least(0)] | None = None
    ramp_s: Annotated[float, at_least(0)] = 0
    ends_with_data: bool = False


@attrs.frozen(kw_only=True)
class _File:
    """What a workload's file states."""

    summary: str
    source: str
    description: str
    target: Literal["any", "device", "directory"]
    steps: Annotated[tuple[StepTemplate, ...], _SOME_STEPS]
    parameters: dict[str, Annotated[list[Value], _ONE_TYPE]] = attrs.field(factory=dict)
    options: Options = attrs.field(factory=dict)
    time: _Time = _Time()
    space: tuple[str, ...] = ()
    stuck_after_s: float | None = None
    # The figure that decides a comparison, settled before the run: the end of its key.
    primary: Literal["mb_per_s", "files_per_s", "p50_ms", "p99_ms"] = "mb_per_s"


@attrs.frozen(kw_only=True)
class Workload(_File):
    """A template of one or more steps and the parameters over which they repeat; `text` is its file's."""

    name: str
    text: str

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
            _check_once(parameters[name], f"--set {setting}")
        return attrs.evolve(self, parameters=parameters)

    def check_runtime(self, runtime_s: float | None, ramp_s: float | None = None) -> None:
        """Raise InputError where one is set and the workload ends with its data, or `ramp_s` before no time at all.

        fio would begin again with the files that are there already, or look up those that it never made.
        """
        why = f"workload '{self.name}' ends when its data is done"
        if (runtime_s or ramp_s) and self.time.ends_with_data:
            amount = ", ".join(self.parameters)
            raise InputError(f"{why}: --runtime and --ramp cannot be set; change the amount with --set ({amount})")
        if ramp_s and not (runtime_s or self.time.runtime_s):
            raise InputError(f"{why}, after no ramp: --ramp needs --runtime")

    def combinations(self) -> Iterator[dict[str, Value]]:
        """Yield every combination of the parameters' values, the last parameter varying first."""
        names = list(self.parameters)
        for values in itertools.product(*self.parameters.values()):
            yield dict(zip(names, values, strict=True))


@attrs.frozen
class LoadStep:
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
    runtime_s: float | None = None
    ramp_s: float = 0
    open_loop: Schedule | None = None
    replayed: Replayed | None = None

    @property
    def measured_s(self) -> float:
        """Seconds from the first request to the end of the measured part, infinite where that ends with its data."""
        return self.ramp_s + self.runtime_s if self.runtime_s else math.inf

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
    stated = typed.STRICT.read(_File, userfile.parse_toml(text, path), str(path))
    _check(stated, path)
    fields: dict[str, Any] = {one.name: getattr(stated, one.name) for one in attrs.fields(_File)}
    fields["description"] = stated.description.strip()
    return Workload(name=path.stem, text=text, **fields)


def _check(stated: _File, path: Path) -> None:
    """Raise InputError naming `path` and the key of what would not come to a job of fio's, or to more than one."""
    fio_options.check_section(path.stem, f"{path}: the file's name")
    examples = {name: values[0] for name, values in stated.parameters.items()}
    for name, values in stated.parameters.items():
        _check_once(values, f"{path}: key 'parameters.{name}'")
        for index, value in enumerate(values):
            at = f"{path}: key 'parameters.{name}[{index}]'"
            fio_options.check_text(value, at)
            if not isinstance(value, str) and value <= 0:
                raise InputError(f"{at}: found {typed.describe(value)}, allowed: more than 0")
    for name in stated.space:
        if name not in examples:
            raise InputError(f"{path}: space names '{name}', which is not a parameter")
    regions = {step.region for step in stated.steps if step.region}
    for name in regions - examples.keys():
        raise InputError(f"{path}: region names '{name}', which is not a parameter")
    for name in {*stated.space, *_INTEGERS, *regions} & examples.keys():
        if type(examples[name]) is not int:
            raise InputError(
                f"{path}: key 'parameters.{name}[0]': found {typed.describe(examples[name])}, allowed: integer"
            )
    fio_options.check_options(stated.options, examples, _BUILT_IN, f"{path}: key 'options")
    for index, step in enumerate(stated.steps):
        at = f"{path}: key 'steps[{index}]"
        fio_options.check_template(step.name, list(examples), f"{at}.name'")
        fio_options.check_options(step.options, examples, _BUILT_IN, f"{at}.options")
        for name, options in (step.jobs or {}).items():
            fio_options.check_section(name, f"{at}.jobs'")
            fio_options.check_options(options, examples, _BUILT_IN, f"{at}.jobs.{name}")
        if step.per_process is not None:
            if "processes" not in examples:
                raise InputError(f"{at}.per_process': needs a parameter 'processes'")
            known = (*_BUILT_IN, *_OF_PROCESS, *(_OF_REGION if step.region else ()))
            fio_options.check_options(step.per_process, examples, known, f"{at}.per_process")


def _check_once(values: Sequence[Value], at: str) -> None:
    """Raise InputError for what stands there twice: two steps of one run would be told apart by nothing."""
    if twice := [value for place, value in enumerate(values) if value in values[:place]]:
        raise InputError(f"{at}: {twice[0]!r} stands there twice, expected each once")


def expand(workload: Workload, place: Place, *, runtime_s: float | None, ramp_s: float) -> list[LoadStep]:
    """Return the steps of `workload` at `place`, one for each template and parameter combination.

    With `runtime_s` every step runs that long after `ramp_s`; without, until its data is moved.
    Raises InputError when a place's name or a parameter has a line break.
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
            jobs = template.sections(workload.name)
            if template.per_process is not None:
                jobs = {}
                for index in range(int(parameters["processes"])):
                    around = names | template.of_process(index, parameters)
                    jobs[f"process{index}"] = _Filler(workload.name, around).fill(template.per_process)
            filled = {name: filler.fill(workload.options | options) | timing for name, options in jobs.items()}
            if not workload.options.get("ioengine") and not any(job.get("ioengine") for job in filled.values()):
                raise InputError(f"workload '{workload.name}': no ioengine is set")
            name = _step_name(workload.name, template.name, parameters, several)
            steps.append(
                LoadStep(
                    name=name,
                    phase=template.name,
                    parameters=parameters,
                    jobs=filled,
                    cache=template.cache,
                    flip_byte_at=template.flip_byte_at,
                    must_fail=template.must_fail,
                    runtime_s=runtime_s or None,
                    ramp_s=ramp_s,
                    open_loop=open_loop.asked_by(filled, f"workload '{workload.name}': step '{name}'"),
                )
            )
    _check_once([step.name for step in steps], f"workload '{workload.name}': names of steps")
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
    """Return the bytes that a directory must have room for, or a device must have."""
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
        fio_options.check_text(filled, f"workload '{self._workload}'")
        return filled

    def fill(self, options: Options) -> Options:
        return {key: self.text(value) for key, value in options.items()}


def _parse_like(example: Value, word: str, name: str) -> Value:
    """Return `word` as the type of `example`; sizes may carry a unit."""
    if isinstance(example, str):
        fio_options.check_text(word, f"--set {name}")
        return word
    if name.endswith("_bytes"):
        value: Value = parse_bytes(word, name)
    else:
        try:
            value = type(example)(word)
            # A float may be read from what is no number.
            if not math.isfinite(value):
                raise ValueError
        except (ValueError, OverflowError):
            raise InputError(f"--set {name}={word}: expected a number such as {example}") from None
    if value <= 0:  # type: ignore[operator]
        raise InputError(f"--set {name}={word}: expected more than zero")
    return value


def _join(values: Sequence[Value]) -> str:
    return ",".join(str(value) for value in values)
