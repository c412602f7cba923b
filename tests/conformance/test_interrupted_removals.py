"""Test that the next run finishes a removal of nodes that a killed process left."""

from pathlib import Path
from typing import Any

import pytest
from conformance.emulated import Platform
from conformance.operations import Operations
from conformance.together_kinds import CLUSTER

from gpuform.providers.draining import DrainTarget
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.records import Drain, Drains, FolderRecords

NODE = "train-worker-1"


@pytest.fixture
def get_drain_records(request: pytest.FixtureRequest, verbs: Operations, tmp_path: Path) -> Drains:
    """Return the host's records."""
    host = request.node.callspec.params["verbs"].replace("-", "_")
    folder = tmp_path if host == "engine" else request.getfixturevalue(host).directory
    return Drains(FolderRecords(folder / ".gpuform" / "records"))


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("description", [CLUSTER], indirect=True)
@pytest.mark.parametrize("ending", ["update", "read", "shrink"])
def test_a_node_removal_left_by_a_killed_run_is_finished(
    ending: str, verbs: Operations, platform: Platform, get_drain_records: Drains
) -> None:
    checked = verbs.check(CLUSTER.valid_inputs).inputs
    created = verbs.create(checked)
    kubernetes = KubernetesScheduler(get_kubernetes_client(created.outputs["kube_config"], "train"))
    mark = DrainTarget(created.id, "", ()).owner_label
    present = tuple(f"train-worker-{at}" for at in range(2))
    get_drain_records.record(Drain(created.id, mark, (NODE,), (NODE,), present))
    kubernetes.cordon([NODE], mark)
    platform.forget_requests()

    assert verbs.diff(created.id, created.outputs, checked).changes is True
    outputs: dict[str, Any] = created.outputs
    if ending == "update":
        outputs = verbs.update(created.id, created.outputs, checked)
    elif ending == "read":
        outputs = verbs.read(created.id, created.outputs).outputs
    else:
        checked = {**checked, "num_gpus": 8}
        outputs = verbs.update(created.id, created.outputs, checked)

    remaining = [node.name for node in kubernetes.list_nodes()]
    assert remaining == (list(present[:1]) if ending == "shrink" else list(present))
    assert not any(node.is_cordoned for node in kubernetes.list_nodes())
    assert get_drain_records.find(created.id) is None
    assert outputs["ready"] is True
    assert verbs.diff(created.id, outputs, checked).changes is False
