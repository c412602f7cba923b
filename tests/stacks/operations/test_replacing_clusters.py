"""A driver that changes while jobs run: the new cluster first, and the old one when it is idle."""

from typing import Any

import pytest
from automated import TOPOLOGY, World

from gpuform.stacks.operations import preview, up

ROLLOUT = """\
    rollout: {strategy: replace_cluster, keep_volume: true}
    drain: {wait_minutes: 60}
"""


@pytest.fixture
def old(world: World) -> str:
    """The id of a cluster whose driver is declared anew."""
    assert up(world.stack).succeeded
    (cluster,) = world.clusters
    text = TOPOLOGY.replace("CUDA_12_6_560", "CUDA_12_4_550")
    (world.folder / "topology.yaml").write_text(text.replace("outputs:\n", f"{ROLLOUT}outputs:\n"))
    return str(cluster["id"])


def run_job(world: World, cluster: str, minutes: float) -> None:
    body = {"name": "train", "namespace": "ml", "node": "training-worker-0"}
    path = f"_emulator/kubernetes/{cluster}/pods"
    world.ask("POST", path, {**body, "runs_for": minutes * 60})


def how_it_ended(world: World, cluster: str) -> str:
    ended = world.ask("GET", f"_emulator/kubernetes/{cluster}/ended")
    (how,) = [each["how"] for each in ended if each["pod"] == "ml/train"]
    return str(how)


def writes(world: World) -> list[str]:
    """The requests that make and delete clusters."""
    sent = world.ask("GET", "_emulator/requests")
    return [
        each["method"]
        for each in sent
        if each["method"] in ("POST", "DELETE") and "/compute/clusters" in each["path"]
    ]


def ids(world: World) -> list[str]:
    return [each["id"] for each in world.clusters]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_new_one_comes_first_and_the_old_one_goes_idle(world: World, old: str) -> None:
    run_job(world, old, 60)
    world.ask("DELETE", "_emulator/requests")
    assert up(world.stack).succeeded
    assert writes(world) == ["POST", "DELETE"]
    assert how_it_ended(world, old) == "succeeded"
    (new,) = ids(world)
    assert new != old
    volumes = world.ask("GET", "_emulator/objects")["together"]["volumes"]
    assert len(volumes) == 1
    assert not preview(world.stack).has_changes


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_without_stock_the_old_one_stays(world: World, old: str) -> None:
    run_job(world, old, 600)
    fault = {
        "method": "POST",
        "path": "/clusters$",
        "status": 409,
        "body": {"error": "Out of stock"},
    }
    world.ask("POST", "_emulator/faults", {**fault, "count": None})
    assert not up(world.stack).succeeded
    assert ids(world) == [old]
    world.ask("DELETE", "_emulator/faults")
    assert preview(world.stack).changes["replace"] == 1


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_jobs_that_do_not_end_keep_the_old_one_until_they_have(world: World, old: str) -> None:
    run_job(world, old, 120)
    stopped = up(world.stack)
    assert not stopped.succeeded
    assert len(ids(world)) == 2
    assert up(world.stack).succeeded
    assert how_it_ended(world, old) == "succeeded"
    assert len(ids(world)) == 1


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_another_volume_is_not_the_kept_one(world: World, old: str) -> None:
    path = world.folder / "topology.yaml"
    path.write_text(path.read_text().replace("size_tib: 5}", "size_tib: 5}\n  b: {platform: "
                    "together, volume_name: b, region: us-central-8, size_tib: 5}")
                    .replace("shared_volumes.data.id", "shared_volumes.b.id"))  # fmt: skip
    refused = up(world.stack)
    assert "volume_id" in str(refused)
    assert "rollout.keep_volume keeps it" in str(refused)
    assert ids(world) == [old]


@pytest.mark.parametrize(
    ("volume", "said"),
    [
        ("", "needs volume_id, the volume that the new cluster mounts as well"),
        (
            "shared_volume: {volume_name: d, region: us-central-8, size_tib: 5}",
            "a shared_volume is created again with each cluster",
        ),
    ],
)
def test_a_volume_that_cannot_be_kept(world: World, volume: str, said: str) -> None:
    text = TOPOLOGY.replace('volume_id: "{{ shared_volumes.data.id }}"', volume)
    (world.folder / "topology.yaml").write_text(text.replace("outputs:\n", f"{ROLLOUT}outputs:\n"))
    refused: Any = preview(world.stack)
    assert not refused.succeeded
    assert said in str(refused)
