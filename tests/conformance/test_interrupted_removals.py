"""A removal of nodes that a killed process has left, ended by the next run under each host."""

from pathlib import Path
from typing import Any

import pytest
from conformance.emulated import Platform
from conformance.together_kinds import CLUSTER
from conformance.verbs import Verbs

from gpuform.providers.draining import DrainTarget
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.records import Drain, Drains, FolderRecords

NODE = "train-worker-1"


@pytest.fixture
def drains(request: pytest.FixtureRequest, verbs: Verbs, tmp_path: Path) -> Drains:
    """Where the host has its records."""
    host = request.node.callspec.params["verbs"].replace("-", "_")
    here = tmp_path if host == "engine" else request.getfixturevalue(host).directory
    return Drains(FolderRecords(here / ".gpuform" / "records"))


@pytest.mark.parametrize("described", [CLUSTER], indirect=True)
@pytest.mark.parametrize("ending", ["update", "read", "shrink"])
def test_it_is_ended(ending: str, verbs: Verbs, platform: Platform, drains: Drains) -> None:
    checked = verbs.check(CLUSTER.good).inputs
    made = verbs.create(checked)
    kubernetes = KubernetesScheduler(get_kubernetes_client(made.outputs["kube_config"], "train"))
    mark = DrainTarget(made.id, "", ()).owner_label
    present = tuple(f"train-worker-{at}" for at in range(2))
    drains.record(Drain(made.id, mark, (NODE,), (NODE,), present))
    kubernetes.cordon([NODE], mark)
    platform.forget_requests()

    assert verbs.diff(made.id, made.outputs, checked).changes is True
    outputs: dict[str, Any] = made.outputs
    if ending == "update":
        outputs = verbs.update(made.id, made.outputs, checked)
    elif ending == "read":
        outputs = verbs.read(made.id, made.outputs).outputs
    else:
        checked = {**checked, "num_gpus": 8}
        outputs = verbs.update(made.id, made.outputs, checked)

    left = [node.name for node in kubernetes.list_nodes()]
    assert left == (list(present[:1]) if ending == "shrink" else list(present))
    assert not any(node.is_cordoned for node in kubernetes.list_nodes())
    assert drains.find(made.id) is None
    assert outputs["ready"] is True
    assert verbs.diff(made.id, outputs, checked).changes is False
