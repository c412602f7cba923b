"""Show gpuform's inputs and outputs as a function of an answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, SecretStr

from gpuform.providers.aios.cluster import build_poll_result as look_at_record
from gpuform.providers.lens.health_gate import build_outputs as gate_outputs
from gpuform.providers.scp.node_facts import build_node_outputs as node_outputs
from gpuform.providers.scp.node_facts import build_observed_inputs as node_inputs
from gpuform.providers.scp.pool.nodes import node_to_outputs as shown_node
from gpuform.providers.tensorone import cluster_view as tensorone
from gpuform.providers.together.cluster_view import evaluate_cluster as look_at_cluster

_BEFORE, _AFTER = "before", "after"

SHOWN: Final[Mapping[tuple[str, str], Callable[[Any], Sequence[object]]]] = {
    ("together", "Cluster"): lambda it: [look_at_cluster(it, 16).value],
    ("scp", "GpuNode"): lambda it: [node_inputs(it), node_outputs(it, shown_node(it, None), None)],
    ("tensorone", "ClusterAnswer"): lambda it: [
        tensorone.extract_inputs(it.data, {"port_mappings": [_PORT]}),
        tensorone.build_outputs(it.data, None, None, None),
    ],
    ("aios", "Cluster"): lambda it: [look_at_record(it, None).value],
    ("lens", "Overview"): lambda it: [gate_outputs(it, None, "")],
}
"""The views of those answers that are shown by a function of their own."""

_PORT: Final = {"internal_port": 48, "external_port": 1, "protocol": _BEFORE, "description": "x"}
_SPECIAL: Final[Mapping[str, Sequence[object]]] = {
    "billing_type": ("RESERVED", "ON_DEMAND"),
    "storage_stat.total_capacity": ("48TB", "96TB"),
    "storage_stat.used_capacity": ("48TB", "96TB"),
    "storage_stat.available_capacity": ("48TB", "96TB"),
    "rdma_cluster_stat.bandwidth": ("48Gbps", "96Gbps"),
    "data.status": ("running", "stopped"),
    "data.network.port_mappings.internal_port": (48, 96),
}


def render_outputs(platform: str, model: type[BaseModel], changed: str = "") -> str:
    """Return the rendered outputs of an answer, in which one field may have another value."""
    answer = model.model_validate(_build_sample(model, "", changed))
    return repr([_reveal(item) for item in SHOWN[platform, model.__name__](answer)])


def _reveal(value: object) -> object:
    """Return outputs including values hidden from `repr`."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    outputs = getattr(value, "outputs", None)
    return [getattr(value, "inputs", None), outputs.model_dump()] if outputs else value


def _build_sample(model: type[BaseModel], before: str, changed: str) -> dict[str, object]:
    return {
        name: _build_value(field.annotation, before + name, changed)
        for name, field in model.model_fields.items()
    }


def _build_value(annotation: Any, path: str, changed: str) -> object:
    is_changed = path == changed
    if path in _SPECIAL:
        return _SPECIAL[path][is_changed]
    inner = [arg for arg in get_args(annotation) if arg not in (type(None), ...)]
    match get_origin(annotation) or annotation:
        case found if isinstance(found, type) and issubclass(found, BaseModel):
            return _build_sample(found, f"{path}.", changed)
        case found if found is tuple:
            return [_build_value(inner[0], path, changed)]
        case found if found is dict:
            return {"NAME": _build_value(inner[1], path, changed)}
        case found if found is bool:
            return not is_changed
        case found if found in (int, float):
            return 96 if is_changed else 48
        case found if found in (str, SecretStr, Any):
            return _AFTER if is_changed else _BEFORE
    return _build_value(inner[0], path, changed)
