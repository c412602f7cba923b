"""Test the rules of declared TensorOne clusters, and the requests built from them."""

from typing import Any

import pytest
from support.platforms.tensorone_document import build_declaration

from gpuform.schemas.changes import UNKNOWN, FieldChange, compute_changes
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.inputs import START_FIELDS, UPDATE_FIELDS, ClusterInputs
from gpuform.schemas.tensorone.outputs import ClusterOutputs

Json = dict[str, Any]

LEAST: Json = {
    "name": "train",
    "gpu_type": "A100",
    "gpu_count": 4,
    "storage_gb": 500,
    "region": "us-west-2",
    "project_id": "proj_456",
}


def find_problems(**declared: Any) -> dict[str, str]:
    return {
        problem.path: problem.reason
        for problem in validate_inputs(ClusterInputs, {**LEAST, **declared})[1]
    }


def compute_cluster_changes(before: Json, after: Json) -> list[FieldChange]:
    return compute_changes(ClusterInputs, {**LEAST, **before}, {**LEAST, **after})


def build_update_body(declared: Json, before: Json | None = None) -> Json:
    """Return the body of an update request."""
    inputs = ClusterInputs.model_validate({**LEAST, **declared})
    return wire.build_update(inputs, compute_cluster_changes(before or {}, declared))


def test_the_documents_cluster_can_be_declared() -> None:
    values, problems = validate_inputs(ClusterInputs, build_declaration())
    assert problems == []
    assert values == build_declaration()
    assert wire.build_create(ClusterInputs.model_validate(values)) == build_declaration()


def test_the_smallest_declaration_is_accepted() -> None:
    assert find_problems() == {}
    for name in LEAST:
        assert list(find_problems(**{name: None})) == [name]


@pytest.mark.parametrize(
    ("declared", "path", "message"),
    [
        ({"name": "my cluster"}, "name", "3 to 64 letters, digits and hyphens"),
        ({"name": "ab"}, "name", "3 to 64 letters, digits and hyphens"),
        ({"gpu_type": "a100"}, "gpu_type", "did you mean A100"),
        ({"gpu_count": 0}, "gpu_count", "the least is 1"),
        ({"gpu_count": 9}, "gpu_count", "the most is 8"),
        ({"gpu_count": "4"}, "gpu_count", "must be a whole number"),
        ({"storage_gb": 49}, "storage_gb", "the least is 50"),
        ({"region": "us-west-1"}, "region", "did you mean us-"),
        ({"project_id": ""}, "project_id", "too short"),
        ({"num_gpus": 4}, "num_gpus", "is called gpu_count here"),
        ({"gpuType": "A100"}, "gpuType", "is called gpu_type here"),
        ({"state": "RUNNING"}, "state", "did you mean running"),
        ({"template_id": "t", "docker_image": "i"}, "docker_image", "keep one of the two"),
        ({"port_mappings": [{}]}, "port_mappings[0].internal_port", "is required"),
        (
            {"port_mappings": [{"internal_port": 70000}]},
            "port_mappings[0].internal_port",
            "the most is 65535",
        ),
        (
            {"port_mappings": [{"internal_port": 80}, {"internal_port": 80, "protocol": "tcp"}]},
            "port_mappings[1].internal_port",
            "80/tcp is listed twice",
        ),
        (
            {
                "port_mappings": [
                    {"internal_port": 80, "external_port": 8000},
                    {"internal_port": 81, "external_port": 8000},
                ]
            },
            "port_mappings[1].external_port",
            "8000/tcp is listed twice",
        ),
        ({"auto_terminate": {"idle_minutes": 0}}, "auto_terminate.idle_minutes", "least is 1"),
        ({"auto_terminate": {"cost_limit_usd": 0}}, "auto_terminate.cost_limit_usd", "more than 0"),
        ({"final_snapshot_name": "s"}, "final_snapshot_name", "declare it true"),
        ({"tags": {"a": 1}}, "tags.a", "must be text"),
    ],
)
def test_invalid_inputs_are_refused(declared: Json, path: str, message: str) -> None:
    reasons = find_problems(**declared)
    assert list(reasons) == [path]
    assert message in reasons[path]


def test_an_invalid_variable_is_reported_without_its_value() -> None:
    reasons = find_problems(environment_variables={"TOKEN": 4711})
    assert list(reasons) == ["environment_variables.TOKEN"]
    assert "4711" not in reasons["environment_variables.TOKEN"]


@pytest.mark.parametrize(
    "declared",
    [
        {"template_id": UNKNOWN},
        {"port_mappings": UNKNOWN},
        {"port_mappings": [UNKNOWN, {"internal_port": UNKNOWN}, {"internal_port": UNKNOWN}]},
        {"final_snapshot": UNKNOWN, "final_snapshot_name": "s"},
        {"auto_terminate": {"idle_minutes": UNKNOWN}, "environment_variables": {"A": UNKNOWN}},
    ],
)
def test_unknown_values_are_not_checked(declared: Json) -> None:
    assert find_problems(**declared) == {}


def test_one_port_may_serve_two_protocols() -> None:
    ports = [{"internal_port": 53}, {"internal_port": 53, "protocol": "udp"}]
    assert find_problems(port_mappings=ports) == {}


@pytest.mark.parametrize(
    ("before", "after", "replaces"),
    [
        ({}, {"ssh_enabled": True}, None),
        ({}, {"ssh_enabled": False}, True),
        ({"ssh_public_keys": ["a", "b"]}, {"ssh_public_keys": ["b", "a"]}, None),
        ({"security_groups": ["a", "b"]}, {"security_groups": ["b", "a"]}, None),
        ({}, {"gpu_type": "T4"}, True),
        ({}, {"gpu_count": 2}, False),
        ({"final_snapshot": True}, {}, False),
        ({"auto_terminate": {"enabled": True}}, {"auto_terminate": {"enabled": False}}, False),
    ],
)
def test_a_changed_field_updates_in_place_or_replaces(
    before: Json, after: Json, replaces: bool | None
) -> None:
    changes = compute_cluster_changes(before, after)
    assert [change.replaces for change in changes] == ([] if replaces is None else [replaces])


def test_restarting_and_updated_fields_are_disjoint_inputs() -> None:
    fields = set(ClusterInputs.model_fields)
    assert set(START_FIELDS) | set(UPDATE_FIELDS) <= fields
    assert not set(START_FIELDS) & set(UPDATE_FIELDS)


def test_an_update_sends_each_changed_field_completely() -> None:
    before = {"tags": {"a": "1", "b": "2"}, "auto_terminate": {"enabled": True, "idle_minutes": 5}}
    after = {"tags": {"a": "1"}, "auto_terminate": {"enabled": True, "idle_minutes": 6}}
    assert build_update_body(after, before) == after
    assert build_update_body({"gpu_count": 2, "state": "stopped", "final_snapshot": True}) == {}


def test_fields_no_longer_declared_are_kept_except_variables() -> None:
    before = {"description": "d", "tags": {"a": "1"}, "environment_variables": {"A": "1"}}
    assert build_update_body({}, before) == {"environment_variables": {}}


def test_start_stop_and_delete_send_the_documented_bodies() -> None:
    stopped = ClusterInputs.model_validate({**LEAST, "state": "stopped"})
    assert wire.build_create(stopped) == {**LEAST, "auto_start": False}
    assert wire.build_start({}, None) == {}
    assert wire.build_start({"gpu_count": 2}, "snap_1") == {
        "update_configuration": {"gpu_count": 2},
        "restore_from_snapshot": "snap_1",
    }
    confirmed = {"confirm_deletion": "DELETE"}
    assert wire.build_delete(final_snapshot=False, snapshot_name="s") == confirmed
    assert wire.build_delete(final_snapshot=True, snapshot_name=None) == {
        **confirmed,
        "create_final_snapshot": True,
    }


def test_every_input_and_output_is_described() -> None:
    for model in (ClusterInputs, ClusterOutputs):
        for name, field in model.model_fields.items():
            assert field.description, name
    assert ClusterOutputs.get_secret_names() == {"ssh_command", "ssh_connection"}
