"""Test starts, stops, updates and deletes of TensorOne clusters: requests and plans."""

from typing import Any

import pytest

from gpuform.providers.errors import GpuformError, OutOfCapacity, UnplannedRemoval
from gpuform.providers.tensorone.cluster import ClusterLifecycle
from gpuform.schemas.policies.drain import RemovedNode
from gpuform.schemas.values import RemovalCount

Json = dict[str, Any]

BY_START = "stops and starts the cluster"


class TestCreate:
    def test_create_sends_the_declared_values_and_waits(self, platform: Any, inputs: Json) -> None:
        cluster = platform.create(inputs)
        assert platform.take_writes() == [("POST", inputs)]
        assert (cluster.outs["status"], cluster.outs["ready"]) == ("running", True)
        assert cluster.outs["current_hourly_rate"] == 8.5
        assert cluster.outs["daily_estimate"] == pytest.approx(24 * 8.5)
        assert cluster.outs["gpu_health"] == "healthy"
        assert [alert["type"] for alert in cluster.outs["alerts"]] == ["high_gpu_utilization"]
        assert "metrics" not in str(cluster.outs)
        assert platform.plan(cluster) == {}

    def test_a_cluster_created_as_stopped_is_never_started(
        self, platform: Any, inputs: Json
    ) -> None:
        cluster = platform.create({**inputs, "state": "stopped"})
        assert platform.take_writes() == [("POST", {**inputs, "auto_start": False})]
        assert (cluster.outs["status"], cluster.outs["ready"]) == ("stopped", True)
        assert platform.plan(cluster) == {}

    def test_a_cluster_with_a_snapshot_is_started_from_it(
        self, platform: Any, inputs: Json
    ) -> None:
        other = platform.create({**inputs, "name": "other"}, "other")
        platform.send("POST", f"{other.id}/stop", {"save_state": True})
        (snapshot,) = platform.list_objects("snapshots")
        platform.take_writes()
        cluster = platform.create({**inputs, "restore_snapshot": snapshot["id"]})
        assert platform.take_writes() == [
            ("POST", {**inputs, "auto_start": False}),
            ("POST start", {"restore_from_snapshot": snapshot["id"]}),
        ]
        assert cluster.outs["restored_snapshot"] == snapshot["id"]
        assert cluster.outs["ready"] is True
        assert platform.plan(cluster) == {}

    def test_a_create_without_capacity_leaves_no_cluster(self, platform: Any, inputs: Json) -> None:
        platform.change_settings(capacity={"A100": 2})
        with pytest.raises(OutOfCapacity, match="no 4 A100 GPUs free in us-west-2") as caught:
            platform.create(inputs)
        assert caught.value.code == "SEMANTIC_ERROR"
        assert platform.list_objects() == []
        assert platform.intents.records.names() == []

    def test_other_refusals_quote_the_platform(self, platform: Any, inputs: Json) -> None:
        with pytest.raises(GpuformError, match="template_id: Unknown template"):
            platform.create({**inputs, "template_id": "tmpl_of_nobody"})
        body = {"error": "INSUFFICIENT_CREDITS", "message": "No credits", "code": 402}
        platform.add_fault("POST", "", status=402, body=body)
        with pytest.raises(GpuformError, match="add credit to the account"):
            platform.create(inputs)

    def test_a_cluster_that_fails_to_start_is_kept_with_the_reason(
        self, platform: Any, inputs: Json
    ) -> None:
        platform.add_fault("POST", "", failing="train")
        cluster = platform.create(inputs)
        assert cluster.outs["ready"] is False
        assert cluster.outs["not_ready_reason"].endswith(
            "its status is error: The container did not start"
        )
        assert "ready" in platform.plan(cluster)


class TestInPlace:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("name", "renamed"),
            ("description", "for tests"),
            ("tags", {"team": "ml"}),
            ("security_groups", ["sg_a", "sg_b"]),
            ("port_mappings", [{"internal_port": 8080, "description": "web"}]),
            ("auto_terminate", {"enabled": True, "idle_minutes": 30}),
        ],
    )
    def test_an_update_sends_only_the_changed_field_in_one_request(
        self, platform: Any, inputs: Json, field: str, value: Any
    ) -> None:
        cluster = platform.create(inputs)
        platform.take_writes()
        changed = {**inputs, field: value}
        assert list(platform.plan(cluster, changed)) == [field]
        updated = platform.update(cluster, changed)
        assert platform.take_writes() == [("PUT", {field: value})]
        again = platform.refresh(updated)
        assert (platform.plan(updated), platform.plan(again)) == ({}, {})

    def test_environment_variables_are_compared_where_they_are_reported(
        self, platform: Any, inputs: Json
    ) -> None:
        variables = {"MODE": "fast", "WANDB_API_KEY": "hunter2-hunter2"}
        cluster = platform.create({**inputs, "environment_variables": variables})
        assert cluster.outs["hidden_variables"] == ["WANDB_API_KEY"]
        assert platform.plan(platform.refresh(cluster)) == {}
        platform.send("PUT", cluster.id, {"environment_variables": {"MODE": "slow", "OTHER": "1"}})
        drifted = platform.refresh(cluster)
        assert list(platform.plan(drifted)) == ["environment_variables.MODE"]
        repaired = platform.update(drifted)
        assert platform.fetch_cluster(repaired)["environment"]["variables"] == {"MODE": "fast"}
        without = dict(inputs)
        assert list(platform.plan(repaired, without)) == ["environment_variables"]
        assert (
            platform.fetch_cluster(platform.update(repaired, without))["environment"]["secrets"]
            == []
        )

    def test_an_update_of_tags_keeps_the_tags_of_others(self, platform: Any, inputs: Json) -> None:
        cluster = platform.create({**inputs, "tags": {"team": "a", "old": "1"}})
        platform.send("PUT", cluster.id, {"tags": {"team": "a", "old": "1", "cost": "c1"}})
        updated = platform.update(cluster, {**inputs, "tags": {"team": "b"}})
        assert platform.fetch_cluster(updated)["tags"] == {"cost": "c1", "team": "b"}
        assert platform.plan(platform.refresh(updated)) == {}

    def test_a_tag_removed_by_somebody_else_is_drift(self, platform: Any, inputs: Json) -> None:
        cluster = platform.create({**inputs, "tags": {"team": "a", "cost": "c1"}})
        platform.send("PUT", cluster.id, {"tags": {"cost": "c1"}})
        drifted = platform.refresh(cluster)
        assert list(platform.plan(drifted)) == ["tags.team"]
        assert platform.fetch_cluster(platform.update(drifted))["tags"] == cluster.outs["tags"]

    def test_a_port_added_by_somebody_else_is_drift_and_removed(
        self, platform: Any, inputs: Json
    ) -> None:
        ports = [{"internal_port": 8080}, {"internal_port": 53, "protocol": "udp"}]
        cluster = platform.create({**inputs, "port_mappings": ports})
        assert set(cluster.outs["port_urls"]) == {"8080", "53"}
        assert platform.plan(platform.refresh(cluster)) == {}
        platform.send("PUT", cluster.id, {"port_mappings": [*ports, {"internal_port": 22}]})
        drifted = platform.refresh(cluster)
        assert list(platform.plan(drifted)) == ["port_mappings"]
        assert set(platform.update(drifted).outs["port_urls"]) == {"8080", "53"}


class TestUpdateByRestart:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("gpu_count", 2),
            ("cpu_cores", 48),
            ("memory_gb", 512),
            ("storage_gb", 1200),
            ("docker_image", "tensorone/other:1"),
        ],
    )
    def test_an_update_stops_and_starts_a_running_cluster(
        self, platform: Any, inputs: Json, field: str, value: Any
    ) -> None:
        cluster = platform.create(inputs)
        platform.take_writes()
        changed = {**inputs, field: value}
        assert platform.plan(cluster, changed) == {field: (inputs.get(field), value, BY_START)}
        updated = platform.update(cluster, changed)
        assert platform.take_writes() == [
            ("POST stop", {}),
            ("POST start", {"update_configuration": {field: value}}),
        ]
        assert (updated.outs["status"], updated.outs["ready"]) == ("running", True)
        assert platform.plan(platform.refresh(updated)) == {}

    def test_a_stopped_cluster_is_stopped_again_after_the_update(
        self, platform: Any, inputs: Json
    ) -> None:
        inputs = {**inputs, "state": "stopped"}
        cluster = platform.create(inputs)
        platform.take_writes()
        changed = {**inputs, "gpu_count": 2}
        assert platform.plan(cluster, changed)["gpu_count"][2] == "starts and stops the cluster"
        updated = platform.update(cluster, changed)
        assert [verb for verb, _ in platform.take_writes()] == ["POST start", "POST stop"]
        assert updated.outs["status"] == "stopped"
        assert platform.plan(updated) == {}

    def test_restarting_and_in_place_changes_are_sent_together(
        self, platform: Any, inputs: Json
    ) -> None:
        cluster = platform.create(inputs)
        platform.take_writes()
        updated = platform.update(cluster, {**inputs, "gpu_count": 2, "tags": {"a": "b"}})
        assert [verb for verb, _ in platform.take_writes()] == ["PUT", "POST stop", "POST start"]
        assert platform.plan(updated) == {}

    def test_storage_cannot_shrink(self, platform: Any, inputs: Json) -> None:
        cluster = platform.create(inputs)
        with pytest.raises(GpuformError, match="storage_gb cannot shrink from 1000 to 400"):
            platform.plan(cluster, {**inputs, "storage_gb": 400})

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("gpu_type", "H100"),
            ("region", "eu-west-1"),
            ("project_id", "proj_1"),
            ("template_id", "tmpl_pytorch_latest"),
            ("ssh_public_keys", ["ssh-ed25519 AAAA"]),
        ],
    )
    def test_other_changes_replace_the_cluster(
        self, platform: Any, inputs: Json, field: str, value: Any
    ) -> None:
        cluster = platform.create(inputs)
        assert platform.list_replacing_fields(cluster, {**inputs, field: value}) == [field]

    def test_missing_capacity_for_the_start_is_reported(self, platform: Any, inputs: Json) -> None:
        cluster = platform.create(inputs)
        platform.change_settings(capacity={"A100": 5})
        updated = platform.update(cluster, {**inputs, "gpu_count": 8})
        assert updated.outs["ready"] is False
        assert (
            "TensorOne is out of capacity: it has no 8 A100 GPUs free"
            in updated.outs["not_ready_reason"]
        )
        platform.change_settings(capacity={})
        assert "ready" in platform.plan(updated)
        assert platform.update(updated).outs["ready"] is True
        assert platform.fetch_cluster(updated)["configuration"]["gpu_count"] == 8

    def test_a_change_that_the_platform_ignores_is_reported_and_requested_once(
        self, platform: Any, inputs: Json, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster = platform.create(inputs)
        real = platform.client.start
        monkeypatch.setattr(platform.client, "start", lambda id_, _body: real(id_, {}))
        platform.take_writes()
        updated = platform.update(cluster, {**inputs, "gpu_count": 2})
        assert [verb for verb, _ in platform.take_writes()] == ["POST stop", "POST start"]
        assert "started the cluster without gpu_count 2" in updated.outs["not_ready_reason"]

    def test_an_update_interrupted_between_stop_and_start_is_resumed(
        self, platform: Any, inputs: Json
    ) -> None:
        cluster = platform.create(inputs)
        platform.add_fault("POST", "/start$", status=500)
        broken = platform.update(cluster, {**inputs, "gpu_count": 2}, timeout=60.0)
        assert broken.outs["ready"] is False
        platform.remove_faults()
        platform.take_writes()
        repaired = platform.update(broken)
        assert repaired.outs["ready"] is True
        assert platform.take_writes()[-1] == (
            "POST start",
            {"update_configuration": {"gpu_count": 2}},
        )


class TestState:
    def test_a_changed_state_stops_and_starts_the_cluster(
        self, platform: Any, inputs: Json
    ) -> None:
        cluster = platform.create(inputs)
        platform.take_writes()
        stopped = {**inputs, "state": "stopped"}
        assert platform.plan(cluster, stopped) == {"state": ("running", "stopped", "")}
        off = platform.update(cluster, stopped)
        assert platform.take_writes() == [("POST stop", {})]
        assert (off.outs["status"], off.outs["ready"]) == ("stopped", True)
        assert platform.plan(platform.refresh(off)) == {}
        assert platform.plan(off, inputs) == {"state": ("stopped", "running", "")}
        on = platform.update(off, inputs)
        assert platform.take_writes() == [("POST start", {})]
        assert on.outs["status"] == "running"

    @pytest.mark.parametrize("declared", [{}, {"state": "running"}])
    def test_a_manual_stop_is_drift(self, platform: Any, inputs: Json, declared: Json) -> None:
        cluster = platform.create({**inputs, **declared})
        platform.send("POST", f"{cluster.id}/stop")
        platform.advance(60)
        drifted = platform.refresh(cluster)
        assert drifted.outs.get("stopped_by") is None
        assert platform.plan(drifted) == {"state": ("stopped", "running", "")}
        assert platform.update(drifted).outs["status"] == "running"

    def test_another_snapshot_is_restored_once(self, platform: Any, inputs: Json) -> None:
        cluster = platform.create(inputs)
        platform.send("POST", f"{cluster.id}/stop", {"save_state": True})
        platform.advance(60)
        (snapshot,) = platform.list_objects("snapshots")
        cluster = platform.update(platform.refresh(cluster))
        platform.take_writes()
        healthy_inputs = {**inputs, "restore_snapshot": snapshot["id"]}
        plan = platform.plan(cluster, healthy_inputs)
        assert plan == {"restore_snapshot": (None, snapshot["id"], BY_START)}
        restored = platform.update(cluster, healthy_inputs)
        start = ("POST start", {"restore_from_snapshot": snapshot["id"]})
        assert platform.take_writes() == [("POST stop", {}), start]
        off = platform.update(restored, {**healthy_inputs, "state": "stopped"})
        platform.update(off, healthy_inputs)
        assert platform.take_writes() == [("POST stop", {}), ("POST start", {})]

    def test_an_unknown_snapshot_is_reported(self, platform: Any, inputs: Json) -> None:
        cluster = platform.create({**inputs, "restore_snapshot": "snap_of_nobody"})
        assert "Snapshot not found" in cluster.outs["not_ready_reason"]


class TestDelete:
    def test_delete_confirms_and_waits_for_the_deletion(self, platform: Any, inputs: Json) -> None:
        cluster = platform.create(inputs)
        platform.take_writes()
        platform.delete(cluster)
        assert platform.take_writes() == [("DELETE", {"confirm_deletion": "DELETE"})]
        assert platform.list_objects() == platform.list_objects("snapshots") == []
        platform.delete(cluster)

    def test_delete_takes_a_final_snapshot(self, platform: Any, inputs: Json) -> None:
        cluster = platform.create(inputs)
        platform.take_writes()
        last = {**inputs, "final_snapshot": True, "final_snapshot_name": "the-last"}
        cluster = platform.update(cluster, last)
        assert platform.take_writes() == [], "it is nothing of the platform's, until the end"
        platform.delete(cluster)
        ((_, body),) = platform.take_writes()
        assert body["create_final_snapshot"] is True
        assert [found_object["name"] for found_object in platform.list_objects("snapshots")] == [
            "the-last"
        ]

    def test_delete_stops_the_cluster_if_the_platform_requires_it(
        self, platform: Any, inputs: Json
    ) -> None:
        platform.change_settings(delete_needs_stopped=True)
        cluster = platform.create(inputs)
        platform.take_writes()
        platform.delete(cluster)
        assert [verb for verb, _ in platform.take_writes()] == ["DELETE", "POST stop", "DELETE"]
        assert platform.list_objects() == []

    def test_delete_waits_for_a_start_if_the_platform_requires_it(
        self, platform: Any, inputs: Json
    ) -> None:
        platform.change_settings(delete_needs_stopped=True)
        cluster = platform.create(inputs, timeout=60.0)
        assert cluster.outs["ready"] is False
        platform.delete(cluster)
        assert platform.list_objects() == []


def test_an_import_declares_the_inputs_that_a_person_would(platform: Any, inputs: Json) -> None:
    cluster = platform.create({**inputs, "tags": {"a": "b"}, "template_id": "tmpl_pytorch_latest"})
    imported_inputs, outs = platform.import_cluster(cluster.id)
    assert imported_inputs == cluster.inputs
    assert outs["status"] == "running"
    platform.send("POST", f"{cluster.id}/stop")
    platform.advance(60)
    assert platform.import_cluster(cluster.id)[0]["state"] == "stopped"


@pytest.mark.exact_waits
def test_an_update_past_its_deadline_is_resumed_by_the_next(platform: Any, inputs: Json) -> None:
    cluster = platform.create(inputs, timeout=60.0)
    assert cluster.outs["ready"] is False
    assert "not done after 1m00s; last seen: starting" in cluster.outs["not_ready_reason"]
    assert platform.update(cluster).outs["ready"] is True


class TestPlannedRemoval:
    """A cluster with 8 GPUs on the platform, and fewer in state and declaration."""

    def test_a_plan_counts_the_gpus_of_the_platform(self, platform: Any, inputs: Json) -> None:
        cluster = platform.create({**inputs, "gpu_count": 8})
        with platform.use_provider_context(preview=True):
            lifecycle = ClusterLifecycle()
            changed = lifecycle.predict_removed_nodes(cluster.id, cluster.outs, inputs)
            deleted = lifecycle.predict_nodes_removed_with_object(
                cluster.id, {**cluster.outs, "gpu_count": 4}, "deleted"
            )
        assert changed.nodes == (RemovedNode(name="train", because="resized", gpus=4),)
        assert deleted.nodes == (RemovedNode(name="train", because="deleted", gpus=8),)
        assert (changed.count_lost_gpus(), changed.count_nodes()) == (4, 0)

    def test_an_update_and_a_deletion_remove_no_more_gpus_than_planned(
        self, platform: Any, inputs: Json
    ) -> None:
        cluster = platform.create({**inputs, "gpu_count": 8})
        platform.take_writes()
        with pytest.raises(
            UnplannedRemoval, match="remove 1 node with 8 GPUs, and the plan removes 1 "
        ):
            platform.delete(cluster, planned_removal=RemovalCount(1, 4))
        updated = platform.update(
            cluster, {**inputs, "gpu_count": 2}, planned_removal=RemovalCount(0, 4)
        )
        assert (
            "this would remove 6 GPUs, and the plan removes 4 GPUs"
            in (updated.outs["not_ready_reason"])
        )
        assert platform.take_writes() == []
        updated = platform.update(cluster, inputs, planned_removal=RemovalCount(0, 4))
        assert updated.outs["ready"] is True
