# SPDX-License-Identifier: GPL-2.0-or-later
"""How many packets a path that loses a share of them by chance may have lost: bounds that hold for any number."""

import math

# A false alarm would cost a measured point.  How many packets are tried hangs on those that were lost: the bounds are
# far enough out to hold for whichever of a load's moments it ends at.
_TAIL = 1e-9


def by_chance(tried: int, share: float, burst: float = 1.0) -> tuple[float, float]:
    """Return the fewest and the most that chance loses of `tried` packets of which `share` of one are to be lost.

    They are lost in bursts whose lengths are geometric, `burst` on average.  Such a sum of bursts varies by 2 burst - 1
    times its mean; its lower tail is at most a normal one's of that variance, its upper one Bernstein's.
    """
    mean, far = tried * share, -math.log(_TAIL)
    spread = math.sqrt(2 * (2 * burst - 1) * mean * far)
    return max(0.0, mean - spread), min(float(tried), mean + spread + burst * far)
