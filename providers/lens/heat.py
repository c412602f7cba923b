"""Which nodes are too hot, by Lens's heatmap (Lens reference, 'GPU Heatmap': the hottest GPUs)."""

from collections.abc import Collection, Mapping

from gpuform.providers.actions import Settings
from gpuform.providers.http import Retry
from gpuform.providers.lens.client import client_for
from gpuform.schemas.lens.conditions import degrees_of


def overheated(settings: Settings, nodes: Collection[str], limit: float) -> Mapping[str, str]:
    """What is wrong with each of these nodes that has a GPU above `limit` degrees Celsius.

    What is told in another unit, or of no node by name, says nothing. Raises GpuformError when
    Lens cannot be asked.
    """
    heatmap = client_for(settings).heatmap(retry=Retry.NEVER).temperature
    hottest: dict[str, tuple[float, str]] = {}
    for point in heatmap.data:
        degrees = degrees_of(point.value, heatmap.unit)
        if degrees is not None and degrees > limit and point.node_name in nodes:
            hottest[point.node_name] = max(
                hottest.get(point.node_name, (0.0, "")), (degrees, point.gpu)
            )
    return {
        node: f"GPU {gpu} has {degrees:g} °C, above {limit:g} °C (Lens)"
        for node, (degrees, gpu) in hottest.items()
    }
