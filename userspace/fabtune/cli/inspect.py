# SPDX-License-Identifier: GPL-2.0-or-later
"""show, lint and negotiate: what this host is, what is wrong with it, and what a login would agree on."""

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fabtune.catalog.tunable import ROLES, shipped_catalog
from fabtune.cli import console, table
from fabtune.cli.arguments import first_given
from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.facts import saved_facts
from fabtune.facts.collect import Facts, survey
from fabtune.host.sessions import Connections
from fabtune.host.sockets import TcpSocket
from fabtune.model import units
from fabtune.tune.missing import missing, unseen

# The rest is imported by the verb that needs it, which keeps the others quick (tests/unit/test_startup.py).
if TYPE_CHECKING:
    from fabtune.lint.rule import Hazard, ToldPath, Unasked
    from fabtune.tune.logins import LoginPreview


def _facts(name: str | None, netns: str) -> Facts:
    return saved_facts.load(Path(name)) if name else survey(shipped_catalog().tunables.values(), netns)


def _given(args: argparse.Namespace) -> tuple[float | None, float | None]:
    rtt_ms = None if args.rtt is None else units.parse_ms(args.rtt, "--rtt")
    return rtt_ms, None if args.rate is None else units.parse_bit_per_s(args.rate, "--rate")


def _refuse_path_without_profile(args: argparse.Namespace, verb: str) -> None:
    """Raise InputError for half a path or a whole one that no profile's plan is made for."""
    if not args.profile and (option := first_given(args, "--rtt", "--rate")):
        raise InputError(f"{verb}: {option} is for what a profile wants: give a PROFILE with it")


def _refuse_namespace(args: argparse.Namespace, verb: str, file: str | None) -> None:
    if file and args.netns:
        raise InputError(f"{verb}: {file} is of its own namespace; it cannot be combined with --netns")


def run_show(args: argparse.Namespace) -> int:
    """Show the facts of this host; --json writes the file that lint and negotiate read."""
    _refuse_path_without_profile(args, "show")
    if args.json and args.profile:
        raise InputError("show: --json prints the facts alone; it cannot be combined with PROFILE")
    facts = _facts(None, args.netns)
    if args.json:
        table.print_json(saved_facts.to_json(facts))
        return ExitCode.DONE
    host, wanted = facts.host, _wanted(facts, args)
    print(f"{host.name}: Linux {host.kernel}, {host.cpus} CPUs, {host.memory_bytes / 2**30:.1f} GiB")
    _show_sessions(facts, wanted)
    _show_target(facts)
    _show_options(facts)
    if facts.nics:
        nics = [(nic.name, nic.driver, str(nic.mtu_bytes), table.rate(nic.speed_bit_per_s), " ".join(nic.lower))
                for nic in facts.nics]  # fmt: skip
        _section("NICs", ("name", "driver", "MTU", "speed", "physical"), nics)
    srp = [(one.port, one.state, str(one.req_lim), str(one.zero_req_lim), str(one.can_queue), str(one.ch_count))
            for one in facts.srp]  # fmt: skip
    _section("SRP logins", ("port", "state", "credits", "ran out", "queue", "channels"), srp)
    catalog = shipped_catalog().tunables.values()
    ours = {one.key.partition("[")[0] for one in catalog if one.backend == "sysctl"}
    owners = [(one.who, one.where, f"{one.key} = {one.value}" if one.key else one.value)
            for one in facts.owners if not one.key or one.key in ours]  # fmt: skip
    _section("who else tunes", ("who", "where", "what"), owners)
    lacks = missing(facts)
    if lacks:
        print("\nmissing")
    for one in lacks:
        table.paragraph(one.what)
        table.text_below(f"to do: {one.fix}")
    return ExitCode.DONE


def _section(title: str, headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    if rows:
        print(f"\n{table.one_line(title)}")
        table.table(headers, rows, wrapped=headers[-1])


def _show_sessions(facts: Facts, wanted: dict[tuple[str, str], str]) -> None:
    rows = []
    locked = {one.device.identity: one.value for one in facts.of("iscsi.tcp_window")}
    ends = Connections(facts.sockets, facts.sessions)
    for session in facts.sessions:
        socket = ends.of(session)
        rows.append(
            (
                session.label,
                session.state,
                f"{socket.path_rtt_ms:g} ms" if socket else "-",
                f"{socket.delivery_bytes_per_s / 1e6:.1f} MB/s" if socket else "-",
                _buffers(socket, locked.get(session.identity, "0") != "0") if socket else "-",
                socket.congestion_control if socket else "-",
                " ".join(session.luns),
            )
        )
    _section("sessions", ("target", "state", "RTT", "sent at", "buffers", "cc", "LUNs"), rows)
    names = {
        one.key.rpartition(".")[2]: one.name for one in shipped_catalog().tunables.values() if one.scope == "record"
    }
    read: dict[str, dict[str, str | None]] = {}
    for one in facts.readings:
        read.setdefault(one.device.identity, {})[one.tunable] = one.value
    for session in facts.sessions:
        mine = read.get(session.identity, {})
        keys = [
            (key, agreed, mine.get(names.get(key, "")) or "-", wanted.get((names.get(key, ""), session.identity), "-"))
            for key, agreed in session.negotiated.items()
        ]
        _section(session.label, ("key", "negotiated", "recorded", "wanted"), keys)


def _show_options(facts: Facts) -> None:
    """Show what connections are given, portal by portal."""
    given: dict[str, list[str]] = {}
    for one in facts.readings:
        if one.device.scope == "connection" and one.value not in (None, "", "0"):
            given.setdefault(one.device.label, []).append(f"{one.tunable.rpartition('.')[2]} {one.value}")
    _section(
        "connections", ("portal", "given by fabtune"), [(label, ", ".join(values)) for label, values in given.items()]
    )


def _wanted(facts: Facts, args: argparse.Namespace) -> dict[tuple[str, str], str]:
    """Return what the profile asked about wants, by tunable and device; nothing without a profile."""
    if args.profile is None:
        return {}
    from fabtune.catalog.profile import load_profile
    from fabtune.tune import path_choice
    from fabtune.tune.plan import make_plan

    profile = load_profile(args.profile, shipped_catalog())
    plan = make_plan(profile, ROLES, facts, path_choice.choose(facts, *_given(args)), {})
    return {(row.tunable.name, row.device.identity): row.wanted for row in plan.rows if row.device and row.wanted}


def _buffers(socket: TcpSocket, locked: bool) -> str:
    """Return a socket's buffers, receive then send, and whether iscsid locked them."""
    return f"{socket.receive_buffer_bytes}/{socket.send_buffer_bytes}" + (" locked" if locked else "")


def _show_target(facts: Facts) -> None:
    rows = [(one.identity, "enabled" if one.enabled else "disabled", " ".join(one.portals), " ".join(one.luns),
             " ".join(login.initiator for login in one.logins)) for one in facts.tpgs]  # fmt: skip
    _section("iSCSI targets", ("TPG", "state", "portals", "LUNs", "initiators"), rows)
    for tpg in facts.tpgs:
        for login in tpg.logins:
            _section(f"{login.initiator} at {tpg.identity}", ("key", "negotiated"), list(login.negotiated.items()))


def run_lint(args: argparse.Namespace) -> int:
    """Print every hazard; exit 3 if one is more than a notice, 5 if there may be some that it cannot see or tell."""
    from fabtune.lint.hazards import lint
    from fabtune.lint.planned_rate import planned_rate
    from fabtune.lint.rule import SEVERITIES, Unasked
    from fabtune.tune import path_choice

    _refuse_namespace(args, "lint", args.file)
    rtt_ms, rate = _given(args)
    facts = _facts(args.file, args.netns)
    planned = () if args.file else _planned(args.netns)
    known = planned_rate(facts, planned, rtt_ms) if rate is None else None
    rate = known.bit_per_s if known else rate
    path, half = path_choice.choose(facts, rtt_ms, rate), path_choice.half(facts, rtt_ms, rate)
    gaps: list[Unasked] = []
    findings = lint(facts, shipped_catalog(), path, planned, half=half, unasked=gaps.append)
    hidden = "" if args.file else unseen()
    with console.reader_may_leave():
        if args.json:
            told = {"unseen": hidden} if hidden else {}
            found, left = [one.as_json() for one in findings], [one.as_json() for one in gaps]
            by = known.as_json() if known else None
            table.print_json({"host": facts.host.name, **told, "findings": found, "unasked": left, "rate": by})
        else:
            if known:
                table.paragraph(known.in_words)
            _show_findings(findings, gaps)
    if hidden:
        console.say(f"fabtune: {hidden}: sudo fabtune lint")
    if any(one.severity != SEVERITIES[-1] for one in findings):
        return ExitCode.DRIFT
    return ExitCode.CANNOT_TELL if hidden or gaps else ExitCode.DONE


def _planned(netns: str) -> "list[ToldPath]":
    """Return the path of each profile in force in `netns`; nothing where the journal may not be read."""
    from fabtune.lint.rule import ToldPath
    from fabtune.tune import journal
    from fabtune.tune.planned_paths import lifted_by, planned_for

    with contextlib.suppress(FabtuneError):
        found = planned_for(journal.transactions())
        headers = [(one.header, lifted_by(one)) for one in found if one.header.netns == netns]
        return [
            ToldPath(
                f"profile '{one.profile}' in force",
                one.rtt_ms,
                one.rate_bit_per_s,
                one.io_bytes,
                by_nic=one.rate_by_nic,
                lifted=lifted,
            )  # fmt: skip
            for one, lifted in headers
            if one.rtt_ms is not None
        ]
    return []


def _show_findings(findings: "list[Hazard]", gaps: "list[Unasked]") -> None:
    from fabtune.lint.rule import SEVERITIES

    for one in findings:
        table.paragraph(f"{one.severity}: {one.rule} ({one.device})")
        for label, text in (("seen", one.evidence), ("so", one.consequence), ("fix", one.fix)):
            table.labelled(f"    {label}", text, 10)
    for why in dict.fromkeys(one.why for one in gaps):
        mine = [one for one in gaps if one.why == why]
        table.paragraph(f"not asked: {', '.join(sorted({one.rule for one in mine}))}")
        table.labelled("    why", why, 11)
        for gap in mine:
            if gap.known:
                table.labelled("    known", f"{gap.device}: {gap.known}", 11)
    counts = [f"{sum(one.severity == severity for one in findings)} {severity}" for severity in SEVERITIES]
    unasked = f"; {units.counted(len({one.rule for one in gaps}), 'rule')} not asked" if gaps else ""
    print(f"{units.counted(len(findings), 'finding')}: {', '.join(counts)}{unasked}")


def run_negotiate(args: argparse.Namespace) -> int:
    """Preview each login between the initiator's records and the target's TPGs; exit 1 where one would fail."""
    from fabtune.catalog.profile import load_profile
    from fabtune.tune import path_choice
    from fabtune.tune.logins import preview_logins

    _refuse_path_without_profile(args, "negotiate")
    _refuse_namespace(args, "negotiate", args.target)
    rtt_ms, rate = _given(args)
    initiator = _facts(args.initiator, "")
    target = _facts(args.target, args.netns) if args.target or args.netns or args.initiator else initiator
    profile = load_profile(args.profile, shipped_catalog()) if args.profile else None
    path = path_choice.choose(initiator, rtt_ms, rate)
    logins = preview_logins(initiator, target, profile, path)
    if not logins:
        raise InputError("no node record and no target found; give --initiator and --target facts files")
    with console.reader_may_leave():
        if args.json:
            table.print_json([one.as_json() for one in logins])
        else:
            for login in logins:
                _show_login(login)
    failing = any(agreed.problem for login in logins for agreed in login.agreed)
    return ExitCode.FAILED if failing else ExitCode.DONE


def _show_login(login: "LoginPreview") -> None:
    rows = [
        (one.name, _word(one.initiator), _word(one.target), one.rule, _word(one.result), one.problem)
        for one in login.agreed
    ]
    _section(login.label, ("key", "initiator", "target", "rule", "result", "problem"), rows)


def _word(value: int | bool | str | None) -> str:
    if isinstance(value, bool):
        return "Yes" if value else "No"
    return "-" if value is None else str(value)
