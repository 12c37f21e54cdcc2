# SPDX-License-Identifier: GPL-2.0-or-later
"""Rates as people write them: a small b is a bit, a large one a byte."""

import pytest

from fabtune.errors import InputError
from fabtune.model.units import parse_bit_per_s


@pytest.mark.parametrize(
    ("text", "bit_per_s"),
    [("1gbit", 1e9), ("622Mb/s", 622e6), ("622M", 622e6), ("622Mbps", 622e6), ("622mb/s", 622e6), ("1Gbit/s", 1e9),
     ("10 Gbps", 1e10), ("75MB/s", 600e6), ("75MBps", 600e6), ("64MiB/s", 536870912), ("9600bit", 9600),
     ("OC-12", 599.04e6), ("oc3", 149.76e6), ("1.5G", 1.5e9)],
)  # fmt: skip
def test_a_rate_is_read_as_it_is_meant(text: str, bit_per_s: float) -> None:
    assert parse_bit_per_s(text) == pytest.approx(bit_per_s)


@pytest.mark.parametrize("text", ["622MB", "622", "622MiB", "64Mib/s", "fast", "-1M", "0M", "1e9bit", "OC-", ""])
def test_a_size_or_a_bare_number_is_no_rate(text: str) -> None:
    with pytest.raises(InputError, match=f"--rate '{text}': expected"):
        parse_bit_per_s(text, "--rate")
