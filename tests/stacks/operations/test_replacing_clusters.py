"""Change a driver while jobs run: the new cluster first, and the old one once it is idle."""

from typing import Any

import pytest
from support.stacks.automated_stack import TOPOLOGY, AutomatedStack

from gpuform.stacks.operations import preview, up

ROLLOUT = """\
    rollout: {strategy: replace_cluster, keep_volume: true}
    drain: {wait_minutes: 60}
"""


@pytest.fixture
def old_cluster_id(automated_stack: AutomatedStack) -> str:
    """Create a cluster, declare another driver, and return the cluster's id."""
    assert up(automated_stack.stack).succeeded
    (cluster,) = automated_stack.platform_clusters
    topology = TOPOLOGY.replace("CUDA_12_6_560", "CUDA_12_4_550")
    (automated_stack.folder / "topology.yaml").write_text(
        topology.replace("outputs:\n", f"{ROLLOUT}outputs:\n")
    )
    return str(cluster["id"])


def run_job(automated_stack: AutomatedStack, cluster: str, minutes: float) -> None:
    body = {"name": "train", "namespace": "ml", "node": "training-worker-0"}
    path = f"_emulator/kubernetes/{cluster}/pods"
    automated_stack.request("POST", path, {**body, "runs_for": minutes * 60})


def get_job_end(automated_stack: AutomatedStack, cluster: str) -> str:
    ended = automated_stack.request("GET", f"_emulator/kubernetes/{cluster}/ended")
    (how,) = [job["how"] for job in ended if job["pod"] == "ml/train"]
    return str(how)


def list_cluster_requests(automated_stack: AutomatedStack) -> list[str]:
    """Return the methods of creates and deletes of clusters."""
    sent = automated_stack.request("GET", "_emulator/requests")
    return [
        request["method"]
        for request in sent
        if request["method"] in ("POST", "DELETE") and "/compute/clusters" in request["path"]
    ]


def list_cluster_ids(automated_stack: AutomatedStack) -> list[str]:
    return [cluster["id"] for cluster in automated_stack.platform_clusters]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_new_cluster_is_created_before_the_idle_old_one_is_deleted(
    automated_stack: AutomatedStack, old_cluster_id: str
) -> None:
    run_job(automated_stack, old_cluster_id, 60)
    automated_stack.request("DELETE", "_emulator/requests")
    assert up(automated_stack.stack).succeeded
    assert list_cluster_requests(automated_stack) == ["POST", "DELETE"]
    assert get_job_end(automated_stack, old_cluster_id) == "succeeded"
    (new,) = list_cluster_ids(automated_stack)
    assert new != old_cluster_id
    volumes = automated_stack.request("GET", "_emulator/objects")["together"]["volumes"]
    assert len(volumes) == 1
    assert not preview(automated_stack.stack).has_changes


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_old_cluster_stays_without_stock(
    automated_stack: AutomatedStack, old_cluster_id: str
) -> None:
    run_job(automated_stack, old_cluster_id, 600)
    fault = {
        "method": "POST",
        "path": "/clusters$",
        "status": 409,
        "body": {"error": "Out of stock"},
    }
    automated_stack.request("POST", "_emulator/faults", {**fault, "count": None})
    assert not up(automated_stack.stack).succeeded
    assert list_cluster_ids(automated_stack) == [old_cluster_id]
    automated_stack.request("DELETE", "_emulator/faults")
    assert preview(automated_stack.stack).changes["replace"] == 1


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_old_cluster_stays_until_its_jobs_have_ended(
    automated_stack: AutomatedStack, old_cluster_id: str
) -> None:
    run_job(automated_stack, old_cluster_id, 120)
    stopped = up(automated_stack.stack)
    assert not stopped.succeeded
    assert stopped.plan is not None
    assert [c.action for c in stopped.plan.changes if c.action != "same"] == ["replace"]
    assert len(list_cluster_ids(automated_stack)) == 2
    planned = preview(automated_stack.stack)
    next_plan = planned.plan
    assert next_plan is not None
    assert planned.has_changes
    (change,) = [change for change in next_plan.changes if change.action != "same"]
    assert (change.name, change.action, change.reason) == ("train", "delete", "replaced_earlier")
    assert change.gpus_removed == 16
    assert up(automated_stack.stack).succeeded
    assert get_job_end(automated_stack, old_cluster_id) == "succeeded"
    assert len(list_cluster_ids(automated_stack)) == 1


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_keep_volume_refuses_another_volume(
    automated_stack: AutomatedStack, old_cluster_id: str
) -> None:
    path = automated_stack.folder / "topology.yaml"
    path.write_text(path.read_text().replace("size_tib: 5}", "size_tib: 5}\n  b: {platform: "
                    "together, volume_name: b, region: us-central-8, size_tib: 5}")
                    .replace("shared_volumes.data.id", "shared_volumes.b.id"))  # fmt: skip
    refused = up(automated_stack.stack)
    assert "volume_id" in str(refused)
    assert "rollout.keep_volume keeps the volume" in str(refused)
    assert list_cluster_ids(automated_stack) == [old_cluster_id]


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ("", "needs volume_id, the volume that the new cluster mounts as well"),
        (
            "shared_volume: {volume_name: d, region: us-central-8, size_tib: 5}",
            "a shared_volume is created again with each cluster",
        ),
    ],
)
def test_keep_volume_refuses_a_volume_of_the_cluster(
    automated_stack: AutomatedStack, volume: str, message: str
) -> None:
    topology = TOPOLOGY.replace('volume_id: "{{ shared_volumes.data.id }}"', volume)
    (automated_stack.folder / "topology.yaml").write_text(
        topology.replace("outputs:\n", f"{ROLLOUT}outputs:\n")
    )
    refused: Any = preview(automated_stack.stack)
    assert not refused.succeeded
    assert message in str(refused)
