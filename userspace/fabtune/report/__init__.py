# SPDX-License-Identifier: GPL-2.0-or-later
"""What runs say of settings, as answers, tables, pictures and HTML pages."""
