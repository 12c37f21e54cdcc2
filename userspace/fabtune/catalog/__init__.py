# SPDX-License-Identifier: GPL-2.0-or-later
"""Floor 2: the vocabulary (tunables) and the sentences in it (profiles), parsed and checked."""
