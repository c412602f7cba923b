"""The controls of the emulator, under `/_emulator/`: no key, JSON in and out."""

import json
from collections.abc import Callable
from typing import Annotated

from flask import Blueprint, Response, request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults, Rule
from gpuform.providers.emulator.gate import EmulatedPlatform
from gpuform.providers.emulator.routing import answer, invalid
from gpuform.providers.emulator.store import Store

_Moment = Annotated[float, Field(allow_inf_nan=False)]


class _Advance(BaseModel):
    model_config = ConfigDict(extra="forbid")
    advance: Annotated[_Moment, Field(ge=0)]


class _Until(BaseModel):
    model_config = ConfigDict(extra="forbid")
    until: _Moment


class _Stop(BaseModel):
    model_config = ConfigDict(extra="forbid")
    emulator: str


class Admin:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        faults: Faults,
        platforms: tuple[EmulatedPlatform, ...],
        stop: Callable[[], bool],
    ) -> None:
        self._stop = stop
        self._store = store
        self._clock = clock
        self._faults = faults
        self._platforms = platforms

    def blueprint(self) -> Blueprint:
        routes = Blueprint("admin", __name__)
        routes.register_error_handler(ValidationError, invalid)
        routes.get("/health")(self._health)
        routes.get("/clock")(self._get_clock)
        routes.post("/clock")(self._move_clock)
        routes.post("/faults")(self._add_fault)
        routes.get("/faults")(self._list_faults)
        routes.get("/faults/applied")(self._applied_faults)
        routes.delete("/faults")(self._clear_faults)
        routes.get("/requests")(self._list_requests)
        routes.delete("/requests")(self._clear_requests)
        routes.get("/objects")(self._list_objects)
        routes.post("/reset")(self._reset)
        routes.post("/stop")(self._stop_serving)
        return routes

    def _health(self) -> Response:
        return answer({"status": "ok"})

    def _get_clock(self) -> Response:
        return answer({"now": self._clock.now(), "emulator": self._store.identity})

    def _move_clock(self) -> Response:
        """`{"advance": seconds}` adds, `{"until": unix seconds}` moves on unless that is past."""
        data = request.get_data()
        if b'"until"' in data:
            self._clock.until(_Until.model_validate_json(data).until)
        else:
            self._clock.advance(_Advance.model_validate_json(data).advance)
        return self._get_clock()

    def _add_fault(self) -> Response:
        rule = self._faults.add(Rule.model_validate_json(request.get_data()))
        return answer(rule.model_dump(mode="json", exclude_defaults=True))

    def _list_faults(self) -> Response:
        return answer([rule.model_dump(mode="json") for rule in self._faults.live()])

    def _applied_faults(self) -> Response:
        """How many requests each fault met, by its number, also of those that are used up."""
        return answer(self._faults.applied())

    def _clear_faults(self) -> Response:
        self._faults.clear()
        return answer([])

    def _list_requests(self) -> Response:
        return answer([json.loads(entry) for entry in self._store.logged()])

    def _clear_requests(self) -> Response:
        self._store.clear_log()
        return answer([])

    def _list_objects(self) -> Response:
        return answer({platform.name: platform.objects() for platform in self._platforms})

    def _stop_serving(self) -> Response:
        """`{"emulator": identity}` ends the process, unless that does other work as well."""
        named = _Stop.model_validate_json(request.get_data()).emulator
        if named != self._store.identity:
            return answer({"error": f"this is emulator {self._store.identity}"}, 409)
        if not self._stop():
            return answer({"error": "this emulator is part of another program"}, 409)
        return answer({})

    def _reset(self) -> Response:
        with self._store.transaction():
            self._store.reset()
            self._faults.clear()
        return answer({})
