"""List the regions and GPU types of TensorOne for `gpuform offers` and for completion.

TensorOne's API has no such lists: both are from its documentation ('Create Cluster').
"""

from collections.abc import Iterator, Sequence
from typing import get_args

from gpuform.providers.catalog import GPU_TYPE, REGION, Offer
from gpuform.providers.operations import Settings
from gpuform.schemas.tensorone.inputs import GpuType, Region

IS_DOCUMENTED = True


def list_offers(_settings: Settings, _regions: Sequence[str]) -> Iterator[Offer]:
    """Yield the documented regions and GPU types without a request."""
    for region in get_args(Region):
        yield Offer("tensorone", REGION, region, "region", region)
    for gpu_type in get_args(GpuType):
        yield Offer("tensorone", GPU_TYPE, gpu_type, "gpu_type", gpu=gpu_type)
