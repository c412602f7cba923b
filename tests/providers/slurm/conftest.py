"""One real Slurm for the tests of a module, where it is installed, and emulated ones."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.schedulers.emulated_slurm import SlurmCluster, create_slurm_cluster
from support.schedulers.real_slurm import MISSING_PROGRAMS, Slurm, run_slurm

from gpuform.providers.context import ProviderContext
from gpuform.providers.context.run_context import EmulatorClock
from gpuform.providers.emulator.server import Server, environment, serve
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.operations import Settings
from gpuform.providers.records import FolderRecords, Intents
from gpuform.providers.together.client import get_client


@pytest.fixture(scope="module")
def started() -> Iterator[Slurm]:
    if MISSING_PROGRAMS:
        pytest.skip(
            f"needs a real Slurm (apt install slurm-wlm munge): no {', '.join(MISSING_PROGRAMS)}"
        )
    with run_slurm() as slurm:
        yield slurm


@pytest.fixture
def slurm(started: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """Yield a Slurm without jobs and drains, which the test's own process can use too."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, started.environment[name])
    yield started
    started.reset()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve(seed="slurm", smallest_wait=120.0) as server:
        yield server


@pytest.fixture
def variables(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables that lead to the emulator."""
    for name, value in environment(server.url).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def cluster(server: Server, variables: None) -> Iterator[SlurmCluster]:
    """Create an emulated Together cluster with Slurm on the cluster's Kubernetes."""
    made = create_slurm_cluster(server)
    with closing(get_kubernetes_client(made.kubeconfig, "train")), closing(get_client(Settings())):
        yield made


@pytest.fixture
def call(server: Server, variables: None, tmp_path: Path) -> Iterator[ProviderContext]:
    with closing(EmulatorClock(server.url)) as clock:
        yield ProviderContext(clock=clock, intents=Intents(FolderRecords(tmp_path / "intents")))
