# SPDX-License-Identifier: GPL-2.0-or-later
"""This host as it is: programs, files, namespaces, devices, sessions and who uses them."""
