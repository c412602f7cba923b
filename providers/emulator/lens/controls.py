"""What tests set of what Lens shows, under `/_emulator/lens`."""

from flask import Blueprint, Response, request
from pydantic import ValidationError

from gpuform.providers.emulator.admin import refused
from gpuform.providers.emulator.answers import answer
from gpuform.providers.emulator.lens import settings as kept
from gpuform.providers.emulator.store import Store


class Controls:
    def __init__(self, store: Store) -> None:
        self._store = store

    def blueprint(self) -> Blueprint:
        routes = Blueprint("lens_controls", __name__)
        routes.register_error_handler(ValidationError, refused)
        routes.get("/settings")(self._show)
        routes.post("/settings")(self._change)
        return routes

    def _show(self) -> Response:
        return answer(kept.load(self._store).model_dump(mode="json"))

    def _change(self) -> Response:
        """Those given, each one as a whole; the others stay."""
        given = kept.Settings.model_validate_json(request.get_data())
        with self._store.transaction():
            changed = {name: getattr(given, name) for name in given.model_fields_set}
            kept.keep(self._store, kept.load(self._store).model_copy(update=changed))
        return self._show()
