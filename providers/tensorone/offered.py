"""What TensorOne offers, by its documentation ('Create Cluster'): its API has no such lists."""

from collections.abc import Iterator, Sequence
from typing import get_args

from gpuform.providers.offering import GPU_TYPE, REGION, Offer
from gpuform.providers.operations import Settings
from gpuform.schemas.tensorone.inputs import GpuType, Region

IS_DOCUMENTED = True


def offered(_settings: Settings, _regions: Sequence[str]) -> Iterator[Offer]:
    """Asks nothing."""
    for region in get_args(Region):
        yield Offer("tensorone", REGION, region, "region", region)
    for gpu_type in get_args(GpuType):
        yield Offer("tensorone", GPU_TYPE, gpu_type, "gpu_type", gpu=gpu_type)
