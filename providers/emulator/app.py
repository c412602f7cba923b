"""Build the emulator as one WSGI application: platforms under their prefixes, and controls.

`server` serves the application on a port; tests call the application in process
(`httpx.WSGITransport(app)`). The descriptor of each platform (`gpuform.providers.platform`) names
the function that creates the platform's part.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from flask import Flask
from werkzeug.routing import Rule

from gpuform.providers.emulator.admin import AdminApi
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import DroppedConnection, Faults
from gpuform.providers.emulator.gate import DROPPED, EmulatorParts, RequestGate
from gpuform.providers.emulator.store import Store
from gpuform.providers.platform import list_own_platforms, load_object, platforms

logger = logging.getLogger("gpuform")


def create_app(store: Store, clock: Clock, stop: Callable[[], bool] = lambda: False) -> Flask:
    """Create the application over `store` and the store's `clock`. Threads may share it.

    Args:
        store: where objects, settings, faults and the request log are kept.
        clock: the emulator's time.
        stop: ends the serving process and returns True; returns False where the process is not the
            emulator's own.

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
    admin = AdminApi(store, clock, faults, apis, stop)
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
