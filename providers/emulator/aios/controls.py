"""What tests do to the registry past its API, under `/_emulator/aios`."""

from flask import Blueprint, Response, request
from pydantic import ValidationError

from gpuform.providers.emulator.admin import refused
from gpuform.providers.emulator.aios import settings as kept
from gpuform.providers.emulator.aios.errors import ApiError
from gpuform.providers.emulator.aios.records import Records
from gpuform.providers.emulator.answers import answer
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.store import Store


class Controls:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def blueprint(self) -> Blueprint:
        routes = Blueprint("aios_controls", __name__)
        routes.register_error_handler(ValidationError, refused)
        routes.register_error_handler(ApiError, _refused)
        routes.get("/settings")(self._show)
        routes.post("/settings")(self._change)
        routes.delete("/clusters/<cluster_id>")(self._remove_cluster)
        routes.delete("/gpu-nodes/<cluster_id>/<node_id>")(self._remove_node)
        return routes

    def _show(self) -> Response:
        return answer(kept.load(self._store).model_dump(mode="json"))

    def _change(self) -> Response:
        """Those given; the others stay."""
        given = kept.Settings.model_validate_json(request.get_data())
        with self._store.transaction():
            changed = {name: getattr(given, name) for name in given.model_fields_set}
            kept.keep(self._store, kept.load(self._store).model_copy(update=changed))
        return self._show()

    def _remove_cluster(self, cluster_id: str) -> Response:
        with self._store.transaction():
            Records(self._store, self._clock.now()).remove(cluster_id)
        return answer({"id": cluster_id})

    def _remove_node(self, cluster_id: str, node_id: str) -> Response:
        """The entry alone; the sums stay as they are."""
        with self._store.transaction():
            pull = {"$pull": {"nodes.nodeData": {"id": node_id}}}
            Records(self._store, self._clock.now()).update(cluster_id, pull)
        return answer({"id": f"{cluster_id}/{node_id}"})


def _refused(error: ApiError) -> Response:
    return answer({"error": error.message}, error.status)
