"""TensorOne's lifecycle over an emulator in this process: its own clock, and what others do."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuform.providers.context import Clock, ProviderContext, use_context
from gpuform.providers.context.clock import EmulatorClock
from gpuform.providers.context.transport import create_wsgi_transport, mount_transport
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
class Thing:
    """A cluster as the state has it."""

    name: str
    id: str
    inputs: Json
    outs: Json


@dataclass
class World:
    """An emulator, what calls told, and the verbs as an engine calls them."""

    http: httpx.Client
    intents: Intents
    clock: Clock
    told: list[str] = field(default_factory=list)

    def serving(self, name: str = "train", **fields: Any) -> Any:
        given = {"clock": self.clock, "intents": self.intents, "on_progress": self.told.append}
        return use_context(
            ProviderContext(urn=f"urn:{name}", on_warning=self.told.append, **{**given, **fields})
        )

    def problems(self, inputs: Json) -> dict[str, str]:
        with self.serving():
            found = ClusterLifecycle().check({}, wired(inputs)).failures
        return {each.property: each.reason for each in found}

    def create(self, inputs: Json, name: str = "train", **fields: Any) -> Thing:
        assert self.problems(inputs) == {}
        with self.serving(name, **fields):
            made = ClusterLifecycle().create(wired(inputs))
        return Thing(name, made.id, inputs, made.outs)

    def plan(self, thing: Thing, inputs: Json | None = None) -> dict[str, tuple[Any, Any, str]]:
        """What a plan shows: before, after and why, by path. What stays has `stays` for after."""
        news = wired(thing.inputs if inputs is None else inputs)
        with self.serving(thing.name):
            ClusterLifecycle().diff(thing.id, wired(thing.outs), news)
        found = ClusterLifecycle().list_changes(wired(thing.outs), news)
        return {
            each.path: (each.before, "stays" if each.action == "keep" else each.after, each.because)
            for each in found
        }

    def replaces(self, thing: Thing, inputs: Json) -> list[str]:
        with self.serving(thing.name):
            return list(
                ClusterLifecycle().diff(thing.id, wired(thing.outs), wired(inputs)).replaces
            )

    def update(self, thing: Thing, inputs: Json | None = None, **fields: Any) -> Thing:
        inputs = thing.inputs if inputs is None else inputs
        with self.serving(thing.name, **fields):
            outs = ClusterLifecycle().update(thing.id, wired(thing.outs), wired(inputs)).outs
        return replace(thing, inputs=inputs, outs=outs)

    def refresh(self, thing: Thing, **fields: Any) -> Thing | None:
        with self.serving(thing.name, **fields):
            read = ClusterLifecycle().read(thing.id, wired(thing.outs))
        return replace(thing, outs=read.outs) if read.id else None

    def imported(self, id_: str) -> tuple[Json, Json]:
        with self.serving("imported"):
            read = ClusterLifecycle().read(id_, {})
        return read.inputs, read.outs

    def delete(self, thing: Thing, **fields: Any) -> None:
        with self.serving(thing.name, **fields):
            ClusterLifecycle().delete(thing.id, wired(thing.outs))

    # The platform.

    @property
    def client(self) -> TensorOneClient:
        return get_client(Settings())

    def control(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, f"/_emulator/{path}", json=body)
        answer.raise_for_status()
        return answer.json()

    def settings(self, **changed: Any) -> None:
        self.control("POST", "tensorone/settings", changed)

    def fault(self, method: str, path: str, **rule: Any) -> None:
        self.control("POST", "faults", {"method": method, "path": path, **rule})

    def heal(self) -> None:
        self.control("DELETE", "faults")

    def advance(self, seconds: float) -> None:
        """Time passes, and everybody knows."""
        self.control("POST", "clock", {"advance": seconds})
        self.clock.sleep(0, threading.Event())

    def idle(self, thing: Thing) -> None:
        """From now on the cluster has no work."""
        self.control("POST", f"tensorone/clusters/{thing.id}", {"idle": True})

    def send(self, method: str, path: str, body: Any = None) -> Json:
        """What somebody else does."""
        headers = {"Authorization": f"Bearer {KEY}"}
        url = f"/tensorone/v1/clusters/{path}"
        answer = self.http.request(method, url, json=body, headers=headers)
        answer.raise_for_status()
        found: Json = answer.json()["data"]
        return found

    def seen(self, thing: Thing) -> Json:
        return self.send("GET", thing.id)

    def objects(self, kind: str = "clusters") -> list[Json]:
        found: list[Json] = self.control("GET", "objects")["tensorone"][kind]
        return found

    def requests(self) -> list[Json]:
        found: list[Json] = self.control("GET", "requests")
        return found

    def writes(self) -> list[tuple[str, Any]]:
        """What was written since the last time: the method with the end of the path, the body."""
        found = [each for each in self.requests() if each["method"] != "GET"]
        self.control("DELETE", "requests")
        return [(_verb(each["method"], each["path"]), each["body"]) for each in found]


def _verb(method: str, path: str) -> str:
    end = path.rsplit("/", 1)[-1]
    return f"{method} {end}" if end in {"start", "stop"} else method


def wired(values: Json) -> Json:
    """As Pulumi's host hands values over: every number a double."""
    found: Json = json.loads(json.dumps(values), parse_int=float)
    return {**found, "__provider": "pickled"}


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
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    """A new emulator, in the environment of a project."""
    monkeypatch.delenv("GPUFORM_ALLOW", raising=False)
    for name, value in environment(URL).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    with Store(None, seed="tensorone") as store:
        transport = create_wsgi_transport(create_app(store, VirtualClock(store, start=START)))
        with (
            mount_transport(URL, transport),
            httpx.Client(base_url=URL, transport=transport) as http,
        ):
            clock = EmulatorClock(URL)
            yield World(http, Intents(FolderRecords(tmp_path / "intents")), clock)
            get_client(Settings()).close()
            clock.close()
