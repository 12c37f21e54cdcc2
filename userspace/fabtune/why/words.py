# SPDX-License-Identifier: GPL-2.0-or-later
"""What was judged, in sentences."""

from collections.abc import Sequence

from fabtune.model.foretell import Foretold
from fabtune.model.limits import KeptShare
from fabtune.model.observation import Observation
from fabtune.why.judging import Judged, Share
from fabtune.why.limiter import CANNOT_TELL, mb

_CAPITAL = {"read": "Reads", "write": "Writes"}
# A gain that is none.
_NOTHING = 1.02
# What a session carries beyond one disk's data, if it is more than headers.
_MORE = 1.1
# A second limiter that is worth a word in the verdict.
_ALSO = 0.2


def verdict(one: Judged) -> str:
    """Return the verdict on one direction in a sentence."""
    what = f"{_CAPITAL[one.way] if one.way_told else 'Requests'} of {one.device}"
    first = one.first
    if one.line_is_full:
        of = f" of {mb(one.goodput_bytes_per_s)}" if one.goodput_bytes_per_s else ""
        if one.shared_with:
            whole = f"{mb(one.together_bytes_per_s)}{of}, {mb(one.bytes_per_s)} of it of {one.device}"
            return f"{what} and of {one.shared_with} fill the line: {whole}"
        line = first.subject if first.limiter in ("line", "cannot-tell-line") else "the line"
        if one.session_bytes_per_s > _MORE * one.bytes_per_s:
            whole = f"{mb(one.session_bytes_per_s)}{of}, {mb(one.bytes_per_s)} of it of {one.device}"
            return f"{what} and of the other disks of its session fill {line}: {whole}"
        return f"{what} fill {line}: {mb(one.bytes_per_s)}{of}"
    if first.limiter == CANNOT_TELL or first.among:
        names = f": {first.subject}" if first.among else ""
        return f"{what}, {mb(one.bytes_per_s)}: cannot tell what limits them{names} ({_percent(first)} of the time)"
    text = f"{what} are limited to {mb(one.bytes_per_s)} by {first.subject} ({_percent(first)} of the time)"
    second = one.shares[1] if len(one.shares) > 1 else None
    return f"{text}, and by {second.subject} ({_percent(second)})" if second and second.share >= _ALSO else text


def at_rate(said: str, before_bytes_per_s: float, bytes_per_s: float) -> str:
    """Return a verdict with another rate of its disk, which stands before that of a line as large as it."""
    return said.replace(mb(before_bytes_per_s), mb(bytes_per_s), 1)


def moves(one: Judged) -> str:
    """Return what a direction carries, with those of this host's disks that share its line."""
    if one.shared_with:
        return f"{one.device} and {one.shared_with} move {8 * one.together_bytes_per_s / 1e6:.1f} Mb/s"
    return f"{one.device} moves {8 * one.bytes_per_s / 1e6:.1f} Mb/s"


def at_target(one: Judged) -> str:
    """Return what the target counted of a direction's commands and their time, '' where it does not tell the parts."""
    served, way = one.served, one.way
    if served is None or way not in served.mean_ms or way not in {**served.r2t_ms, **served.backstore_ms}:
        return ""
    parts = [(served.r2t_ms, "waiting for its data (R2T)"), (served.backstore_ms, "in the backstore")]
    named = [f"{times[way]:.1f} ms {where}" for times, where in parts if way in times]
    used = "" if served.window_used is None else f"{served.window_used} under way "
    window = "" if served.window is None else f"; {used}of {served.window} commands that its session may have there"
    return f"at the target a {way} takes {served.mean_ms[way]:.1f} ms: {', '.join(named)}{window}"


def limiter_name(share: Share | KeptShare) -> str:
    """Return how the limiter of a share is called in a table."""
    return (CANNOT_TELL if share.among else share.limiter).replace("-", " ")


def gain(after: Foretold | None) -> str:
    """Return the end of a verdict: what lifting what limits would bring, '' where that is nothing or not known."""
    if after is not None and after.bytes_per_s is None and after.in_step_bytes_per_s and after.high:
        # Others have a part of what is gained, and which one is not known.
        some = after.high > _NOTHING * after.now_bytes_per_s
        return f"; lifting it would give at most {mb(after.high)}, shared with other disks" if some else ""
    if after is None or (after.bytes_per_s or after.low) <= _NOTHING * after.now_bytes_per_s:
        return ""
    end = f"the {after.first.end}'s " if after.first.end and after.first.limiter != "load" else "the "
    then = f"then {end}{after.first.limiter.replace('-', ' ')} is the limit"
    if after.bytes_per_s is not None:
        # What is not seen may leave nothing of it.
        about = "about" if after.low > _NOTHING * after.now_bytes_per_s else "up to"
        return f"; lifting it would give {about} {mb(after.bytes_per_s)}, {then}"
    most = "no limit known" if after.high is None else mb(after.high)
    return f"; lifting it would give {mb(after.low)} to {most}, {then}"


def _percent(share: Share) -> str:
    return f"{100 * share.share:.0f} %"


def idle(seen: Observation) -> str:
    """Return what is said of a disk on which nothing moved, or that went away."""
    if seen.disk.went_away:
        return (
            f"{seen.device}: went away while it was looked at: cannot tell what limited it; ask again once it is there"
        )
    waiting = max((one.in_flight for one in seen.disk.samples), default=0)
    if not seen.session.is_up:
        return f"{seen.device}: its session is {seen.session.state}; {waiting} requests wait for it"
    if waiting:
        return f"{seen.device}: {waiting} requests are under way and none came back in {seen.elapsed_s:.0f} s"
    return f"{seen.device}: idle, nothing to explain; put it under its load and ask again"


def lone_paths(seen: Sequence[Observation]) -> list[str]:
    """Return a sentence for each device on several paths of which only one carried data."""
    told = []
    for head in dict.fromkeys(one.session.multipath for one in seen if one.session.multipath):
        paths = [one for one in seen if one.session.multipath == head]
        used = [one.device for one in paths if any(way.moved_bytes for way in one.disk.ways.values())]
        if len(used) == 1 < len(paths):
            names = ", ".join(one.device for one in paths)
            told.append(
                f"{head}: of its paths ({names}) only {used[0]} carries data, and what limits that one limits all; "
                "see path_grouping_policy in multipath.conf(5)"
            )
    return told
