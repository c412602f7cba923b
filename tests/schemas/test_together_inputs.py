"""Test every rule of Together's declarations, with valid and invalid inputs."""

from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from together.types.cluster_create_params import (
    GPUClusterCreateRequestLegacyNvidia,
    GPUClusterCreateRequestLegacyNvidiaAcceptanceTestsParams,
    GPUClusterCreateRequestLegacyNvidiaClusterConfig,
    GPUClusterCreateRequestLegacyNvidiaOidcConfig,
    GPUClusterCreateRequestLegacyNvidiaSharedVolume,
)
from together.types.cluster_update_params import ClusterUpdateParams

from gpuform.schemas.changes import (
    UNKNOWN,
    Action,
    compute_changes,
    find_refused_changes,
    requires_action,
)
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.together.cluster_parts import AddOnInputs
from gpuform.schemas.together.drivers import (
    GPU_TYPES,
    find_nearest_gpu_type,
    format_driver_version,
    is_same_version,
    is_unknown_gpu_type,
    parse_driver_version,
    parse_operating_system,
)
from gpuform.schemas.together.inputs import ClusterInputs, SharedVolumeInputs
from gpuform.schemas.together.outputs import is_same_moment
from gpuform.schemas.together.wire import build_cluster_create

TIMES = {
    "reservation_start_time": "2026-03-01T08:00:00Z",
    "reservation_end_time": "2026-03-08T08:00:00Z",
}
RESERVED = {"billing_type": "RESERVED", "duration_days": 30}
SCHEDULED = {"billing_type": "SCHEDULED_CAPACITY", **TIMES}
SLURM = {"cluster_type": "SLURM", "slurm_shm_size_gib": 64}
INLINE = {"volume_name": "data", "size_tib": 5, "region": "us-central-8"}
ADD_ON = {"add_on_type": "ingress", "name": "in", "config": {"ingress": {"enabled": True}}}
OIDC = {
    "client_id": "id",
    "group_claim": "groups",
    "group_prefix": "oidc:",
    "issuer_url": "https://accounts.example.com",
    "username_claim": "sub",
    "username_prefix": "oidc:",
}


def find_problems(cluster: dict[str, Any], **values: Any) -> dict[str, str]:
    """Return the problems by path; a value of None removes the field."""
    return {p.path: p.reason for p in validate_inputs(ClusterInputs, {**cluster, **values})[1]}


def test_the_documented_cluster_is_valid_and_normalized(cluster: dict[str, Any]):
    assert validate_inputs(ClusterInputs, cluster) == (
        {
            "cluster_name": "my-gpu-cluster",
            "region": "us-central-8",
            "gpu_type": "H100_SXM",
            "num_gpus": 8,
            "cuda_version": "12.6",
            "nvidia_driver_version": "560",
            "billing_type": "ON_DEMAND",
        },
        [],
    )


def test_the_documented_volume_is_valid(volume: dict[str, Any]):
    assert validate_inputs(SharedVolumeInputs, volume) == ({**volume, "size_tib": 2}, [])


@pytest.mark.parametrize(
    "values",
    [
        {"num_gpus": 1024},
        {"on_no_capacity": {"wait_minutes": 30}},
        {"on_no_capacity": {"alternatives": [{"region": "eu-north-1", "gpu_type": "H200_SXM"}]}},
        {"volume_id": "v1", "on_no_capacity": {"alternatives": [{"gpu_type": "H200_SXM"}]}},
        RESERVED,
        {**RESERVED, "duration_days": 1},
        {**RESERVED, "ttl": "30d"},
        {**SCHEDULED, "expires": "2026-03-08T08:00:00Z"},
        {**RESERVED, "duration_days": 90, "num_reserved_gpus": 8},
        {**RESERVED, "reservation_end_time": "2026-03-08T08:00:00+01:00"},
        SCHEDULED,
        SLURM,
        {**SLURM, "slurm_image": "image:1"},
        {"driver_version": None, "cuda_version": "12.8", "nvidia_driver_version": "570"},
        {"cuda_version": "12.6", "nvidia_driver_version": "560"},
        {"cuda_version": "12.6-ubuntu-22.04", "nvidia_driver_version": "560.35.03"},
        {"cuda_version": "12.6"},
        {"driver_version": None, "nvidia_version_id": "v-1"},
        {"volume_id": "v-1"},
        {"shared_volume": INLINE},
        {"auto_scale": True, "auto_scale_max_gpus": 64},
        {"num_gpus": 16, "num_capacity_pool_gpus": 8, "capacity_pool_id": "pool"},
        {"num_preemptible_gpus": 0},
        {"num_preemptible_gpus": 64},
        {"gpu_type": "B400_SXM"},
        {"oidc_config": OIDC},
        {"add_ons": [ADD_ON, {**ADD_ON, "name": "other"}]},
        {"cluster_config": {"load_balancer": "TRAEFIK", "ingress": {"enabled": True}}},
        {"acceptance_tests_params": {"enabled": True, "dcgm_diag_level": "DCGM_DIAG_LEVEL_LONG"}},
        {"install_traefik": True, "project_id": "p"},
    ],
)
def test_valid_values_are_accepted(cluster: dict[str, Any], values: dict[str, Any]):
    assert find_problems(cluster, **values) == {}


@pytest.mark.parametrize(
    ("values", "path", "reason"),
    [
        ({"num_gpus": 12}, "num_gpus", "12 is not a multiple of 8: use 8 or 16"),
        ({"num_gpus": 0}, "num_gpus", "0 is too small: the least is 8"),
        ({"num_gpus": 16.5}, "num_gpus", "must be a whole number, not 16.5"),
        ({"region": ""}, "region", "is too short"),
        ({"billing_type": "RESERVED"}, "duration_days", "is required with billing_type RESERVED"),
        ({**RESERVED, "duration_days": 0}, "duration_days", "0 is too small: the least is 1"),
        ({**RESERVED, "duration_days": 91}, "duration_days", "91 is too large: the most is 90"),
        ({"duration_days": 30}, "duration_days", "is valid only with billing_type RESERVED"),
        ({**SCHEDULED, "duration_days": 30}, "duration_days", "not SCHEDULED_CAPACITY"),
        ({"num_reserved_gpus": 8}, "num_reserved_gpus", "is valid only with billing_type RESERVED"),
        (
            {**SCHEDULED, "reservation_start_time": None},
            "reservation_start_time",
            "is required with billing_type SCHEDULED_CAPACITY",
        ),
        (
            {**SCHEDULED, "reservation_end_time": None},
            "reservation_end_time",
            "is required with billing_type SCHEDULED_CAPACITY",
        ),
        (
            {**SCHEDULED, "reservation_end_time": "2026-03-01T07:00:00Z"},
            "reservation_end_time",
            "is not after reservation_start_time",
        ),
        (
            {"reservation_end_time": "2026-03-08T08:00:00Z"},
            "reservation_end_time",
            "conflicts with billing_type ON_DEMAND",
        ),
        ({**SCHEDULED, "reservation_end_time": "soon"}, "reservation_end_time", "not a moment"),
        (
            {**SCHEDULED, "reservation_end_time": "2026-03-08T08:00:00"},
            "reservation_end_time",
            "is not a moment: write it like 2026-03-01T08:00:00Z",
        ),
        (
            {**SCHEDULED, "expires": "2026-03-08"},
            "expires",
            "is after the reservation, which ends at 2026-03-08T08:00:00Z",
        ),
        ({**SCHEDULED, "ttl": "8d"}, "ttl", "is longer than the reservation of 7 days"),
        ({**RESERVED, "ttl": "31d"}, "ttl", "is longer than the reservation of 30 days"),
        ({"driver_version": "12.6"}, "driver_version", "write CUDA_<major>_<minor>_<driver>"),
        ({"driver_version": "cuda_12_6_560"}, "driver_version", "is not a driver version"),
        ({"driver_version": None}, "driver_version", "is required: declare driver_version"),
        (
            {"driver_version": None, "cuda_version": "12.6"},
            "nvidia_driver_version",
            "is required with cuda_version",
        ),
        (
            {"driver_version": None, "nvidia_driver_version": "560"},
            "cuda_version",
            "is required with nvidia_driver_version",
        ),
        ({"cuda_version": "12.5"}, "cuda_version", "CUDA_12_6_560 means 12.6, not 12.5"),
        ({"nvidia_driver_version": "565"}, "nvidia_driver_version", "means 560, not 565"),
        ({"cuda_version": "12"}, "cuda_version", "12 is not a CUDA version: write it like 12.6"),
        ({"cuda_version": 12.6}, "cuda_version", "must be text, not 12.6: write it in quotes"),
        ({"nvidia_driver_version": "v560"}, "nvidia_driver_version", "write it like 560"),
        (
            {"volume_id": "v", "shared_volume": INLINE},
            "volume_id",
            "conflicts with shared_volume",
        ),
        (
            {"shared_volume": {**INLINE, "region": "eu-north-1"}},
            "shared_volume.region",
            "eu-north-1 is not the cluster's region",
        ),
        ({"shared_volume": {**INLINE, "size_tib": 0}}, "shared_volume.size_tib", "the least is 1"),
        ({"cluster_type": "SLURM"}, "slurm_shm_size_gib", "is required with cluster_type SLURM"),
        (
            {**SLURM, "install_traefik": True},
            "install_traefik",
            "only with cluster_type KUBERNETES",
        ),
        ({"slurm_image": "image"}, "slurm_image", "is valid only with cluster_type SLURM"),
        (
            {"cluster_type": "KUBERNETES", "slurm_shm_size_gib": 1},
            "slurm_shm_size_gib",
            "is valid only with cluster_type SLURM",
        ),
        (
            {"cluster_config": {"load_balancer": "NONE", "slurm_startup_scripts": {}}},
            "cluster_config.slurm_startup_scripts",
            "is valid only with cluster_type SLURM",
        ),
        ({"auto_scale_max_gpus": 64}, "auto_scale_max_gpus", "is valid only with auto_scale"),
        (
            {"auto_scale": True, "auto_scale_max_gpus": 16, "num_gpus": 24},
            "auto_scale_max_gpus",
            "16 is less than num_gpus: declare at least 24",
        ),
        ({"auto_scale": True, "auto_scale_max_gpus": 12}, "auto_scale_max_gpus", "use 8 or 16"),
        ({"num_preemptible_gpus": 4}, "num_preemptible_gpus", "not a multiple of 8"),
        ({**RESERVED, "num_reserved_gpus": 16}, "num_reserved_gpus", "declare at most 8"),
        ({"num_capacity_pool_gpus": 8}, "capacity_pool_id", "is required"),
        ({"on_no_capacity": {}}, "on_no_capacity", "is empty: declare alternatives"),
        ({"on_no_capacity": {"alternatives": []}}, "on_no_capacity", "is empty"),
        (
            {"on_no_capacity": {"wait_minutes": 0}},
            "on_no_capacity.wait_minutes",
            "the least is 1",
        ),
        (
            {"on_no_capacity": {"wait": 5, "alternatives": [{"region": "x"}]}},
            "on_no_capacity.wait",
            "use one of alternatives, wait_minutes",
        ),
        (
            {"on_no_capacity": {"alternatives": [{"gpu_type": "H200_SXM"}, {}]}},
            "on_no_capacity.alternatives[1]",
            "repeats the declared values",
        ),
        (
            {"on_no_capacity": {"alternatives": [{"gpu_type": "H200-SXM"}]}},
            "on_no_capacity.alternatives[0].gpu_type",
            "did you mean H200_SXM?",
        ),
        (
            {
                "volume_id": "v1",
                "on_no_capacity": {
                    "alternatives": [{"gpu_type": "H200_SXM"}, {"region": "eu-north-1"}]
                },
            },
            "on_no_capacity.alternatives[1].region",
            "conflicts with volume_id: a shared volume is used in its own region only",
        ),
        (
            {
                "nvidia_version_id": "here/560",
                "on_no_capacity": {"alternatives": [{"region": "eu-north-1"}]},
            },
            "on_no_capacity.alternatives[0].region",
            "conflicts with nvidia_version_id",
        ),
        ({"gpu_type": "H100_SMX"}, "gpu_type", "did you mean H100_SXM?"),
        ({"gpu_type": ""}, "gpu_type", "is too short"),
        ({"gpu_type": "h100_sxm"}, "gpu_type", "did you mean H100_SXM?"),
        ({"cluster_type": "Kubernetes"}, "cluster_type", "did you mean KUBERNETES?"),
        ({"billing_type": "on-demand"}, "billing_type", "did you mean ON_DEMAND?"),
        ({"billing_type": "prepaid"}, "billing_type", "did you mean RESERVED?"),
        ({"oidc_config": {**OIDC, "issuer_url": None}}, "oidc_config.issuer_url", "is required"),
        (
            {"cluster_config": {"load_balancer": "traefik"}},
            "cluster_config.load_balancer",
            "did you mean TRAEFIK?",
        ),
        ({"cluster_config": {}}, "cluster_config.load_balancer", "is required"),
        ({"add_ons": [ADD_ON, ADD_ON]}, "add_ons[1].name", "in is listed twice"),
        (
            {"add_ons": [{"add_on_type": "torchpass", "name": "pass"}]},
            "add_ons[0].add_on_type",
            "torchpass is no longer an add-on of Together (SDK 3.1.1): remove the add-on",
        ),
        ({"add_ons": [{**ADD_ON, "name": None}]}, "add_ons[0].name", "is required"),
        (
            {"add_ons": [{**ADD_ON, "config": {"dashboard": {"enabled": True}}}]},
            "add_ons[0].config.dashboard",
            "write config.ingress",
        ),
        (
            {"acceptance_tests_params": {"gpu_burn_duration": -1}},
            "acceptance_tests_params.gpu_burn_duration",
            "the least is 0",
        ),
        ({"node_count": 2}, "node_count", "is not known"),
        ({"num_gpu": 8}, "num_gpu", "did you mean num_gpus?"),
    ],
)
def test_invalid_values_are_refused(
    cluster: dict[str, Any], values: dict[str, Any], path: str, reason: str
):
    problems = find_problems(cluster, **values)
    assert list(problems) == [path]
    assert reason in problems[path]


def test_names_of_the_terraform_provider_are_reported_with_ours():
    """See the Together reference, 'Terraform'."""
    _, problems = validate_inputs(
        ClusterInputs,
        {
            "name": "training-cluster",
            "num_gpus": 8,
            "instance_type": "H100-SXM",
            "region": "us-central-8",
            "billing_type": "prepaid",
            "reservation_days": 30,
            "shared_volume": {"name": "training-data", "size_tib": 5},
            "driver_version": "CUDA_12_6_560",
        },
    )
    assert {problem.path: problem.reason for problem in problems} == {
        "name": "is called cluster_name here: write cluster_name: training-cluster",
        "instance_type": "is called gpu_type here: write gpu_type: H100_SXM",
        "billing_type": "prepaid is not one of ON_DEMAND, RESERVED, SCHEDULED_CAPACITY: "
        "did you mean RESERVED?",
        "reservation_days": "is called duration_days here: write duration_days: 30",
        "shared_volume.name": "is called volume_name here: write volume_name: training-data",
        "shared_volume.region": "is required: Region of the volume and of "
        "the clusters that mount it, such as us-central-8.",
    }


def test_all_problems_are_reported_at_once(cluster: dict[str, Any]):
    problems = find_problems(
        cluster, num_gpus=12, gpu_type="H100-SXM", duration_days=3, cluster_type="SLURM"
    )
    assert set(problems) == {"num_gpus", "gpu_type", "duration_days", "slurm_shm_size_gib"}


@pytest.mark.parametrize(
    "name",
    [field for field in ClusterInputs.model_fields if field not in ClusterInputs.former_names],
)
def test_any_field_may_be_unknown(cluster: dict[str, Any], name: str):
    values, problems = validate_inputs(ClusterInputs, {**cluster, **SLURM, name: UNKNOWN})
    assert problems == []
    if name != "driver_version":
        assert values[name] is UNKNOWN


def test_an_unknown_driver_version_makes_an_unknown_pair(cluster: dict[str, Any]):
    values, _ = validate_inputs(ClusterInputs, {**cluster, "driver_version": UNKNOWN})
    assert values["cuda_version"] is values["nvidia_driver_version"] is UNKNOWN
    values, _ = validate_inputs(
        ClusterInputs, {**cluster, "driver_version": UNKNOWN, "cuda_version": "12.6"}
    )
    assert values["cuda_version"] == "12.6"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cluster_name", "other"),
        ("region", "eu-north-1"),
        ("gpu_type", "H200_SXM"),
        ("cuda_version", "12.8"),
        ("nvidia_driver_version", "570"),
        ("nvidia_version_id", "v-2"),
        ("billing_type", "RESERVED"),
        ("duration_days", 60),
        ("volume_id", "v-2"),
        ("shared_volume", {**INLINE, "size_tib": 6}),
        ("auto_scale", True),
        ("auto_scale_max_gpus", 32),
        ("capacity_pool_id", "other"),
        ("project_id", "other"),
        ("install_traefik", True),
        ("oidc_config", {**OIDC, "client_id": "other"}),
        ("slurm_image", "other"),
        ("slurm_shm_size_gib", 128),
        ("reservation_start_time", "2026-04-01T08:00:00Z"),
    ],
)
def test_immutable_changes_replace_a_cluster(field: str, value: Any):
    (change,) = compute_changes(
        ClusterInputs, {field: _BEFORE.get(field, "before")}, {field: value}
    )
    assert change.replaces
    assert change.path.split(".")[0] == field


_BEFORE: dict[str, Any] = {
    "shared_volume": INLINE,
    "oidc_config": OIDC,
    "auto_scale": False,
    "install_traefik": False,
    "duration_days": 30,
    "auto_scale_max_gpus": 16,
    "slurm_shm_size_gib": 64,
    "reservation_start_time": TIMES["reservation_start_time"],
}


@pytest.mark.parametrize(
    ("field", "before", "after"),
    [
        ("num_gpus", 16, 24),
        ("num_gpus", 24, 16),
        ("cluster_type", "KUBERNETES", "SLURM"),
        ("num_capacity_pool_gpus", 8, 16),
        ("num_preemptible_gpus", 8, 0),
        ("num_reserved_gpus", 8, 16),
        ("reservation_end_time", "2026-03-08T08:00:00Z", "2026-03-09T08:00:00Z"),
        ("add_ons", [ADD_ON], [{**ADD_ON, "config": {"ingress": {"enabled": False}}}]),
        ("cluster_config", {"load_balancer": "NONE"}, {"load_balancer": "NGINX"}),
    ],
)
def test_mutable_changes_happen_in_place(field: str, before: Any, after: Any):
    (change,) = compute_changes(ClusterInputs, {field: before}, {field: after})
    assert (change.action, change.replaces) == (Action.UPDATE, False)
    assert find_refused_changes(ClusterInputs, {field: before}, {field: after}) == []


def test_an_undeclared_cluster_type_is_reset_to_its_default():
    (change,) = compute_changes(ClusterInputs, {"cluster_type": "SLURM"}, {})
    assert (change.action, change.after) == (Action.UPDATE, "KUBERNETES")


def test_the_same_moment_and_version_in_another_spelling_are_no_change():
    observed = {
        "reservation_start_time": "2026-03-01T09:00:00+01:00",
        "cuda_version": "12.6-ubuntu-22.04",
        "nvidia_driver_version": "560.35.03",
    }
    declared = {
        "reservation_start_time": "2026-03-01T08:00:00Z",
        "cuda_version": "12.6",
        "nvidia_driver_version": "560",
    }
    assert compute_changes(ClusterInputs, observed, declared) == []


def test_a_volume_grows_in_place_and_cannot_shrink(volume: dict[str, Any]):
    grown, shrunk = {**volume, "size_tib": 3}, {**volume, "size_tib": 1}
    (change,) = compute_changes(SharedVolumeInputs, volume, grown)
    assert not change.replaces
    assert find_refused_changes(SharedVolumeInputs, volume, grown) == []
    (problem,) = find_refused_changes(SharedVolumeInputs, volume, shrunk)
    assert problem.path == "size_tib"


@pytest.mark.parametrize("field", ["volume_name", "region", "project_id", "instance_cluster_id"])
def test_immutable_changes_replace_a_volume(volume: dict[str, Any], field: str):
    (change,) = compute_changes(SharedVolumeInputs, {field: "a"}, {field: "b"})
    assert change.replaces


def test_declaring_the_default_of_a_volume_does_not_replace_it(volume: dict[str, Any]):
    declared = {**volume, "is_lifecycle_independent": False}
    assert not requires_action(compute_changes(SharedVolumeInputs, volume, declared))
    declared["is_lifecycle_independent"] = True
    assert compute_changes(SharedVolumeInputs, volume, declared)[0].replaces


# The SDK as a second witness


def test_every_field_of_the_sdk_can_be_declared():
    rules = get_field_rules(ClusterInputs)
    assert {name for name in rules if not rules[name].local} == {
        *GPUClusterCreateRequestLegacyNvidia.__annotations__,
        "driver_version",
    }


@pytest.mark.parametrize(
    ("field", "params"),
    [
        ("shared_volume", GPUClusterCreateRequestLegacyNvidiaSharedVolume),
        ("oidc_config", GPUClusterCreateRequestLegacyNvidiaOidcConfig),
        ("cluster_config", GPUClusterCreateRequestLegacyNvidiaClusterConfig),
        ("acceptance_tests_params", GPUClusterCreateRequestLegacyNvidiaAcceptanceTestsParams),
    ],
)
def test_every_inner_field_of_the_sdk_can_be_declared(field: str, params: Any):
    nested = get_field_rules(ClusterInputs)[field].nested
    assert nested is not None
    assert set(nested.model_fields) == set(params.__annotations__)


def test_exactly_the_fields_of_the_update_request_change_in_place():
    rules = get_field_rules(ClusterInputs)
    in_place = {
        name
        for name, field in rules.items()
        if not (field.immutable or field.spelling or field.local)
    }
    assert in_place == set(ClusterUpdateParams.__annotations__)


def test_every_field_is_described():
    models = [ClusterInputs, SharedVolumeInputs, AddOnInputs]
    while models:
        model = models.pop()
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"
        models += [
            rules.nested for rules in get_field_rules(model).values() if rules.nested is not None
        ]


# Drivers, GPU types, moments


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("CUDA_12_4_550", ("12.4", "550")),
        ("CUDA_12_6_560", ("12.6", "560")),
        ("CUDA_12_6_565", ("12.6", "565")),
        ("CUDA_12_9_575", ("12.9", "575")),
        ("CUDA_13_0_580_65_06", ("13.0", "580.65.06")),
    ],
)
def test_driver_names_convert_to_version_pairs(name: str, pair: tuple[str, str]):
    assert parse_driver_version(name) == pair
    assert format_driver_version(*pair) == name


def test_driver_names_omit_the_operating_system_of_a_cuda_version():
    assert format_driver_version("12.5-ubuntu-22.04", "555") == "CUDA_12_5_555"


@pytest.mark.parametrize(
    ("text", "system"),
    [
        ("12.6-ubuntu-24.04", "ubuntu-24.04"),
        ("us-central-8/cuda-12.6/driver-560/ubuntu-22.04", "ubuntu-22.04"),
        ("Ubuntu 22.04.5 LTS", "ubuntu-22.04"),
        ("12.6", None),
        ("", None),
    ],
)
def test_an_operating_system_is_found_in_a_text(text: str, system: str | None):
    assert parse_operating_system(text) == system


@pytest.mark.parametrize("name", ["", "CUDA", "CUDA_12_6", "CUDA_12.6_560", "CUDA_12_6_560 "])
def test_invalid_driver_versions_are_refused(name: str):
    with pytest.raises(ValueError, match="is not a driver version"):
        parse_driver_version(name)


@given(st.integers(1, 99), st.integers(0, 99), st.lists(st.integers(0, 999), min_size=1))
def test_version_pairs_survive_conversion_to_a_name(major: int, minor: int, driver: list[int]):
    pair = (f"{major}.{minor}", ".".join(map(str, driver)))
    assert parse_driver_version(format_driver_version(*pair)) == pair


@pytest.mark.parametrize(
    ("version", "other", "same"),
    [
        ("560", "560", True),
        ("560", "560.35", True),
        ("560.35", "560", True),
        ("56", "560", False),
        ("12.1", "12.10", False),
        ("12.6-ubuntu-22.04", "12.6-ubuntu-24.04", False),
    ],
)
def test_more_detailed_versions_are_equal_to_their_prefix(version: str, other: str, same: bool):
    assert is_same_version(version, other) is same


@pytest.mark.parametrize("name", GPU_TYPES)
def test_known_gpu_types_are_recognized(name: str):
    assert not is_unknown_gpu_type(name)
    for misspelt in (name.lower(), name.replace("_", "-"), name.replace("_", "")):
        assert find_nearest_gpu_type(misspelt) == name


@pytest.mark.parametrize(
    ("misspelt", "name"),
    [
        ("H100-SXM", "H100_SXM"),
        ("H100_SMX", "H100_SXM"),
        ("H100", "H100_SXM"),
        ("h200 sxm", "H200_SXM"),
        ("L40_PCI", "L40_PCIE"),
        ("RTX_6000_PCIE", "RTX_6000_PCI"),
        ("H100_SXM_IFN", "H100_SXM_INF"),
    ],
)
def test_misspelt_gpu_types_have_a_suggestion(misspelt: str, name: str):
    assert find_nearest_gpu_type(misspelt) == name
    assert not is_unknown_gpu_type(misspelt)


@pytest.mark.parametrize(
    "value", ["B400_SXM", "A100_SXM", "L40S_PCIE", "H100_PCIE", "MI300X", "TPU", "_"]
)
def test_unknown_gpu_types_are_not_refused(cluster: dict[str, Any], value: str):
    assert is_unknown_gpu_type(value)
    assert find_problems(cluster, gpu_type=value) == {}


@given(st.text(max_size=20))
def test_any_gpu_type_is_known_misspelt_or_unknown(value: str):
    near = find_nearest_gpu_type(value)
    assert near is None or near in GPU_TYPES
    assert is_unknown_gpu_type(value) is (value not in GPU_TYPES and near is None)


def test_times_are_normalized():
    assert is_same_moment("2026-03-01T08:00:00Z", "2026-03-01T08:00:00.000+00:00")
    assert not is_same_moment("2026-03-01T08:00:00Z", "2026-03-01T08:00:01Z")
    assert is_same_moment("soon", "soon")
    assert not is_same_moment("soon", "2026-03-01T08:00:00Z")


@pytest.mark.parametrize("name", ["billing_type", "cluster_type"])
def test_choices_equal_those_of_the_sdk(name: str):
    hints = get_type_hints(GPUClusterCreateRequestLegacyNvidia)
    assert set(get_field_rules(ClusterInputs)[name].choices) == set(get_args(hints[name]))


def test_on_no_capacity_is_neither_compared_nor_sent(cluster: dict[str, Any]):
    search = {"wait_minutes": 5, "alternatives": [{"region": "eu-north-1"}]}
    declared = {**cluster, "on_no_capacity": search}
    assert compute_changes(ClusterInputs, cluster, declared) == []
    assert compute_changes(ClusterInputs, declared, cluster) == []
    assert compute_changes(ClusterInputs, declared, {**declared, "on_no_capacity": UNKNOWN}) == []
    body = build_cluster_create(ClusterInputs.model_validate(declared))
    assert "on_no_capacity" not in body


def test_placements_are_the_declared_region_and_its_alternatives(cluster: dict[str, Any]):
    alternatives = [{"region": "eu-north-1"}, {"gpu_type": "H200_SXM"}]
    search = {"alternatives": alternatives, "wait_minutes": 1}
    inputs = ClusterInputs.model_validate({**cluster, "on_no_capacity": search})
    bodies = [build_cluster_create(placed) for placed in inputs.iterate_placements()]
    first = build_cluster_create(ClusterInputs.model_validate(cluster))
    assert bodies == [first, *({**first, **alternative} for alternative in alternatives)]


def test_an_unknown_alternative_is_not_checked(cluster: dict[str, Any]):
    search = {"alternatives": [{"region": UNKNOWN}]}
    assert find_problems(cluster, on_no_capacity=search, volume_id="v1") == {}
    assert find_problems(cluster, on_no_capacity=UNKNOWN) == {}


def test_the_former_name_of_drain_is_accepted(cluster: dict[str, Any]):
    declared = {"on_busy": "fail"}
    values, problems = validate_inputs(ClusterInputs, {**cluster, "scale_down": declared})
    assert problems == []
    assert values["drain"] == declared
    assert "scale_down" not in values
    _, (problem,) = validate_inputs(ClusterInputs, {**cluster, "scale_down": declared, "drain": {}})
    assert problem.path == "scale_down"
    assert "former name of drain" in problem.reason
