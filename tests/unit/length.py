# SPDX-License-Identifier: GPL-2.0-or-later
"""How far the tests go: as far as `make check` has time for, or with LENGTH=full, in `make check-full`, all the way."""

import os

FULL = os.environ.get("LENGTH") == "full"
