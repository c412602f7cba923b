"""What the refresh of a plan has found is on the emulator when the plan is rehearsed."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from rehearsing.conftest import create_project_stack, list_variables

from gpuform.providers.emulator.routing import TRUSTED
from gpuform.providers.emulator.server import Server, serve
from gpuform.schemas.plan import Plan
from gpuform.stacks.operations import SelectedStack
from gpuform.stacks.operations.automation import preview, up
from gpuform.stacks.operations.runs.options import RunOptions
from gpuform.stacks.rehearsing import RehearsalOptions, rehearse

SCENARIOS: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("planted_hazards.yaml").read_text(encoding="utf-8")
)
POOL = SCENARIOS["new_nodes_never_become_ready"]["topologies"]["pool"]
CLUSTER = SCENARIOS["stock_is_gone_after_the_delete"]["topologies"]["training"]
OPTIONS = RehearsalOptions(hazards=(), jobs=1)


def send(server: Server, method: str, path: str, body: Any = None) -> Any:
    answer = server.app.test_client().open(
        path, method=method, json=body, environ_overrides={TRUSTED: True}
    )
    assert answer.status_code < 400, answer.get_data(as_text=True)
    return answer.get_json()


def bring_up_cluster_and_pool(tmp_path: Path, server: Server) -> SelectedStack:
    """Bring up a cluster of 16 GPUs and a pool of 24, and lose the cluster and 8 of the pool."""
    cluster, pool = yaml.safe_load(CLUSTER), yaml.safe_load(POOL)
    topology = {**pool, **cluster, "config": {**pool["config"], **cluster["config"]}}
    variables = list_variables(server.url, tmp_path)
    stack = create_project_stack(tmp_path, "drifted", yaml.safe_dump(topology), variables)
    assert up(stack).succeeded
    objects = send(server, "GET", "/_emulator/objects")
    (cluster_id,) = (item["id"] for item in objects["together"]["clusters"])
    node_id = objects["scp"]["gpu_nodes"][0]["id"]
    send(server, "DELETE", f"/together/v1/compute/clusters/{cluster_id}")
    send(server, "POST", f"/_emulator/scp/gpu-nodes/{node_id}", {"state": "ERROR"})
    send(server, "POST", "/_emulator/clock", {"advance": 3600})
    return stack


@pytest.mark.slow
def test_what_a_refresh_has_found_missing_is_not_lost_by_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOGETHER_API_KEY", raising=False)
    with serve(seed="drifted") as server:
        stack = bring_up_cluster_and_pool(tmp_path, server)
        file = tmp_path / "plan.json"
        result = preview(stack, RunOptions(refresh=True, save_plan=file))
        assert result.succeeded, result.diagnostics

        rehearsal = rehearse(stack, Plan.model_validate_json(file.read_text()), OPTIONS)

    usual = rehearsal.undisturbed
    assert rehearsal.drift == (
        'node_pools.train: nodes["train-001"].state is ERROR, broken: train-001',
        "clusters.train: no longer exists",
    )
    assert rehearsal.differences == ()
    assert (usual.ending, usual.is_mended) == ("succeeded", True)
    assert (usual.lost_gpus, usual.gpu_hours_without_work) == (0, 0.0)
