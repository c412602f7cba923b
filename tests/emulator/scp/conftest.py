"""Fixtures: the emulated SCP of each test."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from emulator.scp.scp_client import NEW_NODE_SECONDS, Json, ScpClient, build_create_body

from gpuform.providers.emulator.server import Server


@pytest.fixture
def scp(emulator: Server) -> Iterator[ScpClient]:
    with httpx.Client(trust_env=False, verify=False) as http:
        yield ScpClient(f"{emulator.url}/scp", http)


@pytest.fixture
def fabric(scp: ScpClient, control: Any) -> Json:
    """Return `fabric-a` with two RUNNING nodes `a-001` and `a-002`."""
    scp.create(build_create_body("a-001", "a-002"))
    control.advance(NEW_NODE_SECONDS)
    return scp.get_fabrics()["fabric-a"]
