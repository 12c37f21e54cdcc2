# SPDX-License-Identifier: GPL-2.0-or-later
"""iSCSI PDUs from a capture: recording with dumpcap, dissecting with tshark."""

import json
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import attrs

from fabtune.errors import FabtuneError
from fabtune.host import iproute
from fabtune.host.run import launch, require, run

# Opcodes of RFC 7143, 11.2.1.2.
COMMAND, DATA_OUT, RESPONSE, DATA_IN, R2T = 0x01, 0x05, 0x21, 0x25, 0x31
UNSOLICITED = 0xFFFFFFFF
# dumpcap says that it captures by then, or something is wrong with it.
_START_S = 20.0


@attrs.frozen
class Pdu:
    """One PDU.  Fields that its kind does not have are None; sizes are in bytes.

    The flags of commands and Data-Outs are not here: tshark puts them outside the PDU, where
    several PDUs of one frame cannot be told apart.  `status` says that a Data-In carries the status.
    """

    opcode: int
    task: int
    data_bytes: int
    status: bool = False
    transfer_tag: int | None = None
    expected_bytes: int | None = None
    desired_bytes: int | None = None
    exp_cmd_sn: int | None = None
    max_cmd_sn: int | None = None


def check_programs() -> None:
    """Raise FabtuneError unless what records and what dissects are installed."""
    _dumpcap()
    _tshark()


def _dumpcap() -> str:
    return require("dumpcap", "wireshark-common")


def _tshark() -> str:
    return require("tshark", "tshark")


class Capture:
    """Records the traffic with one portal to `path` while the ``with`` block runs.

    Frames are kept whole: a PDU that starts in a part cut off would be lost.  Raises FabtuneError
    when the recording cannot start, or when frames were dropped.
    """

    def __init__(self, address: str, port: int, path: Path) -> None:
        self._log = path.with_suffix(".log")
        self._command = [
            _dumpcap(), "-q", "-i", str(iproute.way_to(address)["dev"]), "-B", "64",
            "-w", str(path), "-f", f"tcp port {port} and host {address}",
        ]  # fmt: skip

    def __enter__(self) -> "Capture":
        with self._log.open("wb") as log:
            self._process = launch(self._command, log=log, dies_by="TERM")
        deadline = time.monotonic() + _START_S
        while "File:" not in (said := self._log.read_text()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise FabtuneError(f"capturing failed: {said.strip() or 'dumpcap said nothing'}")
            time.sleep(0.05)
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        # What has passed is still in the kernel's ring for one of dumpcap's reading intervals.
        time.sleep(0.5)
        self._process.terminate()
        self._process.wait()
        said = self._log.read_text()
        # Packets received/dropped on interface 'eth0': 12/0 (pcap:0/dumpcap:0/...)
        counts = re.search(r"received/dropped on interface '.*': \d+/(\d+)", said)
        dropped = counts[1] if counts else "an unknown number of"
        if kind is None and dropped != "0":
            raise FabtuneError(f"the capture lost {dropped} frames, so it proves nothing; make the load smaller")


def pdus(path: Path, port: int) -> list[Pdu]:
    """Return the PDUs in the capture `path`, in order, of connections with `port`.  Raises FabtuneError.

    Two passes let tshark join PDUs that span frames; the length limit is raised because it would
    silently leave out every data segment above 256 KiB, and the port named because it would not
    look at any but 3260.
    """
    text = run(
        [
            _tshark(), "-r", path, "-2", "-Y", "iscsi", "-T", "json", "-J", "iscsi",
            "-o", "iscsi.bogus_pdu_max_data_len:16777215", "-o", f"iscsi.target_ports:3260,{port}",
        ],
        what=f"dissecting {path}",
    )  # fmt: skip
    try:
        frames = json.loads(text, object_pairs_hook=_keep_repeated)
    except json.JSONDecodeError as error:
        raise FabtuneError(f"{path}: tshark wrote no JSON: {error}") from None
    return [pdu for layer in _layers(frames) for pdu in _pdu(layer)]


def _keep_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose repeated keys (several PDUs in a frame) are lists."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        found[key] = [*found[key], value] if isinstance(found.get(key), list) else (
            [found[key], value] if key in found else value
        )  # fmt: skip
    return found


def _layers(frames: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for frame in frames:
        layers = frame["_source"]["layers"].get("iscsi", [])
        yield from layers if isinstance(layers, list) else [layers]


def _flat(layer: dict[str, Any]) -> dict[str, str]:
    """Return all fields of a PDU, those in subtrees too, by name."""
    found: dict[str, str] = {}
    for key, value in layer.items():
        if isinstance(value, dict):
            found |= _flat(value)
        elif isinstance(value, str):
            found[key] = value
        elif isinstance(value, list) and value and isinstance(value[0], str):
            found[key] = value[0]
    return found


def _pdu(layer: dict[str, Any]) -> Iterator[Pdu]:
    fields = _flat(layer)
    if "iscsi.opcode" not in fields:
        return

    def number(name: str) -> int | None:
        return int(fields[f"iscsi.{name}"], 0) if f"iscsi.{name}" in fields else None

    yield Pdu(
        opcode=number("opcode") or 0,
        task=number("initiatortasktag") or 0,
        data_bytes=number("datasegmentlength") or 0,
        status=fields.get("iscsi.scsidata.S") in ("1", "True"),
        transfer_tag=number("targettransfertag"),
        expected_bytes=number("scsicommand.expecteddatatransferlength"),
        desired_bytes=number("desireddatalength"),
        exp_cmd_sn=number("expcmdsn"),
        max_cmd_sn=number("maxcmdsn"),
    )
