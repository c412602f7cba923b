"""Convert between declared inputs and documents of the AIOS registry: names and numbers.

Called by the AIOS lifecycles and `updates.py`. Declared values have the registry's names in
snake_case, documents in camelCase. A value that the registry types as Mixed is passed on unchanged,
key by key.
"""

from collections.abc import Mapping
from typing import Any

from pydantic.alias_generators import to_camel

from gpuform.schemas.aios import wire
from gpuform.schemas.aios.inputs import LIVE_STATUS, ClusterInputs
from gpuform.schemas.aios.parts import NODE_COUNT, SUM_PATHS, NodeInputs, get_value, set_value
from gpuform.schemas.rules import FieldRules, get_field_rules

Document = dict[str, Any]


def to_wire_name(name: str) -> str:
    """Return the name of a declared field in the registry's JSON: `id` for `cluster_id`.

    Pulumi reserves the name `id`, so the declaration has another one.
    """
    return "id" if name == "cluster_id" else to_camel(name)


def to_wire(rules: FieldRules, value: Any) -> Any:
    """Return a declared value as JSON of the registry, with the registry's field names.

    Keys of objects without a model stay as they are. Floats without a fraction become ints.
    """
    if rules.nested and isinstance(value, Mapping):
        fields = rules.nested_rules
        return {to_wire_name(name): to_wire(fields[name], item) for name, item in value.items()}
    if isinstance(value, Mapping):
        return {name: to_wire(rules, item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(rules, item) for item in value]
    # Pulumi sends every number as a double; Mongo would store 2.0
    return int(value) if isinstance(value, float) and value.is_integer() else value


def node_to_entry(node: Mapping[str, Any]) -> Document:
    """Return a declared node with its `id` as a JSON entry of the record's `nodes.nodeData`."""
    rules = get_field_rules(NodeInputs)
    return {to_wire_name(name): to_wire(rules[name], value) for name, value in node.items()}


def build_cluster_document(declared: Mapping[str, Any], *, with_status: bool) -> Document:
    """Return the JSON record of a cluster for the create request, from the declared fields.

    Without declared nodes the record has an empty list of nodes, and every undeclared sum is 0.
    Settings of gpuform itself are left out. A record that is created directly needs a status, the
    declared one or `LIVE_STATUS`; the Parser drops the status, so ``with_status`` is False there.
    """
    values = dict(declared)
    for path in (NODE_COUNT, *SUM_PATHS):
        # the registry's schema requires every sum
        if get_value(values, path) is None:
            values = set_value(values, path, 0)
    values["nodes"] = {"node_data": [], **values["nodes"]}
    rules = get_field_rules(ClusterInputs)
    sent_values = {name: value for name, value in values.items() if not rules[name].local}
    sent_values.pop("status", None)
    if with_status:
        sent_values["status"] = declared.get("status", LIVE_STATUS)
    return {to_wire_name(name): to_wire(rules[name], value) for name, value in sent_values.items()}


def cluster_to_declared(record: wire.Cluster) -> dict[str, Any]:
    """Return the declared fields of a record, without `status` and `url_map`, which are outputs."""
    values = _dump_model(record)
    values["cluster_id"] = values.pop("id")
    values.pop("status", None)
    # filled in by the system, so never part of a comparison
    values.get("config", {}).pop("url_map", None)
    values["nodes"]["node_data"] = [entry_to_declared(entry) for entry in record.nodes.node_data]
    return values


def entry_to_declared(entry: wire.Node) -> dict[str, Any]:
    """Return an entry of a record in the form of a declared node with `id`."""
    return _dump_model(entry)


def _dump_model(model: wire.AiosModel) -> dict[str, Any]:
    """Return a record or entry of the registry as JSON values, without nulls and Mongo's own id."""
    values: dict[str, Any] = model.model_dump(mode="json", exclude_none=True, exclude={"object_id"})
    return values
