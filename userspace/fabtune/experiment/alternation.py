# SPDX-License-Identifier: GPL-2.0-or-later
"""Two profiles in interleaved runs on this host: before each run its profile is switched to, then a record is kept."""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from fabtune.errors import FabtuneError, InputError
from fabtune.experiment.taking_back import taken_back_whole
from fabtune.measure import interleave, measurement, recordfile, workload_run
from fabtune.measure import target as targets
from fabtune.measure.interleave import Turn
from fabtune.measure.measurement import Measurement
from fabtune.measure.target import Target
from fabtune.model.judgement import Rules
from fabtune.model.runrecord import CALIBRATION, PAIRS, RunRecord, SessionTurn
from fabtune.model.units import counted
from fabtune.model.untouched import UNTOUCHED
from fabtune.progress import Progress
from fabtune.report import compare
from fabtune.report.compare import Comparison
from fabtune.tune.switch import Ends, switch, target_values

# How long a LUN may take to come back after a re-login.
_RETURN_S = 30.0
# What a switch takes, for the time left.
_SWITCH_S = 10.0


@attrs.frozen
class Contest:
    """Profile `a` against `b`, `on` what `asked` names; `path` are the options that tell apply about the network."""

    a: str
    b: str
    on: str
    asked: Measurement
    ends: Ends
    path: tuple[str, ...]
    settle_s: float
    out: Path
    rules: Rules
    command: tuple[str, ...]

    def name(self, part: str, side: str, pair: int) -> str:
        """Return what one run is called."""
        what = "A against A" if part == CALIBRATION else f"{self.a} against {self.b}"
        return f"{what}: pair {pair + 1}, run of {side}"


class Alternation:
    """The runs of one contest, and the `records` of those made so far; `pairs` are those of each part.

    `elsewhere` are the files of records for which there was no room where they belong.
    """

    def __init__(self, contest: Contest, pairs: Mapping[str, int], show: Progress) -> None:
        self._contest = contest
        self._asked = contest.asked
        self.records: list[RunRecord] = []
        self.elsewhere: list[Path] = []
        self._id = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        self._show = show
        expected_s = _SWITCH_S + contest.settle_s + contest.asked.expected_s
        for part, count in pairs.items():
            turns = [(side, pair) for side in "AB" for pair in range(count)]
            show.begin([(contest.name(part, side, pair), expected_s) for side, pair in turns])

    def run(self, part: str, turns: Iterable[Turn]) -> list[RunRecord]:
        """Make the runs of `part` and return all made so far; calibration holds A against A."""
        contest = self._contest
        profiles = {"A": contest.a, "B": contest.a if part == CALIBRATION else contest.b}
        for turn in turns:
            with self._show.step(contest.name(part, turn.side, turn.pair)):
                switch(profiles[turn.side], contest.ends, contest.path, self._asked.place.sessions)
                time.sleep(contest.settle_s)
                place = _returned(contest.on, contest.asked.place, contest.asked.writes)
                self._asked = attrs.evolve(contest.asked, place=place)
                self._measure(part, turn, profiles[turn.side])
        return self.records

    def _measure(self, part: str, turn: Turn, profile: str) -> None:
        interrupted = False
        around = measurement.tunables_now()
        around |= {f"target: {name}": value for name, value in target_values(self._contest.ends).items()}
        try:
            result = self._asked.measure(profile, around)
        except workload_run.IncompleteError as error:
            result = error.record
            self._show.say(str(error))
            interrupted = isinstance(error, workload_run.RunInterruptedError)
        session = SessionTurn(self._id + part, turn.pair, turn.side, self._contest.rules)
        result = attrs.evolve(result, session=session, command=self._contest.command)
        wanted = self._contest.out / part.lstrip("-")
        file, problem = recordfile.keep(result, wanted, f"{turn.pair:02d}-{turn.side}-")
        if problem:
            self._show.say(f"{problem}; kept instead: {file}")
            self.elsewhere.append(file)
        if interrupted:
            raise KeyboardInterrupt
        self.records.append(attrs.evolve(result, file=str(file)))

    def whole_pairs(self) -> int:
        """Return of how many pairs of A and B both runs came to their end."""
        turns = [one.session for one in self.records if one.complete and one.session and not one.session.calibration]
        return len({one.pair for one in turns if one.side == "A"} & {one.pair for one in turns if one.side == "B"})

    def said_elsewhere(self) -> str:
        """Return in words which records have to be brought to the others to be seen with them; '' where none has."""
        if not self.elsewhere:
            return ""
        number, places = len(self.elsewhere), dict.fromkeys(str(file.parent) for file in self.elsewhere)
        return f"; {counted(number, 'record')} could not be kept there: bring them from {', '.join(places)} first"

    def end(self) -> None:
        """Leave nothing applied; not even a second Ctrl-C stops that.  Says so and raises FabtuneError if it fails."""
        self._show.say(f"back to {UNTOUCHED}")
        contest, sids = self._contest, self._asked.place.sessions
        left, interrupted = taken_back_whole(lambda: switch(UNTOUCHED, contest.ends, contest.path, sids))
        if left:
            self._show.say(f"{left}; take the rest back with: fabtune revert --allow-relogin")
            raise FabtuneError(left)
        if interrupted:
            raise KeyboardInterrupt


def until_decided(
    run: Callable[[str, Iterable[Turn]], Sequence[RunRecord]], calibrate: int, most_pairs: int, rules: Rules
) -> Comparison:
    """Make the runs, all of them or until a look finds that more decide nothing; `run` returns all made so far."""
    seed = rules.seed or 0
    run(CALIBRATION, interleave.order(calibrate, seed))
    turns, done = interleave.order(most_pairs, seed), 0
    for look in rules.looks or (most_pairs,):
        records = run(PAIRS, itertools.islice(turns, 2 * (look - done)))
        done = look
        outcome = compare.compare_session(records)
        if outcome and outcome.settled:
            break
    assert outcome
    return outcome


def _returned(on: str, first: Target, written: bool) -> Target:
    """Return the target `on` once it is there again, checked to be `first`, and still free where it is `written`.

    Raises FabtuneError.
    """
    deadline = time.monotonic() + _RETURN_S
    while True:
        try:
            place = targets.find(on)
            break
        except InputError as error:
            if time.monotonic() > deadline:
                raise FabtuneError(f"{on} did not come back after the switch: {error}") from None
            time.sleep(0.1)
    if place.wwid != first.wwid:
        raise FabtuneError(
            f"{on} is another device after the switch (WWID {place.wwid}, was {first.wwid}); give a by-id path"
        )
    reasons = targets.who_holds(place) if written and place.kind == "device" else []
    if reasons:
        why = "; ".join(reasons)
        raise FabtuneError(f"{on} was taken into use since the session began: {why}; free it and begin a new session")
    return place
