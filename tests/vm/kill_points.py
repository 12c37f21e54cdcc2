# SPDX-License-Identifier: GPL-2.0-or-later
"""Kills apply, re-login, persist and revert at every step and at random moments, and cuts the disk's power.

    kill_points.py COUNT [--cases 3,7,8] [--only TEXT]     with TEXT only the cases whose names have it

After each kill `verify` must tell the truth, and `revert` must bring back every value and the session.
Prints one line of JSON a case and a sum.
"""

import argparse
import json
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import kill_host as host
from kill_host import run

from fabtune.errors import ExitCode

# wan, with two values of the node record instead of all: each costs several runs of iscsiadm.
_FEWER = ("iscsi.max_outstanding_r2t", "iscsi.queue_depth", "iscsi.noop_timeout", "iscsi.max_burst")
_PROFILES = {
    "many": 'summary = "wan with fewer values"\ninclude = ["wan"]\n'
    + "".join(f'[initiator."{name}"]\ndrop = true\n' for name in _FEWER),
    # What a re-login is needed for, something for a target, and a value of the disk that a login makes anew.
    "few": """summary = "four values"
[initiator."iscsi.first_burst"]
value = 131072
why = "test"
[initiator."tcp.slow_start_after_idle"]
value = false
why = "test"
[initiator."block.read_ahead_kb"]
value = 512
why = "test"
[target."lio.first_burst"]
value = 131072
why = "test"
""",
    # Shares values with few: some it changes further, some it finds right.
    "other": """summary = "three values"
[initiator."iscsi.first_burst"]
value = 65536
why = "test"
[initiator."tcp.slow_start_after_idle"]
value = false
why = "test"
[target."lio.login_timeout"]
value = 20
why = "test"
""",
}
_DIRECTORY = Path("/var/tmp")


def _apply(name: str, *more: str) -> tuple[str, ...]:
    return (
        "apply",
        str(_DIRECTORY / f"{name}.toml"),
        "--yes",
        "--role",
        "both",
        "--rtt",
        "50ms",
        "--rate",
        "1gbit",
        *more,
    )


@dataclass(frozen=True)
class Scenario:
    """What happens first, and then what is killed."""

    name: str
    first: tuple[tuple[str, ...], ...]
    killed: tuple[str, ...]


_SCENARIOS = (
    Scenario("apply", (), _apply("many")),
    Scenario("re-login", (), _apply("few", "--allow-relogin")),
    Scenario("persist", (), _apply("few", "--persist")),
    Scenario("second profile", (_apply("few"),), _apply("other", "--allow-relogin")),
    Scenario("revert", (_apply("many"),), ("revert",)),
    Scenario("revert with re-login", (_apply("few", "--allow-relogin", "--persist"),), ("revert", "--allow-relogin")),
    Scenario("revert one of two", (_apply("few"), _apply("other")), ("revert", "few")),
)


@dataclass(frozen=True)
class Case:
    """One kill: how (`kill`, `torn`, `full`, `interrupt` at a checkpoint; `moment`, `power` in between)."""

    scenario: Scenario
    kind: str
    where: float

    def __str__(self) -> str:
        return f"{self.scenario.name}, {self.kind} at {self.where:.3g}"


class Checked:
    """The host before anything, and what is wrong with a case."""

    def __init__(self) -> None:
        self.before, self.sessions = host.read_all(), host.sessions()
        self.problems: list[str] = []

    def claim(self, condition: bool, text: str) -> None:
        if not condition:
            self.problems.append(text)

    def differing(self) -> list[str]:
        after = host.read_all()
        return sorted(name for name in self.before.keys() | after.keys() if self.before.get(name) != after.get(name))

    def verify(self, away: bool) -> None:
        """Let verify speak, and hold it against what the host shows."""
        code = run("verify", "--json")
        self.claim(
            code in (ExitCode.DONE, ExitCode.DRIFT, ExitCode.NEEDS_ACTION), f"verify ended with {code}: {_tail()}"
        )
        self.claim(not away or code == ExitCode.DRIFT, "a session is away and verify sees nothing wrong")
        wrong = _not_as_journalled()
        self.claim(
            not wrong or code == ExitCode.DRIFT,
            f"verify sees nothing wrong, but of the journal's values differ {wrong}",
        )

    def revert(self, *words: str) -> None:
        code = run("revert", *words)
        self.claim(
            code in (ExitCode.DONE, ExitCode.NEEDS_ACTION), f"revert {' '.join(words)} ended with {code}: {_tail()}"
        )

    def back(self) -> None:
        """Check that everything is as before, sessions with what they had agreed upon included."""
        found = host.settled_sessions(len(self.sessions))
        self.claim(found == self.sessions, f"sessions were {self.sessions}, are {found}")
        wrong = self.differing()
        self.claim(not wrong, f"differs after revert: {wrong}")


def _tail() -> str:
    return " / ".join(host.OUTPUT.read_text().strip().splitlines()[-6:-1])[-600:]


def _not_as_journalled() -> list[str]:
    """Return the sysctls that the journal says we hold and that are not so: read here without fabtune's help."""
    steps: dict[tuple[str, object], dict[str, object]] = {}
    closed = set()
    for line in host.journalled():
        if line["kind"] == "write" and line["backend"] == "sysctl":
            steps[str(line["file"]), line["step"]] = line
        elif line["kind"] == "holds" and (line["file"], line["step"]) in steps:
            steps[str(line["file"]), line["step"]]["wrote"] = line["value"]
        elif line["kind"] == "restored":
            steps.pop((str(line["file"]), line["step"]), None)
        elif line["kind"] == "closed":
            closed.add(line["file"])
    # A later transaction's value is the one that counts.
    last = {str(step["key"]): str(step["wrote"]) for (file, _), step in steps.items() if file not in closed}
    return sorted(key for key, wrote in last.items() if _sysctl(key).split() != wrote.split())


def _sysctl(key: str) -> str:
    name, _, index = key.rstrip("]").partition("[")
    text = (Path("/proc/sys") / name.replace(".", "/")).read_text()
    return text.split()[int(index)] if index else text


def perform(case: Case, checked: Checked, whole_s: float, draw: random.Random) -> None:
    """Run one case and collect its problems in `checked`."""
    for words in case.scenario.first:
        code = run(*words)
        checked.claim(code in (ExitCode.DONE, ExitCode.NEEDS_ACTION), f"{words[:2]} ended with {code}: {_tail()}")
    if case.kind in ("moment", "power"):
        status = host.kill_after(case.scenario.killed, case.where * whole_s)
    else:
        status = run(*case.scenario.killed, spec=f"{case.kind}:{int(case.where)}")
    said = _tail() if status != -signal.SIGKILL else ""
    host.wait_for_tools()
    if case.kind == "power":
        host.cut_power()
    checked.claim(status in (-signal.SIGKILL, 0, 1, 3, 4, 130), f"it ended with {status}: {said}")
    # What iscsid was told to do before the kill it does after it.
    away = len(host.sessions()) < len(checked.sessions)
    checked.verify(away and case.kind in ("kill", "torn"))
    if status in (ExitCode.FAILED, ExitCode.INTERRUPTED) and not case.scenario.first and "were taken back" in said:
        checked.claim(not checked.differing(), f"it says that it took back, but {checked.differing()} differ")
    if draw.random() < 0.5:
        checked.revert()
        checked.claim(
            len(host.settled_sessions(len(checked.sessions))) == len(checked.sessions),
            f"a session stayed away after revert: {_tail()}",
        )
        checked.claim(not checked.differing(), f"differs after a plain revert: {checked.differing()}")
    checked.revert("--allow-relogin")
    checked.back()
    code = run("verify")
    checked.claim(code == ExitCode.DONE, f"verify ends with {code} after revert: {_tail()}")


def cases_of(scenario: Scenario, count: int, draw: random.Random) -> list[Case]:
    """Return every kill at a checkpoint of `scenario`, some other ends there, and kills at random moments."""
    found = []
    for step in range(1, count + 1):
        found.append(Case(scenario, "kill", step))
        if step % 4 == 1:
            found.append(Case(scenario, "torn", step))
        if step % 8 == 3 and scenario.killed[0] == "apply":
            found.append(Case(scenario, draw.choice(("full", "interrupt")), step))
    found += [Case(scenario, kind, draw.uniform(0, 1.05)) for kind in ("moment", "power") for _ in range(count // 6)]
    return found


def measured(checked: Checked) -> dict[Scenario, tuple[int, float]]:
    """Run each scenario once to its end; return its checkpoints and its seconds."""
    found = {}
    for scenario in _SCENARIOS:
        for words in scenario.first:
            run(*words)
        begin = time.monotonic()
        code = run(*scenario.killed)
        found[scenario] = host.steps(), time.monotonic() - begin
        changed, kinds = checked.differing(), {line["kind"] for line in host.journalled()}
        print(
            f"{scenario.name}: exit {code}, {found[scenario][0]} checkpoints, {found[scenario][1]:.1f} s, "
            f"{len(changed)} values changed",
            flush=True,
        )
        # Of a value that a later profile took over, reverting the earlier one alone says so with 3.
        allowed = (
            ExitCode.DONE,
            ExitCode.NEEDS_ACTION,
            *((ExitCode.DRIFT,) if scenario.killed == ("revert", "few") else ()),
        )
        checked.claim(code in allowed, f"{scenario.name} ended with {code}: {_tail()}")
        if "--allow-relogin" in scenario.killed:
            checked.claim({"logout", "login"} <= kinds, f"{scenario.name} logged no session out and in")
        checked.claim(
            bool(changed) or scenario.killed[0] == "revert",
            f"{scenario.name} changed nothing: its cases would prove nothing",
        )
        checked.revert("--allow-relogin")
        checked.back()
        host.forget()
    return found


def main() -> int:
    """Run the cases asked for and say how many failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--cases", default="", help="numbers of cases, from 1 to COUNT (default: all)")
    parser.add_argument("--only", default="", help="a text")
    args = parser.parse_args()
    for name, text in _PROFILES.items():
        (_DIRECTORY / f"{name}.toml").write_text(text)
    host.set_up()
    checked = Checked()
    assert checked.sessions, "no session: log in first"
    whole = measured(checked)
    if checked.problems:
        print("\n".join(checked.problems))
        return 1
    cases = drawn(args.count, {scenario: steps for scenario, (steps, _) in whole.items()}, args.only)
    failed = done = 0
    for number in map(int, args.cases.split(",")) if args.cases else range(1, args.count + 1):
        case = cases[number - 1]
        checked.problems.clear()
        begin = time.monotonic()
        perform(case, checked, whole[case.scenario][1], random.Random(number))
        row = {"number": number, "ok": not checked.problems, "case": str(case),
               "broken": f"{case}: {'; '.join(checked.problems)}",
               "seconds": round(time.monotonic() - begin, 2)}  # fmt: skip
        print("KILL " + json.dumps(row), flush=True)
        done += 1
        if checked.problems:
            failed += 1
            host.heal(checked.before)
        host.forget()
    print(f"{done} cases, {failed} failed")
    return int(failed > 0)


def drawn(count: int, steps: dict[Scenario, int], only: str) -> list[Case]:
    """Return `count` cases, the same ones in each guest in which the commands have as many checkpoints."""
    draw = random.Random(20)
    cases = [case for scenario in _SCENARIOS for case in cases_of(scenario, steps[scenario], draw)]
    print(f"{len(cases)} cases to draw from", flush=True)
    draw.shuffle(cases)
    cases = [case for case in cases if only in str(case)]
    while len(cases) < count:
        cases.append(Case(draw.choice(_SCENARIOS), draw.choice(("moment", "power")), draw.uniform(0, 1.05)))
    return cases


if __name__ == "__main__":
    sys.exit(main())
