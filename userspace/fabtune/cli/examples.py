# SPDX-License-Identifier: GPL-2.0-or-later
"""Examples of each verb for its --help: (command line after ``fabtune``, what it does)."""

from collections.abc import Sequence

Example = tuple[str, str]

EXAMPLES: dict[str, Sequence[Example]] = {
    "": (
        ("show", "what this host has, and what is missing"),
        ("plan wan", "what the profile for a WAN would change"),
        ("apply wan", "write it, after asking"),
        ("revert", "undo it"),
    ),
    "plan": (
        ("plan wan", "take round trip and rate from the live sessions"),
        ("plan wan --rtt 50ms --rate 1gbit", "plan for a path you know"),
        ("plan wan --out wan.plan", "save it for `fabtune apply --plan wan.plan`"),
        ("plan --from why", "only what lifts what limits the sessions, under their load"),
    ),
    "apply": (
        ("apply wan", "show the plan, ask, write"),
        ("apply wan --reconnect", "sessions in use, too: their connections are made anew in place"),
        ("apply wan --confirm-within 60s", "restore it all in a minute, unless `fabtune confirm` comes"),
        ("apply wan --role target --netns target --persist", "tune a target, and set the values at boot too"),
    ),
    "tune": (
        ("tune", "all sessions, under the load that they have"),
        ("tune --goal latency --for 30s", "shorter requests for what stands beside a stream (needs fabstat)"),
        (
            "tune --with xdd --set op=read --on sdb",
            "under a load of its own; one that writes asks first, as measure does",
        ),
        ("tune --target-host target.example", "both ends, the target's with the fabtune there, reached by ssh"),
    ),
    "guard": (
        ("guard", "report what changes until Ctrl-C; writes nothing"),
        ("guard --heal", "also write again what was undone, and follow a path that has moved"),
        ("guard --for 10s --json", "look for ten seconds; exit 3 where something is not as applied"),
    ),
    "confirm": (
        ("confirm", "from a new login, to know that there still is one"),
        ("confirm --transaction 20260102T030405Z-000", "that one, and nothing else that waits by now"),
        ("confirm --json", "say to a program which transactions stay"),
    ),
    "verify": (
        ("verify", "exit 3 if a value has changed since, 4 if one has not taken effect yet"),
        ("verify wan", "also compare the host with the profile's plan"),
        ("verify wan --scope connection", "the same after an apply with that scope"),
    ),
    "revert": (
        ("revert", "restore every value that is still what fabtune wrote"),
        ("revert --dry-run", "show what that would do to each value, and why"),
        ("revert --transaction 20260102T030405Z-000", "restore one transaction of `fabtune history`"),
        ("revert --reconnect", "also give sessions in use a connection with the old values"),
    ),
    "history": (
        ("history", "one line for each apply"),
        ("history 20260102T030405Z-000", "what one of them wrote, value by value"),
        ("history --json", "every step of each"),
    ),
    "measure": (
        ("measure xdd --on /dev/sdb --set op=read", "run a workload on a disk, reading only"),
        ("measure xdd --on /dev/sdb --confirm sdb", "overwrite that disk"),
        ("measure net --peer 10.2.0.1", "measure only the network, with iperf3"),
    ),
    "compare": (
        ("compare before after", "compare two directories of run records"),
        ("compare runs", "compare both sides of what `fabtune ab` left in a directory"),
        ("compare before after --practical 5%", "ignore differences below 5 %"),
    ),
    "ab": (
        ("ab untouched wan latency --on /dev/sdb", "compare a profile with nothing applied"),
        ("ab lan wan latency --on /dev/sdb --pairs 12", "compare two profiles in 12 pairs of runs"),
    ),
    "report": (("report runs", "write runs/report.html"), ("report runs --json", "print only the figures")),
    "workloads": (("workloads", "one line for each"), ("workloads xdd", "everything about one")),
    "run": (
        ("run", "list the experiments"),
        ("run demo --dry-run", "show what it would measure, and how long that takes"),
        ("run demo --only rtt=20ms --resume", "run part of it, and keep what has been measured already"),
    ),
    "stat": (
        ("stat", "each busy device since the module was loaded"),
        ("stat sda", "one device in detail"),
        ("stat --watch 1", "print what happens in each second"),
        ("stat --target", "on a target: what it served, by initiator and LUN, and how long that took"),
    ),
    "why": (
        ("why", "look for 10 s at the disks of all sessions, and say what limits them"),
        ("why sda --for 30s --rate 1gbit", "one disk, on a line whose rate you know"),
        ("why --target-netns target", "with the target's end, which is in a namespace here"),
        ("why --fleet hosts.ini", "on all hosts of an inventory at once: what the slow ones have in common"),
    ),
    "whatif": (
        ("whatif wan --rate 1gbit", "what the profile for a WAN would bring every session, from 10 s of looking"),
        ("whatif iscsi.tcp_window=0 sda", "what one value would bring one disk"),
        ("whatif target:tcp.wmem_max=16MiB --target-netns target", "at one end, with the target's end looked at too"),
    ),
    "stuck": (("stuck", "requests outstanding, or waiting, for too long"), ("stuck --json", "for a program")),
    "export": (
        ("export", "serve http://127.0.0.1:13260/metrics until Ctrl-C"),
        ("export --textfile -", "print the metrics once"),
        ("export --textfile /var/lib/prometheus/node-exporter/fabtune.prom", "for node_exporter, from a timer"),
    ),
    "show": (
        ("show", "this host, and what is missing on it"),
        ("show wan", "each session's values, beside those that the profile wants"),
        ("show --json", "make a facts file for `fabtune lint FILE`"),
    ),
    "doctor": (
        ("doctor", "exit 0 if it is ready, 4 if something is to be done"),
        ("doctor --json", "for a program"),
    ),
    "lint": (
        ("lint", "check this host, with the path of its live sessions"),
        ("lint --rtt 50ms --rate 1gbit", "check it for a path you know"),
        ("lint host.json", "check another host by its `fabtune show --json`"),
    ),
    "negotiate": (
        ("negotiate", "this host's records and its own target"),
        ("negotiate wan --initiator a.json --target b.json", "two hosts, with the profile applied"),
    ),
    "tunables": (("tunables", "one line for each"), ("tunables --role target --json", "for a program")),
    "explain": (("explain iscsi.tcp_window", "a tunable"), ("explain xdd", "a workload")),
    "profiles": (("profiles", "one line for each"), ("profiles --json", "with their parameters")),
    "lab": (
        ("lab build", "build the guest image"),
        ("lab shell", "enter a running guest with a WAN in it"),
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
