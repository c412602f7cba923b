"""Provide what all emulated platforms share: routes, test controls, settings, answers, the gate.

The `routes` module of each platform derives its API from `PlatformApi` and its controls from
`PlatformControls`, and hands them to `app` as `EmulatorParts`. `app` mounts the `RequestGate`
around all platforms; requests to `/_emulator` pass untouched.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Protocol, Self

from flask import Blueprint, Flask, Request, Response, g, request
from pydantic import BaseModel, ConfigDict, ValidationError
from werkzeug.exceptions import ClientDisconnected, HTTPException

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import FaultRule, Faults
from gpuform.providers.emulator.store import Store


def answer_json(content: object, status: int = 200) -> Response:
    """Return `content` as a JSON response, members in order."""
    encoded_content = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return Response(encoded_content, status, content_type="application/json")


def answer_validation_error(error: ValidationError) -> Response:
    """Answer 422 with every problem of `error`, and never with values, which may be secret."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    message = "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'body'}: {problem['msg']}" for problem in problems
    )
    return answer_json({"error": message}, 422)


def merge_deeply(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return `new` over `old`, with objects merged key by key; other values replace old ones."""
    merged = {
        name: merge_deeply(old[name], value)
        if isinstance(value, Mapping) and isinstance(old.get(name), Mapping)
        else value
        for name, value in new.items()
    }
    return {**old, **merged}


_SETTINGS_KEY = "settings"


class PlatformSettings(BaseModel):
    """What tests can set of one platform, kept in the store under `kind`."""

    # A misspelled setting is an error, and not a setting without effect.
    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: ClassVar[str]

    @classmethod
    def load(cls, store: Store) -> Self:
        """Return the settings in `store`; the defaults where nothing was set."""
        stored_settings = store.get(cls.kind, _SETTINGS_KEY)
        return cls() if stored_settings is None else cls.model_validate_json(stored_settings)

    def save(self, store: Store) -> None:
        """Store the settings in place of earlier ones."""
        store.put(self.kind, _SETTINGS_KEY, self.model_dump_json())

    def to_public_dict(self) -> dict[str, Any]:
        """Return the settings as test controls show them; subclasses leave secrets out."""
        return self.model_dump(mode="json")


View = Callable[..., Response]
RouteTable = Iterable[tuple[str, str, View]]
"""Method, path and view of each route. Werkzeug prefers a fixed part to a `<part>`, in any order.
"""


class Refusal(Exception):
    """Raised where an API refuses a request; `status` is that of the answer.

    Each API gives the answer a form of its own (`PlatformApi._answer_refusal`).
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True)
class FaultEffects:
    """The effects of the request's injected fault that change what an operation does."""

    is_stuck: bool = False
    is_out_of_stock: bool = False
    is_preempted: bool = False
    failing_pattern: str | None = None
    """A regular expression: objects created under a matching name fail later."""
    removed_first_pattern: str | None = None
    """A regular expression: nodes with a matching name are removed first."""
    is_rolled_back: bool = False


def get_fault_effects() -> FaultEffects:
    """Return the effects of the present request's injected fault; without a fault, no effects."""
    rule: FaultRule | None = g.get("fault")
    if rule is None:
        return FaultEffects()
    return FaultEffects(
        rule.stuck, rule.capacity, rule.preempted, rule.failing, rule.takes, rule.rolled_back
    )


@dataclass(frozen=True)
class FleetNode:
    """A machine with GPUs; `owner` is the cluster or fabric that the machine belongs to.

    `works` is whether jobs can run there, `is_billed` whether the platform charges its GPUs.
    """

    owner: str
    name: str
    gpus: int
    works: bool
    is_billed: bool


@dataclass(frozen=True)
class StoredData:
    """Storage with data of users; `label` names the storage and its size."""

    key: str
    label: str


@dataclass(frozen=True)
class Fleet:
    """What users have on a platform at one moment: machines with GPUs, and stored data."""

    nodes: Sequence[FleetNode] = ()
    data: Sequence[StoredData] = ()


def mount_views(
    blueprint: Blueprint,
    store: Store,
    routes: RouteTable,
    load_platform: Callable[[], Any] | None = None,
) -> None:
    """Add views to a blueprint, each in one transaction of the store, which an exception undoes.

    With `load_platform`, views get the platform's data first.
    """

    def wrap_in_transaction(view: View) -> View:
        def call_view(**path_values: str) -> Response:
            with store.transaction():
                data = () if load_platform is None else (load_platform(),)
                return view(*data, **path_values)

        return call_view

    for method, path, view in routes:
        # A blueprint's endpoints may have no dots.
        endpoint = f"{method} {path}".replace(".", "_")
        blueprint.add_url_rule(path, endpoint, wrap_in_transaction(view), methods=[method])


class PlatformApi:
    """The API of one platform, as `app` mounts it at `prefix`."""

    name: ClassVar[str]
    prefix: ClassVar[str]

    def __init__(self, store: Store, clock: Clock, faults: Faults) -> None:
        self._store = store
        self._clock = clock
        self._faults = faults

    def create_blueprint(self) -> Blueprint:
        """Return the routes of the API. Each view runs in one transaction of the store."""
        routes = Blueprint(self.name, __name__)
        routes.register_error_handler(Refusal, self._answer_refusal)
        mount_views(routes, self._store, self._list_routes(), self._load_platform)
        return routes

    def refuse_unauthorized(self, client_request: Request) -> Response | None:  # noqa: ARG002 - some ask for no key
        """Return the answer to a client without the right key, or None for any other client.

        This default lets everybody in.
        """
        return None

    def answer_error(self, status: int, message: str) -> Response:
        """Return the platform's answer for an error outside of views: an unknown route, a fault."""
        raise NotImplementedError

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        """Return the users' objects by kind, each with `id`, `name` and `status`."""
        raise NotImplementedError

    def describe_fleet(self) -> Fleet:
        """Return the nodes with GPUs and the stored data of the platform.

        This default has neither, for platforms that only describe machines.
        """
        return Fleet()

    def _list_routes(self) -> RouteTable:
        """Return the routes. Views get `_load_platform()` and the named parts of the path."""
        raise NotImplementedError

    def _load_platform(self) -> Any:
        """Return the platform's data at the clock's present time, for one view in a transaction."""
        raise NotImplementedError

    def _answer_refusal(self, error: Any) -> Response:
        """Return the platform's answer for a `Refusal` raised by a view."""
        return self.answer_error(error.status, error.message)

    def _apply_status_overrides(
        self, views: list[dict[str, Any]], folder: str, *, key: str = "id", field: str = "status"
    ) -> list[tuple[dict[str, Any], FaultRule]]:
        """Set injected faults' statuses in `views`; return changed views, each with the fault.

        A fault for the request's own path changes all views. Counts the use of each fault. Views
        without a fault stay as they are.

        Args:
            views: objects of the answer, changed in place.
            folder: the path of the objects' collection, to which `key` is added.
            key: the member of a view that has the object's id.
            field: the member of a view that has the object's status.
        """
        by_path = {f"{folder}/{view[key]}": view for view in views}
        # A rule meets the request's own path or the path of an object in its answer, such as a
        # list's.
        path = request.path.removeprefix(self.prefix)
        overrides = self._faults.take_overrides(request.method, path, list(by_path), self.name)
        for object_path, rule in overrides.items():
            by_path[object_path][field] = rule.status_override
        return [(by_path[object_path], rule) for object_path, rule in overrides.items()]


class PlatformControls:
    """What tests do to a platform past its API, under `/_emulator/<name>`: JSON in and out."""

    settings: ClassVar[type[PlatformSettings] | None] = None
    """The class of the platform's settings; None where nothing can be set."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def create_blueprint(self) -> Blueprint:
        """Return the routes of the controls, with `/settings` where the platform has settings."""
        routes = Blueprint(type(self).__name__, __name__)
        routes.register_error_handler(ValidationError, answer_validation_error)
        routes.register_error_handler(Refusal, _answer_refusal)
        settings_views: RouteTable = ()
        if (kind := self.settings) is not None:
            settings_views = (
                ("GET", "/settings", partial(self._show_settings, kind)),
                ("POST", "/settings", partial(self._change_settings, kind)),
            )
        mount_views(routes, self._store, (*settings_views, *self._list_routes()))
        return routes

    def _list_routes(self) -> RouteTable:
        """Return the routes. Views get the named parts of the path, in a transaction."""
        return ()

    def _show_settings(self, kind: type[PlatformSettings]) -> Response:
        """Answer with the platform's settings without secrets."""
        return answer_json(kind.load(self._store).to_public_dict())

    def _change_settings(self, kind: type[PlatformSettings]) -> Response:
        """Set the settings that the body names, leave the others, and answer with all settings.

        A named setting is replaced completely, not merged. Raises pydantic's ValidationError for an
        unknown or invalid setting, and changes nothing then.
        """
        new_settings = kind.model_validate_json(request.get_data())
        # Only fields in the body: the defaults of the others must not overwrite what was set.
        changed = {name: getattr(new_settings, name) for name in new_settings.model_fields_set}
        kind.load(self._store).model_copy(update=changed).save(self._store)
        return self._show_settings(kind)


def _answer_refusal(error: Refusal) -> Response:
    """Return the answer of test controls for a `Refusal`: `{"error": message}`."""
    return answer_json({"error": error.message}, error.status)


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
        """Return the platform's short name, which faults and the request log use."""

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
            body = _parse_body()
            entry = {
                "platform": platform.name,
                "method": request.method,
                "path": self._strip_prefix(platform),
                "query": _redact_secrets(request.args.to_dict()),
                "body": "[text]" if isinstance(body, str) else _redact_secrets(body),
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
