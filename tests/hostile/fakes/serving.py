"""Serve the fake platforms over real HTTP, with the clock that all of them share.

The standard library's server, because an answer may also be a closed connection.
"""

import json
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from hostile.fakes.aios import Aios
from hostile.fakes.answers import Answer, PlatformRequest
from hostile.fakes.faults import CHANGE, CREATE, FaultPlan, answer_with_fault
from hostile.fakes.fleet import Fleet, SlurmFleet
from hostile.fakes.lens import Lens
from hostile.fakes.scp import Scp
from hostile.fakes.simulation import COLLEAGUE, OURS, CreateRequest, Json, Simulation
from hostile.fakes.tensorone import TensorOne
from hostile.fakes.together import Together
from hostile.planted import OUR_KEY, OUR_SECRET_KEY

_STALL_S = 0.2
"""Of real time: how long an answer stands still before its connection closes."""


class Platform(Protocol):
    def classify_request(self, request: PlatformRequest) -> str: ...

    def refuse(self, status: int, text: str) -> Answer:
        """Return the platform's own error document."""

    def serve(self, request: PlatformRequest) -> Answer: ...


class FakePlatforms:
    """A server of all platforms. Each course begins a new simulation."""

    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.fakes = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.begin_course(Simulation())

    def begin_course(self, simulation: Simulation, *, has_slurm: bool = False) -> None:
        """Begin a course with new, empty platforms."""
        self.simulation = simulation
        self.fleet = SlurmFleet(simulation) if has_slurm else Fleet(simulation)
        self.plan = FaultPlan()
        self.signal: Callable[[str], None] = lambda _: None
        self.race: Callable[[str, PlatformRequest], None] = lambda _, __: None
        self.hostile: set[str] = set()
        """The platforms on which the plan's faults happen."""
        self.requests: list[str] = []
        self._platforms: dict[str, Platform] = {
            "together": Together(simulation),
            "scp": Scp(simulation),
            "tensorone": TensorOne(simulation),
            "aios": Aios(simulation),
            "lens": Lens(simulation, self.fleet),
            "kubernetes": self.fleet,
            "slurm": self.fleet,
        }

    @contextmanager
    def run_server(self) -> Iterator["FakePlatforms"]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def build_environ(self) -> dict[str, str]:
        """Return the variables that connect gpuform to the fakes, with our keys."""
        return {
            "GPUFORM_CLOCK": self.url,
            "TOGETHER_BASE_URL": f"{self.url}/together/v1",
            "TOGETHER_API_KEY": OUR_KEY,
            "SCP_TF_ENDPOINT_OVERRIDE": f"{self.url}/scp",
            "SCP_TF_ACCESS_KEY": OUR_KEY,
            "SCP_TF_SECRET_KEY": OUR_SECRET_KEY,
            "TENSORONE_BASE_URL": f"{self.url}/tensorone/v1",
            "TENSORONE_API_KEY": OUR_KEY,
            "AIOS_REGISTRY_URL": f"{self.url}/aios",
            "AIOS_PARSER_URL": f"{self.url}/aios",
            "LENS_URL": f"{self.url}/lens",
        }

    def answer(self, handler: "_Handler", body: bytes) -> Answer | None:
        url = urlsplit(handler.path)
        platform, *path = [unquote(part) for part in url.path.strip("/").split("/")]
        if platform == "_emulator":
            return self._answer_clock(handler.command, body)
        actor = COLLEAGUE if handler.headers.get("User-Agent") == COLLEAGUE else OURS
        if platform not in self._platforms:
            return Answer(404, None, raw=b"no such server", content_type="text/plain")
        try:
            parsed: Any = json.loads(body) if body else None
        except ValueError:
            return Answer(400, {"error": "the body is no JSON"})
        request = PlatformRequest(
            actor,
            handler.command,
            tuple(path),
            dict(parse_qsl(url.query, keep_blank_values=True)),
            parsed,
            handler.headers,
            f"http://{handler.headers.get('Host')}{handler.path}",
        )
        return self._serve_platform(platform, request)

    def _serve_platform(self, name: str, request: PlatformRequest) -> Answer | None:
        platform = self._platforms[name]
        kind = platform.classify_request(request)
        is_hostile = request.actor == OURS and name in self.hostile
        fault = self.plan.choose_fault(kind) if is_hostile else None

        created_count = 0

        def serve(request: PlatformRequest) -> Answer:
            nonlocal created_count
            with self.simulation.lock:
                before = len(self.simulation.objects)
                answer = platform.serve(request)
                created_count += len(self.simulation.objects) - before
            return answer

        if fault is not None and fault.race and kind in (CREATE, CHANGE):
            before = len(self.simulation.objects)
            self.race(fault.race, request)
            for platform_object in self.simulation.objects[before:]:
                platform_object.was_raced = True
        moment = self.simulation.now
        answer = answer_with_fault(fault, request, serve, platform.refuse, self.signal)
        if request.actor == OURS:
            if kind == CREATE:
                create_request = CreateRequest(
                    moment,
                    _get_requested_object(request.body),
                    self.simulation.list_lag,
                    had_effect=created_count > 0,
                    delay=fault.delay if fault else 0,
                )
                self.simulation.create_requests.append(create_request)
            outcome = "closed" if answer is None else answer.status
            self.requests.append(f"{kind} {request.method} {'/'.join(request.path)}: {outcome}")
        return answer

    def _answer_clock(self, method: str, body: bytes) -> Answer:
        with self.simulation.lock:
            if method == "POST":
                self.simulation.now = max(self.simulation.now, json.loads(body)["until"])
            return Answer(
                200, {"now": self.simulation.now, "emulator": f"world-{self.simulation.seed}"}
            )


def _get_requested_object(body: Any) -> Json:
    """Return the requested object: AIOS's parser gets it in an envelope."""
    if not isinstance(body, dict):
        return {}
    return body["body"]["spec"]["values"] if "header" in body else body


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    fakes: FakePlatforms

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print errors of the fakes; a killed client breaks its connection."""
        if not isinstance(sys.exception(), OSError):
            traceback.print_exc()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer is one packet
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.server.fakes.answer(self, body)
        if answer is None:
            self._close()
        else:
            self._send(answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = _handle  # noqa: N815 - their names

    def _send(self, answer: Answer) -> None:
        data = answer.encode_body()
        self.send_response_only(answer.status)
        self.send_header("Date", formatdate(self.server.fakes.simulation.read_clock(), usegmt=True))
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(data)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if answer.delivery in ("truncated", "stall"):
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            if answer.delivery == "stall":
                time.sleep(_STALL_S)
            self._close()
            return
        step = 1 if answer.delivery == "drip" else max(1, len(data))
        for begin in range(0, len(data), step):
            self.wfile.write(data[begin : begin + step])
            self.wfile.flush()

    def _close(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
