"""One real Slurm for the tests of a module, where its commands are installed."""

from collections.abc import Iterator

import pytest
from real_slurm import MISSING, Slurm, running


@pytest.fixture(scope="module")
def started() -> Iterator[Slurm]:
    if MISSING:
        pytest.skip(f"needs a real Slurm (apt install slurm-wlm munge): no {', '.join(MISSING)}")
    with running() as slurm:
        yield slurm


@pytest.fixture
def slurm(started: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """Without jobs and drains; commands of the test's own process reach it, too."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, started.environment[name])
    yield started
    started.settle()
