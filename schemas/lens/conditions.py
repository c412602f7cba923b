"""Whether an overview satisfies a condition, and what is amiss in the overview's own words."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.alias_generators import to_camel

from gpuform.schemas.lens.inputs import ConditionInputs
from gpuform.schemas.lens.wire import Overview

Numbers = Mapping[str, float | None]


def numbers_of(overview: Overview) -> dict[str, float | None]:
    """The numbers that conditions are about, by their names; None is not told."""
    ports, nodes = overview.rdma_cluster_stat, overview.model_dump()
    plain = {name: nodes[name] for name in ConditionInputs.model_fields if name in nodes}
    return {
        **plain,
        "active_ports": ports.active_ports,
        "total_ports": ports.total_ports,
        "healthy_node_rate": _rate(overview.healthy_nodes, overview.total_nodes),
        "active_port_rate": _rate(ports.active_ports, ports.total_ports),
        "storage_utilization_rate": overview.storage_stat.utilization_rate,
    }


def amiss(condition: ConditionInputs, overview: Overview) -> str:
    """Each number that is out of its bounds, with the bounds; empty when the condition holds.

    What is not told does not hold.
    """
    return ", ".join(_amiss(condition.declared(), numbers_of(overview)))


def _amiss(condition: Mapping[str, Any], numbers: Numbers) -> Iterator[str]:
    for name, bounds in condition.items():
        value = numbers[name]
        least, most = bounds.get("at_least"), bounds.get("at_most")
        wanted = f"at least {least:g}" if least is not None else ""
        if most is not None:
            wanted += (" and " if wanted else "") + f"at most {most:g}"
        if value is None:
            yield f"{to_camel(name)} is not told (wanted: {wanted})"
        elif (least is not None and value < least) or (most is not None and value > most):
            yield f"{to_camel(name)}={value:g} (wanted: {wanted})"


def _rate(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
