"""List what the emulated TensorOne offers and charges, its settings, and its errors.

All modules of `tensorone` use this one. Errors are flat, without an envelope (documentation, 'Error
Handling'). GPU types and regions are documented; sizes, prices and templates are ours, so made that
the document's cluster (4 A100 in us-west-2) comes out as the document shows it.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field

from gpuform.providers.emulator.routing import PlatformSettings, Refusal
from gpuform.providers.emulator.tensorone import FREE_KEY, KEY, PRO_KEY, READER_KEY

REGIONS = ("us-east-1", "us-west-2", "eu-west-1", "ap-southeast-1")
REGION = "us-west-2"
CURRENCY = "USD"


class GpuType(BaseModel, frozen=True):
    """A GPU type: its price in an hour, and the CPU, memory and power of each GPU."""

    hourly: float
    cores: int
    memory_gb: int
    watts: int
    max_per_cluster: int = 8
    """The most GPUs of one cluster."""


GPU_TYPES = {
    "A100": GpuType(hourly=1.70, cores=8, memory_gb=64, watts=400),
    "H100": GpuType(hourly=2.90, cores=12, memory_gb=128, watts=700),
    "RTX4090": GpuType(hourly=0.50, cores=6, memory_gb=32, watts=450, max_per_cluster=4),
    "V100": GpuType(hourly=0.70, cores=6, memory_gb=48, watts=300),
    "T4": GpuType(hourly=0.25, cores=4, memory_gb=16, watts=70, max_per_cluster=4),
    "RTX3090": GpuType(hourly=0.30, cores=4, memory_gb=24, watts=350, max_per_cluster=4),
}
# In USD for each core or GB: the document's cluster has 32 cores, 256 GB of memory and 1000 GB of
# storage.
CORE_HOURLY = 0.85 / 32
MEMORY_GB_HOURLY = 0.45 / 256
STORAGE_GB_HOURLY = 0.25 / 1000
NETWORK_HOURLY = 0.15

ROOT_VOLUME_GB = 100
SMALLEST_STORAGE_GB = 50


class Template(BaseModel, frozen=True):
    """A template for new clusters, with an image."""

    name: str
    version: str
    docker_image: str
    cuda_version: str


TEMPLATES = {
    "tmpl_pytorch_latest": Template(
        name="PyTorch 2.1 with CUDA 11.8",
        version="v2.1.0",
        docker_image="tensorone/pytorch:2.1-cuda11.8",
        cuda_version="11.8",
    ),
    "tmpl_tensorflow_latest": Template(
        name="TensorFlow 2.15 with CUDA 12.2",
        version="v2.15.0",
        docker_image="tensorone/tensorflow:2.15-cuda12.2",
        cuda_version="12.2",
    ),
}
DEFAULT_IMAGE = "tensorone/base:ubuntu22.04-cuda11.8"
RUNTIME = {
    "python_version": "3.9.18",
    "cuda_version": "11.8",
    "driver_version": "520.61.05",
    "docker_version": "24.0.7",
}

PROJECT_NAMES = {"proj_456": "ML Research Team"}
# The document's own example.
OWNER = {"owner_id": "user_789", "owner_email": "researcher@company.com"}


class ApiKey(BaseModel, extra="forbid", frozen=True):
    """The tier and the rights of a key."""

    tier: Literal["free", "pro", "enterprise"] = "enterprise"
    may_write: bool = True


class TensorOneSettings(PlatformSettings):
    """What tests can set of TensorOne. Undocumented defaults are ours."""

    kind = "tensorone.settings"

    keys: Mapping[str, ApiKey] = {
        KEY: ApiKey(),
        FREE_KEY: ApiKey(tier="free"),
        PRO_KEY: ApiKey(tier="pro"),
        READER_KEY: ApiKey(tier="pro", may_write=False),
    }

    cache_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """How long a GET answers from the platform's cache, whatever has changed meanwhile."""

    delete_needs_stopped: bool = False
    """Whether a running cluster is deleted only with `force`; the documentation says both."""

    capacity: Mapping[str, int] = {}
    """Free GPUs by type; a type without a number has no limit."""


CODES = {
    400: "VALIDATION_ERROR",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "RESOURCE_NOT_FOUND",
    409: "STATE_CONFLICT",
    422: "SEMANTIC_ERROR",
    429: "RATE_LIMIT_EXCEEDED",
    500: "INTERNAL_ERROR",
    502: "BAD_GATEWAY",
    503: "SERVICE_UNAVAILABLE",
}


class TensorOneApiError(Refusal):
    """Raised where TensorOne refuses: answered with this status and the code that belongs to it."""

    def __init__(self, status: int, message: str, **details: Any) -> None:
        super().__init__(status, message)
        self.details = details

    def build_body(self, request_id: str, timestamp: str) -> dict[str, Any]:
        """Return the body of the answer, with `details` if the error has any."""
        return {
            "error": CODES.get(self.status, "INTERNAL_ERROR"),
            "message": self.message,
            "code": self.status,
            **({"details": self.details} if self.details else {}),
            "request_id": request_id,
            "timestamp": timestamp,
        }


def make_invalid_field(field: str, reason: str) -> TensorOneApiError:
    """Return the 400 for a field of a request; that the message has the reason is ours."""
    return TensorOneApiError(
        400, f"Request validation failed: {field}: {reason}", field=field, reason=reason
    )


def make_not_found(resource: str, key: str) -> TensorOneApiError:
    """Return the 404 for a missing object of the kind `resource`, such as `cluster`, by its id."""
    return TensorOneApiError(404, f"{resource.capitalize()} not found", resource=resource, id=key)


def make_conflict(message: str, current: str, required: str) -> TensorOneApiError:
    """Return the 409 for an action that needs a cluster in the `required` state, not `current`."""
    return TensorOneApiError(409, message, current_state=current, required_state=required)
