"""Serve Lens's clusters API (platform document, 'Endpoints') under `/lens`. All is read-only.

`app` mounts the routes through `create_parts`; `views` computes the answers.
"""

from typing import Any

from flask import Response, request

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.gate import EmulatorParts
from gpuform.providers.emulator.lens import views
from gpuform.providers.emulator.lens.views import LensSettings, Node, list_nodes
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


class LensApi(PlatformApi):
    """Lens's API, as `app` mounts it."""

    name = "lens"
    prefix = "/lens"

    def _list_routes(self) -> RouteTable:
        """Return method, path and view of Lens's overview, consumers and heatmap."""
        return (
            ("GET", f"{_FOLDER}/overview", self._answer_overview),
            ("GET", f"{_FOLDER}/consumers", self._answer_consumers),
            ("GET", f"{_FOLDER}/gpuHeatmap", self._answer_heatmap),
        )

    def answer_error(self, status: int, message: str) -> Response:
        """Return an error in Lens's form: code, message and trace id."""
        content = {"code": status, "message": message, "traceId": self._create_trace_id()}
        return answer_json(content, status)

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        """Return one entry `overview`: how many of the monitored nodes are healthy."""
        with self._store.transaction():
            nodes = self._load_platform()
            status = f"{sum(node.is_healthy for node in nodes)} of {len(nodes)} healthy"
            return {"overviews": [{"id": "overview", "name": "overview", "status": status}]}

    def _load_platform(self) -> list[Node]:
        """Return the nodes of all emulated platforms, monitored at the clock's present time.

        Removes expired objects of the store first.
        """
        now = self._clock.now()
        self._store.remove_expired(now)
        return list_nodes(self._store, now)

    def _list_gpus(self, nodes: list[Node]) -> list[views.Gpu]:
        """Return the GPUs of the nodes, assigned to the workloads in the settings."""
        return views.assign_gpus(nodes, LensSettings.load(self._store).consumers)

    def _answer_overview(self, nodes: list[Node]) -> Response:
        """Answer the counts of nodes, GPUs and storage.

        Members in the setting `overview`, and then statuses of injected faults (`name=value`),
        replace counted ones.
        """
        now = self._clock.now()
        volumes = [
            volume.to_json(now) for volume in TogetherOperations(self._store, now).list_volumes()
        ]
        size = sum(volume["size_tib"] for volume in volumes)
        view = views.build_overview(nodes, self._list_gpus(nodes), size)
        # Objects are merged member by member, so that a test may replace a single number.
        for name, value in LensSettings.load(self._store).overview.items():
            if isinstance(value, dict):
                view[name] = {**view.get(name, {}), **value}
            else:
                view[name] = value
        path = request.path.removeprefix(self.prefix)
        overrides = self._faults.take_overrides(request.method, path, [path], self.name)
        for rule in overrides.values():
            _set_overridden_value(view, rule.status_override or "")
        return self._answer_data(view)

    def _answer_consumers(self, _: list[Node]) -> Response:
        """Answer a page of the workloads in the settings: `data` inside `data`, as documented.

        `total` is the number of all workloads, or the setting `total`. Answers 400 for a page
        number or page size that is not a positive integer.
        """
        try:
            number = int(request.args.get("pageNum", "1"))
            size = int(request.args.get("pageSize", "10"))
        except ValueError:
            # Refused below like any number that is too small.
            number = size = 0
        if number < 1 or size < 1:
            return self.answer_error(400, "pageNum and pageSize must be positive integers")
        settings = LensSettings.load(self._store)
        page = settings.consumers[(number - 1) * size : number * size]
        total = len(settings.consumers) if settings.total is None else settings.total
        return self._answer_data(
            {"data": [consumer.model_dump() for consumer in page], "total": total}
        )

    def _answer_heatmap(self, nodes: list[Node]) -> Response:
        """Answer the hottest GPUs, or the heatmap in the settings."""
        settings = LensSettings.load(self._store)
        # The document's own sign is UTF-8 that was read as Windows-1252.
        unit = _DEGREES.encode().decode("cp1252") if settings.garbled else _DEGREES
        view = settings.heatmap or views.build_heatmap(self._list_gpus(nodes), unit)
        return self._answer_data(view)

    def _answer_data(self, data: object) -> Response:
        """Answer 200 with `data` and code 0, or with the failure that a test has set instead.

        Both have a trace id.
        """
        failure = LensSettings.load(self._store).failure
        # Lens answers 200 to its failures, too; the code is in the body.
        if failure is not None:
            content: dict[str, object] = failure.model_dump()
        else:
            content = {"code": 0, "message": "success", "data": data}
        return answer_json({**content, "traceId": self._create_trace_id()})

    def _create_trace_id(self) -> str:
        """Return a new trace id, `trace-` and 8 characters, computed from the store's seed."""
        return f"trace-{self._store.create_id()[:8]}"


def _set_overridden_value(view: dict[str, Any], status: str) -> None:
    """Set the member of an overview named by a fault's status, such as `faultyNodes=3`, in place.

    Members of `rdmaClusterStat` are set there. Digits become a number.
    """
    name, _, value = status.partition("=")
    parent = view["rdmaClusterStat"] if name in view["rdmaClusterStat"] else view
    parent[name] = int(value) if value.isdecimal() else value


class LensControls(PlatformControls):
    """What tests do to Lens: settings alone."""

    settings = LensSettings


def create_parts(store: Store, clock: Clock, faults: Faults) -> EmulatorParts:
    """Return Lens's part of the emulator: the API, and the test controls under `lens`."""
    return EmulatorParts(
        (LensApi(store, clock, faults),), {"lens": LensControls(store, clock).create_blueprint()}
    )
