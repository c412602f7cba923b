"""What every product request passes: the fault that meets it, its key, and the request log."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from flask import Blueprint, Flask, Request, Response, g, request
from werkzeug.exceptions import ClientDisconnected, HTTPException

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults, Rule
from gpuform.providers.emulator.routing import answer
from gpuform.providers.emulator.store import Store

# In the WSGI environment: the server or the in-process caller gets no answer.
DROPPED = "gpuform.emulator.dropped"
# In the WSGI environment: asked in process by who plays a test's events, not by a client.
TRUSTED = "gpuform.emulator.trusted"
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
    """What the app asks of a platform's room."""

    @property
    def name(self) -> str: ...
    @property
    def prefix(self) -> str: ...
    def blueprint(self) -> Blueprint: ...
    def refusal(self, asked: Request) -> Response | None: ...
    def error(self, status: int, message: str) -> Response: ...
    def objects(self) -> dict[str, list[dict[str, Any]]]: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What a platform brings to the emulator: the rooms that answer its clients, and what tests may
    set, under `/_emulator/<name>`."""

    platforms: tuple[EmulatedPlatform, ...]
    controls: Mapping[str, Blueprint] = field(default_factory=dict)


class Gate:
    """Mounted on the app with `guard`; requests outside the platforms' prefixes pass untouched."""

    def __init__(
        self, store: Store, clock: Clock, faults: Faults, platforms: tuple[EmulatedPlatform, ...]
    ) -> None:
        self._store = store
        self._clock = clock
        self._faults = faults
        self._platforms = platforms

    def guard(self, app: Flask) -> None:
        app.before_request(self._enter)
        app.after_request(self._leave)
        app.register_error_handler(HTTPException, self._no_route)

    def _enter(self) -> Response | None:
        platform = self._platform()
        if platform is None:
            return None
        if request.environ.get(TRUSTED):
            return None
        request.get_data()  # read now, so that a refused request leaves nothing on the connection
        fault = self._faults.take(request.method, self._path(platform), _body(), platform.name)
        g.fault = fault
        if fault is not None and fault.drop is not None:
            request.environ[DROPPED] = True
            if fault.drop == "before":
                return Response(status=204)
        if fault is not None and fault.status is not None:
            return _injected(fault, fault.status, platform)
        return platform.refusal(request)

    def _leave(self, response: Response) -> Response:
        platform = self._platform()
        if platform is not None and not request.environ.get(TRUSTED):
            entry = {
                "platform": platform.name,
                "method": request.method,
                "path": self._path(platform),
                "query": _without_secrets(request.args.to_dict()),
                "body": _logged(_body()),
                "status": None if request.environ.get(DROPPED) else response.status_code,
                "time": self._clock.now(),
            }
            self._store.log(json.dumps(entry))
        return response

    def _no_route(self, error: HTTPException) -> Response:
        status, message = error.code or 500, error.description or error.name
        platform = self._platform()
        if platform is None:
            return answer({"error": message}, status)
        return platform.error(status, message)

    def _platform(self) -> EmulatedPlatform | None:
        found = (
            each for each in self._platforms if f"{request.path}/".startswith(f"{each.prefix}/")
        )
        return next(found, None)

    def _path(self, platform: EmulatedPlatform) -> str:
        return request.path.removeprefix(platform.prefix)


def _injected(fault: Rule, status: int, platform: EmulatedPlatform) -> Response:
    if fault.body is None:
        response = platform.error(status, "Injected by the emulator's faults")
    else:
        response = answer(fault.body, status)
    response.headers.update(fault.headers)
    return response


def _body() -> Any:
    try:
        text = request.get_data(as_text=True)
    except ClientDisconnected:
        return None  # who died before sending it still made a request
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def _logged(body: object) -> object:
    """The body without secrets. What is no JSON is not shown: nobody knows what it holds."""
    return "[text]" if isinstance(body, str) else _without_secrets(body)


def _without_secrets(value: object) -> object:
    if isinstance(value, dict):
        return {
            key: "[secret]" if key.lower() in _SECRET_KEYS else _without_secrets(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    return value
