"""How what a refresh has found changes the state and the nodes of a rehearsal."""

from typing import Any

import pytest

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PropertyChange, ResourceDrift
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.rehearsing import fleet as drift_module
from gpuform.stacks.rehearsing.fleet import (
    FleetState,
    ObservedNodes,
    Owner,
    apply_drift,
    break_observed_nodes,
    describe_drift,
    list_observed_nodes,
)

TYPE = "pulumi-python:dynamic/gpuform.together:Cluster"
TRAIN = f"urn:pulumi:dev::demo::{TYPE}::train"
OWNER: Owner = ("together", "training")


def build_change(path: str, after: Any, **facts: Any) -> PropertyChange:
    return PropertyChange(path=path, action=Action.UPDATE, before="old", after=after, **facts)


def build_resource(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"urn": TRAIN, "type": TYPE, "inputs": inputs}


def test_an_object_that_is_gone_is_not_in_the_state() -> None:
    others = {"urn": "urn-of-others", "inputs": {}}
    resources = [build_resource({}), others]
    assert apply_drift(resources, [ResourceDrift(urn=TRAIN, is_gone=True)]) == [others]


@pytest.mark.parametrize(
    ("change", "inputs"),
    [
        (build_change("num_gpus", 8), {"num_gpus": 8, "tags": ["a", "b"], "part": {"x": 1}}),
        (build_change("part.x", 2), {"num_gpus": 16, "tags": ["a", "b"], "part": {"x": 2}}),
        (build_change("tags[1]", "c"), {"num_gpus": 16, "tags": ["a", "c"], "part": {"x": 1}}),
        (build_change("part", None), {"num_gpus": 16, "tags": ["a", "b"]}),
    ],
)
def test_an_input_has_the_value_of_the_platform(
    change: PropertyChange, inputs: dict[str, Any]
) -> None:
    resources = [build_resource({"num_gpus": 16, "tags": ["a", "b"], "part": {"x": 1}})]
    (resource,) = apply_drift(resources, [ResourceDrift(urn=TRAIN, changes=(change,))])
    assert resource["inputs"] == inputs


@pytest.mark.parametrize(
    "change",
    [
        build_change("ready", False),
        build_change('nodes["a"].state', "ERROR"),
        build_change("tags[7]", "c"),
        build_change("num_gpus", "text", secret=True),
    ],
)
def test_outputs_and_secrets_leave_the_inputs_alone(change: PropertyChange) -> None:
    resources = [build_resource({"num_gpus": 16, "tags": ["a"]})]
    (resource,) = apply_drift(resources, [ResourceDrift(urn=TRAIN, changes=(change,))])
    assert resource["inputs"] == {"num_gpus": 16, "tags": ["a"]}


def build_cluster(*statuses: str, **outputs: Any) -> ResourceState:
    nodes = [
        {"node_id": f"n{number}", "host_name": f"gpu-{number}", "status": status, "num_gpus": 8}
        for number, status in enumerate(statuses)
    ]
    return ResourceState(
        urn=TRAIN, custom=True, type=TYPE, id="c-1", outputs={"gpu_worker_nodes": nodes, **outputs}
    )


def test_nodes_are_those_of_the_refresh_or_else_of_the_state() -> None:
    cluster = build_cluster("Running", "Running", faults=[{"node": "gpu-1"}])
    assert list_observed_nodes([cluster], []) == {TRAIN: ObservedNodes(2, ("gpu-1",))}
    drift = ResourceDrift(urn=TRAIN, nodes=1, failed_nodes=())
    assert list_observed_nodes([cluster], [drift]) == {TRAIN: ObservedNodes(1, ())}
    # A drift of a property says nothing about the nodes.
    drift = ResourceDrift(urn=TRAIN, changes=(build_change("tags", "x"),))
    assert list_observed_nodes([cluster], [drift]) == {TRAIN: ObservedNodes(2, ("gpu-1",))}


@pytest.mark.parametrize(
    ("observed", "broken"),
    [
        (ObservedNodes(3, ()), []),
        (ObservedNodes(3, ("w-0",)), ["w-0"]),
        (ObservedNodes(2, ()), ["w-2"]),
        (ObservedNodes(2, ("w-2",)), ["w-1", "w-2"]),
        # A real platform gives other names than the emulator.
        (ObservedNodes(3, ("gpu-17",)), ["w-2"]),
        (ObservedNodes(0, ()), ["w-0", "w-1", "w-2"]),
    ],
)
def test_as_many_nodes_are_broken_as_failed_or_are_missing(
    monkeypatch: pytest.MonkeyPatch, observed: ObservedNodes, broken: list[str]
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(drift_module, "break_node", lambda *arguments: sent.append(arguments[-1]))
    nodes = frozenset({(*OWNER, "w-0"), (*OWNER, "w-1"), (*OWNER, "w-2"), ("scp", "b", "w-0")})
    fleet = FleetState(0, {}, {}, nodes=nodes)
    server: Any = None

    result = break_observed_nodes(server, {TRAIN: observed}, {TRAIN: OWNER}, fleet)

    assert sorted(sent) == broken
    assert result == {(*OWNER, name) for name in broken}


def test_drift_is_described_without_secrets() -> None:
    drift = ResourceDrift(
        urn=TRAIN,
        changes=(build_change("num_gpus", 8), build_change("password", "hunter2", secret=True)),
        nodes=1,
        failed_nodes=("gpu-1",),
    )
    assert list(describe_drift([drift, ResourceDrift(urn=TRAIN, is_gone=True)])) == [
        "clusters.train: num_gpus is 8, broken: gpu-1",
        "clusters.train: no longer exists",
    ]
