"""Look up what Lens reports, for programs.

Too hot are the nodes of Lens's heatmap (Lens reference, 'GPU Heatmap': the hottest GPUs).

The address is that of the environment (`LENS_URL`, with `LENS_TOKEN` where a token is wanted), else
of the running program's configuration (`lens:url`, `lens:token`). Every function raises
GpuformError when Lens does not answer, or answers with an error, which has Lens's traceId.
"""

from collections.abc import Collection, Mapping, Sequence

from gpuform.providers.http import Retry
from gpuform.providers.lens.client import PAGE_SIZE, LensClient, client_for
from gpuform.providers.operations import Settings, lookup_settings
from gpuform.schemas.lens.conditions import Capacity, to_celsius
from gpuform.schemas.lens.wire import Consumer, GpuHeatmap, Overview


def capacity() -> Capacity:
    """Free and idle nodes, GPUs that workloads request, allocation, use and storage, as of now.

    Lens tells no history, so there is no trend.
    """
    client = _client()
    return Capacity.from_overview(client.overview(), client.consumers())


def get_overview() -> Overview:
    """Nodes, GPUs, storage and RDMA ports in numbers; rates are from 0 to 1."""
    return _client().overview()


def get_consumers(page_size: int = PAGE_SIZE) -> Sequence[Consumer]:
    """The workloads that use GPUs, all of them; `page_size` are asked for at a time."""
    return _client().consumers(page_size)


def get_heatmap() -> GpuHeatmap:
    """The GPUs with most power (W), heat (℃) and use (percent)."""
    return _client().heatmap()


def _client() -> LensClient:
    return client_for(lookup_settings())


def overheated(settings: Settings, nodes: Collection[str], limit: float) -> Mapping[str, str]:
    """What is wrong with each of these nodes that has a GPU above `limit` degrees Celsius.

    What is told in another unit, or of no node by name, says nothing. Raises GpuformError when
    Lens cannot be asked.
    """
    heatmap = client_for(settings).heatmap(retry=Retry.NEVER).temperature
    hottest: dict[str, tuple[float, str]] = {}
    for point in heatmap.data:
        degrees = to_celsius(point.value, heatmap.unit)
        if degrees is not None and degrees > limit and point.node_name in nodes:
            hottest[point.node_name] = max(
                hottest.get(point.node_name, (0.0, "")), (degrees, point.gpu)
            )
    return {
        node: f"GPU {gpu} has {degrees:g} °C, above {limit:g} °C (Lens)"
        for node, (degrees, gpu) in hottest.items()
    }
