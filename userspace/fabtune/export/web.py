# SPDX-License-Identifier: GPL-2.0-or-later
"""The half of the exporter that faces the network: HTTP, with no right to read anything itself."""

import contextlib
import ipaddress
import socket
import zlib
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Timer

from fabtune.errors import FabtuneError, InputError
from fabtune.export.families import CONTENT_TYPES, OPENMETRICS, PROMETHEUS, Family

_PAGE = b'<html><head><title>fabtune</title></head><body><a href="/metrics">metrics</a></body></html>\n'
# As socketserver has it: of datagrams it would be a pair.
_Request = socket.socket | tuple[bytes, socket.socket]
_MOST_AT_ONCE = 8
_CLIENT_WAIT_S = 30.0
# From a client's first byte to the end of its question, however it is spread.
_QUESTION_WAIT_S = 5.0
_DOWN = Family("fabtune_up", "gauge", "1 if the reader answered.")


class MetricsServer(ThreadingHTTPServer):
    """Serves ``/metrics`` at `address`: what `fetch` returns for a form, compressed.  Raises FabtuneError.

    Of more than a few connections at once the later ones are closed.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], fetch: Callable[[str], bytes], say: Callable[[str], None]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.fetch, self.say, self.silent, self.full = fetch, say, False, False
        self._places = BoundedSemaphore(_MOST_AT_ONCE)
        try:
            super().__init__(address, _Handler)
        except OSError as error:
            raise FabtuneError(f"--listen {address[0]}:{address[1]}: {error.strerror or error}") from error

    def process_request(self, request: _Request, client_address: tuple[str, int]) -> None:
        """Answer in a thread of its own, if there is a place."""
        if self._places.acquire(blocking=False):
            self.full = False
            super().process_request(request, client_address)
            return
        if not self.full:
            self.say(f"{_MOST_AT_ONCE} clients are connected already; {client_address[0]} and others are turned away")
        self.full = True
        self.shutdown_request(request)

    def process_request_thread(self, request: _Request, client_address: tuple[str, int]) -> None:
        """Answer, and give the place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: _Request, client_address: tuple[str, int]) -> None:
        """Say nothing: a client that went away is no error of ours."""

    def body(self, form: str) -> bytes:
        """Return the metrics, compressed; where no reader answers, that they are not to be had."""
        try:
            found = self.fetch(form)
            self.silent = False
            return found
        except FabtuneError as error:
            if not self.silent:
                self.say(str(error))
            self.silent = True
            end = "# EOF\n" if form == OPENMETRICS else ""
            packer = zlib.compressobj(1, zlib.DEFLATED, 31)
            return packer.compress(f"{_DOWN.head(form)}fabtune_up 0\n{end}".encode()) + packer.flush()


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    timeout = _CLIENT_WAIT_S
    server_version = "fabtune"
    sys_version = ""

    def setup(self) -> None:
        """Let nobody take longer to ask than a question takes."""
        super().setup()
        self._asking = Timer(_QUESTION_WAIT_S, self._hang_up)
        self._asking.daemon = True
        self._asking.start()

    def finish(self) -> None:
        """Stop waiting for a question that did not come, too."""
        self._asking.cancel()
        super().finish()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """Answer /metrics and the page that leads there."""
        self._asking.cancel()
        if self.path.partition("?")[0] != "/metrics":
            status = HTTPStatus.OK if self.path == "/" else HTTPStatus.NOT_FOUND
            self._send(status, "text/html; charset=utf-8", _PAGE, {})
            return
        form = OPENMETRICS if "application/openmetrics-text" in self.headers.get("Accept", "") else PROMETHEUS
        data, headers = self.server.body(form), {"Content-Encoding": "gzip"}
        if "gzip" not in self.headers.get("Accept-Encoding", ""):
            data, headers = zlib.decompress(data, 31), {}
        self._send(HTTPStatus.OK, CONTENT_TYPES[form], data, headers)

    def _send(self, status: HTTPStatus, kind: str, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing: a scrape every few seconds is no news."""


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of ``ADDRESS:PORT`` or ``[V6]:PORT``.  Raises InputError."""
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        if not (port.isascii() and port.isdecimal() and int(port) <= 65535):
            raise ValueError(port)
    except ValueError:
        raise InputError(f"--listen {text}: expected ADDRESS:PORT, such as 127.0.0.1:13260 or [::]:13260") from None
    return str(address), int(port)
