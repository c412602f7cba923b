"""Test the checks of regions during planning: made where possible, and never an obstacle."""

from typing import Any

import pytest

from gpuform.providers.errors import MissingCredentials
from gpuform.providers.together import get_regions
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.providers.together.shared_volume import SharedVolumeLifecycle

Properties = dict[str, Any]


def _find_problems(emulator: Any, inputs: Properties) -> dict[str, str]:
    with emulator.use_context_of(preview=True):
        failures = ClusterLifecycle().check({}, inputs).failures
    return {failure.property: failure.reason for failure in failures}


def test_one_list_serves_every_check(emulator: Any, cluster_inputs: Properties) -> None:
    for _ in range(3):
        assert _find_problems(emulator, cluster_inputs) == {}
    assert [request["path"] for request in emulator.list_requests()] == ["/compute/regions"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "path", "text"),
    [
        ({"region": "us-central-88"}, "region", "did you mean us-central-8?"),
        ({"region": "atlantis"}, "region", "use one of "),
        ({"gpu_type": "ZZ9_PLURAL"}, "gpu_type", "us-central-8 does not offer ZZ9_PLURAL"),
        ({"driver_version": "CUDA_9_1_390"}, "cuda_version", "does not offer CUDA 9.1 with"),
    ],
)
def test_values_that_the_region_lacks_are_refused(
    emulator: Any, cluster_inputs: Properties, changes: Properties, path: str, text: str
) -> None:
    problems = _find_problems(emulator, {**cluster_inputs, **changes})
    assert problems.keys() == {path}
    assert text in problems[path]


def test_a_version_id_that_the_region_lacks_is_refused(
    emulator: Any, cluster_inputs: Properties
) -> None:
    inputs = {k: v for k, v in cluster_inputs.items() if k != "driver_version"}
    problems = _find_problems(emulator, {**inputs, "nvidia_version_id": "nope"})
    assert "us-central-8 has no version nope" in problems["nvidia_version_id"]


def test_a_gpu_type_of_another_region_is_suggested(
    emulator: Any, cluster_inputs: Properties
) -> None:
    regions = {region.name: set(region.supported_instance_types) for region in get_regions()}
    here = regions["us-central-8"]
    elsewhere = sorted(set().union(*regions.values()) - here)
    problems = _find_problems(emulator, {**cluster_inputs, "gpu_type": elsewhere[0]})
    assert "or another region" in problems["gpu_type"]


def test_an_unknown_region_leaves_the_type_to_be_checked_everywhere(
    emulator: Any, cluster_inputs: Properties
) -> None:
    import pulumi

    unknown = pulumi.output.Unknown()  # type: ignore[no-untyped-call]
    inputs = {**cluster_inputs, "region": unknown}
    assert _find_problems(emulator, inputs) == {}
    problems = _find_problems(emulator, {**inputs, "gpu_type": "ZZ9_PLURAL"})
    assert "no region offers ZZ9_PLURAL" in problems["gpu_type"]


def test_the_region_of_a_volume_is_checked(emulator: Any, volume_inputs: Properties) -> None:
    with emulator.use_context_of():
        failures = SharedVolumeLifecycle().check({}, {**volume_inputs, "region": "x"}).failures
    assert [failure.property for failure in failures] == ["region"]


def test_without_a_key_skipped_checks_are_reported(
    emulator: Any, cluster_inputs: Properties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOGETHER_API_KEY")
    assert _find_problems(emulator, {**cluster_inputs, "region": "atlantis"}) == {}
    (unchecked,) = emulator.reported.unchecked
    assert "regions, GPU types and driver versions were not checked" in unchecked
    assert "TOGETHER_API_KEY" in unchecked
    assert emulator.list_requests() == []


@pytest.mark.parametrize(
    "fault",
    [{"status": 503, "body": {}}, {"status": 401, "body": {}}, {"drop": "before"}],
    ids=str,
)
def test_a_failed_lookup_is_not_retried_and_refuses_nothing(
    emulator: Any, cluster_inputs: Properties, fault: Properties
) -> None:
    emulator.add_fault("GET", "^/compute/regions$", count=9, **fault)
    inputs = {**cluster_inputs, "gpu_type": "ZZ9_PLURAL"}
    assert _find_problems(emulator, inputs) == {}
    assert _find_problems(emulator, inputs) == {}
    assert len(emulator.reported.unchecked) == 2
    assert "ZZ9_PLURAL" in emulator.reported.warnings[0]
    assert len(emulator.list_requests()) <= 1


def test_pulumis_dynamic_host_reports_skipped_checks_once(
    emulator: Any,
    cluster_inputs: Properties,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TOGETHER_API_KEY", "a-wrong-key")
    with caplog.at_level("INFO", "gpuform"):
        ClusterLifecycle().check({}, cluster_inputs)
        ClusterLifecycle().check({}, cluster_inputs)
    assert sum("were not checked" in line for line in caplog.messages) == 1


def test_programs_get_typed_regions(emulator: Any) -> None:
    (region,) = (version for version in get_regions() if version.name == "us-central-8")
    assert "H100_SXM" in region.supported_instance_types
    assert ("12.6", "560") in [
        (version.cuda_version, version.nvidia_driver_version) for version in region.driver_versions
    ]


def test_programs_use_the_key_of_the_stack(emulator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import pulumi

    monkeypatch.delenv("TOGETHER_API_KEY")
    pulumi.runtime.set_all_config({"together:apiKey": "emulator-admin-key"}, ["together:apiKey"])
    try:
        assert get_regions()
    finally:
        pulumi.runtime.set_all_config({})


def test_programs_get_an_error_for_a_missing_key(
    emulator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOGETHER_API_KEY")
    with pytest.raises(MissingCredentials):
        get_regions()
