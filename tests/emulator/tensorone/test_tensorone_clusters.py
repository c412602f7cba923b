"""Test the clusters of the emulated TensorOne: the documented answer, states, rules, ends."""

from typing import Any

import pytest
from emulator.tensorone.tensorone_client import NEW_SECONDS, TensorOneClient, build_create_body
from support.platforms.tensorone_document import ANSWER, CLUSTER, build_declaration, list_leaves

CONFIRMED = {"confirm_deletion": "DELETE"}

SAME = {
    "name", "description", "status", "configuration", "project_info", "template_info", "tags",
    "uptime_seconds",
}  # fmt: skip
"""The parts that have to have the document's values, not only its form."""

HEALTHY = "data.status_details.health_checks.gpu_health"


def test_a_cluster_has_every_documented_field(tensorone: TensorOneClient, control: Any) -> None:
    """Compare the names, types and order of all fields, and the values that are predictable."""
    created = tensorone.request("POST", "", build_declaration())["id"]
    control.advance(NEW_SECONDS)
    tensorone.request("POST", f"/{created}/stop", {"save_state": True})
    control.advance(60)
    tensorone.request("POST", f"/{created}/start")
    control.advance(150 + 4200)
    answer = tensorone.send("GET", f"/{created}", metrics_window="24h").json()
    documented, answered = list(list_leaves(ANSWER)), list(list_leaves(answer))
    assert [path[:2] for path in answered] == [path[:2] for path in documented]
    for part in SAME:
        assert answer["data"][part] == CLUSTER[part], part
    values = {path: value for path, _, value in answered}
    for path, _, value in documented:
        exact = ("data.metrics.current", "data.metrics.hist", "data.environment", "data.cost.cost_")
        if path.startswith((*exact, HEALTHY)) and not path.endswith("timestamp"):
            assert values[path] == value, path
    cost = answer["data"]["cost"]
    assert (cost["current_hourly_rate"], cost["billing_period"]["duration_hours"]) == (8.5, 1.17)
    assert cost["session_cost"] == 9.92
    assert sum(cost["cost_breakdown"].values()) == pytest.approx(8.5)


def test_a_cluster_starts_in_three_minutes(tensorone: TensorOneClient, control: Any) -> None:
    created = tensorone.create()
    assert tensorone.get_status(created) == "pending"
    control.advance(30)
    assert tensorone.get_status(created) == "starting"
    control.advance(150)
    cluster = tensorone.request("GET", f"/{created}")
    assert (cluster["status"], cluster["uptime_seconds"]) == ("running", 0)


def test_a_cluster_without_auto_start_ends_up_stopped(
    tensorone: TensorOneClient, control: Any
) -> None:
    created = tensorone.create(auto_start=False)
    assert tensorone.get_status(created) == "pending"
    control.advance(30)
    cluster = tensorone.request("GET", f"/{created}")
    assert (cluster["status"], cluster["cost"]["session_cost"]) == ("stopped", 0.0)


def test_a_stop_and_a_start_pass_through_the_states_in_between(
    tensorone: TensorOneClient, control: Any, running: str
) -> None:
    assert tensorone.request("POST", f"/{running}/stop")["status"] == "stopping"
    for verb in ("stop", "start"):
        error = tensorone.require_refusal("POST", f"/{running}/{verb}")
        assert (error["error"], error["details"]["current_state"]) == ("STATE_CONFLICT", "stopping")
    control.advance(45)
    assert tensorone.get_status(running) == "stopped"
    assert tensorone.request("POST", f"/{running}/start", {})["status"] == "starting"
    control.advance(150)
    assert tensorone.get_status(running) == "running"
    tensorone.request("POST", f"/{running}/stop", {"force": True})
    control.advance(10)
    assert tensorone.get_status(running) == "stopped"


def test_a_start_changes_the_configuration(
    tensorone: TensorOneClient, control: Any, running: str
) -> None:
    tensorone.request("POST", f"/{running}/stop", {"save_state": True, "snapshot_name": "before"})
    control.advance(60)
    smaller = {"update_configuration": {"storage_gb": 900}}
    assert tensorone.require_refusal("POST", f"/{running}/start", smaller)["details"]["field"] == (
        "storage_gb"
    )
    lost = {"restore_from_snapshot": "snap_of_nobody"}
    assert (
        tensorone.require_refusal("POST", f"/{running}/start", lost)["details"]["resource"]
        == "snapshot"
    )
    (snapshot,) = tensorone.request("GET", f"/{running}")["storage"]["snapshots"]
    assert snapshot["name"] == "before"
    body = {
        "update_configuration": {"gpu_count": 2, "storage_gb": 1200, "docker_image": "mine"},
        "restore_from_snapshot": snapshot["id"],
        "environment_updates": {"A": "1"},
        "port_mapping_updates": [{"internal_port": 80}],
        "auto_terminate_updates": {"enabled": True},
    }
    cluster = tensorone.request("POST", f"/{running}/start", body)
    assert cluster["configuration"]["gpu_count"] == 2
    assert cluster["configuration"]["storage_gb"] == 1200
    assert cluster["template_info"]["docker_image"] == "mine"
    assert cluster["environment"]["variables"] == {"A": "1"}
    assert [port["internal_port"] for port in cluster["network"]["port_mappings"]] == [80]
    assert cluster["auto_terminate"]["enabled"] is True


def test_an_update_changes_only_present_fields(tensorone: TensorOneClient, running: str) -> None:
    ports = [{"internal_port": 80}, {"internal_port": 81, "external_port": 40000}]
    tensorone.request("PUT", f"/{running}", {"port_mappings": ports, "tags": {"a": "1"}})
    cluster = tensorone.request("PUT", f"/{running}", {"port_mappings": [*reversed(ports)]})
    outer = {m["internal_port"]: m["external_port"] for m in cluster["network"]["port_mappings"]}
    assert outer == {80: 32001, 81: 40000}, "a port keeps its outer one"
    assert cluster["tags"] == {"a": "1"}
    for wrong, field in (({"gpu_count": 2}, "gpu_count"), ({"name": "x"}, "name")):
        assert tensorone.require_refusal("PUT", f"/{running}", wrong)["details"]["field"] == field


def test_a_delete_needs_confirmation_and_takes_a_minute(
    tensorone: TensorOneClient, control: Any, running: str
) -> None:
    for body in (None, {"confirm_deletion": "yes"}):
        error = tensorone.require_refusal("DELETE", f"/{running}", body)
        assert error["details"]["field"] == "confirm_deletion"
    for _ in range(2):
        removed = tensorone.request("DELETE", f"/{running}", CONFIRMED)
        assert removed == {"id": running, "status": "deleting"}
    assert tensorone.get_status(running) == "deleting"
    assert (
        tensorone.require_refusal("PUT", f"/{running}", {"tags": {}})["error"] == "STATE_CONFLICT"
    )
    control.advance(60)
    error = tensorone.require_refusal("GET", f"/{running}")
    assert (error["error"], error["message"]) == ("RESOURCE_NOT_FOUND", "Cluster not found")
    assert error["details"] == {"resource": "cluster", "id": running}


def test_snapshots_outlive_a_cluster_unless_the_delete_says_otherwise(
    tensorone: TensorOneClient, control: Any, running: str
) -> None:
    last = {**CONFIRMED, "create_final_snapshot": True, "snapshot_name": "last"}
    tensorone.request("DELETE", f"/{running}", last)
    control.advance(60)
    (snapshot,) = control.call("GET", "/objects")["tensorone"]["snapshots"]
    assert (snapshot["name"], snapshot["cluster_id"]) == ("last", running)
    other = tensorone.create(auto_start=False)
    control.advance(30)
    tensorone.request("POST", f"/{other}/start", {"restore_from_snapshot": snapshot["id"]})
    tensorone.request("POST", f"/{other}/stop", {"save_state": True})
    tensorone.request("DELETE", f"/{other}", {**CONFIRMED, "delete_snapshots": True})
    assert [
        snapshot["id"] for snapshot in control.call("GET", "/objects")["tensorone"]["snapshots"]
    ] == [snapshot["id"]]


def test_a_setting_makes_deletes_need_a_stopped_cluster(
    tensorone: TensorOneClient, control: Any, running: str
) -> None:
    control.call("POST", "/tensorone/settings", {"delete_needs_stopped": True})
    error = tensorone.require_refusal("DELETE", f"/{running}", CONFIRMED)
    assert error["message"] == "Cannot delete running cluster"
    assert error["details"] == {"current_state": "running", "required_state": "stopped"}
    tensorone.request("DELETE", f"/{running}", {**CONFIRMED, "force": True})


@pytest.mark.parametrize(
    ("limits", "seconds", "why"),
    [
        ({"idle_minutes": 30}, 1800, "idle for 30 minutes"),
        ({"max_runtime_hours": 2}, 7200, "running for 2 hours"),
        ({"cost_limit_usd": 17.0}, 7200, "session cost of 17.00 USD"),
        ({"max_runtime_hours": 5, "idle_minutes": 30}, 1800, "idle for 30 minutes"),
    ],
)
def test_a_cluster_is_stopped_at_its_termination_limits(
    tensorone: TensorOneClient, control: Any, limits: dict[str, Any], seconds: int, why: str
) -> None:
    created = tensorone.create(auto_terminate={"enabled": True, **limits})
    control.advance(NEW_SECONDS)
    control.call("POST", f"/tensorone/clusters/{created}", {"idle": "idle_minutes" in limits})
    control.advance(seconds - 1)
    assert tensorone.get_status(created) == "running"
    control.advance(1)
    assert tensorone.get_status(created) == "stopping"
    control.advance(45)
    cluster = tensorone.request("GET", f"/{created}")
    assert cluster["status"] == "stopped"
    assert cluster["status_details"]["message"] == f"Stopped by auto-termination: {why}"
    assert cluster["auto_terminate"]["current_idle_minutes"] == limits.get("idle_minutes", 0)
    assert cluster["cost"]["billing_period"]["duration_hours"] == seconds / 3600
    tensorone.request("POST", f"/{created}/start")
    control.advance(150)
    again = tensorone.request("GET", f"/{created}")
    assert (again["status"], again["cost"]["session_cost"]) == ("running", 0.0)
    assert again["cost"]["total_lifetime_cost"] == cluster["cost"]["session_cost"]


def test_work_ends_the_idle_time_and_disabled_limits_stop_nothing(
    tensorone: TensorOneClient, control: Any
) -> None:
    created = tensorone.create(auto_terminate={"enabled": True, "idle_minutes": 30})
    never = tensorone.create(auto_terminate={"idle_minutes": 30})
    control.advance(NEW_SECONDS)
    for item in (created, never):
        control.call("POST", f"/tensorone/clusters/{item}", {"idle": True})
    control.advance(1500)
    cluster = tensorone.request("GET", f"/{created}")
    assert cluster["auto_terminate"]["current_idle_minutes"] == 25
    assert (cluster["metrics"]["alerts"], cluster["metrics"]["current"]["gpu_utilization"]) == (
        [],
        0.0,
    )
    control.call("POST", f"/tensorone/clusters/{created}", {"idle": False})
    control.advance(3600)
    assert tensorone.get_status(created) == tensorone.get_status(never) == "running"


def test_only_the_names_of_secrets_are_shown_and_none_is_logged(
    tensorone: TensorOneClient, control: Any
) -> None:
    variables = {"MODE": "fast", "WANDB_API_KEY": "hunter2", "HF_TOKEN": "hunter3"}
    created = tensorone.create(environment_variables=variables)
    environment = tensorone.request("GET", f"/{created}")["environment"]
    assert environment["variables"] == {"MODE": "fast"}
    assert environment["secrets"] == ["WANDB_API_KEY", "HF_TOKEN"]
    assert "hunter" not in str(control.list_requests())


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"gpu_type": "A1000"}, "gpu_type"),
        ({"gpu_type": "T4", "gpu_count": 5}, "gpu_count"),
        ({"storage_gb": 49}, "storage_gb"),
        ({"storage_gb": 50.0}, "storage_gb"),
        ({"region": "us-west-9"}, "region"),
        ({"name": "a b"}, "name"),
        ({"template_id": "tmpl_none"}, "template_id"),
        ({"template_id": "tmpl_pytorch_latest", "docker_image": "i"}, "docker_image"),
        ({"num_gpus": 4}, "num_gpus"),
        ({"port_mappings": [{"internal_port": 0}]}, "port_mappings.0.internal_port"),
    ],
)
def test_an_invalid_create_is_refused(
    tensorone: TensorOneClient, more: dict[str, Any], field: str
) -> None:
    error = tensorone.require_refusal("POST", "", build_create_body(**more))
    assert (error["error"], error["code"]) == ("VALIDATION_ERROR", 400)
    assert error["details"]["field"] == field
    assert tensorone.list_names() == []
