"""The block `together_gpu_cluster` in gpuform's words (Together reference, 'Terraform').

Together's official provider calls it together_beta_cluster, with the API's own names.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuform.stacks.authoring.declared import Value

NAMES: Final[Mapping[str, str]] = {
    "name": "cluster_name",
    "instance_type": "gpu_type",
    "reservation_days": "duration_days",
}
"""The API's name of each argument that has another one here."""

VALUES: Final = frozenset({"gpu_type", "billing_type"})
"""The arguments whose values have other words here."""

_BILLING: Final = {"prepaid": "RESERVED", "reserved": "RESERVED", "on_demand": "ON_DEMAND"}
DRIVERS: Final = ("cuda_version", "nvidia_driver_version", "driver_version")
"""Some of these a cluster has to declare: the pair, or both in one."""


def words(name: str, value: Any) -> Any:
    """A value of ours: `H100-SXM` is H100_SXM, `prepaid` RESERVED."""
    if name == "shared_volume":
        return _volume(value)
    if name not in VALUES or not isinstance(value, str):
        return value
    plain = value.replace("-", "_")
    return plain.upper() if name == "gpu_type" else _BILLING.get(plain.lower(), plain.upper())


def whole_cluster(
    declared: Mapping[str, Value], attributes: Mapping[str, Any]
) -> Mapping[str, Value]:
    """With the driver that the state tells, for the block has no argument for it, and the volume.

    The volume that was made with the cluster is attached by its id, where the state tells it.
    """
    found = dict(declared)
    if not any(name in found for name in DRIVERS):
        found |= {name: attributes[name] for name in DRIVERS if attributes.get(name)}
    volume = found.pop("shared_volume", None)
    if isinstance(volume, Mapping):
        if volume_id := _volume_id(attributes):
            found["volume_id"] = volume_id
        else:
            found["shared_volume"] = {**volume, "region": found.get("region")}
    return found


def _volume(value: Any) -> Any:
    """The nested block, which HCL and states hold in a list."""
    block = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(block, Mapping):
        return value
    return {"volume_name" if name == "name" else name: item for name, item in block.items()}


def _volume_id(attributes: Mapping[str, Any]) -> str:
    volume = attributes.get("shared_volume")
    if not isinstance(volume, Mapping):
        return ""
    return str(volume.get("volume_id") or volume.get("id") or "")
