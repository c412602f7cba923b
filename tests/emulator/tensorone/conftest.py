"""Fixtures: the emulated TensorOne of each test."""

from collections.abc import Iterator

import httpx
import pytest
from emulator.tensorone.tensorone_client import NEW_SECONDS, TensorOneClient

from gpuform.providers.emulator.server import Server


@pytest.fixture
def tensorone(emulator: Server) -> Iterator[TensorOneClient]:
    with httpx.Client(trust_env=False, verify=False) as http:
        yield TensorOneClient(f"{emulator.url}/tensorone/v1", http)


@pytest.fixture
def running(tensorone: TensorOneClient, emulator: Server) -> str:
    """Return the id of a running cluster."""
    created = tensorone.create()
    emulator.clock.advance(NEW_SECONDS)
    return created
