# SPDX-License-Identifier: GPL-2.0-or-later
"""Lets a checkout run as ``PYTHONPATH=userspace python3 -m fabtune``."""

import sys

from fabtune.cli.main import main

sys.exit(main())
