"""The registry and its Parser in this process, and the verbs as a host calls them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuform.providers.aios.client import AiosClient
from gpuform.providers.aios.cluster import ClusterLifecycle
from gpuform.providers.aios.gpu_node import GpuNodeLifecycle
from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.context.run_context import (
    EmulatorClock,
    create_wsgi_transport,
    mount_transport,
)
from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.store import Store
from gpuform.providers.records import FolderRecords, Intents
from gpuform.schemas.aios.updates import EMPTY_UPDATE

URL = "http://aios.test"
Json = dict[str, Any]


@dataclass
class Registry:
    """The emulated registry: `http` bypasses gpuform, `warnings` are those of contexts."""

    http: httpx.Client
    client: AiosClient
    intents: Intents
    warnings: list[str] = field(default_factory=list)

    def call_emulator(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, f"/_emulator/{path}", json=body)
        answer.raise_for_status()
        return answer.json()

    def inject_fault(self, method: str, path: str, **rule: Any) -> None:
        self.call_emulator("POST", "faults", {"method": method, "path": path, **rule})

    def configure(self, **settings: Any) -> None:
        self.call_emulator("POST", "aios/settings", settings)

    def list_writes(self) -> list[tuple[str, str, Any]]:
        """Return and forget the changing requests since the last call.

        A PUT that removes no node is left out: gpuform sends it to read the present record.
        """
        requests = self.call_emulator("GET", "requests")
        self.call_emulator("DELETE", "requests")
        return [
            (request["method"], request["path"], request["body"])
            for request in requests
            if request["method"] != "GET"
            and not request["path"].endswith("/query")
            and request["body"] != EMPTY_UPDATE.body
        ]

    def send_request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return self.http.request(method, f"/aios{path}", json=body)

    def get_record(self, cluster_id: str) -> Json:
        answer = self.send_request("GET", f"/clusters/{cluster_id}")
        assert answer.status_code == 200, answer.text
        record: Json = answer.json()
        return record

    def create_context(self, name: str = "west") -> ProviderContext:
        return ProviderContext(
            urn=f"urn:pulumi:dev::project::type::{name}",
            clock=EmulatorClock(URL),
            intents=self.intents,
            on_warning=self.warnings.append,
        )


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Registry]:
    monkeypatch.setenv("AIOS_REGISTRY_URL", f"{URL}/aios")
    monkeypatch.setenv("AIOS_PARSER_URL", f"{URL}/aios/")
    monkeypatch.chdir(tmp_path)
    with Store(None, seed="tests") as store:
        transport = create_wsgi_transport(create_app(store, Clock(store, start=1_800_000_000.0)))
        client = AiosClient(f"{URL}/aios", f"{URL}/aios", transport)
        http = httpx.Client(base_url=URL, transport=transport)
        registry = Registry(http, client, Intents(FolderRecords(tmp_path / "intents")))
        with mount_transport(URL, transport), http, use_context(registry.create_context()):
            yield registry
        client.close()


@dataclass
class StoredResource:
    """One resource of a program, with its id and state as a host stores them."""

    registry: Registry
    lifecycle: Any
    name: str
    id: str = ""
    state: Json = field(default_factory=dict)

    def check(self, declared: Json) -> Json:
        """Return the inputs accepted by the lifecycle's check."""
        check_result = self.lifecycle.check(self.state, {**declared, "__provider": "p"})
        assert [(failure.property, failure.reason) for failure in check_result.failures] == []
        return {**check_result.inputs, "__provider": "p"}

    def apply(self, declared: Json) -> list[str]:
        """Create or update the resource; return "created" or the planned paths."""
        with use_context(self.registry.create_context(self.name)):
            inputs = self.check(declared)
            if not self.id:
                made = self.lifecycle.create(inputs)
                self.id, self.state = made.id, {**made.outs, "__provider": "p"}
                return ["created"]
            planned = self.list_planned_paths(declared)
            if planned:
                outs = self.lifecycle.update(self.id, self.state, inputs).outs
                self.state = {**outs, "__provider": "p"}
            return planned

    def list_planned_paths(self, declared: Json) -> list[str]:
        with use_context(self.registry.create_context(self.name)):
            inputs = self.check(declared)
            changes = self.lifecycle.list_changes(self.state, inputs)
            return [change.path for change in changes if change.action != "keep"]

    def refresh(self) -> bool:
        """Read the object into the state; return False for a deleted object."""
        with use_context(self.registry.create_context(self.name)):
            read_result = self.lifecycle.read(self.id, self.state)
        if read_result.id:
            self.state = {**read_result.outs, "__provider": "p"}
        return bool(read_result.id)

    def delete(self) -> None:
        with use_context(self.registry.create_context(self.name)):
            self.lifecycle.delete(self.id, self.state)


@pytest.fixture
def cluster(registry: Registry) -> StoredResource:
    return StoredResource(registry, ClusterLifecycle(), "west")


@pytest.fixture
def gpu_node(registry: Registry) -> Any:
    """Return a function that creates a GpuNode with a name in the program."""

    def make(name: str) -> StoredResource:
        return StoredResource(registry, GpuNodeLifecycle(), name)

    return make
