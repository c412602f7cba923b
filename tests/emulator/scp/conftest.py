"""The emulated platform for each test."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from emulator.scp.asking import NEW_NODE_SECONDS, Api, Json, new_nodes

from gpuform.providers.emulator.server import Server


@pytest.fixture
def scp(emulator: Server) -> Iterator[Api]:
    with httpx.Client(trust_env=False, verify=False) as http:
        yield Api(f"{emulator.url}/scp", http)


@pytest.fixture
def fabric(scp: Api, control: Any) -> Json:
    """`fabric-a` with two RUNNING nodes `a-001` and `a-002`."""
    scp.create(new_nodes("a-001", "a-002"))
    control.advance(NEW_NODE_SECONDS)
    return scp.fabrics()["fabric-a"]
