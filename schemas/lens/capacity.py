"""What is free, and who has asked for the rest, as far as Lens's three calls tell it."""

from collections.abc import Sequence
from typing import Final, Self

from pydantic import Field

from gpuform.schemas.lens.conditions import can_be, numbers_of
from gpuform.schemas.lens.wire import Consumer, Overview
from gpuform.schemas.models import WireModel

IDLE_USE = 0.05
"""A workload that uses no more of its GPUs than this leaves them idle."""

_OF: Final = {
    "nodes": "total_nodes",
    "free_nodes": "fully_idle_nodes",
    "partly_free_nodes": "partially_idle_nodes",
    "busy_nodes": "busy_nodes",
    "faulty_nodes": "faulty_nodes",
    "allocation_rate": "allocation_rate",
    "utilization": "utilization",
    "storage_total_tb": "storage_total_tb",
    "storage_available_tb": "storage_available_tb",
}
"""The overview's name of each number."""


class Capacity(WireModel):
    """Lens tells no number of GPUs but those that workloads request: free ones are told by nodes.

    What Lens does not tell is None.
    """

    nodes: int | None = Field(default=None, description="GPU nodes.")
    free_nodes: int | None = Field(default=None, description="Nodes without any GPU in use.")
    partly_free_nodes: int | None = Field(default=None, description="Nodes with some in use.")
    busy_nodes: int | None = Field(default=None, description="Nodes with all in use.")
    faulty_nodes: int | None = Field(default=None, description="Nodes with faults.")
    workloads: int = Field(default=0, description="Workloads that request GPUs.")
    requested_gpus: int | None = Field(default=None, description="GPUs that workloads request.")
    idle_gpus: int | None = Field(
        default=None, description="Of these, GPUs of workloads that use 5% of them or less."
    )
    allocation_rate: float | None = Field(default=None, description="GPUs allotted, from 0 to 1.")
    utilization: float | None = Field(default=None, description="Use of them, from 0 to 1.")
    storage_total_tb: float | None = Field(default=None, description="Storage, in TB.")
    storage_available_tb: float | None = Field(default=None, description="Free storage, in TB.")

    @classmethod
    def of(cls, overview: Overview, consumers: Sequence[Consumer]) -> Self:
        """A workload whose use is not told is not idle; what cannot be is not told."""
        numbers = numbers_of(overview)
        asking = [each for each in consumers if _is_asking(each)]
        requests = [each.stat.gpu_request for each in asking]
        return cls.model_validate(
            {
                **{own: numbers[name] for own, name in _OF.items() if can_be(name, numbers[name])},
                "workloads": len(asking),
                "requested_gpus": None if None in requests else sum(filter(None, requests)),
                "idle_gpus": sum(_asked(each) for each in asking if _is_idle(each)),
            }
        )


def _is_asking(consumer: Consumer) -> bool:
    """Also with a request that is no number."""
    is_odd = consumer.stat.gpu_request is None and "gpu_request" in consumer.stat.model_fields_set
    return is_odd or _asked(consumer) > 0


def _asked(consumer: Consumer) -> int:
    return consumer.stat.gpu_request or 0


def _is_idle(consumer: Consumer) -> bool:
    use = consumer.stat.gpu_utilization
    return use is not None and 0 <= use <= IDLE_USE
