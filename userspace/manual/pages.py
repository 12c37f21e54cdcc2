#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes the manual pages: one a verb from its parser (section 8), the hand-written ones with their lists filled in.

    pages.py DIRECTORY      makes DIRECTORY/man5, man7 and man8

The pages are mdoc(7), which both mandoc and groff read.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
sys.path[:0] = [str(TOP / "userspace"), str(HERE)]


from fabtune.cli.complete import about  # noqa: E402
from fabtune.cli.examples import EXAMPLES  # noqa: E402
from fabtune.cli.main import VERBS, top_parser, verb_parser  # noqa: E402
from fabtune.errors import ExitCode  # noqa: E402
from formats import LISTS  # noqa: E402
from roff import items, sentence, text, word  # noqa: E402

_MEANS = {
    ExitCode.DONE: "Done; in sync; no regression.",
    ExitCode.FAILED: "Failed; what apply had written until then is restored.",
    ExitCode.USAGE: "Bad usage or bad input.",
    ExitCode.DRIFT: "Drift or a regression was found; or a host is not as it was when a plan was made.",
    ExitCode.NEEDS_ACTION: "Done, but something still needs a re-login, a reload or a reboot; it is listed.",
    ExitCode.CANNOT_TELL: "Cannot tell: the figures are too uncertain, or not all could be read.",
    ExitCode.INTERRUPTED: "Interrupted; what apply had written until then is restored.",
}
# What a code means of one verb instead.
_OF_VERB = {
    ("tune", ExitCode.FAILED): "Failed, and the step under way was taken back; or no step stays, and what might have "
    "helped was not written: no new connection could be made in place, or it is at a target that was not named.",
    ("tune", ExitCode.INTERRUPTED): "Interrupted; the step under way was taken back, and those that were judged before "
    "stay.",
    ("revert", ExitCode.INTERRUPTED): "Interrupted; the next revert goes on.",
}


def _metavar(action: argparse.Action) -> list[str]:
    """Return the names of an action's values, none for a switch."""
    if action.nargs == 0:
        return []
    if isinstance(action.metavar, tuple):
        return list(action.metavar)
    if action.choices is not None and action.metavar is None:
        return ["|".join(map(str, action.choices))]
    return [str(action.metavar or action.dest.upper())]


def _synopsis(action: argparse.Action) -> str:
    values = " ".join(f"Ar {word(one)}" for one in _metavar(action))
    if action.option_strings:
        flag = f"Fl {action.option_strings[0][1:]}"
        more = " ..." if isinstance(action, argparse._AppendAction) else ""
        return f".{'' if action.required else 'Op '}{flag} {values}{more}".rstrip()
    optional = action.nargs in ("?", "*", argparse.REMAINDER)
    return f".{'Op ' if optional else ''}{values}{' ...' if action.nargs in ('*', '+', argparse.REMAINDER) else ''}"


def _item(action: argparse.Action) -> str:
    values = " ".join(f"Ar {word(one)}" for one in _metavar(action))
    flags = " , ".join(f"Fl {flag[1:]}" for flag in action.option_strings)
    return f".It {' '.join(filter(None, [flags, values]))}\n{sentence(about(action))}"


def _shown(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    actions = [one for one in parser._actions if not isinstance(one, argparse._SubParsersAction)]
    return [one for one in actions if one.help != argparse.SUPPRESS]


def below(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the parsers of sub-verbs, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _summaries(parser: argparse.ArgumentParser) -> dict[str, str]:
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {one.dest: one.help or "" for action in found for one in action._choices_actions}


def _usage(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f'.Nm "{name}"'
    yield from (_synopsis(action) for action in _shown(parser) if action.option_strings)
    yield from (_synopsis(action) for action in _shown(parser) if not action.option_strings)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield ".Bl -tag -width Ds"
    yield from (_item(action) for action in _shown(parser))
    yield ".El"


def _head(name: str, section: int, summary: str, date: str) -> Iterator[str]:
    yield '.\\" SPDX-License-Identifier: GPL-2.0-or-later'
    yield f".Dd {date}"
    yield f".Dt {name.upper()} {section}"
    yield ".Os"
    yield ".Sh NAME"
    yield f".Nm {name}"
    yield f".Nd {text(summary)}"


def _exit_status(verb: str = "") -> str:
    told = {code: _OF_VERB.get((verb, code), means) for code, means in _MEANS.items()}
    return ".Sh EXIT STATUS\n" + items(((str(int(code)), text(means)) for code, means in told.items()), "Li")


def _examples(verb: str) -> Iterator[str]:
    yield ".Sh EXAMPLES"
    for command, does in EXAMPLES[verb]:
        yield sentence(does).removesuffix(".") + ":"
        yield f'.Dl "fabtune {command}"'


def page_of_verb(verb: str, date: str) -> str:
    """Return the page of one verb."""
    parser = verb_parser(verb)
    name, summary = f"fabtune-{verb}", VERBS[verb][1]
    subs = below(parser)
    lines = [*_head(name, 8, summary, date), ".Sh SYNOPSIS"]
    for sub, its in subs.items() or [("", parser)]:
        lines += _usage(f"fabtune {verb} {sub}".strip(), its)
    lines += [".Sh DESCRIPTION", sentence(summary)]
    if not subs:
        lines += ["The words are:", *_options(parser)]
    summaries = _summaries(parser)
    for sub, its in subs.items():
        told = summaries[sub]
        lines += [f'.Ss "fabtune {verb} {sub}"', sentence(told), *_options(its)]
    see = sorted({other for command, _ in EXAMPLES[verb] for other in re.findall(r"^[a-z]+", command)} - {verb})
    lines += [_exit_status(verb), *_examples(verb), ".Sh SEE ALSO"]
    return (
        "\n".join([*lines, *_references(("fabtune", 7), ("fabtune", 8), *((f"fabtune-{one}", 8) for one in see))])
        + "\n"
    )


def _references(*found: tuple[str, int]) -> Iterator[str]:
    """Yield references to other pages, by section and name."""
    rows = [f".Xr {name} {section}" for name, section in sorted(found, key=lambda one: (one[1], one[0]))]
    yield from (f"{row} ," for row in rows[:-1])
    yield rows[-1]


def page_of_all(date: str) -> str:
    """Return fabtune(8): the verbs."""
    lines = [*_head("fabtune", 8, "see, tune and prove iSCSI and SRP storage fabrics", date), ".Sh SYNOPSIS"]
    lines += [".Nm", ".Op Fl -version", ".Ar VERB", ".Op Ar options", ".Sh DESCRIPTION"]
    lines += [text("Finds out why storage over iSCSI, iSER or SRP is slow or stalls, tunes both ends, and measures the "
                   "effect. Where to begin is told in fabtune(7). The verbs are:")]  # fmt: skip
    lines += [".Bl -tag -width Ds"]
    lines += [f".It Xr fabtune-{verb} 8\n{sentence(told)}" for verb, (_, told) in VERBS.items()]
    lines += [".El", ".Pp", "Without a verb:", *_options(top_parser())]
    lines += [".Sh ENVIRONMENT", insert_files("environment"), ".Sh FILES", insert_files("files")]
    lines += [_exit_status(), *_examples(""), ".Sh SEE ALSO"]
    lines += _references(("fabtune", 7), *((path.stem, 5) for path in HERE.glob("*.5")))
    return "\n".join(lines) + "\n"


def insert_files(what: str) -> str:
    """Return a part that several pages share."""
    return (HERE / f"{what}.inc").read_text().rstrip("\n")


def page_by_hand(path: Path, date: str) -> str:
    """Return a hand-written page with its date, version and lists filled in."""

    def filled(match: re.Match[str]) -> str:
        shared = LISTS[match[1]]() if match[1] in LISTS else insert_files(match[1])
        # No page refers to itself.
        return shared.replace(f"; see\n.Xr {path.stem} {path.suffix[1:]} .", ".")

    page = path.read_text().replace("@DATE@", date)
    return re.sub(r"^@([a-z]+)@$", filled, page, flags=re.MULTILINE)


def release_date() -> str:
    """Return the day of the newest release as mdoc has it, from debian/changelog."""
    found = re.search(r"^ -- .*>  \w+, (\d+) (\w+) (\d+)", (TOP / "debian/changelog").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit("debian/changelog: no line ' -- NAME <ADDRESS>  DATE'")
    months = {name[:3]: name for name in ("January", "February", "March", "April", "May", "June", "July", "August",
                                          "September", "October", "November", "December")}  # fmt: skip
    return f"{months[found[2]]} {int(found[1])}, {found[3]}"


def pages() -> dict[str, str]:
    """Return every page's text by its file's name."""
    date = release_date()
    found = {f"fabtune-{verb}.8": page_of_verb(verb, date) for verb in VERBS} | {"fabtune.8": page_of_all(date)}
    return found | {path.name: page_by_hand(path, date) for path in sorted(HERE.glob("*.[578]"))}


def main() -> int:
    """Write all pages below the directory given."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    for name, page in pages().items():
        path = Path(sys.argv[1]) / f"man{name[-1]}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
