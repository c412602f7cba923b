"""Starting, stopping, changing, deleting a TensorOne cluster: what is sent, what a plan says."""

from typing import Any

import pytest

from gpuform.providers.errors import GpuformError, OutOfCapacity

Json = dict[str, Any]

BY_START = "stops and starts the cluster"


class TestCreate:
    def test_sends_what_is_declared_and_waits(self, world: Any, inputs: Json) -> None:
        made = world.create(inputs)
        assert world.writes() == [("POST", inputs)]
        assert (made.outs["status"], made.outs["ready"]) == ("running", True)
        assert made.outs["current_hourly_rate"] == 8.5
        assert made.outs["daily_estimate"] == pytest.approx(24 * 8.5)
        assert made.outs["gpu_health"] == "healthy"
        assert [each["type"] for each in made.outs["alerts"]] == ["high_gpu_utilization"]
        assert "metrics" not in str(made.outs)
        assert world.plan(made) == {}

    def test_stopped_is_never_started(self, world: Any, inputs: Json) -> None:
        made = world.create({**inputs, "state": "stopped"})
        assert world.writes() == [("POST", {**inputs, "auto_start": False})]
        assert (made.outs["status"], made.outs["ready"]) == ("stopped", True)
        assert world.plan(made) == {}

    def test_with_a_snapshot_is_started_from_it(self, world: Any, inputs: Json) -> None:
        other = world.create({**inputs, "name": "other"}, "other")
        world.send("POST", f"{other.id}/stop", {"save_state": True})
        (snapshot,) = world.objects("snapshots")
        world.writes()
        made = world.create({**inputs, "restore_snapshot": snapshot["id"]})
        assert world.writes() == [
            ("POST", {**inputs, "auto_start": False}),
            ("POST start", {"restore_from_snapshot": snapshot["id"]}),
        ]
        assert made.outs["restored_snapshot"] == snapshot["id"]
        assert made.outs["ready"] is True
        assert world.plan(made) == {}

    def test_without_capacity_leaves_nothing(self, world: Any, inputs: Json) -> None:
        world.settings(capacity={"A100": 2})
        with pytest.raises(OutOfCapacity, match="no 4 A100 GPUs free in us-west-2") as caught:
            world.create(inputs)
        assert caught.value.code == "SEMANTIC_ERROR"
        assert world.objects() == []
        assert world.intents.records.names() == []

    def test_other_refusals_are_the_platforms_words(self, world: Any, inputs: Json) -> None:
        with pytest.raises(GpuformError, match="template_id: Unknown template"):
            world.create({**inputs, "template_id": "tmpl_of_nobody"})
        body = {"error": "INSUFFICIENT_CREDITS", "message": "No credits", "code": 402}
        world.fault("POST", "", status=402, body=body)
        with pytest.raises(GpuformError, match="add credit to the account"):
            world.create(inputs)

    def test_what_fails_to_start_is_kept_with_the_reason(self, world: Any, inputs: Json) -> None:
        world.fault("POST", "", failing="train")
        made = world.create(inputs)
        assert made.outs["ready"] is False
        assert made.outs["not_ready_reason"].endswith(
            "its status is error: The container did not start"
        )
        assert "ready" in world.plan(made)


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
    def test_one_request_with_the_field_alone(
        self, world: Any, inputs: Json, field: str, value: Any
    ) -> None:
        made = world.create(inputs)
        world.writes()
        changed = {**inputs, field: value}
        assert list(world.plan(made, changed)) == [field]
        updated = world.update(made, changed)
        assert world.writes() == [("PUT", {field: value})]
        again = world.refresh(updated)
        assert (world.plan(updated), world.plan(again)) == ({}, {})

    def test_variables_are_compared_where_they_are_shown(self, world: Any, inputs: Json) -> None:
        variables = {"MODE": "fast", "WANDB_API_KEY": "hunter2-hunter2"}
        made = world.create({**inputs, "environment_variables": variables})
        assert made.outs["hidden_variables"] == ["WANDB_API_KEY"]
        assert world.plan(world.refresh(made)) == {}
        world.send("PUT", made.id, {"environment_variables": {"MODE": "slow", "OTHER": "1"}})
        drifted = world.refresh(made)
        assert list(world.plan(drifted)) == ["environment_variables.MODE"]
        repaired = world.update(drifted)
        assert world.seen(repaired)["environment"]["variables"] == {"MODE": "fast"}
        without = dict(inputs)
        assert list(world.plan(repaired, without)) == ["environment_variables"]
        assert world.seen(world.update(repaired, without))["environment"]["secrets"] == []

    def test_a_port_of_somebody_else_is_drift_and_goes(self, world: Any, inputs: Json) -> None:
        ports = [{"internal_port": 8080}, {"internal_port": 53, "protocol": "udp"}]
        made = world.create({**inputs, "port_mappings": ports})
        assert set(made.outs["port_urls"]) == {"8080", "53"}
        assert world.plan(world.refresh(made)) == {}
        world.send("PUT", made.id, {"port_mappings": [*ports, {"internal_port": 22}]})
        drifted = world.refresh(made)
        assert list(world.plan(drifted)) == ["port_mappings"]
        assert set(world.update(drifted).outs["port_urls"]) == {"8080", "53"}


class TestByAStart:
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
    def test_stops_and_starts_a_running_cluster(
        self, world: Any, inputs: Json, field: str, value: Any
    ) -> None:
        made = world.create(inputs)
        world.writes()
        changed = {**inputs, field: value}
        assert world.plan(made, changed) == {field: (inputs.get(field), value, BY_START)}
        updated = world.update(made, changed)
        assert world.writes() == [
            ("POST stop", {}),
            ("POST start", {"update_configuration": {field: value}}),
        ]
        assert (updated.outs["status"], updated.outs["ready"]) == ("running", True)
        assert world.plan(world.refresh(updated)) == {}

    def test_a_stopped_cluster_is_stopped_again(self, world: Any, inputs: Json) -> None:
        inputs = {**inputs, "state": "stopped"}
        made = world.create(inputs)
        world.writes()
        changed = {**inputs, "gpu_count": 2}
        assert world.plan(made, changed)["gpu_count"][2] == "starts and stops the cluster"
        updated = world.update(made, changed)
        assert [verb for verb, _ in world.writes()] == ["POST start", "POST stop"]
        assert updated.outs["status"] == "stopped"
        assert world.plan(updated) == {}

    def test_together_with_what_changes_in_place(self, world: Any, inputs: Json) -> None:
        made = world.create(inputs)
        world.writes()
        updated = world.update(made, {**inputs, "gpu_count": 2, "tags": {"a": "b"}})
        assert [verb for verb, _ in world.writes()] == ["PUT", "POST stop", "POST start"]
        assert world.plan(updated) == {}

    def test_storage_only_grows(self, world: Any, inputs: Json) -> None:
        made = world.create(inputs)
        with pytest.raises(GpuformError, match="storage_gb cannot shrink from 1000 to 400"):
            world.plan(made, {**inputs, "storage_gb": 400})

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
    def test_the_rest_replaces(self, world: Any, inputs: Json, field: str, value: Any) -> None:
        made = world.create(inputs)
        assert world.replaces(made, {**inputs, field: value}) == [field]

    def test_no_capacity_for_the_start_is_told(self, world: Any, inputs: Json) -> None:
        made = world.create(inputs)
        world.settings(capacity={"A100": 5})
        updated = world.update(made, {**inputs, "gpu_count": 8})
        assert updated.outs["ready"] is False
        assert (
            "TensorOne is out of capacity: it has no 8 A100 GPUs free"
            in updated.outs["not_ready_reason"]
        )
        world.settings(capacity={})
        assert "ready" in world.plan(updated)
        assert world.update(updated).outs["ready"] is True
        assert world.seen(updated)["configuration"]["gpu_count"] == 8

    def test_what_the_platform_does_not_do_is_said_and_asked_for_once(
        self, world: Any, inputs: Json, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = world.create(inputs)
        real = world.client.start
        monkeypatch.setattr(world.client, "start", lambda id_, _body: real(id_, {}))
        world.writes()
        updated = world.update(made, {**inputs, "gpu_count": 2})
        assert [verb for verb, _ in world.writes()] == ["POST stop", "POST start"]
        assert "started it without gpu_count 2" in updated.outs["not_ready_reason"]

    def test_what_was_cut_off_between_stop_and_start_goes_on(
        self, world: Any, inputs: Json
    ) -> None:
        made = world.create(inputs)
        world.fault("POST", "/start$", status=500)
        broken = world.update(made, {**inputs, "gpu_count": 2}, timeout=60.0)
        assert broken.outs["ready"] is False
        world.heal()
        world.writes()
        mended = world.update(broken)
        assert mended.outs["ready"] is True
        assert world.writes()[-1] == (
            "POST start",
            {"update_configuration": {"gpu_count": 2}},
        )


class TestState:
    def test_stops_and_starts(self, world: Any, inputs: Json) -> None:
        made = world.create(inputs)
        world.writes()
        stopped = {**inputs, "state": "stopped"}
        assert world.plan(made, stopped) == {"state": ("running", "stopped", "")}
        off = world.update(made, stopped)
        assert world.writes() == [("POST stop", {})]
        assert (off.outs["status"], off.outs["ready"]) == ("stopped", True)
        assert world.plan(world.refresh(off)) == {}
        assert world.plan(off, inputs) == {"state": ("stopped", "running", "")}
        on = world.update(off, inputs)
        assert world.writes() == [("POST start", {})]
        assert on.outs["status"] == "running"

    @pytest.mark.parametrize("declared", [{}, {"state": "running"}])
    def test_who_stops_it_by_hand_makes_drift(
        self, world: Any, inputs: Json, declared: Json
    ) -> None:
        made = world.create({**inputs, **declared})
        world.send("POST", f"{made.id}/stop")
        world.advance(60)
        drifted = world.refresh(made)
        assert drifted.outs.get("stopped_by") is None
        assert world.plan(drifted) == {"state": ("stopped", "running", "")}
        assert world.update(drifted).outs["status"] == "running"

    def test_another_snapshot_is_restored_once(self, world: Any, inputs: Json) -> None:
        made = world.create(inputs)
        world.send("POST", f"{made.id}/stop", {"save_state": True})
        world.advance(60)
        (snapshot,) = world.objects("snapshots")
        made = world.update(world.refresh(made))
        world.writes()
        wanted = {**inputs, "restore_snapshot": snapshot["id"]}
        plan = world.plan(made, wanted)
        assert plan == {"restore_snapshot": (None, snapshot["id"], BY_START)}
        restored = world.update(made, wanted)
        start = ("POST start", {"restore_from_snapshot": snapshot["id"]})
        assert world.writes() == [("POST stop", {}), start]
        off = world.update(restored, {**wanted, "state": "stopped"})
        world.update(off, wanted)
        assert world.writes() == [("POST stop", {}), ("POST start", {})]

    def test_a_snapshot_of_nobody_is_told(self, world: Any, inputs: Json) -> None:
        made = world.create({**inputs, "restore_snapshot": "snap_of_nobody"})
        assert "Snapshot not found" in made.outs["not_ready_reason"]


class TestDelete:
    def test_is_confirmed_and_waited_for(self, world: Any, inputs: Json) -> None:
        made = world.create(inputs)
        world.writes()
        world.delete(made)
        assert world.writes() == [("DELETE", {"confirm_deletion": "DELETE"})]
        assert world.objects() == world.objects("snapshots") == []
        world.delete(made)

    def test_with_a_final_snapshot(self, world: Any, inputs: Json) -> None:
        made = world.create(inputs)
        world.writes()
        last = {**inputs, "final_snapshot": True, "final_snapshot_name": "the-last"}
        made = world.update(made, last)
        assert world.writes() == [], "it is nothing of the platform's, until the end"
        world.delete(made)
        ((_, body),) = world.writes()
        assert body["create_final_snapshot"] is True
        assert [each["name"] for each in world.objects("snapshots")] == ["the-last"]

    def test_stops_it_where_the_platform_insists(self, world: Any, inputs: Json) -> None:
        world.settings(delete_needs_stopped=True)
        made = world.create(inputs)
        world.writes()
        world.delete(made)
        assert [verb for verb, _ in world.writes()] == ["DELETE", "POST stop", "DELETE"]
        assert world.objects() == []

    def test_waits_for_a_start_first_where_the_platform_insists(
        self, world: Any, inputs: Json
    ) -> None:
        world.settings(delete_needs_stopped=True)
        made = world.create(inputs, timeout=60.0)
        assert made.outs["ready"] is False
        world.delete(made)
        assert world.objects() == []


def test_an_import_declares_what_a_person_would(world: Any, inputs: Json) -> None:
    made = world.create({**inputs, "tags": {"a": "b"}, "template_id": "tmpl_pytorch_latest"})
    found, outs = world.imported(made.id)
    assert found == made.inputs
    assert outs["status"] == "running"
    world.send("POST", f"{made.id}/stop")
    world.advance(60)
    assert world.imported(made.id)[0]["state"] == "stopped"


def test_a_deadline_is_kept_and_the_rest_is_waited_for_later(world: Any, inputs: Json) -> None:
    made = world.create(inputs, timeout=60.0)
    assert made.outs["ready"] is False
    assert "not done after 1m00s; last seen: starting" in made.outs["not_ready_reason"]
    assert world.update(made).outs["ready"] is True
