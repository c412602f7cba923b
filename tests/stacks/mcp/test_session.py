"""Test a complete session of an agent with the official SDK's client."""

import json

import pytest

from .conftest import LARGER, PLANTED, TOPOLOGY, ServedFolder

pytestmark = [pytest.mark.slow, pytest.mark.sampled(1)]

PROJECT = {"folder": "training"}
STACK = {**PROJECT, "stack": "prod"}
PROPOSED = {"topology.yaml": LARGER}


def test_an_agent_plans_a_change_and_a_person_applies_it(served: ServedFolder) -> None:
    kubeconfig = json.loads(served.gpuform("stack", "output", "--json", "--show-secrets").stdout)
    before = served.digests
    served.server.store.clear_log()
    listed, read, resource, topology, page, valid, simulated, saved = served.call_tools(
        ("list_stacks", {}),
        ("read_stack", STACK),
        ("read_resource", {**STACK, "name": "train"}),
        ("read_file", {**PROJECT, "path": "topology.yaml"}),
        ("read_page", {"name": "reference/resources/together/cluster"}),
        ("validate", {**PROJECT, "files": PROPOSED}),
        ("simulate", {**STACK, "files": PROPOSED}),
        ("save_plan", {**STACK, "save_to": "grow.json", "files": PROPOSED}),
    )

    assert [item["name"] for item in listed["data"]["training"]["stacks"]] == ["prod"]
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
    assert served.writes == []
    after = dict(served.digests)
    assert after.pop("training/grow.json")
    assert after == before
    everything = "\n".join(served.received)
    secrets = [*PLANTED.values(), str(kubeconfig["kubeconfig"]), served.environ["TOGETHER_API_KEY"]]
    assert [item for item in secrets if item in everything or json.dumps(item) in everything] == []

    # A person puts the text in its place, and applies the plan by its digest.
    (served.project / "topology.yaml").write_text(LARGER)
    digest = saved["told"]["digest"]
    other = digest[:-1] + ("0" if digest[-1] != "0" else "1")
    command = ("up", "--yes", "--stack", "prod", "--plan", "grow.json", "--digest")
    refused = served.gpuform(*command, other)
    assert refused.code == 1
    assert "not the reviewed plan" in refused.stderr
    assert served.writes == []
    assert f"Digest: {digest}" in served.gpuform("review", "grow.json").stdout
    assert saved["told"]["to_apply"].split()[1:] == [
        item for item in (*command, digest) if item != "--yes"
    ]
    result = served.gpuform(*command, digest)
    assert result.code == 0, result.stdout + result.stderr
    (cluster,) = served.call_tools(("read_resource", {**STACK, "name": "train"}))
    assert cluster["data"]["outputs"]["num_gpus"] == 24
    (served.project / "topology.yaml").write_text(TOPOLOGY)
    assert served.gpuform("up", "--yes", "--stack", "prod").code == 0
