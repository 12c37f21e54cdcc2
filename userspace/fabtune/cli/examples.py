# SPDX-License-Identifier: GPL-2.0-or-later
"""Examples of each verb for its --help: (command line after ``fabtune``, what it does)."""

from collections.abc import Sequence

Example = tuple[str, str]

EXAMPLES: dict[str, Sequence[Example]] = {
    "": (
        ("show", "what this host is, and what it lacks"),
        ("plan wan", "what the profile for a WAN would change"),
        ("apply wan", "write it, after a question"),
        ("revert", "take it back"),
    ),
    "plan": (
        ("plan wan", "round trip and rate from the live sessions"),
        ("plan wan --rtt 50ms --rate 1gbit", "for a path you know"),
        ("plan wan --out wan.plan", "keep it for `fabtune apply --plan wan.plan`"),
        ("plan wan --exit-code", "exit 3 when there is something to change"),
    ),
    "apply": (
        ("apply wan", "show the plan, ask, write"),
        ("apply wan --yes --allow-relogin", "no question; log sessions in again"),
        ("apply --plan wan.plan", "what `fabtune plan --out wan.plan` saved"),
        ("apply wan --role target --netns target --persist", "a target, kept at boot"),
    ),
    "verify": (
        ("verify", "exit 3 when a value is no longer as applied, 4 when not felt yet"),
        ("verify wan", "hold the profile's plan against the host too"),
    ),
    "revert": (
        ("revert", "take back everything that still is ours"),
        ("revert wan", "only what this profile wrote"),
        ("revert --transaction 20260102T030405Z-000", "only one of `fabtune history`"),
        ("revert --allow-relogin", "and log sessions in with the old values"),
    ),
    "history": (("history", "a line for each apply"), ("history --json", "with every step")),
    "measure": (
        ("measure xdd --on /dev/sdb --set op=read", "a workload on a disk, reading only"),
        ("measure xdd --on /dev/sdb --confirm sdb", "overwrites that disk"),
        ("measure net --peer 10.2.0.1", "the network alone, with iperf3"),
    ),
    "compare": (
        ("compare before after", "two directories of run records"),
        ("compare before after --practical 5%", "less than 5 % does not matter"),
    ),
    "ab": (
        ("ab default wan latency --on /dev/sdb", "the profile against nothing applied"),
        ("ab lan wan latency --on /dev/sdb --pairs 12", "two profiles, 12 pairs of runs"),
    ),
    "report": (("report runs", "runs/report.html"), ("report runs --json", "the figures alone")),
    "workloads": (("workloads", "a line for each"), ("workloads xdd", "one in full")),
    "run": (
        ("run", "list the experiments"),
        ("run demo --dry-run", "what it would measure, and how long that takes"),
        ("run demo --only rtt=50ms --resume", "part of it, keeping what is there"),
    ),
    "stat": (
        ("stat", "each busy device since the module was loaded"),
        ("stat sda", "one device in detail"),
        ("stat --watch 1", "what happens each second"),
    ),
    "stuck": (("stuck", "requests that have been under way for too long"), ("stuck --json", "for a program")),
    "show": (
        ("show", "this host, and what it lacks"),
        ("show wan", "what the profile wants of each session, beside what it has"),
        ("show --json", "a facts file for `fabtune lint FILE`"),
    ),
    "lint": (
        ("lint", "this host, its path from the live sessions"),
        ("lint --rtt 50ms --rate 1gbit", "for a path you know"),
        ("lint host.json", "another host, from its `fabtune show --json`"),
    ),
    "negotiate": (
        ("negotiate", "between this host's records and its own target"),
        ("negotiate wan --initiator a.json --target b.json", "two hosts with the profile"),
    ),
    "tunables": (("tunables", "a line for each"), ("tunables --role target --json", "for a program")),
    "explain": (("explain iscsi.tcp_window", "a tunable"), ("explain xdd", "a workload")),
    "profiles": (("profiles", "a line for each"), ("profiles --json", "with their parameters")),
    "lab": (
        ("lab build", "make the guest image"),
        ("lab shell", "enter a booted guest with a WAN in it"),
        ("lab run --seed 2 --out results script.sh", "run a script in a guest"),
    ),
}


def epilog(examples: Sequence[Example]) -> str:
    """Return the examples as they stand at the end of --help."""
    width = max(len(command) for command, _ in examples)
    if any(width + len(says) > 66 for _, says in examples):
        lines = [f"  fabtune {command}\n      {says}" for command, says in examples]
    else:
        lines = [f"  fabtune {command:{width}}  {says}" for command, says in examples]
    return "\n".join(["examples:", *lines])
