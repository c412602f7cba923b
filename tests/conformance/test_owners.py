"""Test that an entry of an AIOS record has one owner: others are refused in the plan, unsent."""

from collections.abc import Mapping
from typing import Any

import pytest
from conformance.aios_kinds import CLUSTER, GPU_NODE
from conformance.emulated import Platform
from conformance.stacks import DeclaredResource, EmbeddedStack

from gpuform.providers.values import unwrap_secrets
from gpuform.schemas.aios.updates import EMPTY_UPDATE

ALONE = {
    name: value
    for name, value in CLUSTER.valid_inputs.items()
    if name not in ("nodes", "gpus", "vcpus", "memory", "swap", "storage", "network")
}


def declare_node(name: str, **changes: Any) -> DeclaredResource:
    return DeclaredResource(name, GPU_NODE, {**GPU_NODE.valid_inputs, "node_id": name, **changes})


def declare_record(inputs: Mapping[str, Any] = CLUSTER.valid_inputs) -> DeclaredResource:
    return DeclaredResource("west", CLUSTER, inputs)


RESOURCE = {"resource": "west"}


@pytest.mark.parametrize(
    ("declared", "path"),
    [
        ([declare_record(), declare_node("solo", cluster_id=RESOURCE)], "cluster_id"),
        ([declare_record(), declare_node("solo", cluster_id="west")], "cluster_id"),
        ([declare_node("solo", cluster_id="west"), declare_record()], "nodes.node_data"),
        (
            [
                declare_record({**ALONE, "nodes": {"node_data": []}}),
                declare_node("solo", cluster_id=RESOURCE),
            ],
            "cluster_id",
        ),
    ],
)
def test_a_cluster_and_a_gpu_node_cannot_both_declare_nodes(
    embedded: EmbeddedStack, platform: Platform, declared: list[DeclaredResource], path: str
) -> None:
    for result in (embedded.plan(*declared), embedded.apply(*declared)):
        assert not result.ok
        messages = "\n".join(result.errors)
        assert "declares its nodes itself" in messages
        # The requests of one program may overtake each other: either of the two is told.
        assert f"property {path}" in messages or "property nodes.node_data" in messages
        assert "all as aios.GpuNode resources" in messages
    # An empty update reads the present record.
    sent = [request.body for request in platform.list_requests("PUT")]
    assert [body for body in sent if body != EMPTY_UPDATE.body] == []


def test_one_entry_cannot_be_declared_by_two_gpu_nodes(
    embedded: EmbeddedStack, platform: Platform
) -> None:
    twice = [
        declare_record(ALONE),
        declare_node("a", cluster_id="west"),
        declare_node("b", cluster_id="west", node_id="a"),
    ]
    result = embedded.plan(*twice)
    assert not result.ok
    assert "is also declared by" in result.errors[0]


@pytest.mark.slow
def test_separate_nodes_and_clusters_are_accepted(
    embedded: EmbeddedStack, platform: Platform
) -> None:
    declared = [
        declare_record(ALONE),
        DeclaredResource("east", CLUSTER, {**CLUSTER.valid_inputs, "cluster_id": "east"}),
        declare_node("a", cluster_id=RESOURCE),
        declare_node("b", cluster_id=RESOURCE),
    ]
    assert embedded.plan(*declared).errors == []
    result = embedded.apply(*declared)
    assert result.ok, result.errors
    assert platform.list_ids(GPU_NODE) == {"west/a", "west/b", "east/node-1"}
    assert embedded.plan(*declared).operations == []
    assert embedded.refresh().operations == []

    planned = embedded.plan(*declared[1:2])
    assert sorted(planned.operations) == ["delete"] * 3
    messages = embedded.list_messages("warning")
    assert len(messages) == 3
    assert all("the hardware remains" in message for message in messages)
    assert embedded.destroy().ok
    assert platform.list_objects(CLUSTER) == []


def test_secret_inputs_of_a_record_stay_secret(embedded: EmbeddedStack, platform: Platform) -> None:
    """A program gives a join command in additional_info as a secret."""
    (embedded.directory / "__main__.py").write_text(
        "import json, pathlib, pulumi\n"
        "from gpuform.providers.aios import Cluster\n"
        "text = (pathlib.Path(__file__).parent / 'declared.json').read_text()\n"
        "inputs = json.loads(text)[0]['inputs']\n"
        "info = {'join': pulumi.Output.secret('planted-join' + '-command')}\n"
        "inputs['cluster_metadata']['additional_info'] = info\n"
        "Cluster('west', **inputs)\n"
    )
    assert embedded.apply(declare_record()).ok
    assert unwrap_secrets(embedded.get_state("west").outputs)["cluster_metadata"][
        "additional_info"
    ] == {"join": "planted-join-command"}
    on_disk = next(embedded.directory.glob(".pulumi/stacks/*/dev.json")).read_text()
    assert "planted-join-command" not in on_disk
    assert embedded.refresh().operations == []
    on_disk = next(embedded.directory.glob(".pulumi/stacks/*/dev.json")).read_text()
    assert "planted-join-command" not in on_disk
