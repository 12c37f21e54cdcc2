# SPDX-License-Identifier: GPL-2.0-or-later
"""The rules: every `rule` in a module of this directory is found; there is no list to add it to."""
