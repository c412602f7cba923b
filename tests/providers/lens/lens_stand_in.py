"""Stand in for Lens with answers that a test gives, page by page; written from its reference alone.

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


def build_workload(name: str, **fields: Any) -> Json:
    """Return a workload in the reference's form, with the name as uid."""
    stat = {"gpuRequest": 8, "gpuUtilization": 0.9}
    consumer = {"kind": "Job", "name": name, "namespace": "ml", "uid": name, "stat": stat}
    return {**consumer, "pods": None, "source": "k8s", **fields}


@dataclass
class LensStandIn:
    """Answer like Lens; `total` and `page` replace these fields of a page of workloads."""

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
        documents = {"overview": self.overview, "gpuHeatmap": self.heatmap}
        data = documents.get(kind)
        return build_success(self._page(request) if data is None else data)

    def _page(self, request: httpx.Request) -> Json:
        number, size = int(request.url.params["pageNum"]), int(request.url.params["pageSize"])
        consumers = self.consumers[(number - 1) * size : number * size]
        total = len(self.consumers) if self.total is None else self.total(number)
        return {"data": self.data(number, consumers), "total": total}


def build_success(data: Any) -> httpx.Response:
    return httpx.Response(200, json={"code": 0, "message": "build_success", "data": data})
