"""Test the lifecycle protocol as hosts use it: plain dicts, doubles, unknowns, and `__provider`."""

import copy
import json
from dataclasses import replace
from typing import Any

import pulumi
import pytest
from pulumi.dynamic import Config, ConfigureRequest
from support.platforms.provider_contexts import change_context

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.errors import GpuformError, NameTaken, UnknownOutcome
from gpuform.providers.lifecycle import Lifecycle, guarding, protocol
from gpuform.providers.records import EphemeralRecords, Intent, Intents, StoredObjects
from gpuform.providers.records import intents as intents_module
from gpuform.providers.together import client as client_module
from gpuform.providers.together.cluster import ClusterLifecycle, ClusterOperations
from gpuform.providers.together.shared_volume import SharedVolumeLifecycle
from gpuform.schemas.changes import Action

Properties = dict[str, Any]


def _convert_numbers_to_doubles(value: Any) -> Any:
    """Return the values as Pulumi's wire does: every number a double, no null at the top."""
    return json.loads(json.dumps(value), parse_int=float)


def _convert_to_state(outs: Properties) -> Properties:
    """Return outputs in the form of the next operation's state."""
    return {**_convert_numbers_to_doubles(outs), "__provider": "pickled"}


@pytest.fixture
def volume() -> SharedVolumeLifecycle:
    return SharedVolumeLifecycle()


@pytest.fixture
def cluster() -> ClusterLifecycle:
    return ClusterLifecycle()


class TestCheck:
    def test_every_failure_has_its_path(
        self, cluster: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        wrong = {**cluster_inputs, "num_gpus": 12.0, "billing_type": "RESERVED", "gpu_typ": "x"}
        failures = {f.property: f.reason for f in cluster.check({}, wrong).failures}
        assert failures.keys() == {"num_gpus", "duration_days", "gpu_typ"}
        assert "8 or 16" in failures["num_gpus"]
        assert "gpu_type" in failures["gpu_typ"]
        assert emulator.list_requests() == []

    def test_inputs_are_normalized_and_typed(
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
    def create_volume(cls, **changes: Any) -> Properties:
        computed = {"ready", "status", "gpu_worker_nodes"}
        return {k: v for k, v in cls.OLD.items() if k not in computed} | changes

    @pytest.fixture(autouse=True)
    def _no_client(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*arguments: object) -> None:
            pytest.fail("diff built a client")

        monkeypatch.setattr(client_module.TogetherClient, "__init__", refuse)
        monkeypatch.setattr(ClusterOperations, "__init__", refuse)

    def test_equal_inputs_have_no_diff(self, cluster: ClusterLifecycle) -> None:
        result = cluster.diff("c1", self.OLD, self.create_volume())
        assert (result.changes, result.replaces) == (False, [])
        assert cluster.list_changes(self.OLD, self.create_volume()) == []

    def test_a_mutable_change_updates_in_place(self, cluster: ClusterLifecycle) -> None:
        result = cluster.diff("c1", self.OLD, self.create_volume(num_gpus=24.0))
        assert (result.changes, result.replaces) == (True, [])
        (change,) = cluster.list_changes(self.OLD, self.create_volume(num_gpus=24.0))
        assert (change.path, change.before, change.after) == ("num_gpus", 16, 24)

    @pytest.mark.parametrize("field", ["region", "gpu_type", "cluster_name", "volume_id"])
    def test_a_replacement_deletes_first(self, cluster: ClusterLifecycle, field: str) -> None:
        result = cluster.diff("c1", self.OLD, self.create_volume(**{field: "B200_SXM"}))
        assert (result.changes, result.replaces) == (True, [field])
        assert result.delete_before_replace is True

    def test_undeclared_fields_are_not_compared(self, cluster: ClusterLifecycle) -> None:
        old = {**self.OLD, "driver_version": "CUDA_12_6_560", "created_at": "then"}
        assert cluster.diff("c1", old, self.create_volume()).changes is False

    def test_an_unknown_immutable_value_replaces(self, cluster: ClusterLifecycle) -> None:
        unknown = pulumi.output.Unknown()  # type: ignore[no-untyped-call]
        result = cluster.diff("c1", self.OLD, self.create_volume(volume_id=unknown))
        assert result.replaces == ["volume_id"]

    def test_a_resource_that_is_not_ready_is_waited_for(self, cluster: ClusterLifecycle) -> None:
        old = {**self.OLD, "ready": False, "not_ready_reason": "it was interrupted"}
        result = cluster.diff("c1", old, self.create_volume())
        assert (result.changes, result.replaces) == (True, [])
        (change,) = cluster.list_changes(old, self.create_volume())
        assert (change.path, change.action) == ("ready", Action.UPDATE)
        assert change.because == "resume waiting: it was interrupted"

    def test_any_other_change_waits_for_readiness_too(self, cluster: ClusterLifecycle) -> None:
        old = {**self.OLD, "ready": False}
        paths = [
            change.path for change in cluster.list_changes(old, self.create_volume(num_gpus=24.0))
        ]
        assert paths == ["num_gpus"]

    def test_changes_that_wait_for_people_are_reported_unless_replaced(
        self, cluster: ClusterLifecycle
    ) -> None:
        old = {**self.OLD, "ready": False, "status": "Degraded"}
        paths = [
            change.path for change in cluster.list_changes(old, self.create_volume(num_gpus=24.0))
        ]
        assert paths == ["num_gpus", "ready"]
        paths = [
            change.path
            for change in cluster.list_changes(old, self.create_volume(gpu_type="H200_SXM"))
        ]
        assert paths == ["gpu_type"]

    def test_a_missing_provider_is_restored(self, cluster: ClusterLifecycle) -> None:
        old = {key: value for key, value in self.OLD.items() if key != "__provider"}
        result = cluster.diff("c1", old, self.create_volume())
        assert (result.changes, result.replaces) == (True, [])

    def test_an_extra_provider_is_no_change(self, cluster: ClusterLifecycle) -> None:
        new = {key: value for key, value in self.create_volume().items() if key != "__provider"}
        assert cluster.diff("c1", self.OLD, new).changes is False

    def test_a_shrink_below_the_platforms_size_is_refused(
        self, volume: SharedVolumeLifecycle, call: ProviderContext, volume_inputs: Properties
    ) -> None:
        observed = {**volume_inputs, "size_tib": 5.0, "ready": True}
        with use_context(call), pytest.raises(GpuformError, match="size_tib cannot shrink"):
            volume.diff("v1", observed, volume_inputs)
        change_context(call, refreshing=True)
        with use_context(call):
            assert volume.diff("v1", observed, volume_inputs).changes is True

    def test_a_required_field_without_observed_value_is_accepted_after_an_import(
        self, volume: SharedVolumeLifecycle, volume_inputs: Properties
    ) -> None:
        imported = {key: value for key, value in volume_inputs.items() if key != "region"}
        result = volume.diff("v1", imported, volume_inputs)
        assert (result.changes, result.replaces) == (True, [])

    def test_a_diff_does_not_modify_its_arguments(self, cluster: ClusterLifecycle) -> None:
        old, new = copy.deepcopy(self.OLD), self.create_volume(num_gpus=24.0)
        before = copy.deepcopy((old, new))
        cluster.diff("c1", old, new)
        assert (old, new) == before


class TestVolume:
    @pytest.mark.exact_waits
    def test_create_read_update_and_delete(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        with emulator.use_context_of():
            inputs = {**volume.check({}, volume_inputs).inputs, "__provider": "pickled"}
        with emulator.use_context_of():
            created = volume.create(_convert_numbers_to_doubles(inputs))
        assert created.outs == {
            "volume_name": "data",
            "size_tib": 2,
            "region": "us-central-8",
            "status": "available",
            "ready": True,
        }
        assert isinstance(created.outs["size_tib"], int)
        assert emulator.reported.progress[0] == "scheduled (1s)"
        state = _convert_to_state(created.outs)
        with emulator.use_context_of():
            read = volume.read(created.id, state)
        assert (read.id, read.outs) == (created.id, created.outs)
        assert read.inputs == {"volume_name": "data", "size_tib": 2, "region": "us-central-8"}
        with emulator.use_context_of():
            grown = volume.update(created.id, state, {**inputs, "size_tib": 3.0})
        assert grown.outs is not None
        assert (grown.outs["size_tib"], grown.outs["ready"]) == (3, True)
        (put,) = emulator.list_requests("PUT")
        assert put["body"] == {"volume_id": created.id, "size_tib": 3}
        with emulator.use_context_of():
            volume.delete(created.id, _convert_to_state(grown.outs))
        assert emulator.list_objects("volumes") == []
        assert emulator.intents.list_all() == []

    def test_a_second_delete_is_no_error(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        with emulator.use_context_of():
            volume.delete("never-was", volume_inputs)

    def test_a_deleted_volume_is_read_as_gone(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        with emulator.use_context_of():
            read = volume.read("never-was", volume_inputs)
        assert (read.id, read.outs) == ("", {})

    def test_shrinking_is_refused_without_a_request(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        with emulator.use_context_of(), pytest.raises(GpuformError, match="cannot shrink"):
            volume.update("v1", {**volume_inputs, "size_tib": 5.0}, volume_inputs)
        assert emulator.list_requests() == []

    def test_a_volume_in_use_is_not_deleted(
        self,
        volume: SharedVolumeLifecycle,
        cluster: ClusterLifecycle,
        emulator: Any,
        volume_inputs: Properties,
        cluster_inputs: Properties,
    ) -> None:
        with emulator.use_context_of("data"):
            created = volume.create(volume_inputs)
        with emulator.use_context_of():
            cluster.create({**cluster_inputs, "volume_id": created.id})
        with (
            emulator.use_context_of("data"),
            pytest.raises(GpuformError, match="it is attached to a cluster"),
        ):
            volume.delete(created.id, _convert_to_state(created.outs))
        assert emulator.list_requests("DELETE") == []
        assert len(emulator.list_objects("volumes")) == 1


class TestNeverLost:
    def test_a_failure_while_waiting_keeps_the_id(
        self, cluster: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        path = "^/compute/clusters/"
        emulator.add_fault("GET", path, status_override="Degraded", count=100)
        call = emulator.create_context()
        with use_context(call):
            created = cluster.create(cluster_inputs)
        assert created.id == emulator.list_objects("clusters")[0]["id"]
        assert created.outs["ready"] is False
        assert created.outs["not_ready_reason"].startswith(
            "cluster train: some of it does not work (Degraded)"
        )
        assert (created.outs["status"], created.outs["num_gpus"]) == ("Degraded", 16)
        assert call.progress.init_errors == [created.outs["not_ready_reason"]]

    @pytest.mark.exact_waits
    def test_a_resumed_wait_sends_no_create_and_becomes_ready(
        self, cluster: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        with emulator.use_context_of():
            inputs = {**cluster.check({}, cluster_inputs).inputs, "__provider": "pickled"}
        call = emulator.create_context(timeout=60.0)
        with use_context(call):
            created = cluster.create(_convert_numbers_to_doubles(inputs))
        assert "not done after 1m00s" in created.outs["not_ready_reason"]
        state = _convert_to_state(created.outs)
        assert cluster.diff(created.id, state, inputs).changes is True
        call = emulator.create_context()
        with use_context(call):
            updated = cluster.update(created.id, state, _convert_numbers_to_doubles(inputs))
        assert updated.outs is not None
        assert updated.outs["ready"] is True
        assert "not_ready_reason" not in updated.outs
        assert call.progress.init_errors == []
        assert emulator.list_requests("PUT") == []
        assert cluster.diff(created.id, _convert_to_state(updated.outs), inputs).changes is False

    def test_an_interruption_keeps_the_id(
        self, cluster: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        call = emulator.create_context()
        change_context(call, on_progress=lambda _phase: call.cancelled.set())
        with use_context(call):
            created = cluster.create(cluster_inputs)
        assert created.id
        assert "interrupted" in created.outs["not_ready_reason"]
        assert call.progress.init_errors == [created.outs["not_ready_reason"]]

    def test_an_internal_error_while_waiting_keeps_the_id(
        self,
        cluster: ClusterLifecycle,
        emulator: Any,
        cluster_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def wait_until_ready(*arguments: object) -> None:
            raise RuntimeError("secret-value")

        monkeypatch.setattr(ClusterOperations, "wait_until_ready", wait_until_ready)
        with emulator.use_context_of():
            created = cluster.create(cluster_inputs)
        assert created.id
        assert "unexpected RuntimeError" in created.outs["not_ready_reason"]
        assert "secret-value" not in created.outs["not_ready_reason"]

    def test_a_failed_update_keeps_the_state(
        self,
        cluster: ClusterLifecycle,
        emulator: Any,
        cluster_inputs: Properties,
    ) -> None:
        with emulator.use_context_of():
            inputs = cluster.check({}, cluster_inputs).inputs
            created = cluster.create(inputs)
        emulator.add_fault("GET", "^/compute/clusters/", status=401, skip=2, count=1, body={})
        call = emulator.create_context()
        with use_context(call):
            updated = cluster.update(
                created.id,
                _convert_to_state(created.outs),
                _convert_numbers_to_doubles({**inputs, "num_gpus": 24}),
            )
        assert updated.outs is not None
        assert updated.outs["kube_config"] == created.outs["kube_config"]
        assert (updated.outs["ready"], updated.outs["num_gpus"]) == (False, 24)
        assert "401" in call.progress.init_errors[0]

    @pytest.mark.parametrize(
        "fault", [{"drop": "after"}, {"drop": "before"}, {"status": 503, "body": {}}], ids=str
    )
    def test_a_create_converges_after_every_fault(
        self,
        cluster: ClusterLifecycle,
        emulator: Any,
        cluster_inputs: Properties,
        fault: Properties,
    ) -> None:
        emulator.add_fault("POST", "^/compute/clusters$", **fault)
        with emulator.use_context_of():
            if fault == {"drop": "after"}:
                created = cluster.create(cluster_inputs)
            else:
                with pytest.raises(UnknownOutcome):
                    cluster.create(cluster_inputs)
        if fault != {"drop": "after"}:
            with emulator.use_context_of():
                created = cluster.create(cluster_inputs)
        (found_object,) = emulator.list_objects("clusters")
        assert found_object["id"] == created.id

    def test_a_create_killed_while_waiting_converges(
        self, cluster: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        call = emulator.create_context()

        def die(_phase: str) -> None:
            raise KeyboardInterrupt

        change_context(call, on_progress=die)
        with use_context(call), pytest.raises(KeyboardInterrupt):
            cluster.create(cluster_inputs)
        assert [intent.urn for intent in emulator.intents.list_all()] == [call.urn]
        with emulator.use_context_of():
            created = cluster.create(cluster_inputs)
        (found_object,) = emulator.list_objects("clusters")
        assert found_object["id"] == created.id
        assert len(emulator.list_requests("POST")) == 1

    def test_the_intent_is_removed_once_the_state_has_the_id(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        with emulator.use_context_of("data"):
            created = volume.create(volume_inputs)
        assert [intent.id for intent in emulator.intents.list_all()] == [created.id]
        with emulator.use_context_of("data"):
            volume.read(created.id, _convert_to_state(created.outs))
        assert emulator.intents.list_all() == []

    @pytest.mark.parametrize("id_", [None, "c2"])
    def test_the_intent_of_a_killed_replacement_stays_while_the_state_has_the_old_object(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties, id_: str
    ) -> None:
        """Pulumi creates before it deletes on request; only the record knows the new object."""
        with emulator.use_context_of("data"):
            created = volume.create(volume_inputs)
        (old,) = emulator.intents.list_all()
        new = replace(old, name="data-2", id=id_)
        emulator.intents.record(new)
        state = _convert_to_state(created.outs)
        with emulator.use_context_of("data"):
            volume.read(created.id, state)
        assert emulator.intents.list_all() == [new]
        with emulator.use_context_of("data"):
            volume.update(created.id, state, {**volume_inputs, "size_tib": 3.0})
        with emulator.use_context_of("data"):
            volume.delete(created.id, state)
        assert emulator.intents.list_all() == [new]

    def test_a_missing_object_resolves_no_create_of_its_name(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        """A replacement of the same name was killed after the old object had been deleted."""
        urn = emulator.create_context("data").urn
        intent = Intent(urn, "together", "SharedVolume", "data", "", 1.0)
        emulator.intents.record(intent)
        with emulator.use_context_of("data"):
            assert volume.read("c1", volume_inputs).id == ""
        with emulator.use_context_of("data"):
            volume.delete("c1", volume_inputs)
        assert emulator.intents.list_all() == [intent]


class StateRecords(EphemeralRecords):
    """Records of a stack whose state has these resources."""

    def __init__(self, *stored: tuple[str, str]) -> None:
        super().__init__()
        self.stored = stored
        self.reading_count = 0

    def list_stored_objects(self) -> StoredObjects:
        self.reading_count += 1
        return self.stored


class TestSharedObject:
    """Pulumi imports an object of the program under a new name, then deletes the old name's."""

    OLD = "urn:pulumi:dev::p::gpuform:together:SharedVolume::old"
    NEW = "urn:pulumi:dev::p::parent:T$gpuform:together:SharedVolume::new"

    @pytest.mark.parametrize(
        ("stored_urns", "is_refused"),
        [
            ([OLD, NEW], True),
            ([OLD.replace("gpuform:", "pulumi-python:dynamic/gpuform.", 1), NEW], True),
            ([OLD], False),
            ([NEW], False),  # an alias, which the state does not have yet
            ([OLD, "urn:pulumi:dev::p::gpuform:together:Cluster::new"], False),
        ],
    )
    def test_an_object_of_two_resources_is_not_deleted(
        self,
        volume: SharedVolumeLifecycle,
        emulator: Any,
        volume_inputs: Properties,
        stored_urns: list[str],
        is_refused: bool,
    ) -> None:
        with emulator.use_context_of("old"):
            created = volume.create(volume_inputs)
        stored = StateRecords(*((urn, created.id) for urn in stored_urns))
        context = emulator.create_context("old", is_pulumi_host=True)
        change_context(context, urn=self.OLD, intents=Intents(stored))
        with use_context(context):
            if is_refused:
                with pytest.raises(GpuformError, match="is also the object of 'new'") as caught:
                    volume.delete(created.id, _convert_to_state(created.outs))
                assert f"pulumi state delete '{self.OLD}'" in str(caught.value)
            else:
                volume.delete(created.id, _convert_to_state(created.outs))
        assert bool(emulator.list_objects("volumes")) is is_refused

    def _delete(self, lifecycle: Lifecycle[Any, Any], context: ProviderContext, id_: str) -> None:
        change_context(context, urn=self.OLD)
        with use_context(context):
            lifecycle.delete(id_, {"volume_name": "v", "region": "us-central-8", "size_tib": 1})

    @pytest.mark.parametrize(("is_plugin", "reading_count"), [(False, 2), (True, 200)])
    def test_200_deletions_that_follow_each_other_read_the_state_twice(
        self,
        volume: SharedVolumeLifecycle,
        emulator: Any,
        monkeypatch: pytest.MonkeyPatch,
        is_plugin: bool,
        reading_count: int,
    ) -> None:
        """The first deletion of a process reads the state to look for interrupted creates, too."""
        deleted_ids: list[str] = []
        monkeypatch.setattr(guarding, "_decided", [])
        monkeypatch.setattr(intents_module, "MAX_SERIES_S", 3600.0)
        monkeypatch.setattr(
            protocol, "delete_and_confirm", lambda *arguments: deleted_ids.append(arguments[2])
        )
        monkeypatch.setattr(protocol, "check_before_deletion", lambda *_arguments: None)
        ids = [f"v-{number}" for number in range(200)]
        stored = StateRecords(*((self.OLD, id_) for id_ in ids))
        context = emulator.create_context("old", is_pulumi_host=True, can_store_unready=is_plugin)
        change_context(context, intents=Intents(stored))
        for id_ in ids:
            self._delete(volume, context, id_)
        assert deleted_ids == ids
        assert stored.reading_count == reading_count

    @pytest.mark.parametrize("event", ["import", "failed deletion", "age", ""])
    def test_a_deletion_reads_the_state_again_if_an_import_may_have_changed_the_owners(
        self,
        volume: SharedVolumeLifecycle,
        emulator: Any,
        volume_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
        event: str,
    ) -> None:
        with emulator.use_context_of("old"):
            ids = [volume.create({**volume_inputs, "volume_name": name}).id for name in ("a", "b")]
        stored = StateRecords(*((self.OLD, id_) for id_ in ids))
        max_series_s = 0.0 if event == "age" else 3600.0
        monkeypatch.setattr(intents_module, "MAX_SERIES_S", max_series_s)
        context = emulator.create_context("old", is_pulumi_host=True, can_store_unready=False)
        change_context(context, intents=Intents(stored))
        self._delete(volume, context, ids[0])
        if event == "import":
            with use_context(context):
                assert volume.read(ids[1], {}).id == ids[1]
        elif event == "failed deletion":
            emulator.add_fault("DELETE", "/volumes/", status=403)
            with pytest.raises(GpuformError):
                self._delete(volume, context, ids[1])
            emulator.clear_faults()
        stored.stored = ((self.OLD, ids[1]), (self.NEW, ids[1]))
        if event:
            with pytest.raises(GpuformError, match="is also the object of 'new'"):
                self._delete(volume, context, ids[1])
        else:
            self._delete(volume, context, ids[1])
        assert len(emulator.list_objects("volumes")) == bool(event)

    @pytest.mark.parametrize("is_in_state", [True, False])
    def test_a_replacement_does_not_adopt_the_object_that_it_replaces(
        self,
        volume: SharedVolumeLifecycle,
        emulator: Any,
        volume_inputs: Properties,
        is_in_state: bool,
    ) -> None:
        """Pulumi would delete the adopted object: the record of its create may still be there."""
        with emulator.use_context_of("old"):
            created = volume.create(volume_inputs)
        (intent,) = emulator.intents.list_all()
        records = StateRecords(*([(self.OLD, created.id)] if is_in_state else []))
        intents = Intents(records)
        intents.record(replace(intent, urn=self.OLD))
        context = emulator.create_context("old", is_pulumi_host=True)
        change_context(context, urn=self.OLD, intents=intents)
        with use_context(context):
            if is_in_state:
                with pytest.raises(NameTaken, match="the object that this run replaces"):
                    volume.create(volume_inputs)
            else:  # the run was killed before Pulumi had stored the id
                assert volume.create(volume_inputs).id == created.id

    def test_a_create_of_the_name_advises_an_alias_and_no_import(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        with emulator.use_context_of("old"):
            created = volume.create(volume_inputs)
        context = emulator.create_context("new")
        change_context(context, urn=self.NEW, intents=Intents(StateRecords((self.OLD, created.id))))
        with use_context(context), pytest.raises(NameTaken, match="object of 'old'") as caught:
            volume.create(volume_inputs)
        assert "pulumi.Alias(name='old')" in str(caught.value)
        assert "import" not in str(caught.value)

    @pytest.mark.parametrize("is_stored", [True, False])
    def test_an_earlier_create_whose_object_the_state_has_advises_no_import(
        self,
        volume: SharedVolumeLifecycle,
        emulator: Any,
        volume_inputs: Properties,
        is_stored: bool,
    ) -> None:
        stored = [("urn:pulumi:dev::p::gpuform:together:SharedVolume::renamed", "c1")]
        intents = Intents(StateRecords(*(stored if is_stored else [])))
        intents.record(Intent(self.OLD, "together", "SharedVolume", "earlier", "", 1.0, id="c1"))
        context = emulator.create_context("old")
        change_context(context, urn=self.OLD, intents=intents)
        with use_context(context):
            if is_stored:
                assert volume.recover_create(volume_inputs) is None
            else:
                with pytest.raises(UnknownOutcome, match=r"this object as c1, .* another object"):
                    volume.recover_create(volume_inputs)


class TestStockHost:
    """No engine sets a context: the defaults apply, and intents are in the project."""

    def test_create_read_update_and_delete(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        created = volume.create(volume_inputs)
        assert created.outs["ready"] is True
        state = _convert_to_state(created.outs)
        assert volume.diff(created.id, state, volume_inputs).changes is False
        volume.update(created.id, state, {**volume_inputs, "size_tib": 3.0})
        volume.delete(created.id, state)
        assert emulator.list_objects("volumes") == []

    def test_a_second_resource_of_the_same_name_does_not_adopt_the_first(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        created = volume.create(volume_inputs)
        with pytest.raises(GpuformError, match=created.id):
            volume.create(volume_inputs)
        assert len(emulator.list_objects("volumes")) == 1

    def test_the_configuration_is_used_if_the_environment_is_unset(
        self, volume: SharedVolumeLifecycle, emulator: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        key = {"together:apiKey": "emulator-admin-key"}
        monkeypatch.setenv("TOGETHER_API_KEY", "")
        volume.configure(ConfigureRequest(Config(key, "project")))
        assert volume.read("never-was", {}).id == ""
        monkeypatch.setenv("TOGETHER_API_KEY", "wrong")
        volume.configure(ConfigureRequest(Config(key, "project")))
        with pytest.raises(GpuformError, match="401"):
            volume.read("never-was", {})


class TestUnexpectedErrors:
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
        with caplog.at_level("DEBUG"), emulator.use_context_of("x"), unexpected as caught:
            lifecycle.read("id", {})
        assert "urn:pulumi:dev::project::type::x" in str(caught.value)
        assert secret not in str(caught.value) + caplog.text
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__

    def test_unchecked_inputs_are_refused_by_path(
        self, cluster: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        with emulator.use_context_of(), pytest.raises(GpuformError, match="num_gpus: "):
            cluster.create({**cluster_inputs, "num_gpus": 12.0})
        assert emulator.list_requests() == []

    def test_results_share_no_objects_with_the_inputs(
        self, volume: SharedVolumeLifecycle, emulator: Any, volume_inputs: Properties
    ) -> None:
        inputs = copy.deepcopy(volume_inputs)
        with emulator.use_context_of():
            created = volume.create(inputs)
            created.outs["__provider"] = "added by the host"
        assert inputs == volume_inputs
