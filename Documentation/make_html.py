#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes the documentation's pages HTML with pandoc: make_html.py DIRECTORY."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent
# Beside what lies here; the first is where readers begin.
ABOVE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
STYLE = """<style>
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 sans-serif; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
td, th { border: 1px solid #bbb; padding: .2rem .5rem; text-align: left; vertical-align: top; }
pre { background: #f4f4f4; padding: .7rem; overflow-x: auto; }
nav a { margin-right: 1rem; }
</style>
"""


def linked(html: str) -> str:
    """Return `html` with links to other pages as they are called here: all in one directory."""

    def link(found: re.Match[str]) -> str:
        name = Path(found[2]).stem
        return f'{found[1]}="{"index" if name == "README" else name}.html{found[3] or ""}"'

    html = re.sub(r'(href)="(?![a-z]+:)([^"#]*\.md)(#[^"]*)?"', link, html)
    return re.sub(r'(src|href)="(?:\.\./)?Documentation/([^"]*)"', r'\1="\2"', html)


def page(path: Path, names: list[str]) -> str:
    """Return the page `path` as HTML, with links to all `names`."""
    body = subprocess.run(
        ["pandoc", "--from", "gfm", "--to", "html5", "--wrap", "none", path], capture_output=True, text=True, check=True
    ).stdout
    title = re.search(r"^# (.*)$", path.read_text(), re.MULTILINE)
    pages = "".join(f'<a href="{name}.html">{"fabtune" if name == "index" else name}</a>' for name in names)
    head = f'<meta charset="utf-8"><title>{title[1] if title else path.stem}</title>\n{STYLE}'
    top = f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>\n<nav>{pages}</nav>\n'
    return f"{top}{linked(body)}</body>\n</html>\n"


def main() -> int:
    """Write all pages and what they show."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    sources = {"index" if path.name == "README.md" else path.stem: path
               for path in (*(TOP / name for name in ABOVE), *sorted(HERE.glob("*.md")))}  # fmt: skip
    for name, path in sources.items():
        (out / f"{name}.html").write_text(page(path, list(sources)))
    for picture in sorted((*HERE.glob("*.svg"), *HERE.glob("*.png"))):
        shutil.copyfile(picture, out / picture.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
