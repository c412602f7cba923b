"""Describe the resource types of Terraform providers and how each one becomes a resource here.

The types are those of togethercomputer/together 0.x (together_beta_cluster,
together_beta_cluster_storage; Together reference, 'Terraform': together_gpu_cluster) and of
SamsungSDSCloud/samsungcloudplatformv2 4.x to 6.x (its source, service/multinodegpucluster). The
providers use the names of the platforms' APIs, as gpuform does, except for together_gpu_cluster.
`topology` reads `TERRAFORM_TYPES`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.models import InputModel
from gpuform.schemas.values import UNKNOWN, iterate_leaves
from gpuform.stacks.declaration_writer.declarations import (
    InterpolatedText,
    Reference,
    Value,
)

Step = str | int
"""A step of a path: the name of an attribute, an index, or `*` for all items of a list."""

_SCP: Final = "samsungcloudplatformv2_multinodegpucluster_"
GPU_NODES: Final = f"{_SCP}gpunode"
PUBLIC_NAT_IP: Final = f"{_SCP}gpunode_public_nat_ip"
FABRIC_MEMBER: Final = f"{_SCP}cluster_fabric_member"
CLUSTER_FABRIC: Final = f"{_SCP}cluster_fabric"

GPU_CLUSTER_NAMES: Final[Mapping[str, str]] = {
    "name": "cluster_name",
    "instance_type": "gpu_type",
    "reservation_days": "duration_days",
}
"""The API's names of together_gpu_cluster's arguments, where they differ."""

REWORDED_PROPERTIES: Final = frozenset({"gpu_type", "billing_type"})
"""The properties of together_gpu_cluster whose values Terraform writes differently."""

_BILLING_TYPES: Final = {"prepaid": "RESERVED", "reserved": "RESERVED", "on_demand": "ON_DEMAND"}
DRIVER_PROPERTIES: Final = ("cuda_version", "nvidia_driver_version", "driver_version")
"""A cluster declares the first two of these properties, or only the last."""


def convert_gpu_cluster_value(name: str, value: Any) -> Any:
    """Return an argument's value in Together's spelling, which differs from Terraform's.

    `H100-SXM` becomes H100_SXM, `prepaid` RESERVED; a shared volume becomes an object.
    """
    if name == "shared_volume":
        return _convert_shared_volume(value)
    if name not in REWORDED_PROPERTIES or not isinstance(value, str):
        return value
    words = value.replace("-", "_")
    billing_type = _BILLING_TYPES.get(words.lower()) if name == "billing_type" else None
    return billing_type or words.upper()


def complete_gpu_cluster(
    declared_properties: Mapping[str, Value], attributes: Mapping[str, Any]
) -> Mapping[str, Value]:
    """Return the properties with values from the state: the driver, and the volume's id.

    The block has no argument for the driver. A volume that was created with the cluster is attached
    by its id, or declared as a new one if the state has no id.
    """
    properties = dict(declared_properties)
    if not any(name in properties for name in DRIVER_PROPERTIES):
        properties |= {name: attributes[name] for name in DRIVER_PROPERTIES if attributes.get(name)}
    volume = properties.pop("shared_volume", None)
    if isinstance(volume, Mapping):
        if volume_id := _find_volume_id(attributes):
            properties["volume_id"] = volume_id
        else:
            properties["shared_volume"] = {**volume, "region": properties.get("region")}
    return properties


def _convert_shared_volume(value: Any) -> Any:
    """Return a nested block as an object: HCL and states hold the block in a list."""
    block = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(block, Mapping):
        return value
    return {"volume_name" if name == "name" else name: item for name, item in block.items()}


def _find_volume_id(attributes: Mapping[str, Any]) -> str:
    """Return the id of the shared volume in a resource's attributes, or an empty text."""
    volume = attributes.get("shared_volume")
    if not isinstance(volume, Mapping):
        return ""
    return str(volume.get("volume_id") or volume.get("id") or "")


NodeSettings = Mapping[str, Mapping[str, Value]]
"""Settings that single nodes have beside those of their pool, by the id of the node."""


@dataclass(frozen=True, slots=True)
class TerraformType:
    """How a resource type of Terraform becomes a resource here.

    `id_attributes` are attributes that mean the id. `build_id` returns the id to import, from the
    declared properties and the state's attributes, or None. `nested_arguments` are objects whose
    members are properties here. `ignored_arguments` say nothing about the platform's object.
    `unignorable_arguments` have another form here, so that their changes cannot be ignored.
    `derive_properties` adds properties from attributes of other names, and from the settings of
    single nodes. `convert_path` returns the path of a property for the path of an attribute.
    `property_names` are names that differ here; `convert_value` converts plain values of the
    `reworded_properties`. `complete_properties` adds values that only the state has. One of
    `required_alternatives` must be declared: the user is asked for the last one. A resource that
    `is_attached` becomes properties of another entry; its `property_names` are the outputs there.
    """

    section: str
    platform: str
    id_attributes: tuple[str, ...]
    build_id: Callable[[Mapping[str, Value], Mapping[str, Any]], str | None]
    nested_arguments: tuple[str, ...] = ()
    ignored_arguments: tuple[str, ...] = ()
    unignorable_arguments: tuple[str, ...] = ()
    derive_properties: Callable[[Mapping[str, Any], NodeSettings], Mapping[str, Value]] = field(
        default=lambda _attributes, _settings: {}
    )
    convert_path: Callable[
        [Sequence[Step], Mapping[str, Any], NodeSettings], Sequence[Step] | None
    ] = field(default=lambda steps, _attributes, _settings: steps)
    property_names: Mapping[str, str] = field(default_factory=dict)
    reworded_properties: frozenset[str] = frozenset()
    convert_value: Callable[[str, Any], Any] = field(default=lambda _, value: value)
    complete_properties: Callable[[Mapping[str, Value], Mapping[str, Any]], Mapping[str, Value]] = (
        field(default=lambda declared, _: declared)
    )
    required_alternatives: tuple[str, ...] = ()
    is_attached: bool = False

    def get_property_name(self, argument: str) -> str:
        """Return the property's name for an argument of Terraform."""
        return self.property_names.get(argument, argument)


def _create_id_reader(
    *names: str,
) -> Callable[[Mapping[str, Value], Mapping[str, Any]], str | None]:
    """Return a reader of the id: the first non-empty attribute of the named ones."""

    def read_id(_: Mapping[str, Value], attributes: Mapping[str, Any]) -> str | None:
        return next((str(attributes[name]) for name in names if attributes.get(name)), None)

    return read_id


def _build_pool_id(
    declared_properties: Mapping[str, Value], attributes: Mapping[str, Any]
) -> str | None:
    """Return gpuform's id of a node pool, or None if a part is missing.

    The parts are vendor pool, fabric and prefix. The state's come first: a declared part may be a
    reference.
    """
    prefix = _find_node_name_prefix(attributes)
    observed = {**get_fabric_details(attributes), "gpu_node_name_prefix": prefix}
    parts = [
        observed.get(name) or declared_properties.get(name)
        for name in ("node_pool_id", "cluster_fabric_name", "gpu_node_name_prefix")
    ]
    return "/".join(map(str, parts)) if all(isinstance(part, str) for part in parts) else None


def _find_node_name_prefix(attributes: Mapping[str, Any]) -> str:
    """Return the prefix of the node names, or an empty text without nodes.

    The provider's state has no prefix, but names such as PREFIX-001.
    """
    names = [str(server.get("gpu_node_name") or "") for server in find_servers(attributes)]
    return names[0].rpartition("-")[0] if names else ""


def get_fabric_details(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return id, name and vendor pool of a GPU pool's fabric from a resource's attributes."""
    details = attributes.get("cluster_fabric_details")
    return details if isinstance(details, Mapping) else {}


def find_servers(attributes: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the servers of a GPU pool from a resource's attributes, or an empty list."""
    servers = attributes.get("server_details")
    return [server for server in servers if isinstance(server, Mapping)] if servers else []


def _derive_pool_properties(
    attributes: Mapping[str, Any], node_settings: NodeSettings
) -> Mapping[str, Value]:
    """Return a pool's nodes, name prefix, `state` and `zone`, derived from its servers.

    The nodes are a `count`, or `nodes` if a node has settings of its own, such as another state.
    The prefix is left out if unknown.
    """
    servers = find_servers(attributes)
    properties: dict[str, Value] = {"count": len(servers)}
    if prefix := _find_node_name_prefix(attributes):
        properties["gpu_node_name_prefix"] = prefix
    properties |= _get_common_settings(servers)
    if _has_own_settings(servers, node_settings):
        del properties["count"]
        properties["nodes"] = {
            get_node_key(attributes, str(server["gpu_node_name"]), node_settings): {
                **node_settings.get(str(server.get("id")), {}),
                **_get_own_settings(server, servers),
            }
            for server in servers
        }
    return properties


def _get_settings(server: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of a server: `zone`, and `state` if the server is stopped.

    RUNNING needs no declaration, and other states cannot be declared. Version 4 of the provider has
    no zones.
    """
    settings = {"zone": server["zone"]} if server.get("zone") else {}
    return {**settings, "state": "STOPPED"} if server.get("state") == "STOPPED" else settings


def _get_common_settings(servers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return {
        name: value
        for name, value in (_get_settings(servers[0]) if servers else {}).items()
        if all(_get_settings(server).get(name) == value for server in servers)
    }


def _get_own_settings(
    server: Mapping[str, Any], servers: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return the settings of a server that not all servers of its pool have."""
    common_settings = _get_common_settings(servers)
    return {
        name: value for name, value in _get_settings(server).items() if name not in common_settings
    }


def _has_own_settings(servers: Sequence[Mapping[str, Any]], node_settings: NodeSettings) -> bool:
    """Return True if a node of a pool differs from the others, and all nodes have names."""
    differs = any(
        _get_own_settings(server, servers) or str(server.get("id")) in node_settings
        for server in servers
    )
    return differs and all(server.get("gpu_node_name") for server in servers)


def get_node_key(attributes: Mapping[str, Any], node_name: str, node_settings: NodeSettings) -> str:
    """Return the key of a node in the output `gpu_nodes` of its pool.

    It is the key under `nodes` (the name without the prefix), or the name in a pool with a `count`.
    """
    if not _has_own_settings(find_servers(attributes), node_settings):
        return node_name
    return node_name.removeprefix(f"{_find_node_name_prefix(attributes)}-")


_NODE_OUTPUTS: Final[Mapping[str, str]] = {
    "ip_address": "policy_ip", "nat_enabled": "policy_use_nat",
    **{
        name: name
        for name in (
            *("id", "gpu_node_name", "state", "server_type", "zone"),
            *("policy_ip", "policy_use_nat", "policy_nat", "pfs_ip"),
        )
    },
}  # fmt: skip
"""The outputs of a node here, by the attributes of a server in the provider's `server_details`."""


def _convert_pool_path(
    steps: Sequence[Step], attributes: Mapping[str, Any], node_settings: NodeSettings
) -> Sequence[Step] | None:
    """Return the steps to the output with the value of a pool's attribute, or None without one.

    `server_details[0].id` becomes `gpu_nodes.KEY.id`, `server_details[*].id` becomes `node_ids`,
    and `cluster_fabric_details.NAME` becomes NAME; other attributes keep their steps.
    """
    if steps[0] == "cluster_fabric_details":
        return steps[1:] or None
    if steps[0] != "server_details":
        return steps
    if list(steps[1:]) == ["*", "id"]:
        return ("node_ids",)
    servers = find_servers(attributes)
    if len(steps) < 3 or not isinstance(steps[1], int) or steps[1] >= len(servers):
        return None
    output = _NODE_OUTPUTS.get(str(steps[2]))
    node_name = servers[steps[1]].get("gpu_node_name")
    if output is None or not node_name:
        return None
    return ("gpu_nodes", get_node_key(attributes, node_name, node_settings), output, *steps[3:])


def has_zones(properties: Mapping[str, Value]) -> bool:
    """Return True if a node pool declares a zone, for all nodes or for one."""
    return "zone" in properties or any(
        "zone" in node for node in (properties.get("nodes") or {}).values()
    )


TERRAFORM_TYPES: Final[Mapping[str, TerraformType]] = {
    "together_beta_cluster": TerraformType(
        "clusters",
        "together",
        ("id", "cluster_id"),
        _create_id_reader("cluster_id", "id"),
        unignorable_arguments=("driver_version",),
    ),
    "together_gpu_cluster": TerraformType(
        "clusters",
        "together",
        ("id", "cluster_id"),
        _create_id_reader("cluster_id", "id"),
        property_names=GPU_CLUSTER_NAMES,
        reworded_properties=REWORDED_PROPERTIES,
        convert_value=convert_gpu_cluster_value,
        complete_properties=complete_gpu_cluster,
        required_alternatives=DRIVER_PROPERTIES,
    ),
    "together_beta_cluster_storage": TerraformType(
        "shared_volumes",
        "together",
        ("id", "volume_id"),
        _create_id_reader("volume_id", "id"),
    ),
    GPU_NODES: TerraformType(
        "node_pools",
        "scp",
        (),
        _build_pool_id,
        nested_arguments=("cluster_fabric_details",),
        ignored_arguments=("server_details",),
        unignorable_arguments=("server_details",),
        derive_properties=_derive_pool_properties,
        convert_path=_convert_pool_path,
        # The provider never stores `server_type_id`. That a node's `product_type_id` is the id of
        # its server type is our reading, as in `providers.scp.inventory`.
        property_names={"product_type_id": "server_type_id"},
        required_alternatives=("gpu_type", "server_type_id"),
    ),
    PUBLIC_NAT_IP: TerraformType(
        "node_pools",
        "scp",
        (),
        _create_id_reader(),
        property_names={
            "gpu_node_id": "id",
            **{name: name for name in ("public_ip_address_id", "policy_nat", "policy_use_nat")},
        },
        is_attached=True,
    ),
    FABRIC_MEMBER: TerraformType(
        "node_pools",
        "scp",
        (),
        _create_id_reader(),
        property_names={"id": "cluster_fabric_id", "after_cluster_fabric_id": "cluster_fabric_id"},
        is_attached=True,
    ),
}


def flatten_attributes(
    attributes: Mapping[str, Any], terraform_type: TerraformType
) -> dict[str, Any]:
    """Return the state's attributes under the names of properties, without null ones.

    Members of nested objects are put beside the others; values are converted.
    """
    nested_objects = (attributes.get(name) for name in terraform_type.nested_arguments)
    members = {
        name: value
        for nested_object in nested_objects
        if isinstance(nested_object, Mapping)
        for name, value in nested_object.items()
    }
    # An attribute that the provider does not store is null, beside another one with its value.
    properties = {
        terraform_type.get_property_name(name): value
        for name, value in {**members, **attributes}.items()
        if value is not None
    }
    return {name: terraform_type.convert_value(name, value) for name, value in properties.items()}


def to_hcl_literal(value: Any) -> Any:
    """Return a plain value in the form of a literal as python-hcl2 parses HCL."""
    if not isinstance(value, str):
        return value
    # A `${` in a value of the state is literal text, not an interpolation.
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + escaped.replace("${", "$${").replace("%{", "%%{") + '"'


def correct_case(properties: dict[str, Value], model: type[InputModel]) -> dict[str, Value]:
    """Return the properties, with texts in capitals where only the capitals are a valid choice.

    Terraform's provider accepts choices in any case.
    """
    refused = _find_refused(properties, model)
    in_capitals = {
        name: value.upper()
        for name, value in properties.items()
        if isinstance(value, str) and name in refused
    }
    # A text that is refused in capitals as well is another mistake: the message about it must show
    # the user's own spelling.
    still_refused = _find_refused({**properties, **in_capitals}, model)
    accepted = {name: in_capitals[name] for name in in_capitals if name not in still_refused}
    return {**properties, **accepted}


def _find_refused(properties: Mapping[str, Value], model: type[InputModel]) -> set[str]:
    """Return the names of properties with wrong values; references count as right."""
    # A reference has no value before the run, and the rules accept UNKNOWN in place of any value.
    inputs = {
        name: UNKNOWN if isinstance(value, Reference | InterpolatedText) else value
        for name, value in properties.items()
    }
    return {problem.path for problem in validate_inputs(model, inputs)[1]}


def is_plain(value: Value) -> bool:
    """Return whether the value has no references: neither to resources nor to configuration."""
    references = Reference | InterpolatedText
    return not any(isinstance(leaf, references) for leaf in iterate_leaves(value))
