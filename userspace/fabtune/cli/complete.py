# SPDX-License-Identifier: GPL-2.0-or-later
"""What the shells' completion asks at each TAB: the words that may come next, from the same parsers as everything else.

    fabtune __complete -- WORD...      the words after `fabtune` up to the cursor; the last one is unfinished

prints a word and, behind a tab, what it means on each line; a line `:file` or `:directory` asks the shell for names of
files as well.  It reads names of files and no more, so that it answers before anybody waits.
"""

import argparse
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fabtune.cli import console
from fabtune.cli.main import TAKE_A_VALUE, VERBS, verb_parser
from fabtune.cli.parse_lab import SUITES
from fabtune.errors import ExitCode, FabtuneError
from fabtune.installed import PACKAGE, data_dir
from fabtune.model.untouched import UNTOUCHED

Candidate = tuple[str, str]
Candidates = Iterator[Candidate]
FILE, DIRECTORY = (":file", ""), (":directory", "")
_SUMMARY = re.compile(r'^summary = "(.*)"$', re.MULTILINE)
_TUNABLE = re.compile(r'^\[([\w.]+)\]\nsummary = "(.*)"$', re.MULTILINE)


def _described(directory: Path) -> Candidates:
    """Yield the name and summary of each TOML file of `directory`."""
    for path in sorted(directory.glob("*.toml")):
        found = _SUMMARY.search(path.read_text(errors="replace"))
        yield path.stem, found[1] if found else ""


def _own_profiles() -> Path:
    return Path(os.environ.get("FABTUNE_PROFILES", "/etc/fabtune/profiles"))


def _profiles() -> Candidates:
    """Yield every profile, the administrator's own included."""
    yield "default", "what an untouched system does"
    yield from (dict(_described(data_dir("profiles"))) | dict(_described(_own_profiles()))).items()


def _profiles_and_files() -> Candidates:
    yield from _profiles()
    yield FILE


def _compared_profiles() -> Candidates:
    yield UNTOUCHED, "nothing applied"
    yield from (one for one in _profiles() if one[0] != "default")


def _workloads() -> Candidates:
    """Yield the shipped workloads."""
    yield from _described(PACKAGE / "measure/workloads")


def _measurable() -> Candidates:
    yield from _workloads()
    yield "net", "only the network, with iperf3"
    yield "replay", "the requests of a trace"
    yield FILE


def _workloads_and_files() -> Candidates:
    yield from _workloads()
    yield FILE


def _tunables() -> Candidates:
    """Yield the vocabulary."""
    for path in sorted(data_dir("tunables").glob("*.toml")):
        for name, summary in _TUNABLE.findall(path.read_text()):
            yield f"{path.stem}.{name}", summary


def _explainable() -> Candidates:
    yield from _tunables()
    yield from _workloads()


def _experiments() -> Candidates:
    """Yield the shipped experiments."""
    yield from _described(data_dir("experiments"))


def _experiments_and_files() -> Candidates:
    yield from _experiments()
    yield FILE


def _transactions() -> Candidates:
    """Yield the journal's transactions."""
    state = Path(os.environ.get("FABTUNE_STATE_DIR", "/var/lib/fabtune"))
    yield from ((path.stem, "") for path in sorted((state / "journal").glob("*.jsonl")))


def _disks() -> Candidates:
    """Yield this host's disks, with what is known of their make."""
    for path in sorted(Path("/sys/block").glob("*")):
        if not path.name.startswith(("loop", "ram", "zram")):
            model = path / "device/model"
            yield path.name, model.read_text(errors="replace").strip() if model.exists() else ""


def _places() -> Candidates:
    yield from ((f"/dev/{name}", model) for name, model in _disks())
    yield DIRECTORY


def _imagined() -> Candidates:
    yield from _profiles()
    yield from ((f"{name}=", summary) for name, summary in _tunables())
    yield from _disks()


def _namespaces() -> Candidates:
    yield from ((path.name, "") for path in sorted(Path("/run/netns").glob("*")))


def _suites() -> Candidates:
    yield from ((suite, "") for suite in SUITES)


def _files() -> Candidates:
    yield FILE


def _directories() -> Candidates:
    yield DIRECTORY


def _anything() -> Candidates:
    """Yield nothing: only the user can know."""
    yield from ()


# What an argument takes, by verb and name where that decides, else by what its help calls it.
_BY_NAME: dict[str, Callable[[], Candidates]] = {
    "ab.a": _compared_profiles, "ab.b": _compared_profiles, "workloads.name": _workloads,
    "measure.workload": _measurable, "ab.workload": _workloads_and_files, "explain.tunable": _explainable,
    "measure.confirm": _disks, "ab.confirm": _disks, "tune.confirm": _disks, "tune.workload": _workloads_and_files,
    "revert.transaction": _transactions, "confirm.transaction": _transactions, "history.transaction": _transactions,
    "run.experiment": _experiments_and_files, "lab.suite": _suites, "compare.a": _directories,
    "compare.b": _directories, "lab.device": _anything, "lab.arguments": _files, "stat.diff": _files,
    "ab.switch": _files, "revert.profile": _profiles,
}  # fmt: skip
_BY_KIND: dict[str, Callable[[], Candidates]] = {
    "PROFILE": _profiles_and_files, "DEVICE|DIR": _places, "FILE": _files, "TUNABLE": _tunables, "FACTS": _files,
    "INVENTORY": _files,
    "SCRIPT": _files, "DIR": _directories, "netns": _namespaces, "target_netns": _namespaces, "DEV": _disks,
    "PROFILE|NAME=VALUE|DEV": _imagined,
    **dict.fromkeys(
        ("TIME", "RATE", "NAME=VALUE", "NAME=VALUE[,VALUE]", "FACTOR=VALUE[,VALUE]", "SECONDS", "HOST", "PERCENT",
         "PAIRS", "N", "ADDRESS:PORT", "N[,N]", "SIZE[,SIZE]", "WORDS", "label", "port", "mtu", "pairs", "timeout_s"),
        _anything,
    ),
}  # fmt: skip


def about(action: argparse.Action) -> str:
    """Return the help of an argument as argparse prints it."""
    return (action.help or "") % {**vars(action), "prog": "fabtune"}


def provider(verb: str, action: argparse.Action) -> Callable[[], Candidates] | None:
    """Return what yields the values of an argument, None for one that nobody has said anything of."""
    found = _BY_NAME.get(f"{verb}.{action.dest}") or _BY_KIND.get(action.dest)
    if found is None and action.choices is not None:
        words = [str(one) for one in action.choices]
        return lambda: ((one, "") for one in words)
    return found or _BY_KIND.get(str(action.metavar))


def _verb(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the verb in `words`, '' for none yet, and the words without it."""
    index = 0
    while index < len(words):
        if not words[index].startswith("-"):
            return words[index], [*words[:index], *words[index + 1 :]]
        index += 2 if words[index] in TAKE_A_VALUE else 1
    return "", list(words)


def _parser_of(verb: str, words: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """Return the parser that reads on after `words`, a sub-verb's where one is named, and what is left of them."""
    parser: argparse.ArgumentParser = verb_parser(verb)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            named = next((index for index, word in enumerate(words) if word in action.choices), None)
            if named is not None:
                return action.choices[words[named]], words[named + 1 :]
    return parser, words


def _values_wanted(action: argparse.Action) -> int:
    """Return how many words follow an option."""
    return action.nargs if isinstance(action.nargs, int) else 1


def _position(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[argparse.Action | None, set[str]]:
    """Return the argument that the next word is a value of, None after all, and the options that are there already."""
    flags = {flag: action for action in parser._actions for flag in action.option_strings}
    places = [action for action in parser._actions if not action.option_strings]
    used: set[str] = set()
    wanted, pending = 0, None
    for word in words:
        if wanted:
            wanted -= 1
        elif word.partition("=")[0] in flags:
            name, equals, _ = word.partition("=")
            pending = flags[name]
            if not isinstance(pending, argparse._AppendAction):
                used |= set(pending.option_strings)
            wanted = 0 if equals else _values_wanted(pending)
        elif not word.startswith("-") and places and places[0].nargs not in ("*", "+", argparse.REMAINDER):
            places.pop(0)
    if wanted:
        return pending, used
    return places[0] if places else None, used


def candidates(words: Sequence[str]) -> Candidates:
    """Yield what the last of `words` may become."""
    *before, current = words or [""]
    verb, rest = _verb(before)
    if not verb:
        yield from ((name, summary) for name, (_, summary) in VERBS.items())
        yield from (("--help", "show every verb"), ("--version", "show the version"))
        return
    if verb not in VERBS:
        return
    parser, rest = _parser_of(verb, rest)
    name, equals, _ = current.partition("=")
    if equals and name.startswith("--"):
        action = next((one for one in parser._actions if name in one.option_strings), None)
        found = provider(verb, action) if action else None
        yield from (
            (one if one in (FILE, DIRECTORY) else (f"{name}={one[0]}", one[1])) for one in (found or _anything)()
        )
        return
    argument, used = _position(parser, rest)
    if isinstance(argument, argparse._SubParsersAction):
        yield from ((one.dest, one.help or "") for one in argument._choices_actions)
    elif argument is not None:
        yield from (provider(verb, argument) or _anything)()
    if argument is None or not argument.option_strings:
        for action in parser._actions:
            if action.help != argparse.SUPPRESS and not used & set(action.option_strings):
                yield from ((flag, about(action)) for flag in action.option_strings if flag.startswith("--"))


def completions(words: Sequence[str]) -> str:
    """Return the lines for a shell: what begins like the last of `words`."""
    current = words[-1] if words else ""
    lines: dict[bool, list[str]] = {False: [], True: []}
    try:
        for word, means in candidates(words):
            if (word, means) in (FILE, DIRECTORY) or (word.startswith(current) and f"{word}{means}".isprintable()):
                lines[word.startswith("-")].append(f"{word}\t{means}".rstrip())
    except (FabtuneError, OSError):
        # Nobody who presses TAB wants to read why there is nothing.
        pass
    # Options are there for who begins one, or where nothing else may follow.
    shown = lines[True] if current.startswith("-") else lines[False] or lines[True]
    return "".join(f"{line}\n" for line in dict.fromkeys(shown))


def run_complete(words: Sequence[str]) -> int:
    """Print the lines for a shell; a reader that has left is no error."""
    console.make_whole()
    print(completions(words), end="")
    return console.delivered(ExitCode.DONE)
