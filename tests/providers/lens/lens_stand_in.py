"""A Lens that says what a test has it say, page by page; written from its reference alone.

Each answer is taken from `consumers`, `overview` and `heatmap` at the moment of the request. What
happens between two requests is in `between`: one step before each request, for as long as there is
one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from gpuform.providers.lens.client import LensClient

Json = dict[str, Any]
Step = Callable[["LensStandIn"], None]


def workload(name: str, **fields: Any) -> Json:
    """A workload as the reference has it, whose uid is its name."""
    stat = {"gpuRequest": 8, "gpuUtilization": 0.9}
    shown = {"kind": "Job", "name": name, "namespace": "ml", "uid": name, "stat": stat}
    return {**shown, "pods": None, "source": "k8s", **fields}


@dataclass
class LensStandIn:
    """What it knows; `total` and `page` replace what a page of workloads says, if given."""

    consumers: list[Json] = field(default_factory=list)
    overview: Json = field(default_factory=dict)
    heatmap: Json = field(default_factory=dict)
    between: list[Step] = field(default_factory=list)
    total: Callable[[int], Any] | None = None
    data: Callable[[int, list[Json]], Any] = lambda _page, shown: shown
    asked: list[str] = field(default_factory=list)

    def client(self) -> LensClient:
        return LensClient("http://lens.test/api", None, httpx.MockTransport(self.answer))

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.between:
            self.between.pop(0)(self)
        kind = request.url.path.rpartition("/")[2]
        self.asked.append(kind)
        shown = {"overview": self.overview, "gpuHeatmap": self.heatmap}
        data = shown.get(kind)
        return success(self._page(request) if data is None else data)

    def _page(self, request: httpx.Request) -> Json:
        number, size = int(request.url.params["pageNum"]), int(request.url.params["pageSize"])
        shown = self.consumers[(number - 1) * size : number * size]
        total = len(self.consumers) if self.total is None else self.total(number)
        return {"data": self.data(number, shown), "total": total}


def success(data: Any) -> httpx.Response:
    return httpx.Response(200, json={"code": 0, "message": "success", "data": data})
