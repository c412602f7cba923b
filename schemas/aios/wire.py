"""Define the answers of the AIOS clusters registry and its Parser, and convert inputs to documents.

From the AIOS registry reference, 'Clusters registry'. Attributes are the registry's names in
snake_case, documents are in camelCase. Only a record's id is required: the registry validates
nothing on an update, so any other field may be missing. Sizes are in MB. A value that the registry
types as Mixed is passed on unchanged, key by key.

Lookups check the answer of a query. A registry may answer a filter that it did not understand with
every record it has. Only the operators here can be checked; a filter with another one is refused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from gpuform.schemas.aios.inputs import LIVE_STATUS, ClusterInputs
from gpuform.schemas.aios.parts import NODE_COUNT, SUM_PATHS, NodeInputs, get_value, set_value
from gpuform.schemas.models import Id, Line, Problem, WireModel
from gpuform.schemas.rules import FieldRules, get_field_rules

Number = int | float
"""A number as sent: 16384 stays an integer."""


class AiosModel(WireModel):
    # A GPU's model begins with pydantic's own prefix, `model_`.
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, protected_namespaces=()
    )


class Gpu(AiosModel):
    model_name: str = ""
    memory: Number = 0


class NodeGpus(AiosModel):
    """The GPUs of one node. `memory` is the memory of all of them."""

    count: Number | None = None
    memory: Number | None = None
    gpus: tuple[Gpu, ...] | None = None
    features: tuple[str, ...] | None = None
    model_names: tuple[str, ...] | None = None


class Gpus(AiosModel):
    """All GPUs of a cluster."""

    count: Number | None = None
    memory: Number | None = None


class Vcpus(AiosModel):
    count: Number | None = None


class Storage(AiosModel):
    disks: Number | None = None
    size: Number | None = None


class Network(AiosModel):
    """Bandwidths are in MB/s."""

    interfaces: Number | None = None
    tx_bandwidth: Number | None = None
    rx_bandwidth: Number | None = None


class Node(AiosModel):
    """An entry of `nodes.nodeData`."""

    # Empty for an entry that a stray update has created.
    id: Line = ""
    gpus: NodeGpus | None = None
    vcpus: Vcpus | None = None
    memory: Number | None = None
    swap: Number | None = None
    storage: Storage | None = None
    network: Network | None = None
    object_id: Any = Field(default=None, alias="_id")
    """The id that Mongo adds, which contains the time of creation."""


class Nodes(AiosModel):
    count: Number | None = None
    node_data: tuple[Node, ...] = ()

    @field_validator("node_data", mode="before")
    @classmethod
    def _keep_indexes(cls, entries: Any) -> Any:
        """Replace null by an entry without an id, to preserve the indexes of the other entries.

        Mongo pads an array with nulls when an entry behind its end is set.
        """
        return [entry or {} for entry in entries] if isinstance(entries, list) else entries


class UrlMap(AiosModel):
    """The addresses of the cluster's services. The registry's system fills them in."""

    controller_service: str | None = None
    metrics_service: str | None = None
    blocks_query: str | None = None
    public_gateway: str | None = None
    parameter_updater: str | None = None


class Config(AiosModel):
    policy_executor_id: str | None = None
    policy_execution_mode: str | None = None
    custom_policy_system: Any = None
    public_hostname: str | None = None
    use_gateway: bool | None = None
    actions_policy_map: Any = None
    url_map: UrlMap | None = None


class ClusterMetadata(AiosModel):
    name: str | None = None
    description: str | None = None
    owner: str | None = None
    email: str | None = None
    countries: tuple[str, ...] | None = None
    misc_contact_info: Any = None
    additional_info: Any = None


class Cluster(AiosModel):
    """A cluster's record. Other members that Mongo adds (`__v`) are ignored."""

    id: Id
    region_id: str | None = None
    status: str | None = None
    nodes: Nodes = Nodes()
    gpus: Gpus | None = None
    vcpus: Vcpus | None = None
    memory: Number | None = None
    swap: Number | None = None
    storage: Storage | None = None
    network: Network | None = None
    # Defaults of the registry appear here, and url_map.
    config: Config | None = None
    tags: tuple[str, ...] | None = None
    cluster_metadata: ClusterMetadata | None = None
    # The network changes it: never compared.
    reputation: Number | None = None
    object_id: Any = Field(default=None, alias="_id")

    @property
    def has_node_list(self) -> bool:
        """True if the registry's answer has a list of nodes.

        Without a list, the answer says nothing about any node.
        """
        return "nodes" in self.model_fields_set and "node_data" in self.nodes.model_fields_set

    def find_entry(self, node_id: str) -> Node | None:
        """Return the record's first entry of the node with the id `node_id`, or None."""
        return next((entry for entry in self.nodes.node_data if entry.id == node_id), None)


class Parsed(AiosModel):
    """The answer of the Parser with 200. `result` is the record, or `[false, "why"]`."""

    success: bool = True
    message: str = ""
    # The Parser answers a failure of the registry with 200, success and [false, "message"].
    result: Any = None

    @property
    def failure(self) -> str | None:
        """The Parser's message about a failed request, or None if the Parser reports success."""
        if isinstance(self.result, list) and self.result[:1] == [False]:
            return " ".join(map(str, self.result[1:]))
        return None if self.success else self.message


class Deleted(AiosModel):
    message: str = ""


def parse_object_id(object_id: object) -> str | None:
    """Return an id if `object_id` is a text and not empty, else None. The form is not checked."""
    return object_id if isinstance(object_id, str) and object_id else None


def parse_object_id_time(object_id: object) -> float | None:
    """Return when Mongo created an id, in Unix seconds: the id's first four bytes.

    None for anything else than an id of Mongo's.
    """
    hex_id = object_id if isinstance(object_id, str) else ""
    try:
        # an ObjectId has 24 hexadecimal digits, of which the first 8 are Unix seconds
        return float(int(hex_id[:8], 16)) if len(hex_id) == 24 else None
    except ValueError:
        return None


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


def cluster_to_declared(record: Cluster) -> dict[str, Any]:
    """Return the declared fields of a record, without `status` and `url_map`, which are outputs."""
    values = _dump_model(record)
    values["cluster_id"] = values.pop("id")
    values.pop("status", None)
    # filled in by the system, so never part of a comparison
    values.get("config", {}).pop("url_map", None)
    values["nodes"]["node_data"] = [entry_to_declared(entry) for entry in record.nodes.node_data]
    return values


def entry_to_declared(entry: Node) -> dict[str, Any]:
    """Return an entry of a record in the form of a declared node with `id`."""
    return _dump_model(entry)


def _dump_model(model: AiosModel) -> dict[str, Any]:
    """Return a record or entry of the registry as JSON values, without nulls and Mongo's own id."""
    values: dict[str, Any] = model.model_dump(mode="json", exclude_none=True, exclude={"object_id"})
    return values


Filter = Mapping[str, Any]

_MISSING: Final = object()


def find_filter_problems(filter_: Any, path: str = "filter") -> Iterator[Problem]:
    """Yield a problem for each unknown or malformed operator of a Mongo filter.

    Also one if the filter, or a filter inside `$and`, `$or` or `$nor`, is no object.
    """
    if not isinstance(filter_, Mapping):
        yield Problem(path, "must be an object of fields and conditions")
        return
    for name, condition in filter_.items():
        inner_path = f"{path}.{name}"
        if name in _LOGICAL:
            if not isinstance(condition, list | tuple) or not condition:
                yield Problem(inner_path, "must be a list of at least one filter")
                continue
            for index, part in enumerate(condition):
                yield from find_filter_problems(part, f"{inner_path}[{index}]")
        elif name.startswith("$"):
            yield Problem(inner_path, f"is not known: use one of {', '.join(_LOGICAL)}")
        elif _is_operator_object(condition):
            yield from _find_operator_problems(condition, inner_path)


def matches_filter(document: Any, filter_: Filter) -> bool:
    """Return True if a record matches a filter without problems (see `find_filter_problems`)."""
    for name, condition in filter_.items():
        if name in _LOGICAL:
            if not _LOGICAL[name](matches_filter(document, part) for part in condition):
                return False
        elif not _matches_field(document, name, condition):
            return False
    return True


def _find_operator_problems(condition: Filter, path: str) -> Iterator[Problem]:
    """Yield a problem for each unknown or malformed operator in the condition of one field.

    `path` is the path of the condition in the declared filter, for messages.
    """
    for name, value in condition.items():
        inner_path = f"{path}.{name}"
        if name == "$not":
            if _is_operator_object(value):
                yield from _find_operator_problems(value, inner_path)
            else:
                yield Problem(inner_path, "must be an object of operators, such as {$gt: 5}")
        elif name in ("$in", "$nin", "$all"):
            if not isinstance(value, list | tuple):
                yield Problem(inner_path, "must be a list of values")
        elif name not in _COMPARISONS and name not in ("$exists", "$ne"):
            operators = ", ".join(("$not", "$ne", "$in", "$nin", "$all", "$exists", *_COMPARISONS))
            yield Problem(inner_path, f"is not known: use one of {operators}")


def _matches_field(document: Any, path: str, condition: Any) -> bool:
    """Return True if the document's values at a dotted path match the filter's condition.

    A condition is an object of operators (`{$gt: 5}`), or a value to equal.
    """
    values = list(_find_values(document, path.split(".")))
    if not _is_operator_object(condition):
        return _has_equal(values, condition)
    return all(_matches_mongo_operator(values, name, value) for name, value in condition.items())


def _matches_mongo_operator(values: Sequence[Any], operator: str, operand: Any) -> bool:
    """Return True if a field's values satisfy one of Mongo's operators (`$gt`, `$in`, `$not` ...).

    A comparison or `$in` needs one matching value. `$ne`, `$nin` and `$not` need that none matches,
    `$all` that each item of `operand` does. `$exists` needs a value, or none if `operand` is false.
    """
    if operator == "$not":
        return not all(
            _matches_mongo_operator(values, name, inner_operand)
            for name, inner_operand in operand.items()
        )
    if operator == "$exists":
        return any(item is not _MISSING for item in values) is bool(operand)
    if operator == "$ne":
        return not _has_equal(values, operand)
    if operator in ("$in", "$nin"):
        return any(_has_equal(values, item) for item in operand) is (operator == "$in")
    if operator == "$all":
        # `$all` of nothing matches no record in Mongo
        return bool(operand) and all(_has_equal(values, item) for item in operand)
    return any(_COMPARISONS[operator](item, operand) for item in _flatten(values))


def _has_equal(values: Sequence[Any], operand: Any) -> bool:
    """Return True if one of the values, or an item of a list value, equals `operand`.

    As in Mongo, null equals a missing field, too.
    """
    # Mongo's null matches a missing field, too
    if operand is None:
        return any(item is None or item is _MISSING for item in _flatten(values))
    return any(_is_equal(item, operand) for item in _flatten(values))


def _flatten(values: Sequence[Any]) -> Iterator[Any]:
    """Yield the values, and the items of list values."""
    for value in values:
        yield value
        if isinstance(value, list):
            yield from value


def _find_values(document: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yield the values of a document at a dotted path, by Mongo's rules.

    A list on the way stands for each of its items; `_MISSING` for a document without a value.
    """
    if not path:
        yield document
    elif isinstance(document, Mapping):
        yield from _find_values(document[path[0]], path[1:]) if path[0] in document else [_MISSING]
    elif isinstance(document, list):
        # a number in a path may be an index, and at the same time a key of an item
        if path[0].isdigit() and int(path[0]) < len(document):
            yield from _find_values(document[int(path[0])], path[1:])
        for item in document:
            if isinstance(item, Mapping):
                yield from _find_values(item, path)
    else:
        yield _MISSING


def _is_equal(left: Any, right: Any) -> bool:
    """Return True if two JSON values are equal; unlike in Python, true is not 1."""
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def _require_same_type(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Return ``compare`` restricted to pairs of numbers and pairs of texts.

    Mongo orders no mixed types.
    """

    # a boolean is an int in Python, but no number in Mongo
    def compare_values(left: Any, right: Any) -> bool:
        numbers = all(
            isinstance(operand, int | float) and not isinstance(operand, bool)
            for operand in (left, right)
        )
        texts = isinstance(left, str) and isinstance(right, str)
        return (numbers or texts) and compare(left, right)

    return compare_values


def _is_operator_object(condition: Any) -> bool:
    """Return True if a condition is an object of Mongo operators, such as `{$gt: 5}`. 5}`."""
    return isinstance(condition, Mapping) and any(key.startswith("$") for key in condition)


_LOGICAL: Final[Mapping[str, Callable[[Iterator[bool]], bool]]] = {
    "$and": all,
    "$or": any,
    "$nor": lambda results: not any(results),
}
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$eq": lambda one, other: _is_equal(one, other) or (other is None and one is _MISSING),
    "$gt": _require_same_type(lambda one, other: one > other),
    "$gte": _require_same_type(lambda one, other: one >= other),
    "$lt": _require_same_type(lambda one, other: one < other),
    "$lte": _require_same_type(lambda one, other: one <= other),
}
