"""SCP's lifecycles over the emulator in this process: its own clock, what others do.

`scp_emulated` has the emulator on a port, for what is to go over a network.
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
from gpuform.providers.context.clock import EmulatorClock
from gpuform.providers.context.transport import create_wsgi_transport, mount_transport
from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.server import environment
from gpuform.providers.emulator.store import Store
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.operations import Settings
from gpuform.providers.records import FolderRecords, Intents
from gpuform.providers.scp.certification import CertificationLifecycle
from gpuform.providers.scp.client import ScpClient, client_for
from gpuform.providers.scp.fabric import FabricLifecycle
from gpuform.providers.scp.gpu_node import GpuNodeLifecycle
from gpuform.providers.scp.node_pool import NodePoolLifecycle

Properties = dict[str, Any]

MADE = {
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
    **MADE,
}
KINDS: Mapping[str, type[Lifecycle[Any, Any]]] = {
    "NodePool": NodePoolLifecycle,
    "GpuNode": GpuNodeLifecycle,
    "Fabric": FabricLifecycle,
    "Certification": CertificationLifecycle,
}


@pytest.fixture
def pool_inputs() -> Properties:
    """Three nodes in a fabric of their own."""
    return dict(POOL)


@pytest.fixture
def node_inputs() -> Properties:
    """A node that joins; its fabric is to be added."""
    return {"gpu_node_name": "solo", **MADE}


@dataclass
class Thing:
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
        """Nodes of a pool by their keys."""
        found: dict[str, Properties] = self.outs["gpu_nodes"]
        return found


@dataclass
class World:
    """An emulator, what calls told, and runs of one engine over it."""

    http: httpx.Client
    intents: Intents
    clock: EmulatorClock
    told: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    # The verbs, as an engine calls them.

    def serving(self, name: str, **fields: Any) -> Any:
        call = ProviderContext(
            urn=f"urn:{name}",
            clock=self.clock,
            intents=self.intents,
            on_progress=self.told.append,
            on_warning=self.told.append,
            on_skipped_check=self.unchecked.append,
            **fields,
        )
        return use_context(call)

    def problems(self, kind: str, inputs: Properties, old: Thing | None = None) -> dict[str, str]:
        name = old.name if old else "thing"
        with self.serving(name):
            olds = _wire(old.inputs) if old else {}
            found = KINDS[kind]().check(olds, _wire(inputs)).failures
        return {each.property: each.reason for each in found}

    def create(self, kind: str, inputs: Properties, name: str = "thing", **fields: Any) -> Thing:
        assert self.problems(kind, inputs) == {}
        with self.serving(name, **fields):
            made = KINDS[kind]().create(_wire(inputs))
        return Thing(kind, name, made.id, inputs, made.outs)

    def changes(self, thing: Thing, inputs: Properties | None = None) -> dict[str, tuple[Any, Any]]:
        """What a plan shows: before and after by path."""
        news = _wire(thing.inputs if inputs is None else inputs)
        with self.serving(thing.name):
            found = KINDS[thing.kind]().list_changes(_wire(thing.outs), news, thing.id)
        return {each.path: (each.before, each.after) for each in found}

    def diff(self, thing: Thing, inputs: Properties) -> list[str]:
        """What replaces it. Raises what a plan refuses."""
        with self.serving(thing.name):
            found = KINDS[thing.kind]().diff(thing.id, _wire(thing.outs), _wire(inputs))
        return list(found.replaces)

    def update(self, thing: Thing, inputs: Properties | None = None, **fields: Any) -> Thing:
        inputs = thing.inputs if inputs is None else inputs
        with self.serving(thing.name, **fields):
            outs = KINDS[thing.kind]().update(thing.id, _wire(thing.outs), _wire(inputs)).outs
        return Thing(thing.kind, thing.name, thing.id, inputs, outs)

    def refresh(self, thing: Thing, **fields: Any) -> Thing | None:
        with self.serving(thing.name, **fields):
            read = KINDS[thing.kind]().read(thing.id, _wire(thing.outs))
        if not read.id:
            return None
        return Thing(thing.kind, thing.name, thing.id, thing.inputs, read.outs)

    def imported(self, kind: str, id_: str) -> tuple[Properties, Thing] | None:
        with self.serving("imported"):
            read = KINDS[kind]().read(id_, {})
        if not read.id:
            return None
        return read.inputs, Thing(kind, "imported", read.id, read.inputs, read.outs)

    def delete(self, thing: Thing) -> None:
        with self.serving(thing.name):
            KINDS[thing.kind]().delete(thing.id, _wire(thing.outs))

    # The platform.

    @property
    def client(self) -> ScpClient:
        """What others use."""
        return client_for(Settings())

    def control(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, f"/_emulator/{path}", json=body)
        answer.raise_for_status()
        return answer.json()

    def fault(self, method: str, path: str, **rule: Any) -> None:
        self.control("POST", "faults", {"method": method, "path": path, **rule})

    def heal(self) -> None:
        self.control("DELETE", "faults")

    def advance(self, seconds: float) -> None:
        self.control("POST", "clock", {"advance": seconds})

    @property
    def now(self) -> float:
        return float(self.control("GET", "clock")["now"])

    def in_state(self, node_id: str, state: str) -> None:
        """The node is in a state, for good."""
        self.control("POST", f"scp/gpu-nodes/{node_id}", {"state": state})

    def states(self) -> dict[str, str]:
        """The nodes that there are: states by name."""
        found = self.control("GET", "objects")["scp"]["gpu_nodes"]
        return {each["name"]: each["status"] for each in found}

    def sent(self) -> Counter[str]:
        """The requests since the last time: writes by method and path, reads by method alone."""
        requests = self.control("GET", "requests")
        self.control("DELETE", "requests")
        return Counter(
            "GET" if each["method"] == "GET" else f"{each['method']} {each['path']}"
            for each in requests
        )

    def writes(self) -> Counter[str]:
        """The same without reads, ids left out."""
        found: Counter[str] = Counter()
        for request, number in self.sent().items():
            if request != "GET":
                parts = ["*" if len(part) == 32 else part for part in request.split("/")]
                found["/".join(parts)] += number
        return found

    @contextmanager
    def allowed(self, monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
        with monkeypatch.context() as patched:
            patched.setenv("GPUFORM_ALLOW", name)
            yield


def _wire(values: Properties) -> Properties:
    """As Pulumi's host hands values over: every number a double."""
    found: Properties = json.loads(json.dumps(values), parse_int=float)
    return {**found, "__provider": "pickled"}


URL = "http://scp.test"


@pytest.fixture(scope="session")
def scp_transport() -> Iterator[httpx.BaseTransport]:
    with closing(Store(None, seed="scp")) as store:
        yield create_wsgi_transport(create_app(store, Clock(store, start=1_800_000_000.0)))
        client_for(Settings(environ=environment(URL))).close()


@pytest.fixture
def world(
    scp_transport: httpx.BaseTransport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[World]:
    """The emulator without objects, in the environment of a project."""
    for name, value in environment(URL).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GPUFORM_ALLOW", raising=False)
    monkeypatch.chdir(tmp_path)
    with (
        mount_transport(URL, scp_transport),
        httpx.Client(base_url=URL, transport=scp_transport, verify=False) as http,
        closing(EmulatorClock(URL)) as clock,
    ):
        found = World(http, Intents(FolderRecords(tmp_path / "intents")), clock)
        found.control("POST", "reset")
        yield found
