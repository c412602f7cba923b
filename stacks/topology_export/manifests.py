"""Build the node labels and Kueue objects of a stack, and record what is written of them.

`formats` renders the manifests, `applying` writes them and keeps the records, so that a later run
can remove what was written.

From Kueue's API kueue.x-k8s.io: `Topology.spec.levels[].nodeLabel`, the widest first and the host
last; `ResourceFlavor.spec.topologyName`, which needs a label of its nodes. Kueue leaves out a node
that lacks a label of a level, so only labels that all nodes have are levels.

A record is saved before anything is sent. After a killed run it may name too much: a value in the
cluster that differs from the recorded ones belongs to somebody else.

Switches and NVLink domains are not written as labels: gpuform reads them from labels.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.providers.records import Records, compute_digest
from gpuform.stacks.topology_export.model import (
    HOST_LABEL,
    ZONE_LABEL,
    Node,
    NoTopology,
    StackTopology,
    find_domain_key,
    list_tier_keys,
)

_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NODE_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
)
_MAX_NAME_HEAD: Final = 46

OWNER_ANNOTATION: Final = "gpuform.dev/topology-of"
"""The annotation of objects that gpuform creates: its value names the stack."""


@dataclass(frozen=True, slots=True)
class NodeMetadata:
    """Labels and annotations that are added to a node."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwnedObject:
    """An object that gpuform creates and owns.

    `content` is its `spec` or its `data`, under that key.
    """

    api_version: str
    kind: str
    plural: str
    name: str
    content: Mapping[str, Any]
    namespace: str = ""


Manifest = NodeMetadata | OwnedObject


def build_document(manifest: Manifest, owner_label: str) -> dict[str, Any]:
    """Convert a manifest to a Kubernetes object; owned objects get the owner annotation."""
    if isinstance(manifest, NodeMetadata):
        metadata: dict[str, Any] = {"name": manifest.name}
        metadata |= {"labels": dict(manifest.labels)} if manifest.labels else {}
        metadata |= {"annotations": dict(manifest.annotations)} if manifest.annotations else {}
        # A node belongs to its cluster, so it gets no owner annotation.
        return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    namespace = {"namespace": manifest.namespace} if manifest.namespace else {}
    annotations = {"annotations": {OWNER_ANNOTATION: owner_label}}
    return {
        "apiVersion": manifest.api_version,
        "kind": manifest.kind,
        "metadata": {"name": manifest.name, **namespace, **annotations},
        **manifest.content,
    }


def render_documents(manifests: Iterable[Manifest], owner_label: str) -> str:
    """Render the manifests as a stream of YAML documents for kubectl."""
    import yaml  # noqa: PLC0415 - slow

    class Lines(yaml.SafeDumper):
        """Texts of several lines stand as they are."""

    def represent_string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Lines.add_representer(str, represent_string)
    documents = [build_document(manifest, owner_label) for manifest in manifests]
    return str(yaml.dump_all(documents, Dumper=Lines, sort_keys=False, width=1000))


def is_label_value(value: str) -> bool:
    """Return True if Kubernetes accepts `value` as the value of a label."""
    return _LABEL_VALUE.fullmatch(value) is not None


def require_node_name(name: str) -> str:
    """Return `name`, or raise NoTopology for an invalid name of a Kubernetes node."""
    if _NODE_NAME.fullmatch(name) is None:
        raise NoTopology(
            f"the name of node {name!r} is not a valid name of a Kubernetes node",
            hint="rename the node on its platform, or select the other clusters",
        )
    return name


def require_namespace_name(name: str) -> str:
    """Return `name`, or raise NoTopology for an invalid name of a Kubernetes namespace."""
    if _OBJECT_NAME.fullmatch(name) is None:
        raise NoTopology(
            f"{name!r} is not a valid name of a Kubernetes namespace",
            hint="pass the namespace of Slurm: --namespace NAME",
        )
    return name


def build_owner_label(topology: StackTopology) -> str:
    """Return the label value for the stack.

    PROJECT.STACK, with a digest if a label cannot hold it.
    """
    label = f"{topology.project}.{topology.stack}"
    if is_label_value(label):
        return label
    return _append_digest(label, r"[^A-Za-z0-9_.-]", _LABEL_VALUE)


def build_object_name(topology: StackTopology) -> str:
    """Return the object name for the stack.

    PROJECT-STACK, with a digest if an object cannot have it.
    """
    name = f"{topology.project}-{topology.stack}"
    if _OBJECT_NAME.fullmatch(name):
        return name
    return _append_digest(name.lower(), r"[^a-z0-9-]", _OBJECT_NAME, digest_source=name)


def _append_digest(
    name: str, invalid_characters: str, valid_pattern: re.Pattern[str], digest_source: str = ""
) -> str:
    """Replace invalid characters, and append a digest of `digest_source` (by default `name`)."""
    # Names that differ only in replaced characters must stay different.
    digest = hashlib.sha256((digest_source or name).encode()).hexdigest()[:16]
    # With the digest at most 63 characters, as many as a label can have.
    head = re.sub(invalid_characters, "-", name)[:_MAX_NAME_HEAD].strip("-_.")
    digested_name = f"{head}-{digest}" if head else f"stack-{digest}"
    assert valid_pattern.fullmatch(digested_name)  # noqa: S101 - what is left fits
    return digested_name


RECORD_PREFIX: Final = "topology-"

NodeValues = dict[str, dict[str, list[str]]]
"""Values of `labels` and `annotations` of one node by key, as written or planned by gpuform."""


@dataclass(slots=True)
class WriteRecord:
    """What gpuform wrote of one format into one cluster: values by node, and paths of objects."""

    kubernetes: str
    form: str
    nodes: dict[str, NodeValues] = field(default_factory=dict)
    objects: list[str] = field(default_factory=list)

    def is_ours(self, node: str, part: str, key: str, value: str) -> bool:
        """Return True if gpuform wrote `value`, or recorded `value` before a write."""
        return value in self.nodes.get(node, {}).get(part, {}).get(key, ())

    def iterate_keys(self, node: str) -> Iterator[tuple[str, str]]:
        """Yield the part (`labels` or `annotations`) and key of each recorded value of a node."""
        for part, values in self.nodes.get(node, {}).items():
            yield from ((part, key) for key in values)

    def replace_value(self, node: str, part: str, key: str, value: str | None) -> None:
        """Record `value` as the only one of a key; None removes the key."""
        values = self.nodes.setdefault(node, {}).setdefault(part, {})
        values.pop(key, None)
        if value is not None:
            values[key] = [value]

    def add_value(self, node: str, part: str, key: str, value: str) -> None:
        """Record another value of a label or annotation written by gpuform."""
        recorded_values = self.nodes.setdefault(node, {}).setdefault(part, {}).setdefault(key, [])
        # The former value stays: it is there until the write has reached the cluster.
        if value not in recorded_values:
            recorded_values.append(value)

    @property
    def is_empty(self) -> bool:
        """Return True if nothing recorded is left to remove."""
        return not self.objects and not any(
            values for parts in self.nodes.values() for values in parts.values()
        )


class WriteRecords:
    """The records of one stack's writes into clusters."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def read(self, kubernetes: str, form: str) -> WriteRecord:
        """Return the record for a cluster and a format, empty if there is none."""
        # Somebody may have edited the file: values of another shape count as missing.
        fields = self._records.read(_compute_record_name(kubernetes, form)) or {}
        nodes, objects = _parse_nodes(fields.get("nodes")), _parse_strings(fields.get("objects"))
        return WriteRecord(kubernetes, form, nodes, objects)

    def save(self, record: WriteRecord) -> None:
        """Replace the stored record. An empty record is deleted."""
        name = _compute_record_name(record.kubernetes, record.form)
        # Nothing is left to remove, so a later run needs no record.
        if record.is_empty:
            self._records.delete(name)
            return
        nodes = {
            node: {part: values for part, values in parts.items() if values}
            for node, parts in record.nodes.items()
            if any(parts.values())
        }
        cluster = {"kubernetes": record.kubernetes, "form": record.form}
        self._records.write(name, {**cluster, "nodes": nodes, "objects": record.objects})


def _compute_record_name(kubernetes: str, form: str) -> str:
    return f"{RECORD_PREFIX}{compute_digest(f'{form} {kubernetes}')}"


def _parse_nodes(stored_nodes: Any) -> dict[str, NodeValues]:
    """Return the recorded values of each node; parts of another shape are left out."""
    nodes = stored_nodes if isinstance(stored_nodes, Mapping) else {}
    return {
        str(node): {
            str(part): {
                str(key): _parse_strings(stored_values) for key, stored_values in values.items()
            }
            for part, values in parts.items()
            if isinstance(values, Mapping)
        }
        for node, parts in nodes.items()
        if isinstance(parts, Mapping)
    }


def _parse_strings(items: Any) -> list[str]:
    """Return the items as texts; empty if `items` is not a list."""
    return [str(item) for item in items] if isinstance(items, list | tuple) else []


STACK_LABEL: Final = "gpuform.dev/stack"
PLATFORM_LABEL: Final = "gpuform.dev/platform"
REGION_LABEL: Final = "gpuform.dev/region"
OWN_ZONE_LABEL: Final = "gpuform.dev/zone"
POOL_LABEL: Final = "gpuform.dev/pool"
FABRIC_LABEL: Final = "gpuform.dev/fabric"
FABRIC_ID_LABEL: Final = "gpuform.dev/fabric-id"


def build_node_labels(topology: StackTopology, namespace: str) -> list[Manifest]:  # noqa: ARG001 - as the other formats
    """Return a manifest for each node, with labels for stack and location.

    `namespace` is ignored. Raises NoTopology without nodes, and for names that no Kubernetes node
    can have.
    """
    owner = {STACK_LABEL: build_owner_label(topology)}
    return [
        NodeMetadata(require_node_name(node.name), labels=owner | get_location_labels(node))
        for node in topology.require_nodes()
    ]


def get_location_labels(node: Node) -> dict[str, str]:
    """Return the location labels of a node, the widest first.

    Values that no label can have are left out.
    """
    return {key: value for key, value in _get_location(node).items() if is_label_value(value)}


def describe_unlabelled_values(topology: StackTopology) -> Iterator[str]:
    """Yield a sentence for each value that is invalid in a label."""
    omitted_values = {
        f"{key}={value!r}"
        for node in topology.nodes
        for key, value in _get_location(node).items()
        if value and not is_label_value(value)
    }
    for omitted_value in sorted(omitted_values):
        yield f"{omitted_value} is not a valid label value, and is omitted"


def _get_location(node: Node) -> dict[str, str]:
    """Return all location labels of a node; values may be empty or invalid as labels.

    The fabric's id is empty if it equals the fabric's name. The zone is empty if the node has
    Kubernetes' own label of a zone.
    """
    has_zone_label = bool(node.labels and node.labels.get(ZONE_LABEL))
    return {
        PLATFORM_LABEL: node.platform,
        REGION_LABEL: node.region,
        OWN_ZONE_LABEL: "" if has_zone_label else node.zone,
        POOL_LABEL: node.pool,
        FABRIC_LABEL: node.fabric,
        FABRIC_ID_LABEL: node.fabric_id if node.fabric_id != node.fabric else "",
    }


KUEUE_GROUP: Final = "kueue.x-k8s.io"
KUEUE_VERSION: Final = "v1beta2"
"""The version of Kueue 0.15 and newer; before a write, the cluster is asked for its own."""

_LOCATION_LEVELS: Final = (OWN_ZONE_LABEL, POOL_LABEL, FABRIC_LABEL)


def build_kueue_objects(topology: StackTopology, namespace: str) -> list[Manifest]:  # noqa: ARG001 - as the other formats
    """Return a Kueue Topology and a ResourceFlavor, both named after the stack.

    `namespace` is ignored: both kinds have none. Raises NoTopology without nodes.
    """
    topology.require_nodes()
    name = build_object_name(topology)
    levels = [{"nodeLabel": key} for key in list_kueue_levels(topology)]
    flavor = {"nodeLabels": {STACK_LABEL: build_owner_label(topology)}, "topologyName": name}
    version = f"{KUEUE_GROUP}/{KUEUE_VERSION}"
    return [
        OwnedObject(version, "Topology", "topologies", name, {"spec": {"levels": levels}}),
        OwnedObject(version, "ResourceFlavor", "resourceflavors", name, {"spec": flavor}),
    ]


def list_kueue_levels(topology: StackTopology) -> list[str]:
    """Return the labels common to all nodes, the widest first, with the host's last.

    Labels of switches and NVLink domains are included only if the labels of all nodes were read.
    """
    location_keys = [
        key
        for key in _LOCATION_LEVELS
        if all(key in get_location_labels(node) for node in topology.nodes)
    ]
    # None stands for a node whose labels were not read, or that the cluster does not have.
    node_labels = [node.labels for node in topology.nodes if node.labels is not None]
    first_labels = node_labels[0] if len(node_labels) == len(topology.nodes) else {}
    keys = [*reversed(list_tier_keys(first_labels)), find_domain_key(first_labels)]
    shared_keys = [key for key in keys if key and all(labels.get(key) for labels in node_labels)]
    return [*location_keys, *shared_keys, HOST_LABEL]


def describe_missing_kueue_labels(topology: StackTopology) -> Iterator[str]:
    """Yield a sentence if labels for the Kueue objects are missing or unknown.

    Raises NoTopology as `build_node_labels` does.
    """
    desired_labels = {
        manifest.name: manifest.labels
        for manifest in build_node_labels(topology, "")
        if isinstance(manifest, NodeMetadata)
    }
    unlabelled_nodes = [
        node.name
        for node in topology.nodes
        if node.labels is not None
        if any(node.labels.get(key) != value for key, value in desired_labels[node.name].items())
    ]
    has_unread_labels = any(node.labels is None for node in topology.nodes)
    if unlabelled_nodes or has_unread_labels:
        subject = "nodes may not have"
        if unlabelled_nodes:
            subject = f"{len(unlabelled_nodes)} nodes do not have"
        yield (
            f"{subject} the labels that Kueue uses: `gpuform export-topology --format "
            "kubernetes-labels --apply` writes them"
        )
