"""What tests do to the emulated platform past its API, under `/_emulator/tensorone`."""

from flask import Blueprint, Response, request
from pydantic import BaseModel, ConfigDict, ValidationError

from gpuform.providers.emulator.admin import refused
from gpuform.providers.emulator.answers import answer
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.tensorone import settings as kept
from gpuform.providers.emulator.tensorone.errors import ApiError
from gpuform.providers.emulator.tensorone.estate import Estate


class _Idle(BaseModel):
    model_config = ConfigDict(extra="forbid")
    idle: bool


class Controls:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def blueprint(self) -> Blueprint:
        routes = Blueprint("tensorone_controls", __name__)
        routes.register_error_handler(ValidationError, refused)
        routes.register_error_handler(ApiError, _not_found)
        routes.get("/settings")(self._show_settings)
        routes.post("/settings")(self._change_settings)
        routes.post("/clusters/<cluster_id>")(self._set_idle)
        return routes

    def _show_settings(self) -> Response:
        return answer(kept.load(self._store).model_dump(mode="json"))

    def _change_settings(self) -> Response:
        """Those given, each one as a whole; the others stay."""
        given = kept.Settings.model_validate_json(request.get_data())
        with self._store.transaction():
            changed = {name: getattr(given, name) for name in given.model_fields_set}
            kept.keep(self._store, kept.load(self._store).model_copy(update=changed))
        return self._show_settings()

    def _set_idle(self, cluster_id: str) -> Response:
        """From now on it has no work, or has some again."""
        body = _Idle.model_validate_json(request.get_data())
        with self._store.transaction():
            estate = Estate(self._store, self._clock.now())
            since = estate.now if body.idle else None
            cluster = estate.cluster(cluster_id)
            estate.keep(cluster.model_copy(update={"idle_since": since}))
        return answer({"id": cluster_id, "idle": body.idle})


def _not_found(error: ApiError) -> Response:
    return answer({"error": error.message}, error.status)
