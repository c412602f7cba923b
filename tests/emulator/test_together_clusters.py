"""Test clusters through the unchanged PyPI client."""

import base64
from datetime import datetime, timedelta
from typing import Any, get_args

import httpx
import pytest
import yaml
from cryptography import x509
from pydantic import TypeAdapter
from together import APIStatusError, BadRequestError, ConflictError, NotFoundError, Together
from together.types import Cluster
from together.types.cluster_list_regions_response import ClusterListRegionsResponse

from gpuform.providers.emulator.server import Server
from gpuform.providers.emulator.together import ADMIN_KEY

NEW_CLUSTER_SECONDS = 20 * 60
CREATION = [
    "Scheduled",
    "WaitingForControlPlaneNodes",
    "WaitingForDataPlaneNodes",
    "WaitingForSubnet",
    "WaitingForSharedVolume",
    "InstallingDrivers",
    "RunningAcceptanceTests",
    "Ready",
]
SCALING = ["WaitingForDataPlaneNodes", "InstallingDrivers", "RunningAcceptanceTests", "Ready"]


def watch_cluster(together: Together, control: Any, cluster_id: str, minutes: int) -> list[Cluster]:
    """Return the cluster at every half minute from now on."""
    observed_clusters = [together.clusters.retrieve(cluster_id)]
    for _ in range(2 * minutes):
        control.advance(30)
        observed_clusters.append(together.clusters.retrieve(cluster_id))
    return observed_clusters


def list_statuses(observed: list[Cluster]) -> list[str]:
    return list(dict.fromkeys(cluster.status for cluster in observed))


@pytest.fixture
def ready(together: Together, control: Any, cluster_args: dict[str, Any]) -> Cluster:
    cluster = together.clusters.create(**cluster_args)
    control.advance(NEW_CLUSTER_SECONDS)
    return together.clusters.retrieve(cluster.cluster_id)


def test_regions_are_complete_and_offer_what_the_document_uses(
    together: Together, emulator: Server
) -> None:
    raw = httpx.get(
        f"{emulator.url}/together/v1/compute/regions",
        headers={"Authorization": f"Bearer {ADMIN_KEY}"},
        verify=False,
    ).json()
    TypeAdapter(ClusterListRegionsResponse).validate_python(raw)
    regions = {region.name: region for region in together.clusters.list_regions().regions}
    documented = regions["us-central-8"]
    assert "H100_SXM" in documented.supported_instance_types
    assert ("12.6", "560") in {
        (driver.cuda_version, driver.nvidia_driver_version) for driver in documented.driver_versions
    }
    assert len({tuple(region.supported_instance_types) for region in regions.values()}) > 2
    ids = [driver.id for region in regions.values() for driver in region.driver_versions]
    assert len(ids) == len(set(ids))


def test_a_new_cluster_passes_every_status_in_twenty_minutes(
    together: Together, start: datetime, control: Any, cluster_args: dict[str, Any]
) -> None:
    cluster = together.clusters.create(**cluster_args)
    assert cluster.status == "Scheduled"
    assert cluster.created_at == start
    observed_clusters = watch_cluster(together, control, cluster.cluster_id, 20)
    assert list_statuses(observed_clusters) == CREATION
    assert [cluster.status for cluster in observed_clusters].index("Ready") == len(
        observed_clusters
    ) - 1
    last = observed_clusters[-1]
    assert [step.phase for step in last.phase_transitions] == [
        "CLUSTER_PHASE_SCHEDULED",
        "CLUSTER_PHASE_WAITING_FOR_CONTROL_PLANE_NODES",
        "CLUSTER_PHASE_WAITING_FOR_DATA_PLANE_NODES",
        "CLUSTER_PHASE_WAITING_FOR_SUBNET",
        "CLUSTER_PHASE_WAITING_FOR_SHARED_VOLUME",
        "CLUSTER_PHASE_INSTALLING_DRIVERS",
        "CLUSTER_PHASE_RUNNING_ACCEPTANCE_TESTS",
        "CLUSTER_PHASE_READY",
    ]
    times = [step.transition_time for step in last.phase_transitions]
    assert times == sorted(times)
    assert times[-1] == last.first_ready_at == start + timedelta(seconds=NEW_CLUSTER_SECONDS)


def test_a_cluster_fits_the_clients_model_at_any_time(
    together: Together, control: Any, emulator: Server, cluster_args: dict[str, Any]
) -> None:
    cluster = together.clusters.create(
        **cluster_args,
        cluster_type="SLURM",
        slurm_shm_size_gib=64,
        add_ons=[{"add_on_type": "dashboard", "name": "board"}],
        shared_volume={"volume_name": "data", "size_tib": 1, "region": "us-central-8"},
    )
    model = TypeAdapter(Cluster)
    model_fields = set(Cluster.model_fields)
    url = f"{emulator.url}/together/v1/compute/clusters/{cluster.cluster_id}"
    with httpx.Client(headers={"Authorization": f"Bearer {ADMIN_KEY}"}, verify=False) as client:
        for _ in range(25):
            raw = client.get(url).json()
            assert set(raw) <= model_fields
            if raw["status"] == "Scheduled":  # used by the platform, absent from the SDK's enum
                assert "Scheduled" not in get_args(Cluster.model_fields["status"].annotation)
                raw["status"] = "WaitingForControlPlaneNodes"
            model.validate_python(raw)
            strict_numbers(raw)
            control.advance(60)
    assert raw["status"] == "Ready"


def strict_numbers(raw: dict[str, Any]) -> None:
    """Reject 8.0 for 8 as a Go client does; Pydantic accepts both."""
    for node in raw["gpu_worker_nodes"]:
        assert type(node["num_gpus"]) is type(node["num_cpu_cores"]) is int
        assert type(node["memory_gib"]) is float
    assert type(raw["num_gpus"]) is type(raw["num_reserved_gpus"]) is int


def test_nodes_and_credential_come_when_their_phase_ends(
    together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    cluster = together.clusters.create(**cluster_args)
    for item in watch_cluster(together, control, cluster.cluster_id, 21):
        stage = CREATION.index(item.status)
        has_control_plane = stage > CREATION.index("WaitingForControlPlaneNodes")
        assert item.control_plane_ready is has_control_plane
        assert bool(item.kube_config) is has_control_plane
        has_workers = stage > CREATION.index("WaitingForDataPlaneNodes")
        assert len(item.gpu_worker_nodes) == (2 if has_workers else 0)
    worker = item.gpu_worker_nodes[0]
    assert [step.phase for step in worker.phase_transitions] == [
        "NODE_PHASE_PENDING",
        "NODE_PHASE_SCHEDULING",
        "NODE_PHASE_BOOTING",
        "NODE_PHASE_BOOTSTRAPPING",
        "NODE_PHASE_RUNNING",
    ]
    nodes = [*item.gpu_worker_nodes, *item.control_plane_nodes]
    assert len({node.node_id for node in nodes}) == 5


def test_the_kubeconfig_is_complete_and_never_changes(together: Together, ready: Cluster) -> None:
    config = yaml.safe_load(base64.b64decode(ready.kube_config))
    assert (config["apiVersion"], config["kind"]) == ("v1", "Config")
    (context,) = config["contexts"]
    assert context["name"] == config["current-context"] == "training"
    assert [cluster["name"] for cluster in config["clusters"]] == [context["context"]["cluster"]]
    assert [user["name"] for user in config["users"]] == [context["context"]["user"]]
    server = config["clusters"][0]["cluster"]
    assert server["server"].startswith("https://")
    x509.load_pem_x509_certificate(base64.b64decode(server["certificate-authority-data"]))
    assert len(config["users"][0]["user"]["token"]) >= 32
    assert together.clusters.retrieve(ready.cluster_id).kube_config == ready.kube_config


@pytest.mark.parametrize("name", ['a "quoted": name', "yes", "ünïcode\n"])
def test_the_kubeconfig_survives_any_name(
    together: Together, control: Any, cluster_args: dict[str, Any], name: str
) -> None:
    cluster = together.clusters.create(**{**cluster_args, "cluster_name": name})
    control.advance(NEW_CLUSTER_SECONDS)
    kube_config = together.clusters.retrieve(cluster.cluster_id).kube_config
    config = yaml.safe_load(base64.b64decode(kube_config))
    assert config["contexts"][0]["name"] == config["clusters"][0]["name"] == name


def test_two_clusters_have_two_credentials(
    together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    for _ in range(2):
        together.clusters.create(**cluster_args)
    control.advance(NEW_CLUSTER_SECONDS)
    first, second = together.clusters.list().clusters
    tokens = {
        yaml.safe_load(base64.b64decode(cluster.kube_config))["users"][0]["user"]["token"]
        for cluster in (first, second)
    }
    assert len(tokens) == 2
    assert first.cluster_name == second.cluster_name


def test_scaling_up_adds_workers_at_the_end_of_their_phase(
    together: Together, control: Any, ready: Cluster
) -> None:
    changed = together.clusters.update(ready.cluster_id, num_gpus=32)
    assert (changed.num_gpus, changed.status) == (32, "WaitingForDataPlaneNodes")
    assert changed.kube_config == ready.kube_config
    observed_clusters = watch_cluster(together, control, ready.cluster_id, 20)
    assert list_statuses(observed_clusters) == SCALING
    for cluster in observed_clusters:
        waits = cluster.status == "WaitingForDataPlaneNodes"
        assert len(cluster.gpu_worker_nodes) == (2 if waits else 4)
    before = [node.node_id for node in ready.gpu_worker_nodes]
    assert [node.node_id for node in observed_clusters[-1].gpu_worker_nodes][:2] == before
    events = observed_clusters[-1].node_lifecycle_events
    assert events is not None
    assert [event.reason for event in events] == ["TogetherScaledUp"] * 2
    assert observed_clusters[-1].first_ready_at == ready.first_ready_at


def test_scaling_down_removes_the_newest_workers(
    together: Together, control: Any, ready: Cluster
) -> None:
    together.clusters.update(ready.cluster_id, num_gpus=8)
    marked = together.clusters.retrieve(ready.cluster_id).gpu_worker_nodes
    assert [node.marked_for_deletion for node in marked] == [False, True]
    last = watch_cluster(together, control, ready.cluster_id, 20)[-1]
    assert last.status == "Ready"
    remaining_node, removed = ready.gpu_worker_nodes
    assert [node.node_id for node in last.gpu_worker_nodes] == [remaining_node.node_id]
    assert last.deleted_gpu_worker_nodes is not None
    assert [node.node_id for node in last.deleted_gpu_worker_nodes] == [removed.node_id]
    assert last.deleted_gpu_worker_nodes[0].deleted_at is not None
    assert last.node_lifecycle_events is not None
    assert [event.reason for event in last.node_lifecycle_events] == ["TogetherScaledDown"]


@pytest.mark.parametrize("sizes", [(24, 16), (8, 16), (8, 40, 24), (16, 16)])
@pytest.mark.parametrize("pause", [0, 120, 3600])
def test_any_series_of_scalings_ends_with_that_many_workers(
    together: Together, control: Any, ready: Cluster, sizes: tuple[int, ...], pause: int
) -> None:
    for size in sizes:
        together.clusters.update(ready.cluster_id, num_gpus=size)
        control.advance(pause)
    control.advance(3600)
    last = together.clusters.retrieve(ready.cluster_id)
    assert (last.status, last.num_gpus) == ("Ready", sizes[-1])
    assert len(last.gpu_worker_nodes) * 8 == sizes[-1]
    names = [node.host_name for node in last.gpu_worker_nodes]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("minute", [0, 2, 5, 12])
def test_a_cluster_may_be_scaled_during_its_creation(
    together: Together, control: Any, cluster_args: dict[str, Any], minute: int
) -> None:
    cluster = together.clusters.create(**cluster_args)
    control.advance(minute * 60)
    together.clusters.update(cluster.cluster_id, num_gpus=24)
    control.advance(3600)
    last = together.clusters.retrieve(cluster.cluster_id)
    assert last.status == "Ready"
    assert (len(last.gpu_worker_nodes), len(last.control_plane_nodes)) == (3, 3)
    assert last.kube_config


def test_an_update_without_a_change_disturbs_nothing(together: Together, ready: Cluster) -> None:
    same = together.clusters.update(ready.cluster_id, num_gpus=16, cluster_type="KUBERNETES")
    assert same == ready


def test_the_cluster_type_changes_on_the_same_nodes(
    together: Together, control: Any, ready: Cluster
) -> None:
    changed = together.clusters.update(ready.cluster_id, cluster_type="SLURM")
    assert (changed.cluster_type, changed.status) == ("SLURM", "InstallingDrivers")
    last = watch_cluster(together, control, ready.cluster_id, 10)[-1]
    assert last.status == "Ready"
    assert last.gpu_worker_nodes == ready.gpu_worker_nodes


def test_add_ons_and_configuration_are_merged(
    together: Together, cluster_args: dict[str, Any]
) -> None:
    cluster = together.clusters.create(
        **cluster_args,
        add_ons=[
            {"add_on_type": "dashboard", "name": "board"},
            {"add_on_type": "ingress", "name": "door", "config": {"ingress": {"enabled": False}}},
        ],
        cluster_config={"load_balancer": "NGINX", "observability": {"enabled": True}},
    )
    assert [add_on.name for add_on in cluster.add_ons] == ["board"]  # only enabled ones are shown
    assert cluster.cluster_config is not None
    assert cluster.cluster_config.gpu_operator_version  # the service's default
    changed = together.clusters.update(
        cluster.cluster_id,
        add_ons=[{"name": "door", "config": {"ingress": {"enabled": True}}}],
        cluster_config={"load_balancer": "ISTIO"},
    )
    assert [add_on.name for add_on in changed.add_ons] == ["board", "door"]
    assert changed.cluster_config is not None
    assert changed.cluster_config.load_balancer == "ISTIO"
    assert changed.cluster_config.observability is not None
    assert changed.cluster_config.observability.enabled
    with pytest.raises(BadRequestError, match="no add-on named 'window'"):
        together.clusters.update(cluster.cluster_id, add_ons=[{"name": "window"}])


def test_a_reserved_cluster_shows_its_reservation(
    together: Together, start: datetime, cluster_args: dict[str, Any]
) -> None:
    reserved = {**cluster_args, "billing_type": "RESERVED", "duration_days": 30}
    cluster = together.clusters.create(**reserved, num_preemptible_gpus=8)
    assert cluster.duration_hours == 720
    assert cluster.num_reserved_gpus == 16
    assert cluster.desired_preemptible_gpus == 8
    assert cluster.allocated_preemptible_gpus == 0
    assert cluster.reservation_end_time == start + timedelta(days=30)
    later = start + timedelta(days=40)
    changed = together.clusters.update(
        cluster.cluster_id, num_reserved_gpus=8, reservation_end_time=later
    )
    assert (changed.num_reserved_gpus, changed.reservation_end_time) == (8, later)


def test_preemptible_gpus_join_one_node_after_another(
    together: Together, control: Any, ready: Cluster
) -> None:
    changed = together.clusters.update(ready.cluster_id, num_preemptible_gpus=16)
    assert (changed.desired_preemptible_gpus, changed.allocated_preemptible_gpus) == (16, 0)
    assert changed.status == "Ready"
    counts = []
    for _ in range(3):
        control.advance(300)
        retrieved = together.clusters.retrieve(ready.cluster_id)
        counts.append((retrieved.allocated_preemptible_gpus, len(retrieved.gpu_worker_nodes)))
        assert (retrieved.num_gpus, retrieved.status) == (16, "Ready")
    assert counts == [(8, 3), (16, 4), (16, 4)]
    fewer = together.clusters.update(ready.cluster_id, num_preemptible_gpus=8)
    assert (fewer.desired_preemptible_gpus, fewer.allocated_preemptible_gpus) == (8, 8)


def test_preemptible_gpus_of_a_new_cluster_come_after_its_workers(
    together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    cluster = together.clusters.create(**cluster_args, num_preemptible_gpus=8)
    control.advance(640)
    waiting = together.clusters.retrieve(cluster.cluster_id)
    assert (len(waiting.gpu_worker_nodes), waiting.allocated_preemptible_gpus) == (2, 0)
    control.advance(300)
    retrieved = together.clusters.retrieve(cluster.cluster_id)
    assert (len(retrieved.gpu_worker_nodes), retrieved.allocated_preemptible_gpus) == (3, 8)
    assert retrieved.gpu_worker_nodes[-1].host_name == "training-preemptible-0"


def test_preempted_gpus_come_back_later(together: Together, control: Any, ready: Cluster) -> None:
    together.clusters.update(ready.cluster_id, num_preemptible_gpus=8)
    control.advance(300)
    control.add_fault(method="GET", path="/compute/clusters", preempted=True)
    retrieved = together.clusters.retrieve(ready.cluster_id)
    assert (retrieved.desired_preemptible_gpus, retrieved.allocated_preemptible_gpus) == (8, 0)
    assert retrieved.status == "Ready"
    assert retrieved.node_lifecycle_events is not None
    assert retrieved.node_lifecycle_events[-1].reason == "TogetherPreempted"
    control.advance(3900)
    again = together.clusters.list().clusters[0]
    assert (again.allocated_preemptible_gpus, len(again.gpu_worker_nodes)) == (8, 3)


def test_scheduled_capacity_waits_for_its_start(
    together: Together, start: datetime, control: Any, cluster_args: dict[str, Any]
) -> None:
    cluster = together.clusters.create(
        **{**cluster_args, "billing_type": "SCHEDULED_CAPACITY"},
        reservation_start_time=start + timedelta(days=2),
        reservation_end_time=start + timedelta(days=9),
    )
    control.advance(47 * 3600)
    assert together.clusters.retrieve(cluster.cluster_id).status == "Scheduled"
    control.advance(2 * 3600)
    assert together.clusters.retrieve(cluster.cluster_id).status == "Ready"


def test_the_share_of_a_capacity_pool_changes_in_place(
    together: Together, cluster_args: dict[str, Any]
) -> None:
    cluster = together.clusters.create(
        **cluster_args, capacity_pool_id="pool", num_capacity_pool_gpus=8
    )
    assert (cluster.capacity_pool_id, cluster.num_capacity_pool_gpus) == ("pool", 8)
    changed = together.clusters.update(cluster.cluster_id, num_capacity_pool_gpus=16)
    assert changed.num_capacity_pool_gpus == 16


def test_deleting_takes_minutes_and_ends_in_404(
    together: Together, start: datetime, control: Any, ready: Cluster
) -> None:
    assert together.clusters.delete(ready.cluster_id).cluster_id == ready.cluster_id
    assert together.clusters.retrieve(ready.cluster_id).status == "Deleting"
    with pytest.raises(ConflictError, match="being deleted"):
        together.clusters.update(ready.cluster_id, num_gpus=8)
    control.advance(60)
    together.clusters.delete(ready.cluster_id)  # again: neither an error nor a new start
    control.advance(120)
    with pytest.raises(NotFoundError, match=ready.cluster_id):
        together.clusters.retrieve(ready.cluster_id)
    with pytest.raises(NotFoundError):
        together.clusters.delete(ready.cluster_id)
    assert together.clusters.list().clusters == []


def set_credit(control: Any, *, exhausted: bool) -> None:
    control.call("POST", "/together/credit", {"exhausted": exhausted})


def test_a_cluster_paused_without_credit_can_be_deleted(
    together: Together, control: Any, ready: Cluster
) -> None:
    set_credit(control, exhausted=True)
    together.clusters.delete(ready.cluster_id)
    assert together.clusters.retrieve(ready.cluster_id).status == "Deleting"
    control.advance(180)
    assert together.clusters.list().clusters == []


def test_a_cluster_paused_without_credit_stays_paused_after_an_update(
    together: Together, control: Any, ready: Cluster
) -> None:
    set_credit(control, exhausted=True)
    assert together.clusters.update(ready.cluster_id).status == "OnDemandComputePaused"
    with pytest.raises(APIStatusError, match="Insufficient credits") as refused:
        together.clusters.update(ready.cluster_id, num_gpus=32)
    assert refused.value.status_code == 402
    control.advance(3600)
    assert together.clusters.retrieve(ready.cluster_id).status == "OnDemandComputePaused"
    set_credit(control, exhausted=False)
    assert together.clusters.retrieve(ready.cluster_id).status == "Ready"


@pytest.mark.parametrize("billing_type", ["RESERVED", "SCHEDULED_CAPACITY"])
def test_reserved_compute_runs_on_without_credit(
    together: Together,
    start: datetime,
    control: Any,
    cluster_args: dict[str, Any],
    billing_type: str,
) -> None:
    term: dict[str, Any] = (
        {"duration_days": 9}
        if billing_type == "RESERVED"
        else {
            "reservation_start_time": start + timedelta(minutes=1),
            "reservation_end_time": start + timedelta(days=9),
        }
    )
    cluster = together.clusters.create(**{**cluster_args, "billing_type": billing_type}, **term)
    control.advance(3600)
    set_credit(control, exhausted=True)
    assert together.clusters.retrieve(cluster.cluster_id).status == "Ready"


def test_a_list_is_filtered_by_project(together: Together, cluster_args: dict[str, Any]) -> None:
    ours = together.clusters.create(**cluster_args, project_id="ours")
    other = together.clusters.create(**cluster_args)
    listed = together.clusters.list().clusters
    assert [item.cluster_id for item in listed] == [ours.cluster_id, other.cluster_id]
    (only_cluster,) = together.clusters.list(project_id="ours").clusters
    assert only_cluster.cluster_id == ours.cluster_id
    assert only_cluster.project_id == "ours"
    assert together.clusters.list(project_id="nobody's").clusters == []
