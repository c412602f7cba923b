"""Declarations as the registry's documents, and documents as declarations: names and whole numbers.

Declared values have the registry's names in snake_case, documents its own (camelCase). What the
registry types as Mixed is passed on key by key as it is.
"""

from collections.abc import Mapping
from typing import Any

from pydantic.alias_generators import to_camel

from gpuform.schemas.aios import wire
from gpuform.schemas.aios.inputs import LIVE, ClusterInputs
from gpuform.schemas.aios.parts import NODE_COUNT, PATHS, NodeInputs, value_at, with_value
from gpuform.schemas.rules import FieldRules, get_field_rules

Document = dict[str, Any]


def wire_name(name: str) -> str:
    """The registry's name of a field; Pulumi keeps `id` for itself."""
    return "id" if name == "cluster_id" else to_camel(name)


def to_wire(rules: FieldRules, value: Any) -> Any:
    """A declared value as a document has it: numbers that are whole are integers."""
    if rules.nested and isinstance(value, Mapping):
        fields = rules.nested_rules
        return {wire_name(name): to_wire(fields[name], item) for name, item in value.items()}
    if isinstance(value, Mapping):
        return {name: to_wire(rules, item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(rules, item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def entry_of(node: Mapping[str, Any]) -> Document:
    """A declared node, with its `id`, as an entry of `nodes.nodeData`."""
    rules = get_field_rules(NodeInputs)
    return {wire_name(name): to_wire(rules[name], value) for name, value in node.items()}


def cluster_document(declared: Mapping[str, Any], *, with_status: bool) -> Document:
    """The record to make. Without declared nodes it has none, and every sum is 0.

    A record that is made directly needs a status; the Parser drops it.
    """
    values = dict(declared)
    for path in (NODE_COUNT, *PATHS):
        if value_at(values, path) is None:
            values = with_value(values, path, 0)
    values["nodes"] = {"node_data": [], **values["nodes"]}
    rules = get_field_rules(ClusterInputs)
    kept = {name: value for name, value in values.items() if not rules[name].local}
    kept.pop("status", None)
    if with_status:
        kept["status"] = declared.get("status", LIVE)
    return {wire_name(name): to_wire(rules[name], value) for name, value in kept.items()}


def declared_cluster(found: wire.Cluster) -> dict[str, Any]:
    """What a record says of the declared fields; `status` and `url_map` are outputs."""
    values = _plain(found)
    values["cluster_id"] = values.pop("id")
    values.pop("status", None)
    values.get("config", {}).pop("url_map", None)
    values["nodes"]["node_data"] = [declared_node(each) for each in found.nodes.node_data]
    return values


def declared_node(found: wire.Node) -> dict[str, Any]:
    """An entry of a record as a declared node, with its `id`."""
    return _plain(found)


def _plain(found: wire.AiosModel) -> dict[str, Any]:
    dumped: dict[str, Any] = found.model_dump(mode="json", exclude_none=True, exclude={"object_id"})
    return dumped
