"""The emulator as one WSGI application: platforms under their prefixes, controls beside them.

It runs behind `server`, or in process (`httpx.WSGITransport(app)`). To add a platform, add its
class to `create_app`.
"""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from flask import Flask

from gpuform.providers.emulator.admin import Admin
from gpuform.providers.emulator.aios.controls import Controls as AiosControls
from gpuform.providers.emulator.aios.routes import Aios
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import DroppedConnection, Faults
from gpuform.providers.emulator.gate import DROPPED, Gate, Platform
from gpuform.providers.emulator.kubernetes.controls import Controls as KubernetesControls
from gpuform.providers.emulator.kubernetes.routes import Kubernetes
from gpuform.providers.emulator.lens.controls import Controls as LensControls
from gpuform.providers.emulator.lens.routes import Lens
from gpuform.providers.emulator.scp.controls import Controls
from gpuform.providers.emulator.scp.routes import Scp
from gpuform.providers.emulator.slurm.controls import Controls as SlurmControls
from gpuform.providers.emulator.slurm.executing import SlurmExecutor
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.tensorone.controls import Controls as TensorOneControls
from gpuform.providers.emulator.tensorone.routes import TensorOne
from gpuform.providers.emulator.together.controls import Controls as TogetherControls
from gpuform.providers.emulator.together.routes import Together


def create_app(store: Store, clock: Clock) -> Flask:
    """The application over a store and the clock of that store. Threads may share it.

    Calling it raises `DroppedConnection` where a fault loses the answer.
    """
    faults = Faults(store)
    platforms: tuple[Platform, ...] = (
        Together(store, clock, faults),
        Scp(store, clock, faults),
        Aios(store, clock, faults),
        TensorOne(store, clock, faults),
        Lens(store, clock, faults),
        Kubernetes(store, clock, faults, SlurmExecutor(store, clock)),
    )
    app = Flask("gpuform.emulator", static_folder=None)
    app.config["PROPAGATE_EXCEPTIONS"] = True
    Gate(store, clock, faults, platforms).guard(app)
    for platform in platforms:
        app.register_blueprint(platform.blueprint(), url_prefix=platform.prefix)
    admin = Admin(store, clock, faults, platforms)
    app.register_blueprint(admin.blueprint(), url_prefix="/_emulator")
    app.register_blueprint(Controls(store, clock).blueprint(), url_prefix="/_emulator/scp")
    controls_of_together = TogetherControls(store, clock)
    app.register_blueprint(controls_of_together.blueprint(), url_prefix="/_emulator/together")
    controls_of_aios = AiosControls(store, clock)
    app.register_blueprint(controls_of_aios.blueprint(), url_prefix="/_emulator/aios")
    app.register_blueprint(LensControls(store).blueprint(), url_prefix="/_emulator/lens")
    controls_of_kubernetes = KubernetesControls(store, clock)
    app.register_blueprint(controls_of_kubernetes.blueprint(), url_prefix="/_emulator/kubernetes")
    controls_of_slurm = SlurmControls(store, clock)
    app.register_blueprint(controls_of_slurm.blueprint(), url_prefix="/_emulator/slurm")
    controls = TensorOneControls(store, clock)
    app.register_blueprint(controls.blueprint(), url_prefix="/_emulator/tensorone")
    # Flask's documented way to wrap an application.
    app.wsgi_app = _dropping(app.wsgi_app)  # type: ignore[assignment, method-assign]
    return app


def _dropping(inner: WSGIApplication) -> WSGIApplication:
    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = inner(environ, start_response)
        if environ.get(DROPPED):
            raise DroppedConnection("the emulator closed the connection without an answer")
        return body

    return application
