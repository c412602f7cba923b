"""What tests do to the emulated platform past its API, under `/_emulator/scp`."""

from flask import Blueprint, Response, request
from pydantic import BaseModel, ConfigDict, ValidationError

from gpuform.providers.emulator.admin import refused
from gpuform.providers.emulator.answers import answer
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.scp import settings as kept
from gpuform.providers.emulator.scp.errors import ApiError
from gpuform.providers.emulator.scp.estate import Estate
from gpuform.providers.emulator.store import Store


class _State(BaseModel):
    model_config = ConfigDict(extra="forbid")
    state: str


class Controls:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def blueprint(self) -> Blueprint:
        routes = Blueprint("scp_controls", __name__)
        routes.register_error_handler(ValidationError, refused)
        routes.register_error_handler(ApiError, _not_found)
        routes.get("/settings")(self._show_settings)
        routes.post("/settings")(self._change_settings)
        routes.post("/gpu-nodes/<node_id>")(self._set_state)
        routes.delete("/gpu-nodes/<node_id>")(self._remove)
        return routes

    def _show_settings(self) -> Response:
        """Without the secret keys."""
        hidden = {"keys": {"__all__": {"secret_key"}}}
        return answer(kept.load(self._store).model_dump(mode="json", exclude=hidden))

    def _change_settings(self) -> Response:
        """Those given, each one as a whole; the others stay."""
        given = kept.Settings.model_validate_json(request.get_data())
        with self._store.transaction():
            changed = {name: getattr(given, name) for name in given.model_fields_set}
            kept.keep(self._store, kept.load(self._store).model_copy(update=changed))
        return self._show_settings()

    def _set_state(self, node_id: str) -> Response:
        """From now on, whatever was planned."""
        body = _State.model_validate_json(request.get_data())
        with self._store.transaction():
            estate = Estate(self._store, self._clock.now())
            estate.keep_node(estate.node(node_id).in_state(estate.now, body.state))
        return answer({"id": node_id, "status": body.state})

    def _remove(self, node_id: str) -> Response:
        """At once, without TERMINATING."""
        with self._store.transaction():
            Estate(self._store, self._clock.now()).remove_node(node_id)
        return answer({"id": node_id})


def _not_found(error: ApiError) -> Response:
    return answer({"error": str(error)}, error.status)
