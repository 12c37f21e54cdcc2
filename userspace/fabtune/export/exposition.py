# SPDX-License-Identifier: GPL-2.0-or-later
"""Every metric that fabtune exports: its name, its help, and the samples that a look at the host gives.

Documentation/monitoring.md lists them, by tests/unit/test_export.py.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from fabtune import __version__
from fabtune.export.families import OPENMETRICS, Family, histogram_lines, labels, metric_text, sample_line, seconds
from fabtune.export.gather import SOURCES, Gathered, WatchedDevice
from fabtune.export.guarded import Guarded, WatchedPath
from fabtune.host.sessions import Session
from fabtune.host.sockets import TcpSocket
from fabtune.stat import CountedDevice
from fabtune.stat.snapshot import HELD_EVENTS, QUEUE_FULL_EVENTS

Samples = tuple[str, float]
STATES = ("LOGGED_IN", "FAILED", "FREE")

_LATENCIES = {
    "device": ("device", "device_ns", "Time from a request's last issue to its completion."),
    "total": (
        "total",
        "total_ns",
        "From the first issue on, retries included; absent while all are as in device.",
    ),
    "refused": ("refused", "refused_ns", "Time from the first refusal to the issue that went through."),
}
LATENCIES = {
    time: Family(f"fabtune_{name}_latency_seconds", "histogram", text) for time, (name, _, text) in _LATENCIES.items()
}


@dataclass(frozen=True, slots=True)
class _Watch:
    """What is gathered, with the labels of each device and session made once."""

    gathered: Gathered
    devices: list[tuple[WatchedDevice, str]]
    sessions: list[tuple[Session, TcpSocket | None, str]]


def render(gathered: Gathered, form: str) -> Iterator[str]:
    """Yield the metrics of `gathered` as text, one metric after the other."""
    watch = _Watch(
        gathered,
        [(one, device_labels(one)) for one in gathered.devices],
        [(session, socket, session_labels(session)) for session, socket in gathered.sessions],
    )
    for time, family in LATENCIES.items():
        yield from metric_text(family, _histograms(watch, family, time), form)
    for family, samples in METRICS.items():
        yield from metric_text(family, (sample_line(family, text, value) for text, value in samples(watch)), form)
    if form == OPENMETRICS:
        yield "# EOF\n"


def device_labels(one: WatchedDevice) -> str:
    """Return the labels that every metric of a disk has."""
    return labels({"device": one.device.disk, "target": one.endpoint.target, "portal": one.endpoint.portal})


def session_labels(session: Session) -> str:
    """Return the labels that every metric of a session has; `session` counts those of one record."""
    return labels({
        "target": session.target, "portal": session.portal, "interface": session.interface,
        "session": str(session.place),
    })  # fmt: skip


def _histograms(watch: _Watch, family: Family, time: str) -> Iterator[str]:
    sum_of = _LATENCIES[time][1]
    for one, label_text in watch.devices:
        for name, op in one.device.ops.items():
            found = op.histograms.get(time)
            # While no request was issued twice the total times are the device times; on most hosts that is always.
            if found and found.counts and not (time == "total" and found == op.histograms["device"]):
                yield from histogram_lines(family, f'{label_text},op="{name}"', found, getattr(op, sum_of))


def _of_ops(field: str) -> Callable[[_Watch], Iterator[Samples]]:
    def samples(watch: _Watch) -> Iterator[Samples]:
        for one, label_text in watch.devices:
            for name, op in one.device.ops.items():
                yield f'{label_text},op="{name}"', getattr(op, field)

    return samples


def _of_devices(value: Callable[[CountedDevice], float]) -> Callable[[_Watch], Iterator[Samples]]:
    return lambda watch: ((label_text, value(one.device)) for one, label_text in watch.devices)


def _integrals(watch: _Watch) -> Iterator[Samples]:
    for one, label_text in watch.devices:
        # Of a torn reading it may be off by any time.
        if not one.device.torn:
            yield label_text, seconds(one.device.depth_ns)


def _of_events(names: Iterable[str], label: str) -> Callable[[_Watch], Iterator[Samples]]:
    def samples(watch: _Watch) -> Iterator[Samples]:
        for one, label_text in watch.devices:
            for name in names:
                yield f'{label_text},{label}="{name}"', one.device.events.get(name, 0)

    return samples


def _errors(watch: _Watch) -> Iterator[Samples]:
    for one, label_text in watch.devices:
        for name, op in one.device.ops.items():
            for kind, count in op.errors_by_class.items():
                yield f'{label_text},op="{name}",class="{kind.removeprefix("error_")}"', count


def _infos(watch: _Watch) -> Iterator[Samples]:
    for one, label_text in watch.devices:
        rest = {"driver": one.device.driver, "transport": one.endpoint.transport, "head": one.head}
        yield f"{label_text},{labels(rest)}", 1


def _stuck(oldest: bool) -> Callable[[_Watch], Iterator[Samples]]:
    def samples(watch: _Watch) -> Iterator[Samples]:
        if watch.gathered.stuck is None:
            return
        ages: defaultdict[int | str, list[float]] = defaultdict(list)
        for request in watch.gathered.stuck.requests:
            # Its name may be another's by now; without a request in the books a disk has nothing else.
            ages[request.id or request.disk].append(request.known_age_s)
        for one, label_text in watch.devices:
            found = ages[one.device.id] + ages[one.device.disk]
            yield label_text, max(found, default=0) if oldest else len(found)

    return samples


def _of_module(key: str, unit: float = 1) -> Callable[[_Watch], Iterator[Samples]]:
    def samples(watch: _Watch) -> Iterator[Samples]:
        reading = watch.gathered.snapshot
        if reading and key in reading.module:
            value = int(reading.module[key])
            yield "", value if unit == 1 else value * unit

    return samples


def _module_info(watch: _Watch) -> Iterator[Samples]:
    reading = watch.gathered.snapshot
    if reading:
        known = {name: reading.module.get(name, "") for name in ("version", "clock", "missing")}
        yield labels(known), 1


def _session_states(watch: _Watch) -> Iterator[Samples]:
    for session, _, label_text in watch.sessions:
        for state in STATES if session.state in STATES else (*STATES, "other"):
            now = session.state if session.state in STATES else "other"
            yield f'{label_text},state="{state}"', int(state == now)


def _of_sessions(value: Callable[[Session], float]) -> Callable[[_Watch], Iterator[Samples]]:
    return lambda watch: ((label_text, value(session)) for session, _, label_text in watch.sessions)


def _of_sockets(value: Callable[[TcpSocket], float]) -> Callable[[_Watch], Iterator[Samples]]:
    return lambda watch: ((label_text, value(socket)) for _, socket, label_text in watch.sessions if socket is not None)


def _sources(watch: _Watch) -> Iterator[Samples]:
    for source in SOURCES:
        yield f'source="{source}"', int(source not in watch.gathered.problems)


def _verified(field: str) -> Callable[[_Watch], Iterator[Samples]]:
    def samples(watch: _Watch) -> Iterator[Samples]:
        outcome = watch.gathered.verified
        if outcome is not None:
            counts = getattr(outcome, field)
            yield from ((labels({"tunable": name}), counts[name]) for name in sorted(counts))

    return samples


def _of_verified(field: str) -> Callable[[_Watch], Iterator[Samples]]:
    def samples(watch: _Watch) -> Iterator[Samples]:
        outcome = watch.gathered.verified
        if outcome is not None:
            found = getattr(outcome, field)
            yield "", found if isinstance(found, int | float) else sum(found.values())

    return samples


def _of_guarded(value: Callable[[Guarded], float]) -> Callable[[_Watch], Iterator[Samples]]:
    def samples(watch: _Watch) -> Iterator[Samples]:
        if watch.gathered.guarded is not None:
            yield "", value(watch.gathered.guarded)

    return samples


def _of_paths(value: Callable[[WatchedPath], float]) -> Callable[[_Watch], Iterator[Samples]]:
    def samples(watch: _Watch) -> Iterator[Samples]:
        if watch.gathered.guarded is not None:
            for one in watch.gathered.guarded.paths:
                yield labels({"profile": one.profile, "role": one.role, "netns": one.netns}), value(one)

    return samples


METRICS: dict[Family, Callable[[_Watch], Iterable[Samples]]] = {
    Family(name, "counter" if name.endswith("_total") else "gauge", text): samples
    for name, text, samples in (
        ("fabtune_device_info", "Always 1: driver, transport, and the multipath disk whose path a device is.", _infos),
        ("fabtune_request_bytes_total", "Bytes of completed requests.", _of_ops("bytes")),
        ("fabtune_requests_sent_back_total", "Requests that were issued and then requeued.", _of_ops("sent_back")),
        # Of each kind from its first request on: no rate sees the increase that a series begins with.
        ("fabtune_failed_requests_total", "Requests that failed, whatever their class.", _of_ops("errors")),
        ("fabtune_request_errors_total", "Requests that failed, by class; absent while there are none.", _errors),
        (
            "fabtune_refusals_total",
            "Commands that the target (task_set_full, busy) or the driver refused (target_busy: closed iSCSI window).",
            _of_events(QUEUE_FULL_EVENTS, "kind"),
        ),
        (
            "fabtune_held_requests_total",
            "Requests that were held back before the driver was asked, by reason.",
            _of_events(HELD_EVENTS, "kind"),
        ),
        (
            "fabtune_timeouts_total",
            "Timers of commands that expired (timeout), and those that no transport forgave (timed_out).",
            _of_events(("timeout", "timed_out"), "kind"),
        ),
        (
            "fabtune_error_handler_wakeups_total",
            "Wake-ups of the SCSI error handler of the device's host.",
            _of_devices(lambda one: one.eh_wakeups),
        ),
        ("fabtune_in_flight_requests", "Requests that the device has now.", _of_devices(lambda one: one.in_flight)),
        (
            "fabtune_in_flight_limit_requests",
            "Requests that the device may have at once; 0 before its first.",
            _of_devices(lambda one: one.limit),
        ),
        (
            # No counter: it may fall by what it was off, which Prometheus would take for one that began anew.
            "fabtune_in_flight_seconds",
            "Integral of the requests in flight over time, nearly; its growth a second is the mean depth.",
            _integrals,
        ),
        (
            "fabtune_at_limit_seconds_total",
            "Time that the device spent at its limit of requests.",
            _of_devices(lambda one: seconds(one.at_limit_ns)),
        ),
        ("fabtune_stuck_requests", "Requests on the module's stuck list.", _stuck(oldest=False)),
        ("fabtune_stuck_oldest_seconds", "Age of the oldest stuck request, 0 without one.", _stuck(oldest=True)),
        ("fabtune_session_state", "1 for the state that an iSCSI session is in.", _session_states),
        (
            "fabtune_session_limit_commands",
            "Commands that a session may have outstanding at once (cmds_max).",
            _of_sessions(lambda one: one.can_queue),
        ),
        (
            "fabtune_tcp_busy_seconds_total",
            "Time that the session's socket had data to send or to be acknowledged.",
            _of_sockets(lambda one: seconds(one.busy_us * 1000)),
        ),
        (
            "fabtune_tcp_receive_window_limited_seconds_total",
            "Time that sending waited for the receiver's window.",
            _of_sockets(lambda one: seconds(one.rwnd_limited_us * 1000)),
        ),
        (
            "fabtune_tcp_send_buffer_limited_seconds_total",
            "Time that sending waited for room in the send buffer, as far as TCP notes it.",
            _of_sockets(lambda one: seconds(one.sndbuf_limited_us * 1000)),
        ),
        ("fabtune_tcp_sent_bytes_total", "Bytes acknowledged.", _of_sockets(lambda one: one.acked_bytes)),
        ("fabtune_tcp_received_bytes_total", "Bytes received.", _of_sockets(lambda one: one.received_bytes)),
        (
            "fabtune_tcp_retransmitted_segments_total",
            "Segments sent again.",
            _of_sockets(lambda one: one.retransmitted_segments),
        ),
        ("fabtune_tcp_rtt_seconds", "Round trip, smoothed.", _of_sockets(lambda one: one.rtt_ms / 1e3)),
        ("fabtune_tcp_min_rtt_seconds", "Least round trip seen.", _of_sockets(lambda one: one.min_rtt_ms / 1e3)),
        (
            "fabtune_tcp_congestion_window_bytes",
            "What congestion control lets be in flight.",
            _of_sockets(lambda one: one.cwnd_segments * one.mss_bytes),
        ),
        (
            "fabtune_tcp_receive_buffer_bytes",
            "Size of the receive buffer, twice its payload.",
            _of_sockets(lambda one: one.receive_buffer_bytes),
        ),
        (
            "fabtune_tcp_send_buffer_bytes",
            "Size of the send buffer, twice its payload.",
            _of_sockets(lambda one: one.send_buffer_bytes),
        ),
        ("fabtune_drifted_values", "Values that are not as applied, by tunable.", _verified("drifted")),
        ("fabtune_drift_values", "Values that are not as applied.", _of_verified("drifted")),
        ("fabtune_due_values", "What waits for a new login or for an apply to be finished.", _of_verified("due")),
        ("fabtune_verified_values", "Values that the last verification compared.", _of_verified("checked")),
        ("fabtune_verify_time_seconds", "When verification ran last, since 1970.", _of_verified("time_s")),
        (
            "fabtune_guard_time_seconds",
            "When `fabtune guard` looked last, since 1970.",
            _of_guarded(lambda watch: watch.time_s),
        ),
        ("fabtune_guard_heals", "1 where guard may write values again.", _of_guarded(lambda watch: int(watch.heals))),
        (
            "fabtune_guard_healed_values_total",
            "Values that guard has written again since it began.",
            _of_guarded(lambda watch: watch.healed_values),
        ),
        (
            "fabtune_guard_followed_paths_total",
            "Times that guard has brought values to a path that had moved since it began.",
            _of_guarded(lambda watch: watch.followed_paths),
        ),
        (
            "fabtune_guard_path_rtt_seconds",
            "Longest round trip, as it is now, of the connections that a profile in force was planned for.",
            _of_paths(lambda path: path.rtt_s),
        ),
        (
            "fabtune_guard_path_planned_rtt_seconds",
            "Round trip that a profile in force was planned for.",
            _of_paths(lambda path: path.planned_rtt_s),
        ),
        (
            "fabtune_guard_path_moved",
            "1 where that is no longer the path's own round trip, and its values are for the old one.",
            _of_paths(lambda path: int(path.moved)),
        ),
        (
            "fabtune_guard_path_rate_moved",
            "1 where less arrives while a queue stands than was carried before.",
            _of_paths(lambda path: int(path.rate_moved)),
        ),
        (
            "fabtune_guard_path_at_pace",
            "1 where a connection has sent at its own pace for minutes: the line may carry more.",
            _of_paths(lambda path: int(path.at_pace)),
        ),
        ("fabtune_module_info", "Always 1: the module's version and clock, tracepoints that it lacks.", _module_info),
        ("fabtune_module_enabled", "1 while the module's probes are attached.", _of_module("enabled")),
        ("fabtune_module_scsi_attached", "1 while all SCSI tracepoints are attached.", _of_module("scsi")),
        ("fabtune_module_memory_bytes", "Memory that the module has taken.", _of_module("memory_bytes")),
        ("fabtune_module_memory_limit_bytes", "The most that it may take.", _of_module("memory_limit_bytes")),
        ("fabtune_module_memory_refused_total", "Times that it got no memory.", _of_module("memory_refused")),
        ("fabtune_module_untracked_total", "Events that it could give to no device.", _of_module("untracked")),
        ("fabtune_stuck_threshold_seconds", "Age from which a request is stuck.", _of_module("stuck_ms", 1e-3)),
        ("fabtune_source_up", "1 if this part of the host could be read.", _sources),
        (
            "fabtune_devices_left_out",
            "Disks that are not exported, because there are too many.",
            lambda watch: [("", watch.gathered.left_out)],
        ),
        (
            "fabtune_gather_cpu_seconds",
            "CPU time that looking took, without writing it out.",
            lambda watch: [("", watch.gathered.cpu_s)],
        ),
        ("fabtune_build_info", "Always 1: fabtune's version.", lambda _: [(labels({"version": __version__}), 1)]),
        ("fabtune_up", "1 if the reader answered.", lambda _: [("", 1)]),
    )
}
