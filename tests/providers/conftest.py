"""Fixtures of providers' tests: an emulator in this process, or a fake clock and platform."""

import threading
from collections.abc import Iterator
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
from gpuform.providers.emulator.clock import Clock as VirtualClock
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together import ADMIN_KEY
from gpuform.providers.records import FolderRecords, Intents
from gpuform.providers.together.cluster import ClusterLifecycle

URL = "http://emulator.test"


class FakeClock:
    """A clock that only sleeping advances; it records the pauses."""

    is_platforms = True

    def __init__(self) -> None:
        self.time = 1_000_000.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float, cancelled: threading.Event) -> None:
        if seconds > 0:
            self.pauses.append(seconds)
            self.time += seconds


@dataclass
class ReportedMessages:
    """Messages that a call reported to its engine."""

    progress: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def reported() -> ReportedMessages:
    return ReportedMessages()


@pytest.fixture
def intents(tmp_path: Path) -> Intents:
    return Intents(FolderRecords(tmp_path / "intents"))


@pytest.fixture
def call(clock: FakeClock, reported: ReportedMessages, intents: Intents) -> ProviderContext:
    """Return a call of an engine, on a clock without real waits."""
    return ProviderContext(
        urn="urn:pulumi:dev::project::type::train",
        clock=clock,
        intents=intents,
        on_progress=reported.progress.append,
        on_warning=reported.warnings.append,
        on_skipped_check=reported.unchecked.append,
    )


@dataclass
class Emulator:
    """Control the emulator."""

    http: httpx.Client
    intents: Intents
    reported: ReportedMessages

    def add_fault(self, method: str, path: str, **rule: Any) -> None:
        rule = {"method": method, "path": path, **rule}
        self.http.post("/_emulator/faults", json=rule).raise_for_status()

    def clear_faults(self) -> None:
        self.http.delete("/_emulator/faults").raise_for_status()

    def list_requests(self, method: str | None = None) -> list[dict[str, Any]]:
        recorded: list[dict[str, Any]] = self.http.get("/_emulator/requests").json()
        return [request for request in recorded if method in (None, request["method"])]

    def list_objects(self, kind: str) -> list[dict[str, Any]]:
        objects_by_platform: dict[str, dict[str, list[dict[str, Any]]]]
        objects_by_platform = self.http.get("/_emulator/objects").json()
        return objects_by_platform["together"][kind]

    def send_as_somebody_else(
        self, method: str, path: str, body: Any = None, key: str = ADMIN_KEY
    ) -> Any:
        """Send a request as somebody else, without gpuform."""
        headers = {"Authorization": f"Bearer {key}"}
        url = f"/together/v1/compute{path}"
        answer = self.http.request(method, url, json=body, headers=headers)
        answer.raise_for_status()
        return answer.json()

    def advance(self, seconds: float) -> None:
        self.http.post("/_emulator/clock", json={"advance": seconds}).raise_for_status()

    def create_context(self, name: str = "train", **fields: Any) -> ProviderContext:
        """Return a call of an engine for the resource `name`."""
        return ProviderContext(
            urn=f"urn:pulumi:dev::project::type::{name}",
            clock=EmulatorClock(URL),
            intents=self.intents,
            on_progress=self.reported.progress.append,
            on_warning=self.reported.warnings.append,
            on_skipped_check=self.reported.unchecked.append,
            **fields,
        )

    def use_context_of(self, name: str = "train", **fields: Any) -> Any:
        return use_context(self.create_context(name, **fields))


@pytest.fixture
def smallest_wait(request: pytest.FixtureRequest) -> float:
    """Return by how many seconds an emulator's clock moves at least when a client waits.

    Waiters that wake up late poll an object a few times until it is ready, not sixty times. The
    marker `exact_waits` is for tests of points in time.
    """
    return 0.0 if request.node.get_closest_marker("exact_waits") else 120.0


@pytest.fixture
def emulator(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    intents: Intents,
    reported: ReportedMessages,
    smallest_wait: float,
) -> Iterator[Emulator]:
    """Start an emulator in this process, and enter the folder and environment of a project."""
    store = Store(None, seed="tests")
    app = create_app(store, VirtualClock(store, start=1_800_000_000.0, smallest_wait=smallest_wait))
    transport = create_wsgi_transport(app)
    monkeypatch.setenv("TOGETHER_BASE_URL", f"{URL}/together")
    monkeypatch.setenv("TOGETHER_API_KEY", ADMIN_KEY)
    monkeypatch.setenv("GPUFORM_CLOCK", URL)
    monkeypatch.chdir(tmp_path)
    with (
        mount_transport(URL, transport),
        httpx.Client(base_url=URL, transport=transport) as http,
    ):
        yield Emulator(http, intents, reported)
    store.close()


VOLUME = {"volume_name": "data", "size_tib": 2.0, "region": "us-central-8"}
CLUSTER = {
    "cluster_name": "train",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 16.0,
    "driver_version": "CUDA_12_6_560",
    "billing_type": "ON_DEMAND",
}
"""As Pulumi's host hands them over: doubles."""


@pytest.fixture
def volume_inputs() -> dict[str, Any]:
    return {**VOLUME, "__provider": "pickled"}


@pytest.fixture
def cluster_inputs() -> dict[str, Any]:
    return {**CLUSTER, "__provider": "pickled"}


@pytest.fixture
def lifecycle() -> ClusterLifecycle:
    return ClusterLifecycle()


@pytest.fixture
def ready(
    lifecycle: ClusterLifecycle, emulator: Any, cluster_inputs: dict[str, Any]
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Create a cluster and wait for Ready; return the id, outputs and checked inputs."""
    with emulator.use_context_of():
        inputs = {**lifecycle.check({}, cluster_inputs).inputs, "__provider": "pickled"}
        created = lifecycle.create(inputs)
    return created.id, {**created.outs, "__provider": "pickled"}, inputs
