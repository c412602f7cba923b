"""A worker that its own Kubernetes has as NotReady, in what the commands say of a Ready cluster."""

from typing import Any

import httpx
import pytest

from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.emulator.together import ADMIN_KEY

Run = Any
NOT_READY = "is NotReady in Kubernetes: Kubelet stopped posting status"


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Any:
    with serve(seed="workers") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def run_applied(dev: Run, emulator: Any) -> Run:
    ran = dev("up", "--yes", "--skip-preview")
    assert ran.code == 0, ran.out + ran.err
    return dev


def post_to_emulator(emulator: Any, path: str, body: Any) -> Any:
    answer = httpx.post(
        f"{emulator.url}/_emulator/{path}", json=body, trust_env=False, verify=False
    )
    answer.raise_for_status()
    return answer.json()


def silence_worker(emulator: Any) -> str:
    """Stop the kubelet of one worker, and return the worker's name."""
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    url = f"{emulator.url}/together/v1/compute/clusters"
    (cluster,) = httpx.get(url, headers=headers, trust_env=False, verify=False).json()["clusters"]
    name = cluster["gpu_worker_nodes"][0]["host_name"]
    post_to_emulator(emulator, f"kubernetes/{cluster['cluster_id']}/nodes/{name}", {"ready": False})
    return str(name)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_not_ready_worker_is_reported_by_drift_status_and_plans(
    run_applied: Run, emulator: Any
) -> None:
    name = silence_worker(emulator)
    drift = run_applied("drift", "--detailed-exitcode")
    assert (drift.code, f"worker {name} {NOT_READY}" in drift.out) == (2, True), drift.out
    status = run_applied("status", "--refresh")
    assert f"not ready: worker {name} {NOT_READY}" in status.out
    plan = run_applied("preview", "--refresh")
    assert f"worker {name} {NOT_READY}" in plan.out


def test_a_silent_api_server_is_reported_without_drift(run_applied: Run, emulator: Any) -> None:
    post_to_emulator(
        emulator, "faults", {"method": "GET", "path": "/api/v1/nodes", "status": 503, "count": None}
    )
    drift = run_applied("drift", "--detailed-exitcode")
    assert drift.code == 0, drift.out
    assert "Kubernetes did not answer" in drift.out
    status = run_applied("status", "--refresh")
    assert status.code == 0
    assert "the state of its workers is unknown: Kubernetes did not answer" in status.out


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_ready_workers_are_no_drift(run_applied: Run) -> None:
    drift = run_applied("drift", "--detailed-exitcode")
    assert drift.code == 0, drift.out
    assert "worker" not in drift.out
    refreshed = run_applied("refresh", "--yes")
    assert "updated" not in refreshed.out
    preview = run_applied("preview")
    assert "worker" not in preview.out
