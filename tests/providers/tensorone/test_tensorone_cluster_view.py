"""Test the observed values of TensorOne clusters: declared values on the platform are no change."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.platforms.tensorone_document import ANSWER, CLUSTER, build_declaration

from gpuform.providers.tensorone.cluster_view import (
    build_outputs,
    extract_inputs,
    find_failure,
    find_start_changes,
)
from gpuform.schemas.changes import compute_changes, requires_action, select_declared_fields
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.inputs import ClusterInputs

Json = dict[str, Any]

PORT = st.fixed_dictionaries(
    {"internal_port": st.integers(1, 9)},
    optional={
        "protocol": st.sampled_from(["tcp", "udp"]),
        "description": st.text(max_size=3),
        "external_port": st.integers(40000, 40009),
    },
)


def _get_port_key(port: Json) -> tuple[int, str]:
    return port["internal_port"], port.get("protocol", "tcp")


PORTS = st.lists(PORT, max_size=4, unique_by=_get_port_key)


def _build_cluster_with_ports(ports: list[Json]) -> wire.Cluster:
    """Return the document's cluster with these ports, each completed like by the platform."""
    filled = [
        {
            "external_port": 32001 + at,
            "protocol": "tcp",
            "description": "",
            "url": "https://there",
            "status": "active",
            **port,
        }
        for at, port in enumerate(ports)
    ]
    return wire.Cluster.model_validate(
        {**CLUSTER, "network": {**CLUSTER["network"], "port_mappings": filled}}
    )


def _has_drift(declared: Json, cluster: wire.Cluster) -> bool:
    observed = select_declared_fields(ClusterInputs, extract_inputs(cluster, declared), declared)
    return requires_action(compute_changes(ClusterInputs, observed, declared))


def test_the_documented_cluster_equals_its_declaration() -> None:
    cluster = wire.ClusterAnswer.model_validate(ANSWER).data
    assert not _has_drift(build_declaration(), cluster)
    assert find_start_changes(cluster, ClusterInputs.model_validate(build_declaration())) == {}
    assert find_failure(cluster) is None


@given(PORTS, st.randoms())
def test_existing_ports_are_no_change_in_any_order(ports: Any, chance: Any) -> None:
    actual = list(ports)
    chance.shuffle(actual)
    assert not _has_drift(
        {**build_declaration(), "port_mappings": ports}, _build_cluster_with_ports(actual)
    )


@given(PORTS, PORT)
def test_an_added_or_removed_port_is_a_change(ports: Any, other: Any) -> None:
    remaining_ports = [port for port in ports if _get_port_key(port) != _get_port_key(other)]
    declared = {**build_declaration(), "port_mappings": remaining_ports}
    assert _has_drift(declared, _build_cluster_with_ports([*remaining_ports, other]))
    assert _has_drift(
        {**declared, "port_mappings": [*remaining_ports, other]},
        _build_cluster_with_ports(remaining_ports),
    )


@given(st.sampled_from(["cpu_cores", "memory_gb", "gpu_count", "storage_gb"]), st.integers(1, 2000))
def test_restarting_changes_are_exactly_the_fields_that_differ(name: str, value: int) -> None:
    cluster = wire.Cluster.model_validate(CLUSTER)
    inputs = ClusterInputs.model_validate(build_declaration()).model_copy(update={name: value})
    same = CLUSTER["configuration"][name] == value
    assert find_start_changes(cluster, inputs) == ({} if same else {name: value})


def test_the_documented_outputs() -> None:
    cluster = wire.ClusterAnswer.model_validate(ANSWER).data
    outputs = build_outputs(cluster, None, None, None).model_dump(exclude_none=True)
    assert outputs["ssh_command"] == "ssh root@ssh-abc123.tensorone.ai"
    assert outputs["port_urls"] == {
        "8080": "https://cluster-abc123.tensorone.ai:32001",
        "6006": "https://cluster-abc123.tensorone.ai:32002",
    }
    costs = ("current_hourly_rate", "daily_estimate", "weekly_estimate", "monthly_estimate")
    assert [outputs[name] for name in costs] == [8.5, 204.0, 1428.0, 6120.0]
    assert outputs["docker_health"] == "healthy"
    assert outputs["snapshots"][0]["id"] == "snap_123"
    assert outputs["alerts"][0]["type"] == "high_gpu_utilization"
    assert outputs["hidden_variables"] == ["WANDB_API_KEY", "HUGGINGFACE_TOKEN"]
    assert (outputs["cuda_version"], outputs["availability_zone"]) == ("11.8", "us-west-2a")
    rendered = str(outputs)
    measured = ("87.3", "68.25", "4200", "15:42:00")
    assert not [measurement for measurement in measured if measurement in rendered], (
        "what always changes is no output"
    )
    assert "ssh root" not in repr(build_outputs(cluster, None, None, None))


def test_an_empty_answer_is_a_cluster_that_is_not_ready() -> None:
    cluster = wire.Cluster(id="c", status="error")
    assert find_failure(cluster) == "its status is error"
    assert {k: v for k, v in extract_inputs(cluster, {"name": "x"}).items() if v is not None} == {}
    outputs = build_outputs(cluster, "why", None, None)
    assert (outputs.ready, outputs.not_ready_reason, outputs.status) == (False, "why", "error")
