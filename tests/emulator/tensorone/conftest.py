"""The emulated platform for each test."""

from collections.abc import Iterator

import httpx
import pytest
from emulator.tensorone.asking import NEW_SECONDS, Api

from gpuform.providers.emulator.server import Server


@pytest.fixture
def tensorone(emulator: Server) -> Iterator[Api]:
    with httpx.Client(trust_env=False, verify=False) as http:
        yield Api(f"{emulator.url}/tensorone/v1", http)


@pytest.fixture
def running(tensorone: Api, emulator: Server) -> str:
    """A cluster that runs."""
    made = tensorone.create()
    emulator.clock.advance(NEW_SECONDS)
    return made
