"""Fixtures of TensorOne's tests: an emulator in this process, the engine's operations, others."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuform.providers.context import Clock, ProviderContext, use_context
from gpuform.providers.context.run_context import (
    EmulatorClock,
    create_wsgi_transport,
    mount_transport,
)
from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock as VirtualClock
from gpuform.providers.emulator.server import environment
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.tensorone import KEY
from gpuform.providers.operations import Settings
from gpuform.providers.records import FolderRecords, Intents
from gpuform.providers.tensorone.client import TensorOneClient, get_client
from gpuform.providers.tensorone.cluster import ClusterLifecycle

URL = "http://emulator.test"
START = 1_800_000_000.0
"""The beginning of an hour, in which limits are counted."""

Json = dict[str, Any]


@dataclass(frozen=True)
class StoredCluster:
    """A cluster as the state stores it."""

    name: str
    id: str
    inputs: Json
    outs: Json


@dataclass
class EmulatedTensorOne:
    """An emulator, reported messages, and the operations as an engine runs them."""

    http: httpx.Client
    intents: Intents
    clock: Clock
    messages: list[str] = field(default_factory=list)

    def use_provider_context(self, name: str = "train", **fields: Any) -> Any:
        defaults = {
            "clock": self.clock,
            "intents": self.intents,
            "on_progress": self.messages.append,
        }
        return use_context(
            ProviderContext(
                urn=f"urn:{name}", on_warning=self.messages.append, **{**defaults, **fields}
            )
        )

    def find_problems(self, inputs: Json) -> dict[str, str]:
        with self.use_provider_context():
            failures = ClusterLifecycle().check({}, convert_to_wire(inputs)).failures
        return {failure.property: failure.reason for failure in failures}

    def create(self, inputs: Json, name: str = "train", **fields: Any) -> StoredCluster:
        assert self.find_problems(inputs) == {}
        with self.use_provider_context(name, **fields):
            created = ClusterLifecycle().create(convert_to_wire(inputs))
        return StoredCluster(name, created.id, inputs, created.outs)

    def plan(
        self, cluster: StoredCluster, inputs: Json | None = None
    ) -> dict[str, tuple[Any, Any, str]]:
        """Return before, after and reason by path, with `stays` as after for kept values."""
        news = convert_to_wire(cluster.inputs if inputs is None else inputs)
        with self.use_provider_context(cluster.name):
            ClusterLifecycle().diff(cluster.id, convert_to_wire(cluster.outs), news)
        changes = ClusterLifecycle().list_changes(convert_to_wire(cluster.outs), news)
        return {
            change.path: (
                change.before,
                "stays" if change.action == "keep" else change.after,
                change.because,
            )
            for change in changes
        }

    def list_replacing_fields(self, cluster: StoredCluster, inputs: Json) -> list[str]:
        with self.use_provider_context(cluster.name):
            return list(
                ClusterLifecycle()
                .diff(cluster.id, convert_to_wire(cluster.outs), convert_to_wire(inputs))
                .replaces
            )

    def update(
        self, cluster: StoredCluster, inputs: Json | None = None, **fields: Any
    ) -> StoredCluster:
        inputs = cluster.inputs if inputs is None else inputs
        with self.use_provider_context(cluster.name, **fields):
            outs = (
                ClusterLifecycle()
                .update(cluster.id, convert_to_wire(cluster.outs), convert_to_wire(inputs))
                .outs
            )
        return replace(cluster, inputs=inputs, outs=outs)

    def refresh(self, cluster: StoredCluster, **fields: Any) -> StoredCluster | None:
        with self.use_provider_context(cluster.name, **fields):
            read = ClusterLifecycle().read(cluster.id, convert_to_wire(cluster.outs))
        return replace(cluster, outs=read.outs) if read.id else None

    def import_cluster(self, id_: str) -> tuple[Json, Json]:
        with self.use_provider_context("imported"):
            read = ClusterLifecycle().read(id_, {})
        return read.inputs, read.outs

    def delete(self, cluster: StoredCluster, **fields: Any) -> None:
        with self.use_provider_context(cluster.name, **fields):
            ClusterLifecycle().delete(cluster.id, convert_to_wire(cluster.outs))

    # The platform.

    @property
    def client(self) -> TensorOneClient:
        return get_client(Settings())

    def send_control(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, f"/_emulator/{path}", json=body)
        answer.raise_for_status()
        return answer.json()

    def change_settings(self, **changed: Any) -> None:
        self.send_control("POST", "tensorone/settings", changed)

    def add_fault(self, method: str, path: str, **rule: Any) -> None:
        self.send_control("POST", "faults", {"method": method, "path": path, **rule})

    def remove_faults(self) -> None:
        self.send_control("DELETE", "faults")

    def advance(self, seconds: float) -> None:
        """Advance the emulator's clock, and the client's clock with it."""
        self.send_control("POST", "clock", {"advance": seconds})
        self.clock.sleep(0, threading.Event())

    def make_idle(self, cluster: StoredCluster) -> None:
        """Make the cluster idle from now on."""
        self.send_control("POST", f"tensorone/clusters/{cluster.id}", {"idle": True})

    def send(self, method: str, path: str, body: Any = None) -> Json:
        """Send a request as somebody else."""
        headers = {"Authorization": f"Bearer {KEY}"}
        url = f"/tensorone/v1/clusters/{path}"
        answer = self.http.request(method, url, json=body, headers=headers)
        answer.raise_for_status()
        data: Json = answer.json()["data"]
        return data

    def fetch_cluster(self, cluster: StoredCluster) -> Json:
        return self.send("GET", cluster.id)

    def list_objects(self, kind: str = "clusters") -> list[Json]:
        listed: list[Json] = self.send_control("GET", "objects")["tensorone"][kind]
        return listed

    def list_requests(self) -> list[Json]:
        recorded: list[Json] = self.send_control("GET", "requests")
        return recorded

    def take_writes(self) -> list[tuple[str, Any]]:
        """Return and clear the writing requests: method with the end of the path, and body."""
        recorded = [request for request in self.list_requests() if request["method"] != "GET"]
        self.send_control("DELETE", "requests")
        return [
            (_format_operation(request["method"], request["path"]), request["body"])
            for request in recorded
        ]


def _format_operation(method: str, path: str) -> str:
    end = path.rsplit("/", 1)[-1]
    return f"{method} {end}" if end in {"start", "stop"} else method


def convert_to_wire(values: Json) -> Json:
    """Return the values in the form of Pulumi's host, with doubles for numbers."""
    doubles: Json = json.loads(json.dumps(values), parse_int=float)
    return {**doubles, "__provider": "pickled"}


@pytest.fixture
def inputs() -> Json:
    return {
        "name": "train",
        "gpu_type": "A100",
        "gpu_count": 4,
        "storage_gb": 1000,
        "region": "us-west-2",
        "project_id": "proj_456",
    }


@pytest.fixture
def platform(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, smallest_wait: float
) -> Iterator[EmulatedTensorOne]:
    """Start a new emulator in the environment of a project."""
    monkeypatch.delenv("GPUFORM_ALLOW", raising=False)
    for name, value in environment(URL).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    with Store(None, seed="tensorone") as store:
        clock = VirtualClock(store, start=START, smallest_wait=smallest_wait)
        transport = create_wsgi_transport(create_app(store, clock))
        with (
            mount_transport(URL, transport),
            httpx.Client(base_url=URL, transport=transport) as http,
        ):
            waiting = EmulatorClock(URL)
            yield EmulatedTensorOne(http, Intents(FolderRecords(tmp_path / "intents")), waiting)
            get_client(Settings()).close()
            waiting.close()
