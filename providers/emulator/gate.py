"""Check and log every request to a platform: injected faults, keys, and the request log.

`app` mounts the gate around all platforms; requests to `/_emulator` pass untouched. `EmulatorParts`
is what the part of each platform hands to `app`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from flask import Blueprint, Flask, Request, Response, g, request
from werkzeug.exceptions import ClientDisconnected, HTTPException

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import FaultRule, Faults
from gpuform.providers.emulator.routing import answer_json
from gpuform.providers.emulator.store import Store

# Key of the WSGI environment: the answer is dropped, for the server and for callers in process.
DROPPED = "gpuform.emulator.dropped"
# Key of the WSGI environment: the request is one of a test's own events, and not of a client.
TRUSTED = "gpuform.emulator.trusted"
# Members of bodies that are secret on one platform or another. The log is in the store's file,
# where no secret belongs.
_SECRET_KEYS = {
    "kube_config",
    "authorization",
    "api_key",
    "access_token",
    "token",
    "os_user_password",
    "init_script",
    "environment_variables",
    "environment_updates",
}


class EmulatedPlatform(Protocol):
    """The API of one platform, as `app` and the gate use it."""

    @property
    def name(self) -> str:
        """Return the platform's short name, as faults and the request log have the name."""

    @property
    def prefix(self) -> str:
        """Return the path under which the emulator serves the platform, without a final slash."""

    def create_blueprint(self) -> Blueprint:
        """Return the routes of the platform, to be mounted at `prefix`."""

    def refuse_unauthorized(self, client_request: Request) -> Response | None:
        """Return the answer to a client without the right key, or None for any other client."""

    def answer_error(self, status: int, message: str) -> Response:
        """Return the platform's answer for an error outside of views: an unknown route, a fault."""

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        """Return the users' objects by kind, each with `id`, `name` and `status`."""


@dataclass(frozen=True, slots=True)
class EmulatorParts:
    """The APIs and the test controls that one platform brings to the emulator.

    `controls` are mounted under `/_emulator/<name>`.
    """

    platforms: tuple[EmulatedPlatform, ...]
    controls: Mapping[str, Blueprint] = field(default_factory=dict)


class RequestGate:
    """Checks and logs each request to one of `platforms`. `guard` mounts the gate on an app."""

    def __init__(
        self, store: Store, clock: Clock, faults: Faults, platforms: tuple[EmulatedPlatform, ...]
    ) -> None:
        self._store = store
        self._clock = clock
        self._faults = faults
        self._platforms = platforms

    def guard(self, app: Flask) -> None:
        """Register the checks, the request log and the answer for unknown routes with `app`."""
        app.before_request(self._check_request)
        app.after_request(self._log_request)
        app.register_error_handler(HTTPException, self._answer_http_error)

    def _check_request(self) -> Response | None:
        """Return the answer for a fault or a missing key; None lets the request pass.

        A fault's status is answered before the key is checked. Requests outside of platforms and
        trusted ones always pass. Stores the request's fault in `g`, and marks a request whose
        answer is dropped: one dropped "before" does not reach its view.
        """
        platform = self._find_platform()
        if platform is None:
            return None
        if request.environ.get(TRUSTED):
            return None
        request.get_data()  # read now, so that a refused request leaves nothing on the connection
        # Before the key is checked: an outage answers everybody alike.
        fault = self._faults.take(
            request.method, self._strip_prefix(platform), _parse_body(), platform.name
        )
        g.fault = fault
        g.slowness = fault.slow if fault is not None and fault.slow else 1.0
        if fault is not None and fault.drop is not None:
            request.environ[DROPPED] = True
            # Never sent: any answer keeps the request from its view.
            if fault.drop == "before":
                return Response(status=204)
        if fault is not None and fault.status is not None:
            return _answer_fault(fault, fault.status, platform)
        return platform.refuse_unauthorized(request)

    def _log_request(self, response: Response) -> Response:
        """Log a platform's request without secrets, and return `response` unchanged.

        A dropped answer is logged with status None; trusted requests are not logged.
        """
        platform = self._find_platform()
        # Requests of a test's own events would look like those of the client under test.
        if platform is not None and not request.environ.get(TRUSTED):
            entry = {
                "platform": platform.name,
                "method": request.method,
                "path": self._strip_prefix(platform),
                "query": _redact_secrets(request.args.to_dict()),
                "body": _redact_body(_parse_body()),
                "status": None if request.environ.get(DROPPED) else response.status_code,
                "time": self._clock.now(),
            }
            self._store.append_to_log(json.dumps(entry))
        return response

    def _answer_http_error(self, error: HTTPException) -> Response:
        """Answer an HTTP error such as an unknown route, in the form of the requested platform.

        A path outside of all platforms is answered with `{"error": message}`.
        """
        status, message = error.code or 500, error.description or error.name
        platform = self._find_platform()
        if platform is None:
            return answer_json({"error": message}, status)
        return platform.answer_error(status, message)

    def _find_platform(self) -> EmulatedPlatform | None:
        """Return the platform under whose prefix the request's path lies, or None."""
        # The slash keeps `/scp` from answering `/scpx`.
        matching_platforms = (
            platform
            for platform in self._platforms
            if f"{request.path}/".startswith(f"{platform.prefix}/")
        )
        return next(matching_platforms, None)

    def _strip_prefix(self, platform: EmulatedPlatform) -> str:
        """Return the request's path as the platform's own API names the path, without `prefix`."""
        return request.path.removeprefix(platform.prefix)


def _answer_fault(fault: FaultRule, status: int, platform: EmulatedPlatform) -> Response:
    """Return the error answer of a fault: `status`, and the rule's body and headers.

    A rule without a body gets the platform's own error document.
    """
    if fault.body is None:
        response = platform.answer_error(status, "Injected by the emulator's faults")
    else:
        response = answer_json(fault.body, status)
    response.headers.update(fault.headers)
    return response


def _parse_body() -> Any:
    """Return the request's body: parsed JSON, or the raw text if the body is not JSON.

    Returns None if the request has no body, or if the client hung up before the end of the body.
    """
    try:
        raw_body = request.get_data(as_text=True)
    except ClientDisconnected:
        return None  # a client that hung up while sending still made a request
    try:
        return json.loads(raw_body) if raw_body else None
    except ValueError:
        return raw_body


def _redact_body(body: object) -> object:
    """Return the body for the log: "[secret]" for secret members, "[text]" for text not in JSON."""
    return "[text]" if isinstance(body, str) else _redact_secrets(body)


def _redact_secrets(value: object) -> object:
    """Return `value` with "[secret]" for all members with secret names, at any depth."""
    if isinstance(value, dict):
        return {
            key: "[secret]" if key.lower() in _SECRET_KEYS else _redact_secrets(member)
            for key, member in value.items()
        }
    if isinstance(value, list):
        return [_redact_secrets(item) for item in value]
    return value
