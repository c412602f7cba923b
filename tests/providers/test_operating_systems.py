"""Test the operating systems of Together's nodes: offered, installed, declared and changed."""

from typing import Any

import pytest

from gpuform.providers.context import ProviderContext
from gpuform.providers.operations import Settings
from gpuform.providers.together.client import get_client
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.providers.together.inventory import list_offers
from gpuform.providers.together.regions import find_region_problems

Properties = dict[str, Any]


def _create(lifecycle: ClusterLifecycle, emulator: Any, declared: Properties) -> Properties:
    with emulator.use_context_of():
        inputs = {**lifecycle.check({}, declared).inputs, "__provider": "pickled"}
        return {**lifecycle.create(inputs).outs, "__provider": "pickled"}


def declare_cuda_version(cluster_inputs: Properties, cuda_version: str) -> Properties:
    pair = {"cuda_version": cuda_version, "nvidia_driver_version": "560"}
    return {**cluster_inputs, "driver_version": None, **pair}


def test_a_version_without_a_system_is_installed_on_ubuntu_22_04(
    lifecycle: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
) -> None:
    outputs = _create(lifecycle, emulator, declare_cuda_version(cluster_inputs, "12.6"))
    assert outputs["os_image"] == "ubuntu-22.04"
    assert outputs["installed_version_id"] == "us-central-8/cuda-12.6/driver-560/ubuntu-22.04"


@pytest.mark.parametrize(
    ("cuda_version", "replaces"),
    [("12.6", []), ("12.6-ubuntu-22.04", []), ("12.6-ubuntu-24.04", ["cuda_version"])],
)
def test_only_another_declared_system_replaces_the_cluster(
    cuda_version: str,
    replaces: list[str],
    lifecycle: ClusterLifecycle,
    emulator: Any,
    cluster_inputs: Properties,
) -> None:
    outputs = _create(lifecycle, emulator, declare_cuda_version(cluster_inputs, "12.6"))
    with emulator.use_context_of():
        news = lifecycle.check({}, declare_cuda_version(cluster_inputs, cuda_version)).inputs
        changes = lifecycle.list_changes(outputs, {**news, "__provider": "pickled"})
    assert [change.path for change in changes if change.replaces] == replaces


def test_a_declared_system_is_installed_and_plans_no_change(
    lifecycle: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
) -> None:
    declared = declare_cuda_version(cluster_inputs, "12.6-ubuntu-24.04")
    outputs = _create(lifecycle, emulator, declared)
    with emulator.use_context_of():
        news = lifecycle.check({}, declared).inputs
        changes = lifecycle.list_changes(outputs, {**news, "__provider": "pickled"})
    assert outputs["os_image"] == "ubuntu-24.04"
    assert changes == []


def test_a_system_that_the_region_does_not_offer_is_a_problem_of_the_plan(
    emulator: Any, cluster_inputs: Properties, call: ProviderContext
) -> None:
    declared = {
        **declare_cuda_version(cluster_inputs, "12.4-ubuntu-24.04"),
        "nvidia_driver_version": "550",
    }
    (problem,) = find_region_problems(get_client(Settings()), call, declared)
    assert (problem.path, "12.4-ubuntu-24.04" in problem.reason) == ("cuda_version", True)


def test_offers_name_the_systems_of_a_driver(emulator: Any) -> None:
    descriptions = [offer.about for offer in list_offers(Settings(), [])]
    assert "CUDA 12.6, NVIDIA driver 560, ubuntu-22.04 or ubuntu-24.04" in descriptions
