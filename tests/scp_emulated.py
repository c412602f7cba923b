"""The emulated SCP on a port, for its client: settings that lead there, and the controls."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.context.clock import EmulatorClock
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
class Emulated:
    """`client` asks over HTTP by the emulator's key; `others` are closed with it."""

    url: str
    client: ScpClient
    others: list[ScpClient] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return Settings(environ=environ(self.url))

    def call(self, method: str, path: str, body: Any = None) -> Any:
        answer = httpx.request(
            method, f"{self.url}/_emulator{path}", json=body, trust_env=False, verify=False
        )
        answer.raise_for_status()
        return answer.json()

    def advance(self, seconds: float) -> None:
        self.call("POST", "/clock", {"advance": seconds})

    def fault(self, method: str, path: str, **rule: Any) -> None:
        self.call("POST", "/faults", {"method": method, "path": path, **rule})

    def requests(self) -> list[tuple[str, str]]:
        return [(each["method"], each["path"]) for each in self.call("GET", "/requests")]

    def client_with(self, **variables: str) -> ScpClient:
        """A client of its own, with other variables."""
        settings = Settings(environ={**environ(self.url), **variables})
        self.others.append(ScpClient(Connection(find_credentials(settings))))
        return self.others[-1]


def environ(url: str) -> Mapping[str, str]:
    """The variables of a user without files of the official tools."""
    return {**environment(url), "HOME": "/nonexistent"}


def new_nodes(fabric: str, *names: str, **fields: Any) -> requests.CreateGpuNodes:
    """A create that the emulator accepts. `fabric_id` is of a fabric to join."""
    details = requests.ClusterFabricDetails(
        cluster_fabric_name=fabric,
        node_pool_id=POOL,
        cluster_fabric_id=fields.pop("fabric_id", None),
    )
    given = {
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
    return requests.CreateGpuNodes(**{**given, **fields})


@contextmanager
def emulated() -> Iterator[Emulated]:
    """A new emulator; the block's waiting moves its clock."""
    with serve(seed="tests", start=1_800_000_000.0) as server:
        settings = Settings(environ=environ(server.url))
        platform = Emulated(server.url, ScpClient(Connection(find_credentials(settings))))
        clock = EmulatorClock(server.url)
        platform.call("POST", "/scp/settings", {"create_answer": "all"})
        with use_context(ProviderContext(clock=clock)):
            try:
                yield platform
            finally:
                clock.close()
                for client in (platform.client, *platform.others):
                    client.close()
