"""Serve the emulated SCP on a port, and control the emulator from tests."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.context.run_context import EmulatorClock
from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.operations import Settings
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.client.connection import Connection
from gpuform.providers.scp.client.credentials import find_credentials
from gpuform.schemas.scp import wire as requests

SUBNET = "ab313c43291e4b678f4bacffe10768ae"
VPC = "e58348b1bc9148e5af86500fd4ef99ca"
H100 = "f90e8ef54cc2451b825608e9f95f7bcb"
IMAGE = "IMAGE-4mQzWvT9hLxRbYc2NfKpJd"
POOL = "POOL001-krw1a"
PUBLIC_IP = "20c507a036c447cdb3b19468d8ea62ac"
PASSWORD = "Hunter2#Hunter2"
SCRIPT = "#!/bin/sh\n  curl https://secret.example/token-4711\n"


@dataclass(frozen=True)
class EmulatedScp:
    """An emulator on a port, a client with the emulator's key, and other clients."""

    url: str
    client: ScpClient
    others: list[ScpClient] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return Settings(environ=build_variables(self.url))

    def call_emulator(self, method: str, path: str, body: Any = None) -> Any:
        answer = httpx.request(
            method, f"{self.url}/_emulator{path}", json=body, trust_env=False, verify=False
        )
        answer.raise_for_status()
        return answer.json()

    def move_clock(self, seconds: float) -> None:
        self.call_emulator("POST", "/clock", {"advance": seconds})

    def inject_fault(self, method: str, path: str, **rule: Any) -> None:
        self.call_emulator("POST", "/faults", {"method": method, "path": path, **rule})

    def list_requests(self) -> list[tuple[str, str]]:
        return [
            (request["method"], request["path"])
            for request in self.call_emulator("GET", "/requests")
        ]

    def create_client(self, **variables: str) -> ScpClient:
        """Create another client, with other variables."""
        settings = Settings(environ={**build_variables(self.url), **variables})
        self.others.append(ScpClient(Connection(find_credentials(settings))))
        return self.others[-1]


def build_variables(url: str) -> Mapping[str, str]:
    """Build the variables of a user without files of the official tools."""
    return {**environment(url), "HOME": "/nonexistent"}


def build_create_request(fabric: str, *names: str, **fields: Any) -> requests.CreateGpuNodes:
    """Build a valid create request; `fabric_id` is the id of a fabric to join."""
    details = requests.ClusterFabricDetails(
        cluster_fabric_name=fabric,
        node_pool_id=POOL,
        cluster_fabric_id=fields.pop("fabric_id", None),
    )
    default_fields = {
        "cluster_fabric_details": details,
        "image_id": IMAGE,
        "os_user_id": "root",
        "os_user_password": PASSWORD,
        "init_script": SCRIPT,
        "region_id": "kr-west1",
        "subnet_id": SUBNET,
        "vpc_id": VPC,
        "server_details": tuple(
            requests.ServerDetails(gpu_node_name=name, server_type_id=H100) for name in names
        ),
    }
    return requests.CreateGpuNodes(**{**default_fields, **fields})


@contextmanager
def run_emulator() -> Iterator[EmulatedScp]:
    """Serve a new emulator; waiting in the block moves the emulator's clock."""
    with serve(seed="tests", start=1_800_000_000.0) as server:
        settings = Settings(environ=build_variables(server.url))
        platform = EmulatedScp(server.url, ScpClient(Connection(find_credentials(settings))))
        clock = EmulatorClock(server.url)
        platform.call_emulator("POST", "/scp/settings", {"create_answer": "all"})
        with use_context(ProviderContext(clock=clock)):
            try:
                yield platform
            finally:
                clock.close()
                for client in (platform.client, *platform.others):
                    client.close()
