# SPDX-License-Identifier: GPL-2.0-or-later
"""What the documentation says of the tree is so: the tests that keep the promises of safety.md exist."""

import re
import tomllib
from pathlib import Path

import pytest

from fabtune import __version__
from fabtune.autotune import shown_line
from fabtune.cli import main as cli
from fabtune.lab import recipe
from fabtune.measure import workload
from fabtune.why import one_way
from fabtune.why.limiters import line

TOP = Path(__file__).resolve().parents[2]
PACKAGE = TOP / "userspace/fabtune"
SAFETY = (TOP / "Documentation/safety.md").read_text()
NAMED = re.findall(r"`(tests/[a-z_/]+\.(?:bats|py))`(?:: \"([^\"]+)\")?", SAFETY)


def test_safety_names_tests() -> None:
    assert len(NAMED) > 30


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_promise_has_its_test(file: str, name: str) -> None:
    text = (TOP / file).read_text()
    assert not name or f'@test "{name}"' in text, f"safety.md: {file} has no test '{name}'"


@pytest.mark.parametrize("target", re.findall(r"`make ([a-z-]+)`", SAFETY))
def test_a_promise_has_its_make_target(target: str) -> None:
    assert re.search(rf"^{target}:", (TOP / "Makefile").read_text(), re.MULTILINE)


def test_the_picture_of_the_floors_is_the_contract() -> None:
    text = (TOP / "Documentation/architecture.md").read_text().partition("<!-- floors -->")[2].split("```")[1]
    rows = [[cell.split()[0] for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    layers = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    floors = [layer.split(" | ") for layer in layers]
    assert rows == [row for row in floors if all((PACKAGE / name).is_dir() for name in row)]


def test_every_directory_is_on_the_map() -> None:
    """tests/ops was on none, nor what is in userspace/ beside the package."""
    page = (TOP / "Documentation/architecture.md").read_text().partition("## Outside the package")[2]
    readme = re.search(r"`tests/` \(([a-z, -]+)\)", (TOP / "README.md").read_text())
    tests, others = (
        {one.name for one in (TOP / top).iterdir() if one.is_dir() and any(one.glob("[!_]*"))}
        for top in ("tests", "userspace")
    )
    assert not [name for name in tests if f"`tests/{name}`" not in page]
    assert readme and set(readme[1].split(", ")) == tests
    assert not [name for name in others - {"fabtune"} if f"`userspace/{name}/`" not in page] and "`debian/`" in page


def test_readme_leads_to_every_page() -> None:
    text = (TOP / "README.md").read_text()
    assert not [page.name for page in (TOP / "Documentation").glob("*.md") if f"Documentation/{page.name})" not in text]


def test_contributing_shows_how_to_add_to_every_directory_that_is_searched() -> None:
    searched = (TOP / "Documentation/architecture.md").read_text().partition("directories are searched")[2]
    found = re.findall(r"`([a-z]+/[a-z]+)/`", searched.partition("\n\n")[0])
    assert len(found) == 5
    text = (TOP / "CONTRIBUTING.md").read_text()
    assert not [directory for directory in found if f"`userspace/fabtune/{directory}/`" not in text]


@pytest.mark.parametrize("page", ["Documentation/architecture.md", "CONTRIBUTING.md"])
def test_what_a_page_names_is_there(page: str) -> None:
    text = (TOP / page).read_text()
    named = re.findall(r"`((?:userspace|tests|tunables|profiles|kmod|Documentation)/[A-Za-z_./-]*)`", text)
    assert named and not [path for path in named if not (TOP / path).exists()]
    links = re.findall(r"\]\(([A-Za-z./]+)\)", text)
    assert not [link for link in links if not (TOP / page).parent.joinpath(link).exists()]


def test_the_version_is_one() -> None:
    """The package's own is what everything else is built and installed by; the newest changes are of that version."""
    for file, pattern in {
        "kmod/dkms.conf": r'^PACKAGE_VERSION="(.*)"$',
        "kmod/main.c": r'^MODULE_VERSION\("(.*)"\);$',
        "CHANGELOG.md": r"^## (\S+)",
        "userspace/rpm/fabtune.spec": r"^Version:\s+(\S+)",
        "debian/changelog": r"^fabtune \((\S+)\)",
        "Documentation/install.md": r"dkms add fabstat/(\S+)",
        "userspace/ansible/ansible_collections/fabtune/fleet/galaxy.yml": r"^version: (\S+)$",
    }.items():
        found = re.search(pattern, (TOP / file).read_text(), re.MULTILINE)
        assert found and found[1] == __version__, file


def _step(load: workload.Workload) -> str:
    """How long one step of a workload runs, in the words of the table."""
    time = load.time
    if time.ends_with_data:
        return "ends with its data"
    return f"{time.runtime_s:g} s after {time.ramp_s:g} s" if time.runtime_s else "all data, or `--runtime`"


def test_the_workloads_in_measuring_are_those_that_are_shipped() -> None:
    """It had `daq` at equal rates, `lmdd` as one stream, three workloads not at all, two of six that end by data."""
    page = (TOP / "Documentation/measuring.md").read_text().partition("<!-- workloads -->\n")[2]
    rows = ["| name | what it is | on | a step | from |", "|---|---|---|---|---|"]
    for one in map(workload.load, workload.names()):
        source = re.split(r"[:;]", one.source)[0]
        rows.append(f"| `{one.name}` | {one.summary} | {one.target} | {_step(one)} | {source} |")
    fresh = "\n".join(rows) + "\n"
    assert page.partition("<!-- end of workloads -->")[0] == fresh, f"measuring.md: put there instead\n{fresh}"


def test_each_workload_that_needs_fabstat_is_named_as_such() -> None:
    text = (TOP / "Documentation/measuring.md").read_text()
    needing = [f"`{name}`" for name in workload.names() if workload.load(name).stuck_after_s]
    assert f"{' and '.join(sorted(needing))} need fabstat" in text


def _page(name: str) -> str:
    """Return a page's text with its lines joined."""
    return " ".join((TOP / f"Documentation/{name}").read_text().split())


def test_the_shares_that_pages_tell_are_those_of_the_code() -> None:
    """why.md had a line full at 93 %, and further down from 90 % on; tuning.md a queue for six tenths of a look."""
    full, room = f"{one_way.FULL:.0%}".rstrip("%"), f"{line._NO_ROOM:.0%}".rstrip("%")
    told = _page("why.md")
    assert f"{full} % of its payload" in told and f"Between {full} and {room} % of the line" in told
    longer, long = f"{shown_line._LONGER:.0%}".rstrip("%"), f"{shown_line._FOR_LONG:.0%}".rstrip("%")
    assert f"{longer} % longer than the least for {long} % of a look" in _page("tuning.md")


def test_every_parameter_of_the_module_is_in_the_table() -> None:
    """target_parts was not, which the page tells people to set."""
    source = "\n".join(one.read_text() for one in (TOP / "kmod").glob("*.c"))
    found = re.findall(r"^module_param\w*\((\w+),", source, re.MULTILINE)
    table = (TOP / "Documentation/fabstat.md").read_text().partition("## Parameters")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(found)


def test_every_image_and_kernel_that_can_be_built_is_named() -> None:
    text = (TOP / "Documentation/lab.md").read_text().partition("## Image")[2].partition("\n## ")[0]
    for name in (*recipe.IMAGES, *recipe.DEBUG_KERNELS, recipe.UML_VIRTUAL):
        assert f"`{name}`" in text, name


def test_what_cannot_stand_beside_a_saved_plan_is_what_the_page_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.search(r"`apply --plan` cannot be combined with ([^;]*);", _page("tuning.md"))
    values = {"--role": "both", "--scope": "connection", "--confirm-within": "60s", "PROFILE": "wan"}
    refused = set()
    for action in cli.verb_parser("apply")._actions:
        name = action.option_strings[0] if action.option_strings else "PROFILE"
        words = [name] if action.option_strings else []
        words += [] if action.nargs == 0 else [values.get(name, "x")]
        if name not in ("-h", "--plan"):
            cli.main(["apply", "--plan", str(tmp_path / "nosuch.plan"), *words])
            refused |= {name} if "cannot be combined" in capsys.readouterr().err else set()
    assert found and set(re.findall(r"PROFILE|--[a-z-]+", found[1])) == refused
