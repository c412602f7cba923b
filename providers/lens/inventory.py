"""Look up what Lens reports, for programs and for repairs of overheated nodes.

The address is that of the environment (`LENS_URL`, with `LENS_TOKEN` where a token is required),
else of the running program's configuration (`lens:url`, `lens:token`). Every function raises
GpuformError if Lens does not answer, or answers with an error, which has Lens's traceId.
"""

from collections.abc import Collection, Mapping, Sequence

from gpuform.providers.catalog import ExistingObject
from gpuform.providers.http import Retry
from gpuform.providers.lens.client import PAGE_SIZE, LensClient, get_client
from gpuform.providers.operations import Settings, get_lookup_settings
from gpuform.schemas.lens.conditions import Capacity, to_celsius
from gpuform.schemas.lens.wire import Consumer, GpuHeatmap, Overview


def list_existing_objects(_settings: Settings) -> list[ExistingObject]:
    """Return nothing, without a request."""
    return []


def capacity() -> Capacity:
    """Return free and idle nodes, requested GPUs, allocation, use and storage, as of now.

    Lens has no history, so there is no trend.
    """
    client = _get_client()
    return Capacity.from_overview(client.get_overview(), client.list_consumers())


def get_overview() -> Overview:
    """Return nodes, GPUs, storage and RDMA ports in numbers; rates are from 0 to 1."""
    return _get_client().get_overview()


def get_consumers(page_size: int = PAGE_SIZE) -> Sequence[Consumer]:
    """Return all workloads on GPUs, fetched in pages of `page_size`.

    Raises:
        NotEnoughEvidence: the pages contradict each other at each of four reads.
    """
    return _get_client().list_consumers(page_size)


def get_heatmap() -> GpuHeatmap:
    """Return the GPUs with the most power (W), heat (℃) and use (percent)."""
    return _get_client().get_heatmap()


def _get_client() -> LensClient:
    """Return the client of Lens for the settings of look-ups, one per process."""
    return get_client(get_lookup_settings())


def describe_overheated_nodes(
    settings: Settings, node_names: Collection[str], max_celsius: float
) -> Mapping[str, str]:
    """Return a message for each node in `node_names` with a GPU above `max_celsius`.

    Lens's heatmap shows the hottest GPUs only (Lens reference, 'GPU Heatmap'), so further hot nodes
    may have no message. A value in another unit, or without a node's name, is ignored.

    Raises:
        GpuformError: Lens cannot be asked.
    """
    heatmap = get_client(settings).get_heatmap(retry=Retry.NEVER).temperature
    hottest_by_node: dict[str, tuple[float, str]] = {}
    for point in heatmap.data:
        degrees = to_celsius(point.value, heatmap.unit)
        # The same GPU may be listed more than once: its highest value counts.
        if degrees is not None and degrees > max_celsius and point.node_name in node_names:
            hottest_by_node[point.node_name] = max(
                hottest_by_node.get(point.node_name, (0.0, "")), (degrees, point.gpu)
            )
    return {
        node: f"GPU {gpu} has {degrees:g} °C, above {max_celsius:g} °C (Lens)"
        for node, (degrees, gpu) in hottest_by_node.items()
    }
