"""Lens's clusters API (platform document, 'Endpoints'), under `/lens`. Everything is read-only."""

from typing import Any

from flask import Response, request

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.gate import EmulatorParts
from gpuform.providers.emulator.lens import views
from gpuform.providers.emulator.lens.views import Node, Settings, nodes
from gpuform.providers.emulator.routing import (
    PlatformApi,
    PlatformControls,
    RouteTable,
    answer_json,
)
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.operations import TogetherOperations

_FOLDER = "/api/clusters"
_DEGREES = "℃"


class Lens(PlatformApi):
    """The platform as the app mounts it."""

    name = "lens"
    prefix = "/lens"

    def _list_routes(self) -> RouteTable:
        return (
            ("GET", f"{_FOLDER}/overview", self._overview),
            ("GET", f"{_FOLDER}/consumers", self._consumers),
            ("GET", f"{_FOLDER}/gpuHeatmap", self._heatmap),
        )

    def answer_error(self, status: int, message: str) -> Response:
        content = {"code": status, "message": message, "traceId": self._trace_id()}
        return answer_json(content, status)

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        with self._store.transaction():
            found = self._load_platform()
            status = f"{sum(node.is_healthy for node in found)} of {len(found)} healthy"
            return {"overviews": [{"id": "overview", "name": "overview", "status": status}]}

    def _load_platform(self) -> list[Node]:
        now = self._clock.now()
        self._store.remove_expired(now)
        return nodes(self._store, now)

    def _gpus(self, found: list[Node]) -> list[views.Gpu]:
        return views.gpus_of(found, Settings.load(self._store).consumers)

    def _overview(self, found: list[Node]) -> Response:
        now = self._clock.now()
        volumes = [
            each.to_json(now) for each in TogetherOperations(self._store, now).list_volumes()
        ]
        size = sum(each["size_tib"] for each in volumes)
        view = views.overview(found, self._gpus(found), size)
        for name, value in Settings.load(self._store).overview.items():
            if isinstance(value, dict):
                view[name] = {**view.get(name, {}), **value}
            else:
                view[name] = value
        path = request.path.removeprefix(self.prefix)
        imposed = self._faults.take_overrides(request.method, path, [path], self.name)
        for rule in imposed.values():
            _impose(view, rule.status_override or "")
        return self._success(view)

    def _consumers(self, _: list[Node]) -> Response:
        """`data` inside `data`, as documented."""
        try:
            number = int(request.args.get("pageNum", "1"))
            size = int(request.args.get("pageSize", "10"))
        except ValueError:
            number = size = 0
        if number < 1 or size < 1:
            return self.answer_error(400, "pageNum and pageSize must be positive integers")
        settings = Settings.load(self._store)
        page = settings.consumers[(number - 1) * size : number * size]
        total = len(settings.consumers) if settings.total is None else settings.total
        return self._success({"data": [each.model_dump() for each in page], "total": total})

    def _heatmap(self, found: list[Node]) -> Response:
        settings = Settings.load(self._store)
        unit = _DEGREES.encode().decode("cp1252") if settings.garbled else _DEGREES
        view = settings.heatmap or views.heatmap(self._gpus(found), unit)
        return self._success(view)

    def _success(self, data: object) -> Response:
        failure = Settings.load(self._store).failure
        if failure is not None:
            content: dict[str, object] = failure.model_dump()
        else:
            content = {"code": 0, "message": "success", "data": data}
        return answer_json({**content, "traceId": self._trace_id()})

    def _trace_id(self) -> str:
        return f"trace-{self._store.create_id()[:8]}"


def _impose(view: dict[str, Any], status: str) -> None:
    """Shows a number that an injected fault imposes: `faultyNodes=3`."""
    name, _, value = status.partition("=")
    holder = view["rdmaClusterStat"] if name in view["rdmaClusterStat"] else view
    holder[name] = int(value) if value.isdecimal() else value


class LensControls(PlatformControls):
    settings = Settings


def parts(store: Store, clock: Clock, faults: Faults) -> EmulatorParts:
    """Lens's part of the emulator."""
    return EmulatorParts(
        (Lens(store, clock, faults),), {"lens": LensControls(store, clock).create_blueprint()}
    )
