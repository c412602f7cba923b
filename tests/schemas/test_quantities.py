"""Test storage quantities: their bytes, their equality, and that a volume claim cannot shrink."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.schemas.changes import compute_changes, find_refused_changes
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.together.volume_claims import (
    VolumeClaimInputs,
    build_manifest,
    quantity_to_bytes,
)

UNITS = ["", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"]
QUANTITIES = st.builds(lambda n, unit: f"{n}{unit}", st.integers(1, 10**6), st.sampled_from(UNITS))
CLAIM = {"cluster_id": "c", "name": "shared-pvc", "volume_name": "data"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("1Ki", 1024),
        ("1.5Gi", 1610612736),
        ("2e3", 2000),
        ("10k", 10_000),
        (".5M", 500000),
    ],
)
def test_quantities_are_converted_to_bytes(text: str, expected: int) -> None:
    assert quantity_to_bytes(text) == expected


@pytest.mark.parametrize(
    "text", ["", "Gi", "10GB", "10 Gi", "-1Gi", "1e", "ten", "1Gi1", "\uff11Gi"]
)
def test_invalid_quantities_are_refused(text: str) -> None:
    _, problems = validate_inputs(VolumeClaimInputs, {**CLAIM, "storage": text})
    assert [problem.path for problem in problems] == ["storage"]


@given(st.integers(1, 10**6), st.sampled_from(["Ki", "Mi", "Gi"]))
def test_another_spelling_of_a_size_is_no_change(number: int, unit: str) -> None:
    smaller = {"Ki": "", "Mi": "Ki", "Gi": "Mi"}[unit]
    spelling, other = f"{number}{unit}", f"{number * 1024}{smaller}"
    assert (
        quantity_to_bytes(spelling)
        == quantity_to_bytes(other)
        == Decimal(other.removesuffix(smaller)) * quantity_to_bytes(f"1{smaller}")
    )
    assert not compute_changes(
        VolumeClaimInputs, {**CLAIM, "storage": spelling}, {**CLAIM, "storage": other}
    )


@given(QUANTITIES, QUANTITIES)
def test_a_claim_grows_in_place_and_cannot_shrink(old_size: str, new_size: str) -> None:
    before, after = {**CLAIM, "storage": old_size}, {**CLAIM, "storage": new_size}
    changes = compute_changes(VolumeClaimInputs, before, after)
    assert bool(changes) is (quantity_to_bytes(old_size) != quantity_to_bytes(new_size))
    assert not any(change.replaces for change in changes)
    refused = find_refused_changes(VolumeClaimInputs, before, after)
    assert bool(refused) is (quantity_to_bytes(new_size) < quantity_to_bytes(old_size))
    assert all(f"from {old_size} to {new_size}" in problem.reason for problem in refused)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "volume_name"),
        ({"volume_name": "data", "storage_class_name": "x"}, "volume_name"),
        ({"volume_name": "data", "name": "Shared_1"}, "name"),
        ({"volume_name": "data", "namespace": "a.b"}, "namespace"),
    ],
)
def test_invalid_claims_are_refused(fields: dict[str, Any], path: str) -> None:
    declared = {"cluster_id": "c", "name": "n", "storage": "1Gi", **fields}
    assert [problem.path for problem in validate_inputs(VolumeClaimInputs, declared)[1]] == [path]


def test_manifests_have_the_documented_forms() -> None:
    shared = VolumeClaimInputs.model_validate({**CLAIM, "storage": "10Gi"})
    assert build_manifest(shared) == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "shared-pvc"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "10Gi"}},
            "volumeName": "data",
        },
    }
    local = VolumeClaimInputs(
        cluster_id="c",
        name="local-pvc",
        namespace="training",
        storage="50Gi",
        storage_class_name="local-storage-class",
    )
    manifest = build_manifest(local)
    assert manifest["metadata"] == {"name": "local-pvc", "namespace": "training"}
    assert manifest["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert manifest["spec"]["storageClassName"] == "local-storage-class"
