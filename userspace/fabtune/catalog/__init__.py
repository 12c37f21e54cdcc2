# SPDX-License-Identifier: GPL-2.0-or-later
"""The vocabulary (tunables) and the sentences in it (profiles), parsed and checked."""
