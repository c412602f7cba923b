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
from gpuform.providers.context.clock import EmulatorClock
from gpuform.providers.context.transport import create_wsgi_transport, mount_transport
from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.store import Store
from gpuform.providers.records import FolderRecords, Intents
from gpuform.schemas.aios.updates import EMPTY_UPDATE

URL = "http://aios.test"
Json = dict[str, Any]


@dataclass
class Registry:
    """`http` speaks with the emulator past gpuform; calls tell their warnings here."""

    http: httpx.Client
    client: AiosClient
    intents: Intents
    warnings: list[str] = field(default_factory=list)

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, f"/_emulator/{path}", json=body)
        answer.raise_for_status()
        return answer.json()

    def fault(self, method: str, path: str, **rule: Any) -> None:
        self.admin("POST", "faults", {"method": method, "path": path, **rule})

    def set(self, **settings: Any) -> None:
        self.admin("POST", "aios/settings", settings)

    def writes(self) -> list[tuple[str, str, Any]]:
        """The requests that may change something, since this was last called.

        A PUT that removes none of the nodes is a look: its answer is the record as it is now.
        """
        found = self.admin("GET", "requests")
        self.admin("DELETE", "requests")
        return [
            (each["method"], each["path"], each["body"])
            for each in found
            if each["method"] != "GET"
            and not each["path"].endswith("/query")
            and each["body"] != EMPTY_UPDATE.body
        ]

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return self.http.request(method, f"/aios{path}", json=body)

    def record(self, cluster_id: str) -> Json:
        answer = self.ask("GET", f"/clusters/{cluster_id}")
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    def call(self, name: str = "west") -> ProviderContext:
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
        with mount_transport(URL, transport), http, use_context(registry.call()):
            yield registry
        client.close()


@dataclass
class Thing:
    """One resource under a host, with its state."""

    registry: Registry
    lifecycle: Any
    name: str
    id: str = ""
    state: Json = field(default_factory=dict)

    def check(self, declared: Json) -> Json:
        """The inputs to use."""
        found = self.lifecycle.check(self.state, {**declared, "__provider": "p"})
        assert [(each.property, each.reason) for each in found.failures] == []
        return {**found.inputs, "__provider": "p"}

    def up(self, declared: Json) -> list[str]:
        """Creates or updates as a host does; the paths that were planned to change."""
        with use_context(self.registry.call(self.name)):
            inputs = self.check(declared)
            if not self.id:
                made = self.lifecycle.create(inputs)
                self.id, self.state = made.id, {**made.outs, "__provider": "p"}
                return ["created"]
            planned = self.planned(declared)
            if planned:
                outs = self.lifecycle.update(self.id, self.state, inputs).outs
                self.state = {**outs, "__provider": "p"}
            return planned

    def planned(self, declared: Json) -> list[str]:
        with use_context(self.registry.call(self.name)):
            inputs = self.check(declared)
            found = self.lifecycle.list_changes(self.state, inputs)
            return [each.path for each in found if each.action != "keep"]

    def refresh(self) -> bool:
        """Whether the object is still there."""
        with use_context(self.registry.call(self.name)):
            seen = self.lifecycle.read(self.id, self.state)
        if seen.id:
            self.state = {**seen.outs, "__provider": "p"}
        return bool(seen.id)

    def delete(self) -> None:
        with use_context(self.registry.call(self.name)):
            self.lifecycle.delete(self.id, self.state)


@pytest.fixture
def cluster(registry: Registry) -> Thing:
    return Thing(registry, ClusterLifecycle(), "west")


@pytest.fixture
def gpu_node(registry: Registry) -> Any:
    """Makes resources, by their names in the program."""

    def make(name: str) -> Thing:
        return Thing(registry, GpuNodeLifecycle(), name)

    return make
