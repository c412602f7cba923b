"""Refer to the entries of Terraform's resources, and find what resources declare about nodes.

`topology` creates one `InstanceReferences` for a conversion. In Samsung's Terraform provider, a
public NAT IP is a setting of its node here, and a cluster fabric member is the fabric of its pool.
Facts are from the source of SamsungSDSCloud/samsungcloudplatformv2 6.x
(cluster_fabric_member_resource.go, gpunodepublicnatip_resource.go).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.convert.terraform.expressions import SPLAT
from gpuform.stacks.convert.terraform.files import ResourceInstance
from gpuform.stacks.convert.terraform.folding import RepeatedResource
from gpuform.stacks.convert.terraform.resource_types import (
    CLUSTER_FABRIC,
    FABRIC_MEMBER,
    GPU_NODES,
    PUBLIC_NAT_IP,
    TERRAFORM_TYPES,
    Step,
    find_servers,
    get_fabric_details,
    get_node_key,
)
from gpuform.stacks.declaration_writer.declarations import DeclaredReference, Value

InstanceKey = tuple[str, str, Step | None]
"""Type, name and key of an instance."""


class IncompleteEntry(Exception):
    """Raised for a resource without a required value; the message is the reason."""


@dataclass(frozen=True, slots=True)
class PoolNode:
    """A node in the state: its id, its name and its pool."""

    id: str
    name: str
    pool: ResourceInstance


@dataclass(frozen=True, slots=True)
class PoolMove:
    """A move of all nodes of a pool to another fabric, by the Terraform resource `member`."""

    member: ResourceInstance
    fabric_id: str
    fabric_name: str

    def apply_to(self, pool: ResourceInstance) -> ResourceInstance:
        """Return the pool in its new fabric, as a refresh of Terraform's state would show it."""
        fabric = {
            **get_fabric_details(pool.attributes),
            "cluster_fabric_id": self.fabric_id,
            "cluster_fabric_name": self.fabric_name,
        }
        return replace(pool, attributes={**pool.attributes, "cluster_fabric_details": fabric})


@dataclass(slots=True)
class InstanceReferences:
    """The references to the entries of instances, assigned before the first entry is built.

    Terraform's resources refer to later ones, too. `instances` are the state's instances with a
    block in the files, `data_sources` the state's data sources. An attached resource (a public IP,
    the member of a fabric) has the reference of its pool, or of a node of the pool.
    """

    instances: Mapping[InstanceKey, ResourceInstance]
    data_sources: Sequence[ResourceInstance]
    node_settings: dict[str, Mapping[str, Value]] = field(default_factory=dict)
    """Settings of single nodes by their ids."""
    by_key: dict[InstanceKey, DeclaredReference] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes: dict[InstanceKey, PoolNode] = {}
        for key, instance in self.instances.items():
            if TERRAFORM_TYPES[instance.type].is_attached:
                for _, node in self.find_nodes(instance):
                    if node is not None:
                        nodes[key] = node
                continue
            # The option `import` takes one id, so each instance of `count` or `for_each` becomes an
            # entry of its own.
            name = instance.name if instance.key is None else f"{instance.name}-{instance.key}"
            self.by_key[key] = DeclaredReference(TERRAFORM_TYPES[instance.type].section, name)
        # The settings decide the keys of nodes, and their values may refer to other resources.
        self.node_settings |= {
            node.id: {} for (type_, _, _), node in nodes.items() if type_ == PUBLIC_NAT_IP
        }
        for key, node in nodes.items():
            node_key = get_node_key(node.pool.attributes, node.name, self.node_settings)
            steps = ("gpu_nodes", node_key) if key[0] == PUBLIC_NAT_IP else ()
            self.by_key[key] = replace(self.get(node.pool), steps=steps)

    def get(self, instance: ResourceInstance) -> DeclaredReference:
        """Return the topology reference of a Terraform resource instance."""
        return self.by_key[instance.type, instance.name, instance.key]

    def list_repeated_resources(self) -> list[RepeatedResource]:
        """Return the resources with `count` or `for_each`, with the names of their entries."""
        names: dict[tuple[str, str], dict[str, str]] = {}
        for (type_, name, key), reference in self.by_key.items():
            if key is not None and not TERRAFORM_TYPES[type_].is_attached:
                names.setdefault((type_, name), {})[str(key)] = reference.name
        return [
            RepeatedResource(TERRAFORM_TYPES[type_].section, name, names_by_key)
            for (type_, name), names_by_key in names.items()
        ]

    def find_references(self, root: str, steps: Sequence[Step]) -> Value:
        """Return the reference for a path, or those of all instances for TYPE.NAME[*].

        Returns None if there is no reference, as `_find_reference`.
        """
        if list(steps[1:2]) != [SPLAT]:
            return self._find_reference(root, steps)
        # Terraform has the instances in the order of their keys.
        keys = sorted(
            (
                key
                for type_, name, key in self.by_key
                if (type_, name) == (root, steps[0]) and key is not None
            ),
            key=lambda key: (isinstance(key, str), key),
        )
        references = [self._find_reference(root, [steps[0], key, *steps[2:]]) for key in keys]
        return references if references and None not in references else None

    def _find_reference(self, root: str, steps: Sequence[Step]) -> DeclaredReference | None:
        """Return the reference for a path such as TYPE.NAME[KEY].ATTRIBUTE, or None.

        Returns None if the resource is not converted, or if no property has the value of the
        attribute. `root` is TYPE, `steps` are the other parts.
        """
        if root not in TERRAFORM_TYPES or not steps:
            return None
        remaining_steps = list(steps[1:])
        # Behind a resource's name comes the key of an instance or an attribute: only the state's
        # keys show which.
        key = (
            remaining_steps.pop(0)
            if remaining_steps and (root, str(steps[0]), remaining_steps[0]) in self.by_key
            else None
        )
        instance_key = (root, str(steps[0]), key)
        reference = self.by_key.get(instance_key)
        if reference is None:
            return None
        terraform_type = TERRAFORM_TYPES[root]
        id_paths = [[], *([name] for name in terraform_type.id_attributes)]
        if remaining_steps in id_paths:
            return replace(reference, steps=())
        path = terraform_type.convert_path(
            remaining_steps, self.instances[instance_key].attributes, self.node_settings
        )
        if path is None:
            return None
        if terraform_type.is_attached:
            name = terraform_type.property_names.get(str(path[0]))
            return None if name is None else replace(reference, steps=(*reference.steps, name))
        property_names = load_lifecycle_class(
            terraform_type.platform, SECTIONS[terraform_type.section]
        ).list_property_names()
        name = terraform_type.get_property_name(str(path[0]))
        # A reworded property has another value here than in Terraform.
        if name not in property_names or name in terraform_type.reworded_properties:
            return None
        return DeclaredReference(reference.section, reference.name, (name, *path[1:]))

    def is_moved(self, reference: DeclaredReference) -> bool:
        """Return True if a cluster fabric member moves the pool of a reference."""
        return any(
            node is not None and self.get(node.pool).name == reference.name
            for instance in self.instances.values()
            if instance.type == FABRIC_MEMBER
            for _, node in self.find_nodes(instance)
        )

    def find_nodes(self, attached: ResourceInstance) -> Iterator[tuple[str, PoolNode | None]]:
        """Yield the id of each node that an attached resource names, with the node.

        The node is None if no pool among the instances has the node.
        """
        attributes = attached.attributes
        node_ids = (
            [attributes.get("gpu_node_id")]
            if attached.type == PUBLIC_NAT_IP
            else attributes.get("gpu_node_id_list")
        )
        nodes_by_id = {
            node.id: node
            for pool in self.instances.values()
            if pool.type == GPU_NODES
            for node in _list_nodes(pool)
        }
        for node_id in node_ids if isinstance(node_ids, list) else ():
            yield str(node_id), nodes_by_id.get(str(node_id))

    def find_move(self, pool: ResourceInstance) -> PoolMove | None:
        """Return the move of a pool to another fabric, or None if no member names its nodes.

        Raises:
            IncompleteEntry: only some nodes were moved, or the state does not say where to.
        """
        members: dict[str, ResourceInstance] = {}
        moved_ids: dict[str, set[str]] = {}
        for member in self.instances.values():
            fabric_id = str(member.attributes.get("after_cluster_fabric_id"))
            for node_id, node in self.find_nodes(member) if member.type == FABRIC_MEMBER else ():
                if node is not None and node.pool is pool:
                    members.setdefault(fabric_id, member)
                    moved_ids.setdefault(fabric_id, set()).add(node_id)
        if not members:
            return None
        for fabric_id, ids in moved_ids.items():
            staying_names = [node.name for node in _list_nodes(pool) if node.id not in ids]
            if staying_names:
                raise IncompleteEntry(
                    f"{members[fabric_id].address} moves some of its nodes to another fabric, "
                    f"without {', '.join(staying_names)}, but an entry has all nodes in one "
                    "fabric: write a node_pools entry by hand for each fabric, with its nodes "
                    "under `nodes`"
                )
        current_id = str(get_fabric_details(pool.attributes).get("cluster_fabric_id"))
        # The state after a refresh has the fabric; before, the only move has it.
        fabric_id = current_id if current_id in members else next(iter(members))
        fabric_name = self._find_fabric_names().get(fabric_id)
        if fabric_name is None or (len(members) > 1 and current_id not in members):
            raise IncompleteEntry(
                f"{members[fabric_id].address} moves its nodes to the fabric {fabric_id}, and the "
                "state does not contain the name of that fabric: run `terraform apply "
                "-refresh-only`, or write the node_pools entry by hand with the name as "
                "cluster_fabric_name"
            )
        return PoolMove(members[fabric_id], fabric_id, fabric_name)

    def _find_fabric_names(self) -> Mapping[str, str]:
        names: dict[str, str] = {}
        for source in self.data_sources:
            if source.type == CLUSTER_FABRIC and source.attributes.get("cluster_name"):
                names[str(source.attributes.get("id"))] = str(source.attributes["cluster_name"])
        for pool in self.instances.values():
            fabric = get_fabric_details(pool.attributes)
            if fabric.get("cluster_fabric_name"):
                names[str(fabric.get("cluster_fabric_id"))] = str(fabric["cluster_fabric_name"])
        return names


def _list_nodes(pool: ResourceInstance) -> list[PoolNode]:
    return [
        PoolNode(str(server["id"]), str(server["gpu_node_name"]), pool)
        for server in find_servers(pool.attributes)
        if server.get("id") and server.get("gpu_node_name")
    ]
