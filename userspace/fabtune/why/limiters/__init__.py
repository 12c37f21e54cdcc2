# SPDX-License-Identifier: GPL-2.0-or-later
"""The limiters, in the order in which they are asked: each module here has some, found and not listed."""
