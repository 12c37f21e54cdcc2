# SPDX-License-Identifier: GPL-2.0-or-later
"""Laws that every run must obey; one that breaks a law says something new, or its own figure cannot be right."""

import dataclasses
import math
from collections.abc import Mapping

import attrs

from fabtune.host.blocks import SECTOR_BYTES
from fabtune.measure import measured
from fabtune.measure.growth import delta, deltas
from fabtune.model import capacity
from fabtune.model.path import LINUX_FRAMING, Bursts, bound_bytes_per_s, unsolicited_bytes
from fabtune.model.runrecord import RunRecord, StepResult
from fabtune.stat import DeviceInterval

PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "not applicable"

# What an emulated line counted: then the path is known, and not only told.
_EMULATED = "qdiscs_before"
# How far measurement may stray from law: clocks and headers for bounds and bytes, ends of the run for depth.
BOUND_TOLERANCE = 0.01
BYTES_TOLERANCE = 0.02
DEPTH_TOLERANCE = 0.03
R2T_TOLERANCE = 0.02
ON_TIME_TOLERANCE = 0.1
_ALL_STEPS = "a run that reached its end did all of its steps"
# The basic header segment of every PDU (RFC 7143, 11.2); room for what is neither command nor data, such as pings.
HEADER_BYTES = 48
OTHER_BYTES = 4096
_ANSWERS = ("datain_pdus", "r2t_pdus")
# Ethernet, IP and TCP headers of a packet: IPv4 without options, and IPv6 with a VLAN tag and timestamps.
FRAME_HEADER_BYTES = (54, 90)
ETHERNET_BYTES = 1538
# What a quiet interface carries beside the session: neighbours, a shell, monitoring.
OTHER_BYTES_PER_S = 20_000


@attrs.frozen
class LawCheck:
    """One law held against one step; `voids` tells that the step's own figures cannot be right where it is broken."""

    step: str
    law: str
    verdict: str
    found: str
    expected: str
    voids: bool = False


def of_record(record: RunRecord) -> list[LawCheck]:
    """Return every law (LAWS) held against every step that ran."""
    found = []
    for result in record.steps:
        if result.fio and not result.skipped:
            for law in LAWS:
                check = law(record, result)
                if check is not None:
                    found.append(check)
    return found + [
        LawCheck(step, _ALL_STEPS, FAIL, why, "figures of each, and no error", voids=True)
        for step, why in left_undone(record)
    ]


def left_undone(record: RunRecord) -> list[tuple[str, str]]:
    """Return the steps that a complete run did not do, or with an error, and why: it is as good as failed."""
    if not record.complete:
        return []
    found = [("", record.problem)] if record.problem else []
    if not record.steps and record.workload.name != "net":
        found.append(("", "no step at all"))
    for step in record.steps:
        if step.skipped or step.must_fail:
            continue
        errors = step.document.errors
        if step.problem:
            found.append((step.name, step.problem))
        elif errors:
            found.append((step.name, f"fio ended with error {', '.join(errors)}"))
        elif step.iperf3 is None and not step.document.jobs:
            found.append((step.name, "nothing measured"))
    return found


def failed(record: RunRecord) -> list[LawCheck]:
    """Return the laws that the record breaks."""
    return [check for check in of_record(record) if check.verdict == FAIL]


def voiding(record: RunRecord) -> list[LawCheck]:
    """Return the broken laws for which the record's own figures cannot be right, so that it is left out."""
    return [check for check in failed(record) if check.voids]


def void_because(record: RunRecord) -> str:
    """Return the laws for which `record` is left out, in words; nothing where there is none."""
    broken = voiding(record)
    return "; ".join(f"{one.step}: broken law: {one.law} ({one.found}, expected {one.expected})" for one in broken)


def bound(record: RunRecord, result: StepResult, op: str, framing_bytes: int | None = None) -> float | None:
    """Return what path, depth, request size, bursts and disk allow in bytes/s, None when the path is not known.

    The two directions of a mixed load share its depth, in the mix that was measured.  `framing_bytes` stands in for
    what the path's rate counts of a packet.
    """
    network, size = record.path.network, result.parameters.get("block_bytes")
    counts = {way: measured.requests(result, way) for way in result.document.directions}
    # Past the page cache alone is the depth that of the disk.
    if not size or network is None or not counts.get(op) or "direct=1" not in result.job:
        return None
    if framing_bytes is not None:
        network = dataclasses.replace(network, framing_bytes=framing_bytes)
    share = counts[op] / sum(counts.values())
    trips = sum(trips_of_request(record, result, way) * count for way, count in counts.items())
    found = bound_bytes_per_s(network, int(size), result.depth, trips / sum(counts.values()), share=share)
    return min(found, share * (record.target.limit_bytes_per_s or math.inf))


def trips_of_request(record: RunRecord, result: StepResult, op: str) -> int:
    """Return the round trips of one request, by the bursts; the parts that the kernel makes of it take theirs at once.

    Without a request size or negotiated values it is the command's own.
    """
    size = result.parameters.get("block_bytes")
    if op != "write" or not size:
        return 1
    return capacity.round_trips(op, min(int(size), _largest_request(record)), negotiated_bursts(result))


def negotiated_bursts(result: StepResult) -> Bursts | None:
    """Return what the target's sessions negotiated, None where they are not alike or there are none."""
    found = {bursts_of(values) for values in result.before.negotiated.values()}
    return found.pop() if len(found) == 1 else None


def bursts_of(values: Mapping[str, str]) -> Bursts | None:
    """Return negotiated values (RFC 7143 names) as bursts, None when one is missing or none that there can be."""
    try:
        found = Bursts(
            first_burst_bytes=int(values["FirstBurstLength"]),
            max_burst_bytes=int(values["MaxBurstLength"]),
            target_mrdsl_bytes=int(values["MaxXmitDataSegmentLength"]),
            outstanding_r2t=int(values["MaxOutstandingR2T"]),
            immediate_data=values["ImmediateData"] in ("1", "Yes"),
            initial_r2t=values["InitialR2T"] in ("1", "Yes"),
        )
    except (KeyError, ValueError):
        return None
    sizes = (found.first_burst_bytes, found.max_burst_bytes, found.target_mrdsl_bytes, found.outstanding_r2t)
    return found if min(sizes) > 0 else None


def _largest_request(record: RunRecord) -> int:
    """Return the bytes above which the kernel splits a request."""
    said = record.target.queue.get("max_sectors_kb", "")
    return int(said) * 1024 if said.isdecimal() and int(said) else 2**31


def _bound(record: RunRecord, result: StepResult) -> LawCheck | None:
    law = "no direction is faster than its bound"
    said, limits, broken = [], [], False
    # What stood still was no faster than anything, and has no share of the path by which to tell its bound.
    for op in (way for way in result.document.directions if measured.requests(result, way)):
        # A shaper may count less of a packet than the wire does.
        limit, most = bound(record, result, op), bound(record, result, op, LINUX_FRAMING)
        if limit is None or most is None:
            return LawCheck(result.name, law, NOT_APPLICABLE, "RTT or rate of the path not given", "")
        rate = measured.throughput_of(result, op)
        if rate is None:
            return LawCheck(result.name, law, NOT_APPLICABLE, "no throughput was measured", "")
        said.append(f"{op} {rate.bytes_per_s / 1e6:.1f} MB/s")
        limits.append(f"{op} at most {limit / 1e6:.1f} MB/s")
        broken |= rate.bytes_per_s > most * (1 + BOUND_TOLERANCE) + rate.error_bytes_per_s
    # A path that was told may be another one: then the bound is wrong, and the faster a run, the likelier it breaks it.
    emulated = _EMULATED in record.environment
    expected = ", ".join(limits) + ("" if emulated else " by the path as it was told")
    return LawCheck(result.name, law, FAIL if broken else PASS, ", ".join(said), expected, voids=emulated)


def is_beyond_bound(record: RunRecord, result: StepResult) -> bool:
    """Return whether a step was faster than its path allows, as that was told or emulated."""
    check = _bound(record, result)
    return check is not None and check.verdict == FAIL


def _bytes(_: RunRecord, result: StepResult) -> LawCheck | None:
    law = "the disk moved the bytes that fio asked for"
    moved = measured.disk_bytes(result) if measured.on_device(result) else None
    if moved is None:
        return LawCheck(result.name, law, NOT_APPLICABLE, "needs a device, O_DIRECT and samples", "")
    low, high = moved
    asked = result.document.moved_bytes()
    # A burst of requests may come back between two samples.
    slack = max(BYTES_TOLERANCE * asked, 64 * SECTOR_BYTES)
    slack += result.depth * asked / max(1, sum(measured.requests(result, op) for op in ("read", "write")))
    said = f"disk {low / 1e6:.3f} MB" if low == high else f"disk {low / 1e6:.3f} to {high / 1e6:.3f} MB"
    verdict = PASS if low - slack <= asked <= high + slack else FAIL
    return LawCheck(
        result.name, law, verdict, said, f"fio {asked / 1e6:.3f} MB within {slack / 1e6:.3f} MB", voids=True
    )


def _wire(_: RunRecord, result: StepResult) -> LawCheck | None:
    """The whole step, by the counters of the session's interface, less Ethernet, IP and TCP headers.

    The session's own count of what it sent is no help: of a packet that the socket refuses at first, iscsi_tcp adds
    nothing (libiscsi_tcp, iscsi_sw_tcp_xmit after -EAGAIN).
    """
    law = "the interface carried the disk's bytes and the session's headers, no more"
    before, after = result.before, result.after
    session, nics = deltas(after.iscsi, before.iscsi), deltas(after.nics, before.nics)
    ways = list(before.session_nics.values())
    alone = [len(luns) == 1 for luns in before.luns.values()] == [True]
    if not alone or len(session) != 1 or len(ways) != 1 or ways[0] not in nics or len(result.samples) < 2:
        return LawCheck(result.name, law, NOT_APPLICABLE, "needs one iSCSI session with one LUN over one interface", "")
    counters, nic, disk = next(iter(session.values())), nics[ways[0]], delta(result.samples[-1], result.samples[0])
    if "scsicmd_pdus" not in counters or "disk.dev.read_bytes" not in disk:
        return LawCheck(result.name, law, NOT_APPLICABLE, "no counters of the session or the disk", "")
    others = OTHER_BYTES_PER_S * disk["time.monotonic"] + OTHER_BYTES
    resent = disk.get("network.tcp.retranssegs", 0) * ETHERNET_BYTES
    said, expected, broken = [], [], False
    for way, op, pdus in (("tx", "write", ("scsicmd_pdus", "dataout_pdus")), ("rx", "read", _ANSWERS)):
        carried = disk[f"disk.dev.{op}_bytes"] * 1024 + HEADER_BYTES * sum(counters.get(name, 0) for name in pdus)
        low: float
        low, high = (nic[f"{way}_bytes"] - size * nic[f"{way}_packets"] for size in reversed(FRAME_HEADER_BYTES))
        if nic[f"{way}_bytes"] > ETHERNET_BYTES * nic[f"{way}_packets"]:
            # Jumbo frames, or packets that were counted joined: then the bytes may hold a header for each frame.
            low = min(low, nic[f"{way}_bytes"] * (1 - FRAME_HEADER_BYTES[1] / ETHERNET_BYTES))
        said.append(f"{way} {low / 1e6:.3f} to {high / 1e6:.3f} MB")
        expected.append(f"{way} {carried / 1e6:.3f} MB within 2 %")
        # A retransmission is carried twice; other hosts' chatter is not the session's.
        broken |= not low * (1 - BYTES_TOLERANCE) - others - resent <= carried <= high * (1 + BYTES_TOLERANCE) + others
    return LawCheck(result.name, law, FAIL if broken else PASS, ", ".join(said), ", ".join(expected))


def _little(_: RunRecord, result: StepResult) -> LawCheck | None:
    law = "requests a second times latency is the depth (Little's law)"
    document = result.before_drain or result.document
    seconds = measured.run_s(result)
    if not result.closed_loop or "filecreate" in result.job or "filestat" in result.job or not seconds:
        return LawCheck(result.name, law, NOT_APPLICABLE, "the load does not keep its depth full", "")
    spent_s = longest_s = 0.0
    for op in document.directions:
        spent_s += measured.requests(result, op) * (document.mean_latency_ns(op) or 0.0) / 1e9
        longest_s = max(longest_s, document.longest_ns(op) / 1e9)
    # A request that ends in the part counts its whole time there, of which as much as the longest took lies outside.
    slack = DEPTH_TOLERANCE + longest_s / seconds
    if slack > 1 or not spent_s:
        why = f"requests of up to {longest_s:.1f} s in a part of {seconds:.1f} s"
        return LawCheck(result.name, law, NOT_APPLICABLE, why, "")
    depth = spent_s / seconds
    # Synchronous engines are outside the request between two: the depth may only fall short there.
    low = result.depth * (1 - slack) if "libaio" in result.job else 0
    verdict = PASS if low <= depth <= result.depth * (1 + slack) else FAIL
    return LawCheck(result.name, law, verdict, f"{depth:.2f}", f"{result.depth} within {slack:.0%}")


def _on_time(_: RunRecord, result: StepResult) -> LawCheck | None:
    """What the generator itself loses is in every latency; what the device's full queue holds up is the device's."""
    if result.offered is None:
        return None
    law = "requests left at their instants, but for a tenth of what the median took"
    medians = [measured.latencies(result, op).quantile_ns(0.5) for op in result.document.directions]
    least = min((ns for ns in medians if ns is not None), default=None)
    if least is None:
        return LawCheck(result.name, law, NOT_APPLICABLE, "no latency is known", "")
    late_ns = result.offered.late_p99_ns
    verdict = PASS if late_ns <= ON_TIME_TOLERANCE * least else FAIL
    said = f"99 % at most {late_ns / 1e6:.3f} ms late"
    return LawCheck(result.name, law, verdict, said, f"at most {ON_TIME_TOLERANCE * least / 1e6:.3f} ms")


def _depth(_: RunRecord, result: StepResult) -> LawCheck | None:
    law = "fabstat's depth is its requests a second times their latency (Little's law)"
    seen = measured.seen(result)
    if seen is None or not seen.elapsed_ns or not seen.completed:
        return LawCheck(result.name, law, NOT_APPLICABLE, "fabstat was not loaded, or saw nothing", "")
    if seen.mean_depth is None:
        return LawCheck(result.name, law, NOT_APPLICABLE, "fabstat's depth is not known well enough", "")
    expected = sum(op.device_ns for op in seen.ops.values()) / seen.elapsed_ns
    # A request that ends in the window counts its whole time there, part of which may lie before.
    slack = DEPTH_TOLERANCE * expected + 2 * seen.device.highest * _mean_ns(seen) / seen.elapsed_ns
    verdict = PASS if abs(seen.mean_depth - expected) <= slack else FAIL
    return LawCheck(result.name, law, verdict, f"{seen.mean_depth:.2f}", f"{expected:.2f} within {slack:.2f}")


def _mean_ns(seen: DeviceInterval) -> float:
    return sum(op.device_ns for op in seen.ops.values()) / seen.completed


def _r2t(_: RunRecord, result: StepResult) -> LawCheck | None:
    law = "R2Ts a write follow from the negotiated bursts"
    bursts = negotiated_bursts(result)
    size = result.parameters.get("block_bytes")
    change = deltas(result.after.iscsi, result.before.iscsi)
    if bursts is None or not size or len(change) != 1 or "write" not in result.document.directions:
        return LawCheck(result.name, law, NOT_APPLICABLE, "no writes on one iSCSI session", "")
    disk = delta(result.samples[-1], result.samples[0]) if len(result.samples) > 1 else {}
    # The disk's own count: among the session's commands are reads, which no R2T answers.
    writes = disk.get("disk.dev.write", 0)
    if not writes or "r2t_pdus" not in next(iter(change.values())):
        return LawCheck(result.name, law, NOT_APPLICABLE, "no count of writes and R2Ts", "")
    if abs(disk["disk.dev.write_bytes"] * 1024 / writes / int(size) - 1) > R2T_TOLERANCE:
        return LawCheck(result.name, law, NOT_APPLICABLE, "the kernel split or merged the writes", "")
    solicited = int(size) - unsolicited_bytes(int(size), bursts)
    expected = -(-solicited // bursts.max_burst_bytes)
    found = next(iter(change.values()))["r2t_pdus"] / writes
    verdict = PASS if abs(found - expected) <= R2T_TOLERANCE * max(1, expected) else FAIL
    return LawCheck(result.name, law, verdict, f"{found:.3f}", str(expected))


def _captured(record: RunRecord, result: StepResult) -> LawCheck | None:
    """The capture is of a short load of the run's own kind: its R2Ts belong to the step that wrote."""
    captured, bursts = record.capture, negotiated_bursts(result)
    if captured is None or "write" not in result.document.directions:
        return None
    law = "R2Ts a write in the capture follow from the negotiated bursts"
    if bursts is None or captured.r2ts_per_write is None or not captured.write_bytes:
        return LawCheck(result.name, law, NOT_APPLICABLE, "no writes of one size on one session captured", "")
    solicited = captured.write_bytes - unsolicited_bytes(captured.write_bytes, bursts)
    expected = -(-solicited // bursts.max_burst_bytes)
    verdict = PASS if captured.r2ts_per_write == expected else FAIL
    return LawCheck(result.name, law, verdict, f"{captured.r2ts_per_write:g}", str(expected))


def _streams(_: RunRecord, result: StepResult) -> LawCheck | None:
    """A job that fio gives nothing to do ends without a word."""
    if result.must_fail:
        return None
    busy, jobs = result.document.busy_jobs, result.document.jobs
    law = "every stream of the load moved data"
    verdict = PASS if busy == len(jobs) else FAIL
    return LawCheck(result.name, law, verdict, f"{busy} streams", str(len(jobs)), voids=True)


def _flipped(_: RunRecord, result: StepResult) -> LawCheck | None:
    if not result.must_fail:
        return None
    found = result.failed_as_expected
    law = "a flipped byte is found"
    return LawCheck(
        result.name, law, PASS if found else FAIL, found or "nothing found", "the damaged block named", voids=True
    )


def _stuck(_: RunRecord, result: StepResult) -> LawCheck | None:
    stuck = result.stuck
    if stuck is None:
        return None
    law = f"no request stays outstanding for {stuck.after_s:g} s"
    verdict = FAIL if stuck.requests else PASS
    return LawCheck(result.name, law, verdict, f"oldest seen {stuck.oldest_s:.1f} s", f"below {stuck.after_s:g} s")


LAWS = (_streams, _bound, _bytes, _wire, _little, _on_time, _depth, _r2t, _captured, _flipped, _stuck)
