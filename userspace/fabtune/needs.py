# SPDX-License-Identifier: GPL-2.0-or-later
"""What fabtune needs of Python, looked at before anything else is imported.

Also an old Python must be able to read this file, or it could not say that it is too old.
"""

import sys
from importlib.util import find_spec

from fabtune import packages

LEAST_PYTHON = (3, 11)
# What the package imports that is not Python's own, and the Debian package that has it.
MODULES = {
    "attrs": "python3-attr",
    "cattrs": "python3-cattr",
    "rich": "python3-rich",
    "jinja2": "python3-jinja2",
    "markupsafe": "python3-markupsafe",
}


def absent_modules():
    # type: () -> list[tuple[str, str]]
    """Return each module that this Python lacks, with the Debian package that has it."""
    return [(module, package) for module, package in MODULES.items() if find_spec(module) is None]


def complaint(launcher):
    # type: (str) -> str
    """Return why this Python cannot run fabtune, and what to do about it; '' if it can.

    `launcher` is the path of the program that picks the system's Python.
    """
    found = sys.version_info[:2]
    if found < LEAST_PYTHON:
        why = f"is Python {found[0]}.{found[1]}, and fabtune needs {LEAST_PYTHON[0]}.{LEAST_PYTHON[1]} or later"
        fix = "Debian 12 and later have it"
        if not packages.is_debians(packages.ETC):
            fix = f"install Python {LEAST_PYTHON[0]}.{LEAST_PYTHON[1]} or later"
    else:
        missing = absent_modules()
        if not missing:
            return ""
        why = "lacks " + ", ".join(_told(module, package) for module, package in missing)
        fix = packages.remedy(packages.ETC, *missing)
    if sys.executable != "/usr/bin/python3":
        fix = f"run {launcher}, which takes the system's Python (/usr/bin/python3)"
    return f"fabtune: {sys.executable} {why}: {fix}"


def _told(module, package):
    # type: (str, str) -> str
    """Return `module`, with the package that has it as far as that is known."""
    name = packages.package_name(packages.ETC, module, package)
    whose = "Debian package" if packages.is_debians(packages.ETC) else "package"
    return f"{module} ({whose} {name})" if name else module
