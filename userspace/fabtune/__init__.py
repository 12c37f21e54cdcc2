# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune: see, tune and prove iSCSI and SRP storage fabrics."""

__version__ = "0.2.0"
