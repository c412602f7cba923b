"""A PersistentVolumeClaim as Kubernetes sends it (API reference, v1)."""

from pydantic import Field

from gpuform.schemas.ids import Id, Line
from gpuform.schemas.models import WireModel


class ClaimMetadata(WireModel):
    name: Id
    namespace: Id
    uid: Id
    created_at: str | None = Field(default=None, alias="creationTimestamp")
    deleted_at: str | None = Field(default=None, alias="deletionTimestamp")
    annotations: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)


class ClaimResources(WireModel):
    requests: dict[str, str] = Field(default_factory=dict)


class ClaimSpec(WireModel):
    access_modes: tuple[str, ...] = Field(default=(), alias="accessModes")
    resources: ClaimResources = ClaimResources()
    volume_name: Line | None = Field(default=None, alias="volumeName")
    storage_class_name: str | None = Field(default=None, alias="storageClassName")


class ClaimStatus(WireModel):
    phase: str = "Pending"
    capacity: dict[str, str] = Field(default_factory=dict)


class Claim(WireModel):
    metadata: ClaimMetadata
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()
