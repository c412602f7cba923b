"""What tests do to the emulated platform past its API, under `/_emulator/together`."""

from flask import Blueprint, Response, request
from pydantic import BaseModel, ConfigDict, ValidationError

from gpuform.providers.emulator.admin import refused
from gpuform.providers.emulator.answers import answer
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.operations import Operations


class _Credit(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    exhausted: bool


class Controls:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def blueprint(self) -> Blueprint:
        routes = Blueprint("together_controls", __name__)
        routes.register_error_handler(ValidationError, refused)
        routes.post("/credit")(self._set_credit)
        return routes

    def _set_credit(self) -> Response:
        """From now on there is none, or some again; what is lost by then stays lost."""
        body = _Credit.model_validate_json(request.get_data())
        with self._store.transaction():
            now = self._clock.now()
            self._store.sweep(now)
            Operations(self._store, now).set_credit(exhausted=body.exhausted)
        return answer({"exhausted": body.exhausted})
