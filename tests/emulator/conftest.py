"""Fixtures: a running emulator for each test, Together's own client for it, and its controls."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from together import Together

from gpuform.providers.emulator.server import Server, serve
from gpuform.providers.emulator.together import ADMIN_KEY

START = 1_750_000_000.0


@dataclass(frozen=True)
class Control:
    """The admin API of an emulator at `url`."""

    url: str

    def call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_emulator{path}", data=data, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def advance(self, seconds: float) -> float:
        return float(self.call("POST", "/clock", {"advance": seconds})["now"])

    def add_fault(self, **rule: object) -> None:
        self.call("POST", "/faults", rule)

    def list_requests(self) -> list[dict[str, Any]]:
        return self.call("GET", "/requests")


@pytest.fixture(scope="session")
def shared_emulator() -> Iterator[Server]:
    with serve(seed="tests", start=START) as server:
        yield server


@pytest.fixture
def emulator(shared_emulator: Server) -> Server:
    """Empty the shared server for this test, and return the server; the clock continues."""
    Control(shared_emulator.url).call("POST", "/reset")
    return shared_emulator


@pytest.fixture
def start(emulator: Server) -> datetime:
    """Return the emulator's time when the test begins."""
    return datetime.fromtimestamp(emulator.clock.now(), UTC)


@pytest.fixture
def control(emulator: Server) -> Control:
    return Control(emulator.url)


@pytest.fixture(scope="session")
def connect() -> Iterator[Callable[..., Together]]:
    """Return a function that returns one `Together` client for each URL and key."""
    clients: dict[tuple[str, str], Together] = {}

    def create_client(url: str, api_key: str = ADMIN_KEY) -> Together:
        if (url, api_key) not in clients:
            clients[url, api_key] = Together(
                api_key=api_key, base_url=f"{url}/together", max_retries=0
            )
        return clients[url, api_key]

    yield create_client
    for client in clients.values():
        client.close()


@pytest.fixture
def together(emulator: Server, connect: Callable[..., Together]) -> Together:
    return connect(emulator.url)


@pytest.fixture
def cluster_args() -> dict[str, Any]:
    """Return the fewest arguments for the create of a cluster."""
    return {
        "cluster_name": "training",
        "region": "us-central-8",
        "gpu_type": "H100_SXM",
        "num_gpus": 16,
        "billing_type": "ON_DEMAND",
        "cuda_version": "12.6",
        "nvidia_driver_version": "560",
    }
