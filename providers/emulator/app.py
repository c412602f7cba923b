"""The emulator as one WSGI application: platforms under their prefixes, controls beside them.

It runs behind `server`, or in process (`httpx.WSGITransport(app)`). A platform's descriptor says
what makes its part.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from flask import Flask
from werkzeug.routing import Rule

from gpuform.providers.emulator.admin import Admin
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import DroppedConnection, Faults
from gpuform.providers.emulator.gate import DROPPED, Gate, Parts
from gpuform.providers.emulator.store import Store
from gpuform.providers.platform import load, own_platforms, platforms

logger = logging.getLogger("gpuform")


def create_app(store: Store, clock: Clock, stop: Callable[[], bool] = lambda: False) -> Flask:
    """The application over a store and the clock of that store. Threads may share it.

    `stop` ends the process that serves it, and returns False where that process is not its own.
    Calling it raises `DroppedConnection` where a fault loses the answer.
    """
    faults = Faults(store)
    parts = list(_parts(store, clock, faults))
    rooms = tuple(room for each in parts for room in each.platforms)
    app = Flask("gpuform.emulator", static_folder=None)
    app.url_rule_class = _LazyRule
    app.config["PROPAGATE_EXCEPTIONS"] = True
    Gate(store, clock, faults, rooms).guard(app)
    for room in rooms:
        app.register_blueprint(room.blueprint(), url_prefix=room.prefix)
    admin = Admin(store, clock, faults, rooms, stop)
    app.register_blueprint(admin.blueprint(), url_prefix="/_emulator")
    for each in parts:
        for name, controls in each.controls.items():
            app.register_blueprint(controls, url_prefix=f"/_emulator/{name}")
    # Flask's documented way to wrap an application.
    app.wsgi_app = _dropping(app.wsgi_app)  # type: ignore[assignment, method-assign]
    return app


class _LazyRule(Rule):
    """A route that compiles the code that builds its addresses when one is asked for.

    Werkzeug compiles that code for each route at once. Nobody asks for addresses of the emulator's
    own views, and the code is nine tenths of the time that an emulator takes to start.
    """

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        compile_now = super()._compile_builder

        def build(rule: Rule, **values: object) -> tuple[str, str]:
            return compile_now(append_unknown)(rule, **values)

        return build


def _parts(store: Store, clock: Clock, faults: Faults) -> Iterator[Parts]:
    """Of every platform that has one; another distribution's is left out where it fails."""
    for name, platform in platforms().items():
        if not platform.emulator:
            continue
        try:
            yield load(platform.emulator)(store, clock, faults)
        except Exception as error:
            if name in own_platforms():
                raise
            told = f"{type(error).__name__}: {error}"
            logger.warning("%s is not emulated: %s fails: %s", name, platform.emulator, told)


def _dropping(inner: WSGIApplication) -> WSGIApplication:
    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = inner(environ, start_response)
        if environ.get(DROPPED):
            raise DroppedConnection("the emulator closed the connection without an answer")
        return body

    return application
