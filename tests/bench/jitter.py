#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What the lab's `jitter` makes of a round trip: a model of netem's rule, not a measurement.

With a rate, however high, netem keeps packets in order: one leaves at the later of its own time and that of the packet
before it (`netem_enqueue` in net/sched/sch_netem.c).  Where packets follow each other more closely than their delays
differ, each waits for the longest of those just before it.
"""

import random

RTT_MS = 50.0
SECONDS = 60
# (what, packets a second one way, and back): a load of the kept results acknowledges every second segment.
LOADS = (("ping, 5 a second", 5, 5), ("4.4 MB/s", 3040, 1520), ("12.0 MB/s", 8290, 4145))


def one_way_ms(per_s: int, jitter_ms: float, seed: int) -> list[float]:
    """Return the delay of each of evenly spaced packets; half of `jitter_ms` is this direction's, to either side."""
    draw = random.Random(seed)
    found, last_ms = [], 0.0
    for number in range(per_s * SECONDS):
        now_ms = 1e3 * number / per_s
        last_ms = max(now_ms + RTT_MS / 2 + draw.uniform(-jitter_ms / 2, jitter_ms / 2), last_ms)
        found.append(last_ms - now_ms)
    return found


def _spread(delays_ms: list[float]) -> str:
    rising = sorted(delays_ms)
    return f"{rising[len(rising) // 20]:.1f} to {rising[-len(rising) // 20]:.1f}"


def main() -> None:
    """Print mean round trips, and where nine tenths of the delays of the faster direction lie."""
    print(f"round trip of {RTT_MS:g} ms; one way {RTT_MS / 2:g} ms")
    for jitter_ms in (2.0, 10.0):
        for what, there, back in LOADS:
            ways = one_way_ms(there, jitter_ms, 1), one_way_ms(back, jitter_ms, 2)
            mean_ms = sum(sum(way) / len(way) for way in ways)
            spread = _spread(ways[0])
            print(f"jitter {jitter_ms:>2g} ms, {what}: mean {mean_ms:.1f} ms, nine tenths of one way {spread}")


if __name__ == "__main__":
    main()
