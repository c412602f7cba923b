"""The protocol as the hosts speak it: plain dicts, doubles, unknowns, and `__provider`."""

import copy
import json
from typing import Any

import pulumi
import pytest
from pulumi.dynamic import Config, ConfigureRequest

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.errors import GpuformError, UnknownOutcome
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.together import client as client_module
from gpuform.providers.together.cluster import ClusterLifecycle, ClusterOperations
from gpuform.providers.together.shared_volume import SharedVolumeLifecycle
from gpuform.schemas.changes import Action

Properties = dict[str, Any]


def _doubles(value: Any) -> Any:
    """As Pulumi's wire hands it back: every number a double, no null at the top."""
    return json.loads(json.dumps(value), parse_int=float)


def _state(outs: Properties) -> Properties:
    """Outputs as the next operation gets them."""
    return {**_doubles(outs), "__provider": "pickled"}


@pytest.fixture
def volume() -> SharedVolumeLifecycle:
    return SharedVolumeLifecycle()


@pytest.fixture
def cluster() -> ClusterLifecycle:
    return ClusterLifecycle()


class TestCheck:
    def test_every_problem_has_its_path(
        self, cluster: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        wrong = {**cluster_inputs, "num_gpus": 12.0, "billing_type": "RESERVED", "gpu_typ": "x"}
        failures = {f.property: f.reason for f in cluster.check({}, wrong).failures}
        assert failures.keys() == {"num_gpus", "duration_days", "gpu_typ"}
        assert "8 or 16" in failures["num_gpus"]
        assert "gpu_type" in failures["gpu_typ"]
        assert emulator.requests() == []

    def test_the_inputs_are_canonical_and_typed(
        self, cluster: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        result = cluster.check({}, cluster_inputs)
        assert result.failures == []
        assert result.inputs == {
            "cluster_name": "train",
            "region": "us-central-8",
            "gpu_type": "H100_SXM",
            "num_gpus": 16,
            "cuda_version": "12.6",
            "nvidia_driver_version": "560",
            "billing_type": "ON_DEMAND",
        }
        assert isinstance(result.inputs["num_gpus"], int)

    def test_unknown_values_stay_unknown(
        self, cluster: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        unknown = pulumi.output.Unknown()  # type: ignore[no-untyped-call]
        inputs = {**cluster_inputs, "volume_id": unknown, "region": unknown, "num_gpus": unknown}
        result = cluster.check({}, inputs)
        assert result.failures == []
        for name in ("volume_id", "region", "num_gpus"):
            assert isinstance(result.inputs[name], pulumi.output.Unknown)

    def test_shrinking_is_refused_against_the_old_inputs(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        (failure,) = volume.check({**volume_inputs, "size_tib": 5.0}, volume_inputs).failures
        assert failure.property == "size_tib"
        assert "from 5 to 2" in failure.reason
        assert volume.check({**volume_inputs, "size_tib": 1.0}, volume_inputs).failures == []

    @pytest.mark.slow
    def test_a_replacement_may_be_smaller(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        old = {**volume_inputs, "size_tib": 5.0, "volume_name": "before"}
        assert volume.check(old, volume_inputs).failures == []


class TestDiff:
    OLD: Properties = {  # noqa: RUF012 - never changed
        "cluster_name": "train",
        "region": "us-central-8",
        "gpu_type": "H100_SXM",
        "num_gpus": 16.0,
        "cuda_version": "12.6",
        "nvidia_driver_version": "560",
        "billing_type": "ON_DEMAND",
        "ready": True,
        "status": "Ready",
        "gpu_worker_nodes": [],
        "__provider": "pickled",
    }

    @classmethod
    def new(cls, **changes: Any) -> Properties:
        computed = {"ready", "status", "gpu_worker_nodes"}
        return {k: v for k, v in cls.OLD.items() if k not in computed} | changes

    @pytest.fixture(autouse=True)
    def _no_client(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*arguments: object) -> None:
            pytest.fail("diff built a client")

        monkeypatch.setattr(client_module.TogetherClient, "__init__", refuse)
        monkeypatch.setattr(ClusterOperations, "__init__", refuse)

    def test_nothing(self, cluster: ClusterLifecycle) -> None:
        result = cluster.diff("c1", self.OLD, self.new())
        assert (result.changes, result.replaces) == (False, [])
        assert cluster.list_changes(self.OLD, self.new()) == []

    def test_in_place(self, cluster: ClusterLifecycle) -> None:
        result = cluster.diff("c1", self.OLD, self.new(num_gpus=24.0))
        assert (result.changes, result.replaces) == (True, [])
        (change,) = cluster.list_changes(self.OLD, self.new(num_gpus=24.0))
        assert (change.path, change.before, change.after) == ("num_gpus", 16, 24)

    @pytest.mark.parametrize("field", ["region", "gpu_type", "cluster_name", "volume_id"])
    def test_a_replacement_deletes_first(self, cluster: ClusterLifecycle, field: str) -> None:
        result = cluster.diff("c1", self.OLD, self.new(**{field: "B200_SXM"}))
        assert (result.changes, result.replaces) == (True, [field])
        assert result.delete_before_replace is True

    def test_what_was_never_declared_is_not_compared(self, cluster: ClusterLifecycle) -> None:
        old = {**self.OLD, "driver_version": "CUDA_12_6_560", "created_at": "then"}
        assert cluster.diff("c1", old, self.new()).changes is False

    def test_an_unknown_immutable_replaces(self, cluster: ClusterLifecycle) -> None:
        unknown = pulumi.output.Unknown()  # type: ignore[no-untyped-call]
        result = cluster.diff("c1", self.OLD, self.new(volume_id=unknown))
        assert result.replaces == ["volume_id"]

    def test_a_resource_that_is_not_ready_is_waited_for(self, cluster: ClusterLifecycle) -> None:
        old = {**self.OLD, "ready": False, "not_ready_reason": "it was interrupted"}
        result = cluster.diff("c1", old, self.new())
        assert (result.changes, result.replaces) == (True, [])
        (change,) = cluster.list_changes(old, self.new())
        assert (change.path, change.action) == ("ready", Action.UPDATE)
        assert change.because == "resume waiting: it was interrupted"

    def test_any_other_change_waits_anyway(self, cluster: ClusterLifecycle) -> None:
        old = {**self.OLD, "ready": False}
        paths = [change.path for change in cluster.list_changes(old, self.new(num_gpus=24.0))]
        assert paths == ["num_gpus"]

    def test_what_waits_for_people_is_told_unless_it_goes_anyway(
        self, cluster: ClusterLifecycle
    ) -> None:
        old = {**self.OLD, "ready": False, "status": "Degraded"}
        paths = [change.path for change in cluster.list_changes(old, self.new(num_gpus=24.0))]
        assert paths == ["num_gpus", "ready"]
        paths = [change.path for change in cluster.list_changes(old, self.new(gpu_type="H200_SXM"))]
        assert paths == ["gpu_type"]

    def test_a_lost_provider_is_put_back(self, cluster: ClusterLifecycle) -> None:
        old = {key: value for key, value in self.OLD.items() if key != "__provider"}
        result = cluster.diff("c1", old, self.new())
        assert (result.changes, result.replaces) == (True, [])

    def test_an_extra_provider_is_no_change(self, cluster: ClusterLifecycle) -> None:
        new = {key: value for key, value in self.new().items() if key != "__provider"}
        assert cluster.diff("c1", self.OLD, new).changes is False

    def test_a_shrink_that_only_the_platform_shows(
        self, volume: SharedVolumeLifecycle, call: ProviderContext, volume_inputs: Properties
    ) -> None:
        observed = {**volume_inputs, "size_tib": 5.0, "ready": True}
        with use_context(call), pytest.raises(GpuformError, match="size_tib cannot shrink"):
            volume.diff("v1", observed, volume_inputs)
        call.refreshing = True
        with use_context(call):
            assert volume.diff("v1", observed, volume_inputs).changes is True

    def test_a_required_field_that_no_read_returns_is_believed_after_an_import(
        self, volume: SharedVolumeLifecycle, volume_inputs: Properties
    ) -> None:
        imported = {key: value for key, value in volume_inputs.items() if key != "region"}
        result = volume.diff("v1", imported, volume_inputs)
        assert (result.changes, result.replaces) == (True, [])

    def test_nothing_given_is_changed(self, cluster: ClusterLifecycle) -> None:
        old, new = copy.deepcopy(self.OLD), self.new(num_gpus=24.0)
        before = copy.deepcopy((old, new))
        cluster.diff("c1", old, new)
        assert (old, new) == before


class TestVolume:
    def test_a_whole_life(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        with emulator.serving():
            inputs = {**volume.check({}, volume_inputs).inputs, "__provider": "pickled"}
        with emulator.serving():
            created = volume.create(_doubles(inputs))
        assert created.outs == {
            "volume_name": "data",
            "size_tib": 2,
            "region": "us-central-8",
            "status": "available",
            "ready": True,
        }
        assert isinstance(created.outs["size_tib"], int)
        assert emulator.told.progress[0] == "scheduled (1s)"
        state = _state(created.outs)
        with emulator.serving():
            read = volume.read(created.id, state)
        assert (read.id, read.outs) == (created.id, created.outs)
        assert read.inputs == {"volume_name": "data", "size_tib": 2, "region": "us-central-8"}
        with emulator.serving():
            grown = volume.update(created.id, state, {**inputs, "size_tib": 3.0})
        assert grown.outs is not None
        assert (grown.outs["size_tib"], grown.outs["ready"]) == (3, True)
        (put,) = emulator.requests("PUT")
        assert put["body"] == {"volume_id": created.id, "size_tib": 3}
        with emulator.serving():
            volume.delete(created.id, _state(grown.outs))
        assert emulator.objects("volumes") == []
        assert emulator.intents.list_all() == []

    def test_deleting_twice_is_no_error(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        with emulator.serving():
            volume.delete("never-was", volume_inputs)

    def test_what_is_gone_is_read_as_gone(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        with emulator.serving():
            read = volume.read("never-was", volume_inputs)
        assert (read.id, read.outs) == ("", {})

    def test_shrinking_is_refused_before_anything_is_sent(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        with emulator.serving(), pytest.raises(GpuformError, match="cannot shrink"):
            volume.update("v1", {**volume_inputs, "size_tib": 5.0}, volume_inputs)
        assert emulator.requests() == []

    def test_a_volume_in_use_is_not_deleted(
        self,
        volume: SharedVolumeLifecycle,
        cluster: ClusterLifecycle,
        emulator: Any,
        volume_inputs: Properties,
        cluster_inputs: Properties,
    ) -> None:
        with emulator.serving("data"):
            created = volume.create(volume_inputs)
        with emulator.serving():
            cluster.create({**cluster_inputs, "volume_id": created.id})
        with emulator.serving("data"), pytest.raises(GpuformError, match="a cluster still has it"):
            volume.delete(created.id, _state(created.outs))
        assert emulator.requests("DELETE") == []
        assert len(emulator.objects("volumes")) == 1


class TestNeverLost:
    def test_a_failure_while_waiting_keeps_the_id(
        self, cluster: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        path = "^/compute/clusters/"
        emulator.fault("GET", path, status_override="Degraded", count=100)
        call = emulator.call()
        with use_context(call):
            created = cluster.create(cluster_inputs)
        assert created.id == emulator.objects("clusters")[0]["id"]
        assert created.outs["ready"] is False
        assert created.outs["not_ready_reason"].startswith(
            "cluster train: some of it does not work (Degraded)"
        )
        assert (created.outs["status"], created.outs["num_gpus"]) == ("Degraded", 16)
        assert call.init_errors == [created.outs["not_ready_reason"]]

    def test_resumed_waiting_sends_nothing_and_becomes_ready(
        self, cluster: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        with emulator.serving():
            inputs = {**cluster.check({}, cluster_inputs).inputs, "__provider": "pickled"}
        call = emulator.call(timeout=60.0)
        with use_context(call):
            created = cluster.create(_doubles(inputs))
        assert "not done after 1m00s" in created.outs["not_ready_reason"]
        state = _state(created.outs)
        assert cluster.diff(created.id, state, inputs).changes is True
        call = emulator.call()
        with use_context(call):
            updated = cluster.update(created.id, state, _doubles(inputs))
        assert updated.outs is not None
        assert updated.outs["ready"] is True
        assert "not_ready_reason" not in updated.outs
        assert call.init_errors == []
        assert emulator.requests("PUT") == []
        assert cluster.diff(created.id, _state(updated.outs), inputs).changes is False

    def test_an_interruption_keeps_the_id(
        self, cluster: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        call = emulator.call()
        call.on_progress = lambda _phase: call.cancelled.set()
        with use_context(call):
            created = cluster.create(cluster_inputs)
        assert created.id
        assert "interrupted" in created.outs["not_ready_reason"]
        assert call.init_errors == [created.outs["not_ready_reason"]]

    def test_an_error_of_ours_while_waiting_keeps_the_id(
        self,
        cluster: ClusterLifecycle,
        emulator: Any,
        cluster_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def wait_until_ready(*arguments: object) -> None:
            raise RuntimeError("secret-value")

        monkeypatch.setattr(ClusterOperations, "wait_until_ready", wait_until_ready)
        with emulator.serving():
            created = cluster.create(cluster_inputs)
        assert created.id
        assert "unexpected RuntimeError" in created.outs["not_ready_reason"]
        assert "secret-value" not in created.outs["not_ready_reason"]

    def test_a_failed_update_keeps_what_was_known(
        self,
        cluster: ClusterLifecycle,
        emulator: Any,
        cluster_inputs: Properties,
    ) -> None:
        with emulator.serving():
            inputs = cluster.check({}, cluster_inputs).inputs
            created = cluster.create(inputs)
        emulator.fault("GET", "^/compute/clusters/", status=401, skip=1, count=1, body={})
        call = emulator.call()
        with use_context(call):
            updated = cluster.update(
                created.id, _state(created.outs), _doubles({**inputs, "num_gpus": 24})
            )
        assert updated.outs is not None
        assert updated.outs["kube_config"] == created.outs["kube_config"]
        assert (updated.outs["ready"], updated.outs["num_gpus"]) == (False, 24)
        assert "401" in call.init_errors[0]

    @pytest.mark.parametrize(
        "fault", [{"drop": "after"}, {"drop": "before"}, {"status": 503, "body": {}}], ids=str
    )
    def test_every_fault_of_a_create_converges(
        self,
        cluster: ClusterLifecycle,
        emulator: Any,
        cluster_inputs: Properties,
        fault: Properties,
    ) -> None:
        emulator.fault("POST", "^/compute/clusters$", **fault)
        with emulator.serving():
            if fault == {"drop": "after"}:
                created = cluster.create(cluster_inputs)
            else:
                with pytest.raises(UnknownOutcome):
                    cluster.create(cluster_inputs)
        if fault != {"drop": "after"}:
            with emulator.serving():
                created = cluster.create(cluster_inputs)
        (found,) = emulator.objects("clusters")
        assert found["id"] == created.id

    def test_a_process_that_died_while_waiting_converges(
        self, cluster: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        call = emulator.call()

        def die(_phase: str) -> None:
            raise KeyboardInterrupt

        call.on_progress = die
        with use_context(call), pytest.raises(KeyboardInterrupt):
            cluster.create(cluster_inputs)
        assert [intent.urn for intent in emulator.intents.list_all()] == [call.urn]
        with emulator.serving():
            created = cluster.create(cluster_inputs)
        (found,) = emulator.objects("clusters")
        assert found["id"] == created.id
        assert len(emulator.requests("POST")) == 1

    def test_the_intent_goes_when_the_state_is_seen_to_know_the_id(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        with emulator.serving("data"):
            created = volume.create(volume_inputs)
        assert [intent.id for intent in emulator.intents.list_all()] == [created.id]
        with emulator.serving("data"):
            volume.read(created.id, _state(created.outs))
        assert emulator.intents.list_all() == []


class TestStockHost:
    """No engine sets a call: the defaults hold, and the intents are in the project."""

    def test_a_whole_life(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        created = volume.create(volume_inputs)
        assert created.outs["ready"] is True
        state = _state(created.outs)
        assert volume.diff(created.id, state, volume_inputs).changes is False
        volume.update(created.id, state, {**volume_inputs, "size_tib": 3.0})
        volume.delete(created.id, state)
        assert emulator.objects("volumes") == []

    def test_a_second_resource_of_that_name_does_not_take_the_first(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        created = volume.create(volume_inputs)
        with pytest.raises(GpuformError, match=created.id):
            volume.create(volume_inputs)
        assert len(emulator.objects("volumes")) == 1

    def test_the_configuration_counts_where_the_environment_is_silent(
        self, volume: SharedVolumeLifecycle, emulator: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        key = {"together:apiKey": "emulator-admin-key"}
        monkeypatch.setenv("TOGETHER_API_KEY", "")
        volume.configure(ConfigureRequest(Config(key, "project")))
        assert volume.read("never-was", {}).id == ""
        monkeypatch.setenv("TOGETHER_API_KEY", "wrong")
        with pytest.raises(GpuformError, match="401"):
            volume.read("never-was", {})


class TestEdge:
    @pytest.mark.parametrize("lifecycle", [ClusterLifecycle(), SharedVolumeLifecycle()])
    def test_an_unexpected_error_shows_its_type_and_urn_only(
        self,
        lifecycle: Lifecycle[Any, Any],
        emulator: Any,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        secret = "secret-value".upper()  # the traceback's source lines must not have it

        def read(*arguments: object) -> None:
            raise ValueError(secret)

        monkeypatch.setattr(lifecycle.operations, "read", read)
        unexpected = pytest.raises(GpuformError, match="unexpected ValueError")
        with caplog.at_level("DEBUG"), emulator.serving("x"), unexpected as caught:
            lifecycle.read("id", {})
        assert "urn:pulumi:dev::project::type::x" in str(caught.value)
        assert secret not in str(caught.value) + caplog.text
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__

    def test_inputs_that_no_check_saw_are_refused_by_path(
        self, cluster: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        with emulator.serving(), pytest.raises(GpuformError, match="num_gpus: "):
            cluster.create({**cluster_inputs, "num_gpus": 12.0})
        assert emulator.requests() == []

    def test_results_do_not_share_what_was_given(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        given = copy.deepcopy(volume_inputs)
        with emulator.serving():
            created = volume.create(given)
            created.outs["__provider"] = "added by the host"
        assert given == volume_inputs
