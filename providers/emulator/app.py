"""Build the emulator as one WSGI application: platforms under their prefixes, and controls.

`server` serves the application on a port; tests call the application in process
(`httpx.WSGITransport(app)`). The descriptor of each platform (`gpuform.providers.platform`) names
the function that creates the platform's part.

Tests, `gpuform test` and the waiting clients of `--emulate` call the controls under `/_emulator/`:
clock, faults, request log, reset, stop. They need no key; bodies and answers are JSON.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Annotated
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from flask import Blueprint, Flask, Response, request
from pydantic import BaseModel, Field, ValidationError
from werkzeug.routing import Rule

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import DroppedConnection, FaultRule, Faults
from gpuform.providers.emulator.routing import (
    DROPPED,
    EmulatedPlatform,
    EmulatorParts,
    Fleet,
    RequestGate,
    RouteTable,
    answer_json,
    answer_validation_error,
)
from gpuform.providers.emulator.store import Store
from gpuform.providers.platform import list_own_platforms, load_object, platforms

_UnixSeconds = Annotated[float, Field(allow_inf_nan=False)]


class _AdvanceBody(BaseModel, extra="forbid"):
    """The body that moves the clock by seconds."""

    advance: Annotated[_UnixSeconds, Field(ge=0)]


class _UntilBody(BaseModel, extra="forbid"):
    """The body that moves the clock to a time."""

    until: _UnixSeconds


class _StopBody(BaseModel, extra="forbid"):
    """The body that ends the emulator of an identity."""

    emulator: str


def move_clock(store: Store, clock: Clock, body: bytes) -> dict[str, float | str]:
    """Move the clock as a client's body says, and return what the client gets as JSON.

    An empty body moves nothing. Raises pydantic's ValidationError for a body of another form.
    """
    # Each body is strict, so that a misspelled key is an error and not a clock that stands still.
    if b'"until"' in body:
        clock.wait_until(_UntilBody.model_validate_json(body).until)
    elif body:
        clock.advance(_AdvanceBody.model_validate_json(body).advance)
    return {"now": clock.now(), "emulator": store.identity}


class AdminApi:
    """The routes that are not of a platform. `stop_after` is as for `create_app`."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        faults: Faults,
        platforms: tuple[EmulatedPlatform, ...],
        stop_after: Callable[[Response], bool],
    ) -> None:
        self._stop_after = stop_after
        self._store = store
        self._clock = clock
        self._faults = faults
        self._platforms = platforms

    def create_blueprint(self) -> Blueprint:
        """Return the routes, to be mounted at `/_emulator`."""
        routes = Blueprint("admin", __name__)
        # A body of the wrong form is the test's mistake: the answer names it, and nothing has
        # changed.
        routes.register_error_handler(ValidationError, answer_validation_error)
        for method, path, view in self._list_routes():
            routes.add_url_rule(path, f"{method} {path}", view, methods=[method])
        return routes

    def _list_routes(self) -> RouteTable:
        store, clock, faults = self._store, self._clock, self._faults
        return (
            ("GET", "/health", lambda: answer_json({"status": "ok"})),
            ("GET", "/clock", lambda: answer_json(move_clock(store, clock, b""))),
            ("POST", "/clock", self._move_clock),
            ("POST", "/faults", self._add_fault),
            ("GET", "/faults", self._list_faults),
            # How many requests each rule was applied to, also used up and cleared rules.
            ("GET", "/faults/applied", lambda: answer_json(faults.count_applications())),
            ("DELETE", "/faults", self._clear_faults),
            ("GET", "/requests", lambda: answer_json([*map(json.loads, store.list_log())])),
            ("DELETE", "/requests", self._clear_requests),
            ("GET", "/objects", self._list_objects),
            ("GET", "/fleet", self._describe_fleet),
            ("POST", "/reset", self._reset),
            ("POST", "/stop", self._stop_serving),
        )

    def _move_clock(self) -> Response:
        """Move the clock as the body says, and answer with the new time and the store's identity.

        `{"advance": seconds}` adds seconds; `{"until": unix seconds}` moves the clock to that time,
        or nowhere if the time has passed.
        """
        # A body without content is an error, and not a clock that stands still.
        return answer_json(move_clock(self._store, self._clock, request.get_data() or b"null"))

    def _add_fault(self) -> Response:
        """Add the fault rule in the request's body, and answer with the numbered rule."""
        rule = self._faults.add(FaultRule.model_validate_json(request.get_data()))
        return answer_json(rule.model_dump(mode="json", exclude_defaults=True))

    def _list_faults(self) -> Response:
        """Answer with all fault rules with remaining uses, oldest first."""
        return answer_json([rule.model_dump(mode="json") for rule in self._faults.list_live()])

    def _clear_faults(self) -> Response:
        """Remove all fault rules, and answer with an empty list; counts of applied faults stay."""
        self._faults.clear()
        return answer_json([])

    def _clear_requests(self) -> Response:
        """Empty the log of clients' requests, and answer with an empty list."""
        self._store.clear_log()
        return answer_json([])

    def _list_objects(self) -> Response:
        """Answer with the objects of all emulated platforms, by platform and kind."""
        return answer_json({platform.name: platform.list_objects() for platform in self._platforms})

    def _describe_fleet(self) -> Response:
        """Answer with the machines with GPUs and the stored data of all emulated platforms.

        `{"nodes": [...], "data": [...]}`, each entry with its platform. Objects that have expired
        by now are removed first.
        """
        self._store.remove_expired(self._clock.now())
        # A platform of another distribution need not describe a fleet.
        fleets: dict[str, Fleet] = {
            platform.name: getattr(platform, "describe_fleet", Fleet)()
            for platform in self._platforms
        }
        return answer_json(
            {
                "nodes": [
                    {"platform": name, **asdict(node)}
                    for name, fleet in fleets.items()
                    for node in fleet.nodes
                ],
                "data": [
                    {"platform": name, **asdict(data)}
                    for name, fleet in fleets.items()
                    for data in fleet.data
                ],
            }
        )

    def _stop_serving(self) -> Response:
        """End the serving process if the body names this emulator: `{"emulator": identity}`.

        409 where another emulator is meant, or where the emulator runs inside of another program.
        """
        identity = _StopBody.model_validate_json(request.get_data()).emulator
        # A port may have gone to another emulator since the caller last looked.
        if identity != self._store.identity:
            return answer_json(
                {"error": f"this is emulator {self._store.identity}, not {identity}"}, 409
            )
        answer = answer_json({})
        if not self._stop_after(answer):
            return answer_json({"error": "this emulator runs inside of another program"}, 409)
        return answer

    def _reset(self) -> Response:
        """Delete all objects, the platforms' settings, the request log and the fault rules.

        The clock, the counter of ids and the counts of applied faults stay.
        """
        with self._store.transaction():
            self._store.reset()
            self._faults.clear()
        return answer_json({})


logger = logging.getLogger("gpuform")


def create_app(
    store: Store, clock: Clock, stop_after: Callable[[Response], bool] = lambda _answer: False
) -> Flask:
    """Create the application over `store` and the store's `clock`. Threads may share it.

    Args:
        store: where objects, settings, faults and the request log are kept.
        clock: the emulator's time.
        stop_after: ends the serving process once the answer is sent, and returns True; returns
            False where the process is not the emulator's own.

    A call of the application raises `DroppedConnection` where a fault loses the answer.
    """
    faults = Faults(store)
    parts = list(_load_parts(store, clock, faults))
    apis = tuple(api for part in parts for api in part.platforms)
    app = Flask("gpuform.emulator", static_folder=None)
    app.url_rule_class = _LazyRoute
    # A bug of the emulator reaches the test that called it, with its traceback, and not as a 500
    # that a client would retry.
    app.config["PROPAGATE_EXCEPTIONS"] = True
    RequestGate(store, clock, faults, apis).guard(app)
    for api in apis:
        app.register_blueprint(api.create_blueprint(), url_prefix=api.prefix)
    admin = AdminApi(store, clock, faults, apis, stop_after)
    app.register_blueprint(admin.create_blueprint(), url_prefix="/_emulator")
    for part in parts:
        for name, controls in part.controls.items():
            # Controls of a platform are beside its API, so that no client can reach them by its
            # prefix.
            app.register_blueprint(controls, url_prefix=f"/_emulator/{name}")
    # Flask's documented way to wrap an application.
    app.wsgi_app = _raise_dropped_connections(app.wsgi_app)  # type: ignore[assignment, method-assign]
    return app


class _LazyRoute(Rule):
    """A route that compiles the code that builds its addresses when an address is asked for.

    Werkzeug compiles that code for each route at once. Nobody asks for addresses of the emulator's
    own views, and the code is nine tenths of the time that an emulator takes to start.
    """

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        """Return a URL builder; Werkzeug compiles its code at each call, and not in advance."""
        compile_now = super()._compile_builder

        def build_address(rule: Rule, **values: object) -> tuple[str, str]:
            return compile_now(append_unknown)(rule, **values)

        return build_address


def _load_parts(store: Store, clock: Clock, faults: Faults) -> Iterator[EmulatorParts]:
    """Yield the part of every platform with an emulator, in the order of the platforms.

    A platform of another distribution whose part fails is left out with a warning; a failure of our
    own platforms is raised.
    """
    for name, platform in platforms().items():
        if not platform.emulator:
            continue
        try:
            yield load_object(platform.emulator)(store, clock, faults)
        except Exception as error:
            # A part of our own that fails is a bug; tests have to see it.
            if name in list_own_platforms():
                raise
            message = f"{type(error).__name__}: {error}"
            logger.warning("%s is not emulated: %s fails: %s", name, platform.emulator, message)


def _raise_dropped_connections(inner: WSGIApplication) -> WSGIApplication:
    """Wrap `inner` to raise `DroppedConnection` where a fault drops the answer."""

    def call_application(
        environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        body = inner(environ, start_response)
        # WSGI has no way to hang up: `server` closes the connection when this error reaches it.
        if environ.get(DROPPED):
            raise DroppedConnection("the emulator closed the connection without an answer")
        return body

    return call_application
