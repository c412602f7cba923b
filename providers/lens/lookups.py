"""What Lens tells, for programs.

The address is that of the environment (`LENS_URL`, with `LENS_TOKEN` where a token is wanted), else
of the running program's configuration (`lens:url`, `lens:token`). Every function raises
GpuformError when Lens does not answer, or answers with an error, which has Lens's traceId.
"""

from collections.abc import Sequence

from gpuform.providers.actions import lookup_settings
from gpuform.providers.lens.client import PAGE_SIZE, LensClient, client_for
from gpuform.schemas.lens.capacity import Capacity
from gpuform.schemas.lens.wire import Consumer, GpuHeatmap, Overview


def capacity() -> Capacity:
    """Free and idle nodes, GPUs that workloads request, allocation, use and storage, as of now.

    Lens tells no history, so there is no trend.
    """
    client = _client()
    return Capacity.of(client.overview(), client.consumers())


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
