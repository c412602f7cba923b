"""Which platform has which kind of resource. A new platform adds its line to `LIFECYCLES`."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from gpuform.providers.errors import UnsupportedKind
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.resource import PlatformResource

KINDS = (
    "Cluster",
    "NodePool",
    "GpuNode",
    "Fabric",
    "SharedVolume",
    "VolumeClaim",
    "HealthGate",
)

LIFECYCLES: Mapping[str, Mapping[str, str]] = {
    "together": {
        "Cluster": "gpuform.providers.together.cluster:ClusterLifecycle",
        "SharedVolume": "gpuform.providers.together.shared_volume:SharedVolumeLifecycle",
        "VolumeClaim": "gpuform.providers.together.volume_claim:VolumeClaimLifecycle",
    },
    "scp": {
        "NodePool": "gpuform.providers.scp.node_pool:NodePoolLifecycle",
        "GpuNode": "gpuform.providers.scp.gpu_node:GpuNodeLifecycle",
        "Fabric": "gpuform.providers.scp.fabric:FabricLifecycle",
    },
    "tensorone": {
        "Cluster": "gpuform.providers.tensorone.cluster:ClusterLifecycle",
    },
    "aios": {
        "Cluster": "gpuform.providers.aios.cluster:ClusterLifecycle",
        "GpuNode": "gpuform.providers.aios.gpu_node:GpuNodeLifecycle",
    },
    "lens": {
        "HealthGate": "gpuform.providers.lens.health_gate:HealthGateLifecycle",
    },
}
"""Platform -> kind -> import path of the lifecycle; state files hold these paths for ever."""


def lifecycle_class(platform: str, kind: str) -> type[Lifecycle[Any, Any]]:
    """The lifecycle of a kind on a platform, imported now. Raises UnsupportedKind."""
    path = LIFECYCLES.get(platform, {}).get(kind)
    if path is None:
        raise UnsupportedKind(_refusal(platform, kind))
    module, _, name = path.partition(":")
    found: type[Lifecycle[Any, Any]] = getattr(import_module(module), name)
    return found


def resource_class(platform: str, kind: str) -> type[PlatformResource]:
    """The Pulumi resource class of a kind on a platform. Raises UnsupportedKind."""
    lifecycle_class(platform, kind)
    module = import_module(f"gpuform.providers.{platform}.resources")
    found: type[PlatformResource] = getattr(module, kind)
    return found


def lookup_names(platform: str) -> list[str]:
    """The functions by which a program can ask a platform what there is."""
    module = import_module(f"gpuform.providers.{platform}")
    return [name for name in module.__all__ if name not in LIFECYCLES[platform]]


def lookup(platform: str, name: str) -> Callable[..., Any]:
    """One of a platform's `lookup_names`."""
    found: Callable[..., Any] = getattr(import_module(f"gpuform.providers.{platform}"), name)
    return found


def platforms_with(kind: str) -> list[str]:
    """The platforms that have a kind."""
    return [platform for platform, kinds in LIFECYCLES.items() if kind in kinds]


def capability_table() -> str:
    """Kinds against platforms, as a Markdown table."""
    platforms = list(LIFECYCLES)
    rows = [["kind", *platforms], ["---"] * (len(platforms) + 1)]
    rows += [
        [kind, *("yes" if kind in LIFECYCLES[each] else "-" for each in platforms)]
        for kind in KINDS
        if platforms_with(kind)
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _refusal(platform: str, kind: str) -> str:
    if platform not in LIFECYCLES:
        return f"{platform} is not a platform: use one of {', '.join(LIFECYCLES)}"
    owners = platforms_with(kind)
    if owners:
        return f"{platform} has no {kind}: declare it on {' or '.join(owners)}"
    kinds = ", ".join(LIFECYCLES[platform])
    return f"{platform} has no {kind}, and no other platform has one: it has {kinds}"
