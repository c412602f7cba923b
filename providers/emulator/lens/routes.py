"""Lens's clusters API (platform document, 'Endpoints'), under `/lens`. Everything is read-only."""

from collections.abc import Callable
from typing import Any

from flask import Blueprint, Request, Response, request

from gpuform.providers.emulator.answers import answer
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.gate import Parts
from gpuform.providers.emulator.lens import settings as kept
from gpuform.providers.emulator.lens import views
from gpuform.providers.emulator.lens.controls import Controls
from gpuform.providers.emulator.lens.sources import Node, nodes
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.operations import Operations

_FOLDER = "/api/clusters"
_DEGREES = "℃"


class Lens:
    """The platform as the app mounts it."""

    name = "lens"
    prefix = "/lens"

    def __init__(self, store: Store, clock: Clock, faults: Faults) -> None:
        self._store = store
        self._clock = clock
        self._faults = faults

    def blueprint(self) -> Blueprint:
        routes = Blueprint(self.name, __name__)
        table: tuple[tuple[str, Callable[[], Response]], ...] = (
            ("overview", self._overview),
            ("consumers", self._consumers),
            ("gpuHeatmap", self._heatmap),
        )
        for path, view in table:
            routes.add_url_rule(f"{_FOLDER}/{path}", path, self._in_one_moment(view))
        return routes

    def refusal(self, asked: Request) -> Response | None:  # noqa: ARG002 - there are no keys
        return None

    def error(self, status: int, message: str) -> Response:
        content = {"code": status, "message": message, "traceId": self._trace_id()}
        return answer(content, status)

    def objects(self) -> dict[str, list[dict[str, Any]]]:
        with self._store.transaction():
            found = self._nodes()
            status = f"{sum(node.is_healthy for node in found)} of {len(found)} healthy"
            return {"overviews": [{"id": "overview", "name": "overview", "status": status}]}

    def _in_one_moment(self, view: Callable[[], Response]) -> Callable[[], Response]:
        def whole() -> Response:
            with self._store.transaction():
                return view()

        return whole

    def _nodes(self) -> list[Node]:
        now = self._clock.now()
        self._store.sweep(now)
        return nodes(self._store, now)

    def _gpus(self, found: list[Node]) -> list[views.Gpu]:
        return views.gpus_of(found, kept.load(self._store).consumers)

    def _overview(self) -> Response:
        found, now = self._nodes(), self._clock.now()
        volumes = [each.view(now) for each in Operations(self._store, now).list_volumes()]
        size = sum(each["size_tib"] for each in volumes)
        view = views.overview(found, self._gpus(found), size)
        for name, value in kept.load(self._store).overview.items():
            if isinstance(value, dict):
                view[name] = {**view.get(name, {}), **value}
            else:
                view[name] = value
        path = request.path.removeprefix(self.prefix)
        for rule in self._faults.take_overrides(request.method, path, [path]).values():
            _impose(view, rule.status_override or "")
        return self._success(view)

    def _consumers(self) -> Response:
        """`data` inside `data`, as documented."""
        try:
            number = int(request.args.get("pageNum", "1"))
            size = int(request.args.get("pageSize", "10"))
        except ValueError:
            number = size = 0
        if number < 1 or size < 1:
            return self.error(400, "pageNum and pageSize must be positive integers")
        settings = kept.load(self._store)
        page = settings.consumers[(number - 1) * size : number * size]
        total = len(settings.consumers) if settings.total is None else settings.total
        return self._success({"data": [each.model_dump() for each in page], "total": total})

    def _heatmap(self) -> Response:
        settings = kept.load(self._store)
        unit = _DEGREES.encode().decode("cp1252") if settings.garbled else _DEGREES
        view = settings.heatmap or views.heatmap(self._gpus(self._nodes()), unit)
        return self._success(view)

    def _success(self, data: object) -> Response:
        failure = kept.load(self._store).failure
        if failure is not None:
            content: dict[str, object] = failure.model_dump()
        else:
            content = {"code": 0, "message": "success", "data": data}
        return answer({**content, "traceId": self._trace_id()})

    def _trace_id(self) -> str:
        return f"trace-{self._store.new_id()[:8]}"


def _impose(view: dict[str, Any], status: str) -> None:
    """Shows a number that an injected fault imposes: `faultyNodes=3`."""
    name, _, value = status.partition("=")
    holder = view["rdmaClusterStat"] if name in view["rdmaClusterStat"] else view
    holder[name] = int(value) if value.isdecimal() else value


def parts(store: Store, clock: Clock, faults: Faults) -> Parts:
    """Lens's part of the emulator."""
    return Parts((Lens(store, clock, faults),), {"lens": Controls(store).blueprint()})
