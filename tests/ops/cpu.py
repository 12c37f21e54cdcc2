#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs COMMAND and writes the CPU seconds of it and of all it started to FILE:  cpu.py FILE COMMAND..."""

import resource
import subprocess
import sys
from pathlib import Path

status = subprocess.run(sys.argv[2:], check=False).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
Path(sys.argv[1]).write_text(f"{used.ru_utime + used.ru_stime:.2f}\n")
sys.exit(status)
