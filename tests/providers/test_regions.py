"""The checks that need the platform, made while planning and never in the way of it."""

from typing import Any

import pytest

from gpuform.providers.errors import MissingCredentials
from gpuform.providers.together import get_regions
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.providers.together.shared_volume import SharedVolumeLifecycle

Properties = dict[str, Any]


def _problems(emulator: Any, inputs: Properties) -> dict[str, str]:
    with emulator.serving(preview=True):
        failures = ClusterLifecycle().check({}, inputs).failures
    return {failure.property: failure.reason for failure in failures}


def test_one_list_serves_every_check(emulator: Any, cluster_inputs: Properties) -> None:
    for _ in range(3):
        assert _problems(emulator, cluster_inputs) == {}
    assert [each["path"] for each in emulator.requests()] == ["/compute/regions"]


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
def test_what_the_regions_do_not_have(
    emulator: Any, cluster_inputs: Properties, changes: Properties, path: str, text: str
) -> None:
    problems = _problems(emulator, {**cluster_inputs, **changes})
    assert problems.keys() == {path}
    assert text in problems[path]


def test_a_version_id_that_the_region_does_not_have(
    emulator: Any, cluster_inputs: Properties
) -> None:
    inputs = {k: v for k, v in cluster_inputs.items() if k != "driver_version"}
    problems = _problems(emulator, {**inputs, "nvidia_version_id": "nope"})
    assert "us-central-8 has no version nope" in problems["nvidia_version_id"]


def test_a_type_that_another_region_has_is_shown_there(
    emulator: Any, cluster_inputs: Properties
) -> None:
    regions = {region.name: set(region.supported_instance_types) for region in get_regions()}
    here = regions["us-central-8"]
    elsewhere = sorted(set().union(*regions.values()) - here)
    problems = _problems(emulator, {**cluster_inputs, "gpu_type": elsewhere[0]})
    assert "or another region" in problems["gpu_type"]


def test_an_unknown_region_leaves_the_type_to_be_checked_everywhere(
    emulator: Any, cluster_inputs: Properties
) -> None:
    import pulumi

    unknown = pulumi.output.Unknown()  # type: ignore[no-untyped-call]
    inputs = {**cluster_inputs, "region": unknown}
    assert _problems(emulator, inputs) == {}
    problems = _problems(emulator, {**inputs, "gpu_type": "ZZ9_PLURAL"})
    assert "no region offers ZZ9_PLURAL" in problems["gpu_type"]


def test_a_volume_has_a_region_too(emulator: Any, volume_inputs: Properties) -> None:
    with emulator.serving():
        failures = SharedVolumeLifecycle().check({}, {**volume_inputs, "region": "x"}).failures
    assert [failure.property for failure in failures] == ["region"]


def test_without_a_key_the_checks_are_named_as_not_made(
    emulator: Any, cluster_inputs: Properties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOGETHER_API_KEY")
    assert _problems(emulator, {**cluster_inputs, "region": "atlantis"}) == {}
    (unchecked,) = emulator.told.unchecked
    assert "regions, GPU types and driver versions were not checked" in unchecked
    assert "TOGETHER_API_KEY" in unchecked
    assert emulator.requests() == []


@pytest.mark.parametrize(
    "fault",
    [{"status": 503, "body": {}}, {"status": 401, "body": {}}, {"drop": "before"}],
    ids=str,
)
def test_a_lookup_that_fails_is_tried_once_and_refuses_nothing(
    emulator: Any, cluster_inputs: Properties, fault: Properties
) -> None:
    emulator.fault("GET", "^/compute/regions$", count=9, **fault)
    inputs = {**cluster_inputs, "gpu_type": "ZZ9_PLURAL"}
    assert _problems(emulator, inputs) == {}
    assert _problems(emulator, inputs) == {}
    assert len(emulator.told.unchecked) == 2
    assert "ZZ9_PLURAL" in emulator.told.warnings[0]
    assert len(emulator.requests()) <= 1


def test_the_stock_host_tells_it_once(
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
    (region,) = (each for each in get_regions() if each.name == "us-central-8")
    assert "H100_SXM" in region.supported_instance_types
    assert ("12.6", "560") in [
        (each.cuda_version, each.nvidia_driver_version) for each in region.driver_versions
    ]


def test_programs_use_the_key_of_the_stack(emulator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import pulumi

    monkeypatch.delenv("TOGETHER_API_KEY")
    pulumi.runtime.set_all_config({"together:apiKey": "emulator-admin-key"}, ["together:apiKey"])
    try:
        assert get_regions()
    finally:
        pulumi.runtime.set_all_config({})


def test_programs_are_told_of_a_missing_key(emulator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOGETHER_API_KEY")
    with pytest.raises(MissingCredentials):
        get_regions()
