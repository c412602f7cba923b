"""Run SCP's lifecycles against the emulator in this process, with the emulator's own clock.

`support.platforms.emulated_scp` serves the emulator on a port, for tests of the network.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.context.run_context import (
    EmulatorClock,
    create_wsgi_transport,
    mount_transport,
)
from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.server import environment as emulator_variables
from gpuform.providers.emulator.store import Store
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.operations import Settings
from gpuform.providers.records import FolderRecords, Intents
from gpuform.providers.scp.certification import CertificationLifecycle
from gpuform.providers.scp.client import ScpClient, get_client
from gpuform.providers.scp.fabric import FabricLifecycle
from gpuform.providers.scp.gpu_node import GpuNodeLifecycle
from gpuform.providers.scp.node_pool import NodePoolLifecycle

Properties = dict[str, Any]

NODE_SETTINGS = {
    "image_id": "IMAGE-7XFMaJpLsapKvskFMjCtmm",
    "server_type_id": "f90e8ef54cc2451b825608e9f95f7bcb",
    "region_id": "kr-west1",
    "vpc_id": "e58348b1bc9148e5af86500fd4ef99ca",
    "subnet_id": "ab313c43291e4b678f4bacffe10768ae",
    "os_user_password": "Abcdef12!",
}
POOL = {
    "node_pool_id": "POOL001-krw1a",
    "cluster_fabric_name": "fabric1",
    "gpu_node_name_prefix": "train",
    "count": 3,
    **NODE_SETTINGS,
}
KINDS: Mapping[str, type[Lifecycle[Any, Any]]] = {
    "NodePool": NodePoolLifecycle,
    "GpuNode": GpuNodeLifecycle,
    "Fabric": FabricLifecycle,
    "Certification": CertificationLifecycle,
}


@pytest.fixture
def pool_inputs() -> Properties:
    """Return the inputs of three nodes in one fabric."""
    return dict(POOL)


@pytest.fixture
def node_inputs() -> Properties:
    """Return the inputs of a node of an existing fabric; the test adds the fabric."""
    return {"gpu_node_name": "solo", **NODE_SETTINGS}


@dataclass
class StoredResource:
    """A resource as the state has it."""

    kind: str
    name: str
    id: str
    inputs: Properties
    outs: Properties

    @property
    def reason(self) -> str:
        return str(self.outs.get("not_ready_reason"))

    @property
    def nodes(self) -> dict[str, Properties]:
        """Return the nodes of a pool by key."""
        nodes_by_key: dict[str, Properties] = self.outs["gpu_nodes"]
        return nodes_by_key


@dataclass
class EmulatedEnvironment:
    """An emulator, the messages of calls, and the runs of one engine against the emulator."""

    http: httpx.Client
    intents: Intents
    clock: EmulatorClock
    messages: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    # The verbs, as an engine calls them.

    def use_context(self, name: str, **fields: Any) -> Any:
        context = ProviderContext(
            urn=f"urn:{name}",
            clock=self.clock,
            intents=self.intents,
            on_progress=self.messages.append,
            on_warning=self.messages.append,
            on_skipped_check=self.unchecked.append,
            **fields,
        )
        return use_context(context)

    def find_problems(
        self, kind: str, inputs: Properties, old: StoredResource | None = None
    ) -> dict[str, str]:
        name = old.name if old else "thing"
        with self.use_context(name):
            olds = convert_to_wire(old.inputs) if old else {}
            failures = KINDS[kind]().check(olds, convert_to_wire(inputs)).failures
        return {failure.property: failure.reason for failure in failures}

    def create(
        self, kind: str, inputs: Properties, name: str = "thing", **fields: Any
    ) -> StoredResource:
        assert self.find_problems(kind, inputs) == {}
        with self.use_context(name, **fields):
            created = KINDS[kind]().create(convert_to_wire(inputs))
        return StoredResource(kind, name, created.id, inputs, created.outs)

    def list_changes(
        self, resource: StoredResource, inputs: Properties | None = None
    ) -> dict[str, tuple[Any, Any]]:
        """Return the changes that a plan shows: before and after, by path."""
        news = convert_to_wire(resource.inputs if inputs is None else inputs)
        with self.use_context(resource.name):
            changes = KINDS[resource.kind]().list_changes(
                convert_to_wire(resource.outs), news, resource.id
            )
        return {change.path: (change.before, change.after) for change in changes}

    def diff(self, resource: StoredResource, inputs: Properties) -> list[str]:
        """Return the fields behind a replacement; raise the refusal of a plan."""
        with self.use_context(resource.name):
            result = KINDS[resource.kind]().diff(
                resource.id, convert_to_wire(resource.outs), convert_to_wire(inputs)
            )
        return list(result.replaces)

    def update(
        self, resource: StoredResource, inputs: Properties | None = None, **fields: Any
    ) -> StoredResource:
        inputs = resource.inputs if inputs is None else inputs
        with self.use_context(resource.name, **fields):
            outs = (
                KINDS[resource.kind]()
                .update(resource.id, convert_to_wire(resource.outs), convert_to_wire(inputs))
                .outs
            )
        return StoredResource(resource.kind, resource.name, resource.id, inputs, outs)

    def refresh(self, resource: StoredResource, **fields: Any) -> StoredResource | None:
        with self.use_context(resource.name, **fields):
            read = KINDS[resource.kind]().read(resource.id, convert_to_wire(resource.outs))
        if not read.id:
            return None
        return StoredResource(resource.kind, resource.name, resource.id, resource.inputs, read.outs)

    def import_object(self, kind: str, id_: str) -> tuple[Properties, StoredResource] | None:
        with self.use_context("imported"):
            read = KINDS[kind]().read(id_, {})
        if not read.id:
            return None
        return read.inputs, StoredResource(kind, "imported", read.id, read.inputs, read.outs)

    def delete(self, resource: StoredResource, **fields: Any) -> None:
        with self.use_context(resource.name, **fields):
            KINDS[resource.kind]().delete(resource.id, convert_to_wire(resource.outs))

    # The platform.

    @property
    def client(self) -> ScpClient:
        """Return the client that other people use."""
        return get_client(Settings())

    def call_emulator(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, f"/_emulator/{path}", json=body)
        answer.raise_for_status()
        return answer.json()

    def inject_fault(self, method: str, path: str, **rule: Any) -> None:
        self.call_emulator("POST", "faults", {"method": method, "path": path, **rule})

    def remove_faults(self) -> None:
        self.call_emulator("DELETE", "faults")

    def move_clock(self, seconds: float) -> None:
        self.call_emulator("POST", "clock", {"advance": seconds})

    @property
    def now(self) -> float:
        return float(self.call_emulator("GET", "clock")["now"])

    def set_node_state(self, node_id: str, state: str) -> None:
        """Set the state of a node for good."""
        self.call_emulator("POST", f"scp/gpu-nodes/{node_id}", {"state": state})

    def list_node_states(self) -> dict[str, str]:
        """Return the states of the existing nodes by name."""
        nodes = self.call_emulator("GET", "objects")["scp"]["gpu_nodes"]
        return {node["name"]: node["status"] for node in nodes}

    def count_requests(self) -> Counter[str]:
        """Count the requests since the last count: writes by path, reads in one sum."""
        requests = self.call_emulator("GET", "requests")
        self.call_emulator("DELETE", "requests")
        return Counter(
            "GET" if request["method"] == "GET" else f"{request['method']} {request['path']}"
            for request in requests
        )

    def count_writes(self) -> Counter[str]:
        """Count the writes since the last count, with ids replaced by asterisks."""
        counts: Counter[str] = Counter()
        for request, number in self.count_requests().items():
            if request != "GET":
                parts = ["*" if len(part) == 32 else part for part in request.split("/")]
                counts["/".join(parts)] += number
        return counts

    @contextmanager
    def grant_permission(self, monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
        with monkeypatch.context() as patched:
            patched.setenv("GPUFORM_ALLOW", name)
            yield


def convert_to_wire(values: Properties) -> Properties:
    """Convert values like Pulumi's host: every number becomes a double."""
    converted: Properties = json.loads(json.dumps(values), parse_int=float)
    return {**converted, "__provider": "pickled"}


URL = "http://scp.test"


@pytest.fixture(scope="session")
def scp_emulator() -> Iterator[tuple[httpx.BaseTransport, Clock]]:
    with closing(Store(None, seed="scp")) as store:
        clock = Clock(store, start=1_800_000_000.0)
        yield create_wsgi_transport(create_app(store, clock)), clock
        get_client(Settings(environ=emulator_variables(URL))).close()


@pytest.fixture
def environment(
    scp_emulator: tuple[httpx.BaseTransport, Clock],
    smallest_wait: float,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[EmulatedEnvironment]:
    """Yield an emulator without objects, in the environment of a project."""
    scp_transport, emulator_clock = scp_emulator
    emulator_clock.smallest_wait = smallest_wait
    for name, value in emulator_variables(URL).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GPUFORM_ALLOW", raising=False)
    monkeypatch.chdir(tmp_path)
    with (
        mount_transport(URL, scp_transport),
        httpx.Client(base_url=URL, transport=scp_transport, verify=False) as http,
        closing(EmulatorClock(URL)) as clock,
    ):
        emulated = EmulatedEnvironment(http, Intents(FolderRecords(tmp_path / "intents")), clock)
        emulated.call_emulator("POST", "reset")
        yield emulated
