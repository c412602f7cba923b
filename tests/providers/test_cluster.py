"""Test Together's cluster: readiness, requests, drift and errors."""

import base64
from typing import Any

import pytest
import yaml

from gpuform.providers.context import use_context
from gpuform.providers.emulator.together import MEMBER_KEY
from gpuform.providers.errors import (
    AuthError,
    GpuformError,
    MissingCredentials,
    OutOfCapacity,
    PermissionDenied,
)
from gpuform.providers.operations import Settings
from gpuform.providers.together.client import get_client
from gpuform.providers.together.cluster import (
    ClusterLifecycle,
    decode_kube_config,
    evaluate_cluster,
)
from gpuform.providers.together.shared_volume import SharedVolumeLifecycle
from gpuform.schemas.together import wire

Properties = dict[str, Any]


def _parse_cluster(status: str = "Ready", nodes: int = 2, **fields: Any) -> wire.Cluster:
    workers = [{"node_id": f"n{at}", "host_name": f"host-{at}"} for at in range(nodes)]
    defaults = {"cluster_id": "c1", "num_gpus": 16, "status": status, "gpu_worker_nodes": workers}
    return wire.Cluster.model_validate({**defaults, **fields})


class TestReady:
    def test_ready_requires_the_status_and_the_nodes(self) -> None:
        assert evaluate_cluster(_parse_cluster(), 16).is_done
        assert not evaluate_cluster(_parse_cluster(nodes=1), 16).is_done
        assert not evaluate_cluster(_parse_cluster(), 24).is_done
        assert evaluate_cluster(_parse_cluster(nodes=1), 16).phase == "Ready with 1 of 2 nodes"

    def test_nodes_being_removed_do_not_count(self) -> None:
        leaving = [{"marked_for_deletion": True}, {"deleted_at": "2026-01-01T00:00:00Z"}, {}, {}]
        cluster = _parse_cluster(gpu_worker_nodes=leaving)
        assert evaluate_cluster(cluster, 16).is_done

    @pytest.mark.parametrize("status", ["Scheduled", "InstallingDrivers", "SomethingNew", ""])
    def test_other_statuses_are_waited_for(self, status: str) -> None:
        cluster = evaluate_cluster(_parse_cluster(status), 16)
        assert (cluster.is_done, cluster.failure) == (False, None)

    @pytest.mark.parametrize(
        ("status", "message"),
        [
            ("Deleting", "its status is Deleting"),
            ("Degraded", "some of it does not work (Degraded): look at its nodes"),
            ("Paused", "Together has paused it (Paused)"),
            ("OnDemandComputePaused", "no credit is left, so Together has paused"),
        ],
    )
    def test_final_statuses_fail(self, status: str, message: str) -> None:
        assert (evaluate_cluster(_parse_cluster(status), 16).failure or "").startswith(message)

    @pytest.mark.parametrize("phase", ["ACCEPTANCE_TESTS_FAILED", "NCCL_TESTS_FAILED"])
    def test_failed_acceptance_tests_fail(self, phase: str) -> None:
        failed = {"phase": f"CLUSTER_PHASE_{phase}", "transition_time": "2026-01-01T00:02:00Z"}
        before = {"phase": "CLUSTER_PHASE_X", "transition_time": "2026-01-01T00:01:00Z"}
        after = {"phase": "CLUSTER_PHASE_Y", "transition_time": "2026-01-01T00:03:00Z"}
        status = "RunningAcceptanceTests"
        cluster = evaluate_cluster(_parse_cluster(status, phase_transitions=[failed, before]), 16)
        assert cluster.failure == f"it is in CLUSTER_PHASE_{phase}"
        cluster = evaluate_cluster(
            _parse_cluster(status, phase_transitions=[failed, before, after]), 16
        )
        assert cluster.failure is None

    def test_a_failed_node_fails(self) -> None:
        failed = {
            "host_name": "host-7",
            "phase_transitions": [{"phase": "NODE_PHASE_FAILED", "transition_time": ""}],
        }
        cluster = evaluate_cluster(
            _parse_cluster("InstallingDrivers", gpu_worker_nodes=[failed]), 16
        )
        assert cluster.failure == "its node host-7 failed"

    def test_missing_fields_are_not_ready(self) -> None:
        cluster = evaluate_cluster(
            wire.Cluster(cluster_id="c1", driver_version="CUDA_12_6_560"), 16
        )
        assert cluster.value.inputs["cuda_version"] == "12.6"
        assert cluster.value.inputs["num_gpus"] is None
        assert cluster.value.outputs.driver_version == "CUDA_12_6_560"
        assert cluster.phase == "no status"


class TestKubeConfig:
    def test_the_kubeconfig_is_decoded(self, ready: tuple[str, Properties, Properties]) -> None:
        _, outs, _ = ready
        assert yaml.safe_load(outs["kube_config"])["kind"] == "Config"
        assert "kube_config" in ClusterLifecycle.list_secret_names()

    @pytest.mark.parametrize(
        ("text", "decoded"),
        [
            ("", None),
            (base64.b64encode(b"apiVersion: v1\n").decode(), "apiVersion: v1\n"),
            ("apiVersion: v1\n", "apiVersion: v1\n"),
        ],
    )
    def test_kubeconfigs_are_decoded_from_either_form(self, text: str, decoded: str | None) -> None:
        assert decode_kube_config(text) == decoded


class TestScaling:
    @pytest.mark.parametrize(("gpus", "nodes"), [(24, 3), (8, 1)])
    def test_only_the_changed_field_is_sent(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        ready: tuple[str, Properties, Properties],
        gpus: int,
        nodes: int,
    ) -> None:
        id_, outs, inputs = ready
        with emulator.use_context_of():
            updated = lifecycle.update(id_, outs, {**inputs, "num_gpus": float(gpus)})
        assert updated.outs is not None
        assert (updated.outs["num_gpus"], updated.outs["ready"]) == (gpus, True)
        assert len(updated.outs["gpu_worker_nodes"]) == nodes
        (put,) = emulator.list_requests("PUT")
        assert put["body"] == {"num_gpus": gpus}

    @pytest.mark.slow
    def test_drift_after_a_read_is_only_the_changed_field(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        ready: tuple[str, Properties, Properties],
    ) -> None:
        id_, outs, inputs = ready
        emulator.send_as_somebody_else("PUT", f"/clusters/{id_}", {"num_gpus": 32})
        with emulator.use_context_of():
            read = lifecycle.read(id_, outs)
        assert read.inputs is not None
        assert read.inputs["num_gpus"] == 32
        assert [
            c.path for c in lifecycle.list_changes({**read.outs, "__provider": ""}, inputs)
        ] == ["num_gpus"]

    def test_a_read_after_an_update_is_no_change(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        ready: tuple[str, Properties, Properties],
    ) -> None:
        id_, outs, inputs = ready
        with emulator.use_context_of():
            read = lifecycle.read(id_, outs)
        assert read.inputs == {k: v for k, v in inputs.items() if k != "__provider"}
        assert lifecycle.diff(id_, {**read.outs, "__provider": ""}, inputs).changes is False

    def test_an_add_on_is_switched_off_and_on_in_place(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        cluster_inputs: Properties,
    ) -> None:
        board: Properties = {"add_on_type": "dashboard", "name": "board"}
        inputs = {**cluster_inputs, "add_ons": [board]}
        with emulator.use_context_of():
            inputs = {**lifecycle.check({}, inputs).inputs, "__provider": "pickled"}
            created = lifecycle.create(inputs)
            outs = created.outs
            for is_enabled in (False, True):
                config = {"dashboard": {"enabled": is_enabled}}
                inputs = {**inputs, "add_ons": [{**board, "config": config}]}
                updated = lifecycle.update(created.id, {**outs, "__provider": "pickled"}, inputs)
                outs = updated.outs or outs
                cluster = emulator.send_as_somebody_else("GET", f"/clusters/{created.id}")
                assert bool(cluster["add_ons"]) is is_enabled

    def test_automatic_scaling_is_no_drift(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        cluster_inputs: Properties,
    ) -> None:
        inputs = {**cluster_inputs, "auto_scale": True, "auto_scale_max_gpus": 64.0}
        with emulator.use_context_of():
            inputs = {**lifecycle.check({}, inputs).inputs, "__provider": "pickled"}
            created = lifecycle.create(inputs)
        emulator.send_as_somebody_else("PUT", f"/clusters/{created.id}", {"num_gpus": 32})
        emulator.advance(3600)
        with emulator.use_context_of():
            read = lifecycle.read(created.id, created.outs)
        assert read.outs["num_gpus"] == 16
        assert lifecycle.diff(created.id, {**read.outs, "__provider": ""}, inputs).changes is False

    def test_an_import_needs_only_the_id_and_plans_no_change(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        ready: tuple[str, Properties, Properties],
    ) -> None:
        id_, _, inputs = ready
        with emulator.use_context_of():
            read = lifecycle.read(id_, {})
        assert read.inputs is not None
        assert (
            read.inputs.items()
            >= {key: value for key, value in inputs.items() if key != "__provider"}.items()
        )
        assert lifecycle.diff(id_, {**read.outs, "__provider": ""}, inputs).changes is False

    @pytest.mark.parametrize(
        ("declared", "differing"),
        [
            ({"region": "us-central-4"}, ["region"]),
            ({"gpu_type": "H200_SXM"}, ["gpu_type"]),
            ({}, []),
            (
                {
                    "region": "us-central-4",
                    "on_no_capacity": {"alternatives": [{"region": "us-central-8"}]},
                },
                [],
            ),
        ],
    )
    def test_an_import_of_a_cluster_in_an_undeclared_place_would_replace_the_cluster(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        ready: tuple[str, Properties, Properties],
        declared: Properties,
        differing: list[str],
    ) -> None:
        id_, _, inputs = ready
        declared = {**inputs, **declared}
        with emulator.use_context_of():
            read = lifecycle.read(id_, declared)  # an engine sends the declaration
        difference = lifecycle.diff(id_, {**read.outs, "__provider": ""}, declared)
        assert list(difference.replaces or []) == differing


class TestVolumes:
    @pytest.fixture
    def volume_id(self, emulator: Any, volume_inputs: Properties) -> str:
        with emulator.use_context_of("data"):
            return SharedVolumeLifecycle().create(volume_inputs).id

    def test_delete_waits_until_the_volume_is_detached(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        cluster_inputs: Properties,
        volume_id: str,
    ) -> None:
        with emulator.use_context_of():
            created = lifecycle.create({**cluster_inputs, "volume_id": volume_id})
        assert emulator.list_objects("volumes")[0]["status"] == "bound"
        with emulator.use_context_of():
            lifecycle.delete(created.id, created.outs)
        assert emulator.list_objects("clusters") == []
        assert emulator.list_objects("volumes")[0]["status"] == "available"

    def test_a_volume_that_does_not_exist_is_refused_before_the_create(
        self, lifecycle: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        with (
            emulator.use_context_of(),
            pytest.raises(GpuformError, match="shared volume nope not found"),
        ):
            lifecycle.create({**cluster_inputs, "volume_id": "nope"})
        assert (emulator.list_requests("POST"), emulator.intents.list_all()) == ([], [])

    def test_a_volume_shared_with_other_clusters_is_not_waited_for(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        cluster_inputs: Properties,
        volume_id: str,
    ) -> None:
        with emulator.use_context_of():
            lifecycle.create({**cluster_inputs, "volume_id": volume_id})
        other = {**cluster_inputs, "cluster_name": "other", "volume_id": volume_id}
        with emulator.use_context_of("other"):
            created = lifecycle.create(other)
            lifecycle.delete(created.id, created.outs)
        assert len(emulator.list_objects("clusters")) == 1
        assert emulator.list_objects("volumes")[0]["status"] == "bound"
        assert not emulator.reported.warnings

    def test_a_volume_that_is_being_deleted_is_refused_before_the_create(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        cluster_inputs: Properties,
        volume_id: str,
    ) -> None:
        with emulator.use_context_of():
            get_client(Settings()).delete_volume(volume_id)
        other = {**cluster_inputs, "volume_id": volume_id}
        with emulator.use_context_of("other"), pytest.raises(GpuformError, match="it is deleting"):
            lifecycle.create(other)
        assert emulator.list_objects("clusters") == []

    def test_a_volume_that_stays_attached_is_a_warning(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        cluster_inputs: Properties,
        volume_id: str,
    ) -> None:
        with emulator.use_context_of():
            created = lifecycle.create({**cluster_inputs, "volume_id": volume_id})
            emulator.add_fault("GET", volume_id, status_override="bound", count=None)
            lifecycle.delete(created.id, created.outs)
        assert f"release of volume {volume_id}" in emulator.reported.warnings[0]


class TestErrors:
    def test_the_out_of_capacity_error_names_the_request(
        self, lifecycle: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        emulator.add_fault("POST", "^/compute/clusters$", capacity=True)
        with emulator.use_context_of(), pytest.raises(OutOfCapacity) as caught:
            lifecycle.create(cluster_inputs)
        assert "16 H100_SXM GPUs free in us-central-8" in str(caught.value)
        assert (caught.value.status, emulator.intents.list_all()) == (409, [])

    def test_a_missing_key_is_an_error(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        cluster_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.delenv("TOGETHER_API_KEY")
        with emulator.use_context_of(), pytest.raises(MissingCredentials) as caught:
            lifecycle.create(cluster_inputs)
        assert "TOGETHER_API_KEY" in str(caught.value)
        assert "gpuform config set --secret together:apiKey" in str(caught.value)
        assert emulator.list_requests() == []

    @pytest.mark.parametrize(
        ("key", "refusal"),
        [
            ("a-wrong-key", (AuthError, "set TOGETHER_API_KEY to a valid key")),
            (MEMBER_KEY, (PermissionDenied, "a Member key can only read: use an Admin key")),
        ],
    )
    def test_a_key_without_permission_is_an_error(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        cluster_inputs: Properties,
        monkeypatch: pytest.MonkeyPatch,
        key: str,
        refusal: tuple[type[GpuformError], str],
    ) -> None:
        error, message = refusal
        monkeypatch.setenv("TOGETHER_API_KEY", key)
        with emulator.use_context_of(), pytest.raises(error, match=message) as caught:
            lifecycle.create(cluster_inputs)
        assert key not in str(caught.value)
        assert emulator.list_objects("clusters") == []
        assert all(intent.is_refused for intent in emulator.intents.list_all())

    def test_refusals_quote_the_platform(
        self, lifecycle: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
    ) -> None:
        with (
            emulator.use_context_of(),
            pytest.raises(GpuformError, match=r"answered 4\d\d: .*atlantis"),
        ):
            lifecycle.create({**cluster_inputs, "region": "atlantis"})

    @pytest.mark.parametrize("body", [None, {}], ids=["own", "foreign"])
    def test_a_404_of_a_listed_cluster_is_waited_for(
        self, lifecycle: ClusterLifecycle, emulator: Any, cluster_inputs: Properties, body: Any
    ) -> None:
        emulator.add_fault("GET", "^/compute/clusters/[^/]+$", status=404, body=body, skip=2)
        call = emulator.create_context()
        with use_context(call):
            created = lifecycle.create(cluster_inputs)
        assert created.outs["ready"] is True


def test_base_urls_are_accepted_with_and_without_the_version(
    lifecycle: ClusterLifecycle, emulator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = "http://emulator.test/together"
    for url in (base, f"{base}/", f"{base}/v1", f"{base}/v1/"):
        monkeypatch.setenv("TOGETHER_BASE_URL", url)
        assert lifecycle.read("never-was", {}).id == ""
