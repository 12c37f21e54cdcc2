# SPDX-License-Identifier: GPL-2.0-or-later
"""Laws that every run must obey; a record that breaks one was measured wrongly, or says something new."""

from collections.abc import Mapping

import attrs

from fabtune.measure import fio, metrics
from fabtune.measure.counters import SECTOR_BYTES, delta
from fabtune.measure.watch import seen_by_fabstat
from fabtune.model.path import Bursts, bound_bytes_per_s, unsolicited_bytes, write_round_trips
from fabtune.model.runrecord import RunRecord, StepResult
from fabtune.stat import DeviceInterval

PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "not applicable"

# How far measurement may stray from law: clocks and headers for bounds and bytes, ends of the run for depth.
BOUND_TOLERANCE = 0.01
BYTES_TOLERANCE = 0.02
DEPTH_TOLERANCE = 0.03
R2T_TOLERANCE = 0.02
# The basic header segment of every PDU (RFC 7143, 11.2); room for what is neither command nor data, such as pings.
HEADER_BYTES = 48
OTHER_BYTES = 4096
# Ethernet, IP and TCP headers of a packet: IPv4 without options, and IPv6 with a VLAN tag and timestamps.
FRAME_HEADER_BYTES = (54, 90)
ETHERNET_BYTES = 1538
# What a quiet interface carries beside the session: neighbours, a shell, monitoring.
OTHER_BYTES_PER_S = 20_000


@attrs.frozen
class LawCheck:
    """One law held against one step."""

    step: str
    law: str
    verdict: str
    found: str
    expected: str


def of_record(record: RunRecord) -> list[LawCheck]:
    """Return every law (LAWS) held against every step that ran."""
    found = []
    for result in record.steps:
        if result.fio and not result.skipped:
            for law in LAWS:
                check = law(record, result)
                if check is not None:
                    found.append(check)
    return found


def failed(record: RunRecord) -> list[LawCheck]:
    """Return the laws that the record breaks."""
    return [check for check in of_record(record) if check.verdict == FAIL]


def bound(record: RunRecord, result: StepResult, op: str) -> float | None:
    """Return what path, depth, request size and bursts allow, in bytes/s; None when the path is not known."""
    network, size = record.path.network, result.parameters.get("block_bytes")
    if not size or network is None:
        return None
    bursts = negotiated_bursts(result)
    trips = write_round_trips(min(int(size), _largest_request(record)), bursts) if op == "write" and bursts else 1
    return bound_bytes_per_s(network, int(size), result.depth, trips)


def negotiated_bursts(result: StepResult) -> Bursts | None:
    """Return what the target's session negotiated, None without exactly one session."""
    sessions = result.before.negotiated
    return bursts_of(next(iter(sessions.values()))) if len(sessions) == 1 else None


def bursts_of(values: Mapping[str, str]) -> Bursts | None:
    """Return negotiated values (RFC 7143 names) as bursts, None when one is missing."""
    try:
        return Bursts(
            first_burst_bytes=int(values["FirstBurstLength"]),
            max_burst_bytes=int(values["MaxBurstLength"]),
            target_mrdsl_bytes=int(values["MaxXmitDataSegmentLength"]),
            outstanding_r2t=int(values["MaxOutstandingR2T"]),
            immediate_data=values["ImmediateData"] in ("1", "Yes"),
            initial_r2t=values["InitialR2T"] in ("1", "Yes"),
        )
    except (KeyError, ValueError):
        return None


def _largest_request(record: RunRecord) -> int:
    """Return the bytes above which the kernel splits a request."""
    return int(record.target.queue.get("max_sectors_kb", 2**21)) * 1024


def _bound(record: RunRecord, result: StepResult) -> LawCheck | None:
    law = "no direction is faster than its bound"
    said, limits, broken = [], [], False
    for op in fio.directions(result.document):
        limit = bound(record, result, op)
        if limit is None:
            return LawCheck(result.name, law, NOT_APPLICABLE, "RTT or rate of the path not given", "")
        rate = next((m.value for m in metrics.of_step(result) if m.key == f"{op}_mb_per_s"), None)
        if rate is None:
            return LawCheck(result.name, law, NOT_APPLICABLE, "no throughput was measured", "")
        said.append(f"{op} {rate:.1f} MB/s")
        limits.append(f"{op} at most {limit / 1e6:.1f} MB/s")
        # What was begun before the measured part may end in it: at most one full queue.
        carried = result.depth * int(result.parameters["block_bytes"]) / metrics.run_s(result.document)
        broken |= rate > (limit * (1 + BOUND_TOLERANCE) + carried) / 1e6
    return LawCheck(result.name, law, FAIL if broken else PASS, ", ".join(said), ", ".join(limits))


def _bytes(record: RunRecord, result: StepResult) -> LawCheck | None:
    """The whole step, ramp and layout included, cannot be compared; a step without a ramp can."""
    law = "the disk moved the bytes that fio asked for"
    samples = result.samples
    direct = "direct=1" in result.job and "verify=" not in result.job
    if len(samples) < 2 or record.target.kind != "device" or not direct or "ramp_time=" in result.job:
        why = "needs a device, O_DIRECT and no ramp"
        return LawCheck(result.name, law, NOT_APPLICABLE, why, "")
    change = delta(samples[-1], samples[0])
    disk = (change.get("disk.dev.read_bytes", 0) + change.get("disk.dev.write_bytes", 0)) * 1024
    asked = metrics.moved_bytes(result.document)
    slack = max(BYTES_TOLERANCE * asked, 64 * SECTOR_BYTES)
    verdict = PASS if abs(disk - asked) <= slack else FAIL
    return LawCheck(result.name, law, verdict, f"disk {disk / 1e6:.3f} MB", f"fio {asked / 1e6:.3f} MB within 2 %")


def _wire(_: RunRecord, result: StepResult) -> LawCheck | None:
    law = "the session carried the disk's bytes and the headers, no more"
    change = delta(result.after.iscsi, result.before.iscsi)
    alone = [len(luns) == 1 for luns in result.before.luns.values()] == [True]
    if not alone or len(change) != 1 or len(result.samples) < 2:
        return LawCheck(result.name, law, NOT_APPLICABLE, "needs one session with one LUN", "")
    session, disk = next(iter(change.values())), delta(result.samples[-1], result.samples[0])
    if (
        not {"rxdata_octets", "txdata_octets", "disk.dev.read_bytes", "disk.dev.write_bytes"}
        <= session.keys() | disk.keys()
    ):
        return LawCheck(result.name, law, NOT_APPLICABLE, "counters missing", "")
    said, expected, broken = [], [], False
    for way, op, least, most in (
        ("tx", "write", ("scsicmd_pdus", "dataout_pdus"), ("scsicmd_pdus", "dataout_pdus")),
        # A Data-In that carries the status counts as a response too, so that these may count one PDU twice.
        ("rx", "read", ("datain_pdus", "r2t_pdus"), ("datain_pdus", "r2t_pdus", "scsirsp_pdus")),
    ):
        data, found = disk[f"disk.dev.{op}_bytes"] * 1024, session[f"{way}data_octets"]
        low, high = (data + HEADER_BYTES * sum(session.get(name, 0) for name in names) for names in (least, most))
        said.append(f"{way} {found / 1e6:.3f} MB")
        expected.append(f"{way} {low / 1e6:.3f} to {high / 1e6:.3f} MB within 2 %")
        broken |= not low * (1 - BYTES_TOLERANCE) <= found <= high * (1 + BYTES_TOLERANCE) + OTHER_BYTES
    return LawCheck(result.name, law, FAIL if broken else PASS, ", ".join(said), ", ".join(expected))


def _nic(_: RunRecord, result: StepResult) -> LawCheck | None:
    """The bytes of the whole step on the session's interface, less Ethernet, IP and TCP headers."""
    law = "the interface carried the session's bytes and headers, no more"
    before, after = result.before, result.after
    session, nics = delta(after.iscsi, before.iscsi), delta(after.nics, before.nics)
    ways = list(before.session_nics.values())
    if len(session) != 1 or len(ways) != 1 or ways[0] not in nics or len(result.samples) < 2:
        return LawCheck(result.name, law, NOT_APPLICABLE, "needs one iSCSI session over one interface", "")
    counters, nic = next(iter(session.values())), nics[ways[0]]
    if not {"rxdata_octets", "txdata_octets"} <= counters.keys():
        return LawCheck(result.name, law, NOT_APPLICABLE, "no byte counters of the session", "")
    others = OTHER_BYTES_PER_S * (result.samples[-1]["time.monotonic"] - result.samples[0]["time.monotonic"])
    said, expected, broken = [], [], False
    for way in ("tx", "rx"):
        carried = counters[f"{way}data_octets"]
        low, high = (nic[f"{way}_bytes"] - size * nic[f"{way}_packets"] for size in reversed(FRAME_HEADER_BYTES))
        if nic[f"{way}_bytes"] > ETHERNET_BYTES * nic[f"{way}_packets"]:
            # Jumbo frames, or packets that were counted joined: then the bytes may hold a header for each frame.
            low = min(low, nic[f"{way}_bytes"] * (1 - FRAME_HEADER_BYTES[1] / ETHERNET_BYTES))
        said.append(f"{way} {carried / 1e6:.3f} MB")
        expected.append(f"{way} {low / 1e6:.3f} to {high / 1e6:.3f} MB within 2 %")
        # A retransmission is carried twice; other hosts' chatter is not the session's.
        broken |= not low * (1 - BYTES_TOLERANCE) - others <= carried <= high * (1 + BYTES_TOLERANCE) + OTHER_BYTES
    return LawCheck(result.name, law, FAIL if broken else PASS, ", ".join(said), ", ".join(expected))


def _little(_: RunRecord, result: StepResult) -> LawCheck | None:
    law = "requests a second times latency is the depth (Little's law)"
    document = result.document
    if not result.closed_loop or "filecreate" in result.job or "filestat" in result.job:
        return LawCheck(result.name, law, NOT_APPLICABLE, "the load does not keep its depth full", "")
    depth = 0.0
    for op in fio.directions(document):
        latency = fio.mean_latency_ns(document, op)
        seconds = metrics.run_s(document)
        if latency and seconds:
            depth += fio.total(document, op, "total_ios") / seconds * latency / 1e9
    # A run of few requests spends much of its time filling and draining the queue.
    requests = sum(fio.total(document, op, "total_ios") for op in ("read", "write"))
    if requests < 100 * result.depth:
        return LawCheck(result.name, law, NOT_APPLICABLE, f"only {requests:.0f} requests", "")
    # Synchronous engines are outside the request between two: the depth may only fall short there.
    low = result.depth * (1 - DEPTH_TOLERANCE) if "libaio" in result.job else 0
    high = result.depth * (1 + DEPTH_TOLERANCE)
    verdict = PASS if low <= depth <= high else FAIL
    return LawCheck(result.name, law, verdict, f"{depth:.2f}", f"{result.depth} within 3 %")


def _depth(record: RunRecord, result: StepResult) -> LawCheck | None:
    law = "fabstat's depth is its requests a second times their latency (Little's law)"
    seen = seen_by_fabstat(result, record.target.disk)
    if seen is None or not seen.elapsed_ns or not seen.completed:
        return LawCheck(result.name, law, NOT_APPLICABLE, "fabstat was not loaded, or saw nothing", "")
    expected = sum(op.device_ns for op in seen.ops.values()) / seen.elapsed_ns
    # A request that ends in the window counts its whole time there, part of which may lie before.
    slack = DEPTH_TOLERANCE * expected + 2 * seen.device.highest * _mean_ns(seen) / seen.elapsed_ns
    verdict = PASS if abs(seen.mean_depth - expected) <= slack else FAIL
    return LawCheck(result.name, law, verdict, f"{seen.mean_depth:.2f}", f"{expected:.2f} within {slack:.2f}")


def _mean_ns(seen: DeviceInterval) -> float:
    return sum(op.device_ns for op in seen.ops.values()) / seen.completed


def _r2t(record: RunRecord, result: StepResult) -> LawCheck | None:
    law = "R2Ts a write follow from the negotiated bursts"
    bursts = negotiated_bursts(result)
    size = result.parameters.get("block_bytes")
    change = delta(result.after.iscsi, result.before.iscsi)
    if bursts is None or not size or len(change) != 1 or "write" not in fio.directions(result.document):
        return LawCheck(result.name, law, NOT_APPLICABLE, "no writes on one iSCSI session", "")
    counters = next(iter(change.values()))
    if "read" in fio.directions(result.document) or int(size) > _largest_request(record):
        return LawCheck(result.name, law, NOT_APPLICABLE, "reads in between, or requests that the kernel splits", "")
    if not counters.get("scsicmd_pdus"):
        return LawCheck(result.name, law, NOT_APPLICABLE, "no command counter", "")
    solicited = int(size) - unsolicited_bytes(int(size), bursts)
    expected = -(-solicited // bursts.max_burst_bytes)
    found = counters.get("r2t_pdus", 0) / counters["scsicmd_pdus"]
    verdict = PASS if abs(found - expected) <= R2T_TOLERANCE * max(1, expected) else FAIL
    return LawCheck(result.name, law, verdict, f"{found:.3f}", str(expected))


def _captured(record: RunRecord, result: StepResult) -> LawCheck | None:
    """The capture is of a short load of the run's own kind: its R2Ts belong to the step that wrote."""
    captured, bursts = record.capture, negotiated_bursts(result)
    if captured is None or "write" not in fio.directions(result.document):
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
    jobs = result.document["jobs"]
    if result.must_fail:
        return None
    busy = sum(any(job[op]["total_ios"] for op in ("read", "write")) for job in jobs)
    law = "every stream of the load moved data"
    return LawCheck(result.name, law, PASS if busy == len(jobs) else FAIL, f"{busy} streams", str(len(jobs)))


def _flipped(_: RunRecord, result: StepResult) -> LawCheck | None:
    if not result.must_fail:
        return None
    found = result.failed_as_expected
    law = "a flipped byte is found"
    return LawCheck(result.name, law, PASS if found else FAIL, found or "nothing found", "the damaged block named")


def _stuck(_: RunRecord, result: StepResult) -> LawCheck | None:
    stuck = result.stuck
    if stuck is None:
        return None
    law = f"no request stays outstanding for {stuck.after_s:g} s"
    verdict = FAIL if stuck.requests else PASS
    return LawCheck(result.name, law, verdict, f"oldest seen {stuck.oldest_s:.1f} s", f"below {stuck.after_s:g} s")


LAWS = (_streams, _bound, _bytes, _wire, _nic, _little, _depth, _r2t, _captured, _flipped, _stuck)
