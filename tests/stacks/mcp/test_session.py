"""An agent's whole session, by the official SDK's client: a change is planned, none is made."""

import json

import pytest

from .conftest import LARGER, PLANTED, TOPOLOGY, World

pytestmark = [pytest.mark.slow, pytest.mark.sampled(1)]

PROJECT = {"folder": "training"}
STACK = {**PROJECT, "stack": "prod"}
PROPOSED = {"topology.yaml": LARGER}


def test_a_change_is_planned_by_an_agent_and_applied_by_a_person(world: World) -> None:
    kubeconfig = json.loads(world.gpuform("stack", "output", "--json", "--show-secrets").stdout)
    before = world.digests
    world.server.store.clear_log()
    listed, read, resource, topology, page, valid, simulated, saved = world.ask(
        ("list_stacks", {}),
        ("read_stack", STACK),
        ("read_resource", {**STACK, "name": "train"}),
        ("read_file", {**PROJECT, "path": "topology.yaml"}),
        ("read_page", {"name": "reference/resources/together/cluster"}),
        ("validate", {**PROJECT, "files": PROPOSED}),
        ("simulate", {**STACK, "files": PROPOSED}),
        ("save_plan", {**STACK, "save_to": "grow.json", "files": PROPOSED}),
    )

    assert [each["name"] for each in listed["data"]["training"]["stacks"]] == ["prod"]
    assert read["data"]["status"]["resources"][0]["gpus"] == 16
    assert read["data"]["outputs"]["status"] == "Ready"
    assert resource["data"]["outputs"]["kube_config"] == "[secret]"
    assert "default: [secret]" in topology["data"]
    assert "num_gpus" in page["told"]["text"]
    assert valid["ok"]
    assert simulated["told"]["plan"] == {"clusters.train": "update"}
    assert simulated["told"]["ending"] == "succeeded"
    assert saved["told"]["summary"] == {"update": 1}
    assert "num_gpus" in saved["data"]["review"]

    # Nothing was changed, and no secret was told.
    assert world.writes == []
    after = dict(world.digests)
    assert after.pop("training/grow.json")
    assert after == before
    everything = "\n".join(world.sent)
    secrets = [*PLANTED.values(), str(kubeconfig["kubeconfig"]), world.environ["TOGETHER_API_KEY"]]
    assert [each for each in secrets if each in everything or json.dumps(each) in everything] == []

    # A person puts the text in its place, and applies the plan by its digest.
    (world.project / "topology.yaml").write_text(LARGER)
    digest = saved["told"]["digest"]
    other = digest[:-1] + ("0" if digest[-1] != "0" else "1")
    command = ("up", "--yes", "--stack", "prod", "--plan", "grow.json", "--digest")
    refused = world.gpuform(*command, other)
    assert refused.code == 1
    assert "not the reviewed plan" in refused.stderr
    assert world.writes == []
    assert f"Digest: {digest}" in world.gpuform("review", "grow.json").stdout
    assert saved["told"]["to_apply"].split()[1:] == [
        each for each in (*command, digest) if each != "--yes"
    ]
    done = world.gpuform(*command, digest)
    assert done.code == 0, done.stdout + done.stderr
    (cluster,) = world.ask(("read_resource", {**STACK, "name": "train"}))
    assert cluster["data"]["outputs"]["num_gpus"] == 24
    (world.project / "topology.yaml").write_text(TOPOLOGY)
    assert world.gpuform("up", "--yes", "--stack", "prod").code == 0
