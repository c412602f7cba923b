"""Define claims of pods on a cluster's storage, and parse Kubernetes' quantities of storage.

Used by Together's VolumeClaim. Facts are from the Together reference, 'Kubernetes PVCs', and the
Kubernetes API reference, 'Quantity'. Kubernetes' rule decides which fields change in place: of a
claim's spec only the requested size, and it only grows.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from gpuform.schemas.models import (
    DEFAULT_NAMESPACE,
    InputModel,
    Name,
    Namespace,
    OutputModel,
    Problem,
    optional_field,
)
from gpuform.schemas.rules import (
    ComparedBy,
    Default,
    GrowOnly,
    Immutable,
    OutputOf,
    ReferenceTo,
    Unordered,
)

_QUANTITY: Final = re.compile(
    r"(\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d{1,2})|([KMGTPE]i|[kMGTPE]))?", re.ASCII
)
_FACTORS: Final[Mapping[str, int]] = {
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)},
    **{letter: 1000**power for power, letter in enumerate("kMGTPE", 1)},
}


def quantity_to_bytes(quantity: str) -> Decimal:
    """Return the number of bytes of a Kubernetes quantity. Raises ValueError for other text."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise ValueError(
            f"{quantity!r} is not a quantity: write a number with a unit, such as 10Gi"
        )
    number, exponent, suffix = match.groups()
    # Decimal: a float would round large quantities
    return Decimal(f"{number}e{exponent or 0}") * _FACTORS.get(suffix, 1)


def validate_quantity(quantity: str) -> str:
    """Return a Kubernetes quantity, such as 100Gi, if more than zero.

    Raises ValueError otherwise.
    """
    if quantity_to_bytes(quantity) <= 0:
        raise ValueError("is zero: request some storage, such as 10Gi")
    return quantity


AccessMode = Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]

Quantity = Annotated[str, AfterValidator(validate_quantity)]


class VolumeClaimInputs(InputModel):
    """A volume claim in a cluster's Kubernetes, on a shared volume or on a node's NVMe."""

    retired_names: ClassVar[Mapping[str, str]] = {
        "accessModes": "access_modes",
        "volumeName": "volume_name",
        "storageClassName": "storage_class_name",
        "storage_class": "storage_class_name",
        "size": "storage",
    }

    cluster_id: Annotated[str, Immutable, ReferenceTo("Cluster")] = Field(
        min_length=1,
        description="Cluster whose pods use the claim.",
        examples=["{{ clusters.train.id }}"],
    )
    name: Annotated[Name, Immutable] = Field(
        description="Name by which pods mount the claim.", examples=["shared-pvc"]
    )
    namespace: Annotated[Namespace | None, Immutable, Default(DEFAULT_NAMESPACE)] = optional_field(
        "Namespace of the pods that use the claim.", examples=["training"]
    )
    # Kubernetes may answer in another unit than the declared one.
    storage: Annotated[Quantity, GrowOnly, ComparedBy(quantity_to_bytes)] = Field(
        description="Size in Kubernetes' notation, such as 10Gi; it can only grow, and only when "
        "the claim is bound.",
        examples=["10Gi"],
    )
    volume_name: Annotated[str | None, Immutable, OutputOf("SharedVolume", "volume_name")] = (
        optional_field(
            "Name of the cluster's shared volume to bind.",
            min_length=1,
            examples=["{{ shared_volumes.data.volume_name }}"],
        )
    )
    storage_class_name: Annotated[str | None, Immutable] = optional_field(
        "Storage class that creates the volume: local-storage-class is local NVMe.",
        min_length=1,
        examples=["local-storage-class"],
    )
    # Immutable in Kubernetes, as the whole spec but the requested size.
    access_modes: Annotated[list[AccessMode] | None, Immutable, Unordered] = optional_field(
        "Access modes. Default: ReadWriteMany with volume_name, else ReadWriteOnce.",
        min_length=1,
        examples=[["ReadWriteMany"]],
    )
    labels: dict[str, str] | None = optional_field(
        "Labels of the claim.", examples=[{"team": "research"}]
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem unless exactly one of volume_name and storage_class_name is declared."""
        sources = [name for name in ("volume_name", "storage_class_name") if name in values]
        if len(sources) != 1:
            yield Problem(
                "volume_name",
                "give either volume_name (a shared volume of the cluster) or storage_class_name "
                f"(local-storage-class for local NVMe), {'not both' if sources else 'one of them'}",
            )

    def get_access_modes(self) -> list[str]:
        """Return the Kubernetes access modes of the claim: as declared, or the default.

        The default is ReadWriteMany for a shared volume of the cluster, else ReadWriteOnce.
        """
        if self.access_modes:
            return list(self.access_modes)
        return ["ReadWriteOnce" if self.volume_name is None else "ReadWriteMany"]


class VolumeClaimOutputs(OutputModel):
    """A claim as Kubernetes reports it."""

    status: str = Field(description="Pending, Bound or Lost, as Kubernetes reports it.")
    uid: str = Field(description="Kubernetes' id of the claim.")
    capacity: str | None = optional_field("Size of the bound volume.")
    bound_volume: str | None = optional_field("Name of the bound PersistentVolume.")
    created_at: str | None = optional_field("When the claim was created.")


def build_manifest(claim: VolumeClaimInputs) -> dict[str, Any]:
    """Return the claim as a Kubernetes manifest, in the form of Together's reference.

    The default namespace is left out, and undeclared access modes are filled in.
    """
    metadata: dict[str, Any] = {"name": claim.name}
    # the reference's manifests name no default namespace
    if claim.namespace not in {None, DEFAULT_NAMESPACE}:
        metadata["namespace"] = claim.namespace
    if claim.labels:
        metadata["labels"] = dict(claim.labels)
    spec: dict[str, Any] = {
        "accessModes": claim.get_access_modes(),
        "resources": {"requests": {"storage": claim.storage}},
    }
    if claim.volume_name is not None:
        spec["volumeName"] = claim.volume_name
    if claim.storage_class_name is not None:
        spec["storageClassName"] = claim.storage_class_name
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
