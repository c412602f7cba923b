"""Write node labels, annotations and Kueue objects into a Kubernetes cluster, and keep a record of
them, so that they can be removed.

From Kueue's API kueue.x-k8s.io: `Topology.spec.levels[].nodeLabel`, the widest first and the host
last; `ResourceFlavor.spec.topologyName`, which needs a label of its nodes. Kueue leaves out a node
that lacks a label of a level, so only labels that all nodes have are levels.

It is kept before anything is sent: after a run that was killed it may name too much, and what does
not have the value that it names is nobody's but its owner's.

Switches and NVLink domains are not written again: they are known from labels that are there.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.providers.records import Records, compute_digest
from gpuform.stacks.topology_export.model import (
    HOST,
    Node,
    NoTopology,
    StackTopology,
    domain_key,
    tier_keys,
)

_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NODE_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
)
_MARKED: Final = 46

MARK: Final = "gpuform.dev/topology-of"
"""The annotation of objects that gpuform makes: the stack that they tell of."""


@dataclass(frozen=True, slots=True)
class NodeMetadata:
    """Labels and annotations that a node gets beside its own."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WholeObject:
    """An object that is gpuform's own. `content` is its `spec` or its `data`, under that name."""

    api_version: str
    kind: str
    plural: str
    name: str
    content: Mapping[str, Any]
    namespace: str = ""


Manifest = NodeMetadata | WholeObject


def document(manifest: Manifest, mark: str) -> dict[str, Any]:
    """A manifest as the API has it; objects of our own bear the `mark` of their stack."""
    if isinstance(manifest, NodeMetadata):
        told = {"labels": dict(manifest.labels), "annotations": dict(manifest.annotations)}
        metadata = {"name": manifest.name, **{key: each for key, each in told.items() if each}}
        return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    place = {"namespace": manifest.namespace} if manifest.namespace else {}
    return {
        "apiVersion": manifest.api_version,
        "kind": manifest.kind,
        "metadata": {"name": manifest.name, **place, "annotations": {MARK: mark}},
        **manifest.content,
    }


def documents_text(manifests: Iterable[Manifest], mark: str) -> str:
    """A stream of YAML documents, which kubectl can read."""
    import yaml  # noqa: PLC0415 - slow

    class Lines(yaml.SafeDumper):
        """Texts of several lines stand as they are."""

    def represented(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Lines.add_representer(str, represented)
    documents = [document(each, mark) for each in manifests]
    return str(yaml.dump_all(documents, Dumper=Lines, sort_keys=False, width=1000))


def is_label_value(text: str) -> bool:
    """Whether Kubernetes takes it as the value of a label."""
    return _LABEL_VALUE.fullmatch(text) is not None


def checked_node(name: str) -> str:
    """The name. Raises NoTopology for what no node of Kubernetes is called."""
    if _NODE_NAME.fullmatch(name) is None:
        raise NoTopology(
            f"node {name!r} has no name that a node of Kubernetes can have",
            hint="rename it on its platform, or name the other clusters",
        )
    return name


def checked_namespace(name: str) -> str:
    """The name. Raises NoTopology for what no namespace of Kubernetes is called."""
    if _OBJECT_NAME.fullmatch(name) is None:
        raise NoTopology(
            f"{name!r} is no name that a namespace of Kubernetes can have",
            hint="give the namespace of Slurm: --namespace NAME",
        )
    return name


def mark_of(topology: StackTopology) -> str:
    """What stands for a stack in labels: PROJECT.STACK, or the like with a digest."""
    text = f"{topology.project}.{topology.stack}"
    return text if is_label_value(text) else _digested(text, r"[^A-Za-z0-9_.-]", _LABEL_VALUE)


def object_name(topology: StackTopology) -> str:
    """What stands for a stack as the name of an object: PROJECT-STACK, or the like."""
    text = f"{topology.project}-{topology.stack}"
    if _OBJECT_NAME.fullmatch(text):
        return text
    return _digested(text.lower(), r"[^a-z0-9-]", _OBJECT_NAME, of=text)


def _digested(text: str, bad: str, good: re.Pattern[str], of: str = "") -> str:
    """Texts that differ in what cannot be written have other digests."""
    digest = hashlib.sha256((of or text).encode()).hexdigest()[:16]
    head = re.sub(bad, "-", text)[:_MARKED].strip("-_.")
    found = f"{head}-{digest}" if head else f"stack-{digest}"
    assert good.fullmatch(found)  # noqa: S101 - what is left fits
    return found


PREFIX: Final = "topology-"

Values = dict[str, dict[str, list[str]]]
"""`labels` and `annotations` of one node, by key: what we wrote, or were about to."""


@dataclass(slots=True)
class Written:
    """What one format has in one Kubernetes: values by node, and paths of whole objects."""

    kubernetes: str
    form: str
    nodes: dict[str, Values] = field(default_factory=dict)
    objects: list[str] = field(default_factory=list)

    def is_ours(self, node: str, part: str, key: str, value: str) -> bool:
        """Whether a value that is there is one that we wrote, or were about to."""
        return value in self.nodes.get(node, {}).get(part, {}).get(key, ())

    def keys(self, node: str) -> Iterator[tuple[str, str]]:
        """Where on a node we wrote something."""
        for part, values in self.nodes.get(node, {}).items():
            yield from ((part, key) for key in values)

    def note(self, node: str, part: str, key: str, value: str | None) -> None:
        """Takes over that it is there now; None that nothing of ours is."""
        values = self.nodes.setdefault(node, {}).setdefault(part, {})
        values.pop(key, None)
        if value is not None:
            values[key] = [value]

    def announce(self, node: str, part: str, key: str, value: str) -> None:
        """Takes over that it may soon be there, beside what is known."""
        known = self.nodes.setdefault(node, {}).setdefault(part, {}).setdefault(key, [])
        if value not in known:
            known.append(value)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to take back."""
        return not self.objects and not any(
            values for parts in self.nodes.values() for values in parts.values()
        )


class WrittenRecords:
    """The records of one stack."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def find(self, kubernetes: str, form: str) -> Written:
        """What is recorded; nothing written where there is no record."""
        fields = self._records.read(_name(kubernetes, form)) or {}
        return Written(kubernetes, form, _nodes(fields.get("nodes")), _texts(fields.get("objects")))

    def keep(self, written: Written) -> None:
        """In place of what was recorded; nothing left is no record."""
        name = _name(written.kubernetes, written.form)
        if written.is_empty:
            self._records.delete(name)
            return
        nodes = {
            node: {part: values for part, values in parts.items() if values}
            for node, parts in written.nodes.items()
            if any(parts.values())
        }
        self._records.write(
            name,
            {
                "kubernetes": written.kubernetes,
                "form": written.form,
                "nodes": nodes,
                "objects": written.objects,
            },
        )


def _name(kubernetes: str, form: str) -> str:
    return f"{PREFIX}{compute_digest(f'{form} {kubernetes}')}"


def _nodes(found: Any) -> dict[str, Values]:
    nodes = found if isinstance(found, Mapping) else {}
    return {
        str(node): {
            str(part): {str(key): _texts(told) for key, told in values.items()}
            for part, values in parts.items()
            if isinstance(values, Mapping)
        }
        for node, parts in nodes.items()
        if isinstance(parts, Mapping)
    }


def _texts(told: Any) -> list[str]:
    return [str(each) for each in told] if isinstance(told, list | tuple) else []


STACK: Final = "gpuform.dev/stack"
PLATFORM: Final = "gpuform.dev/platform"
REGION: Final = "gpuform.dev/region"
POOL: Final = "gpuform.dev/pool"
FABRIC: Final = "gpuform.dev/fabric"
FABRIC_ID: Final = "gpuform.dev/fabric-id"


def kubernetes_labels(topology: StackTopology, namespace: str) -> list[Manifest]:  # noqa: ARG001 - as the other formats
    """Each node with the labels that say where it is."""
    if not topology.nodes:
        raise NoTopology(f"{topology.title} has no nodes yet", hint="make them: `gpuform up`")
    mark = mark_of(topology)
    return [
        NodeMetadata(checked_node(node.name), labels={STACK: mark, **own_labels(node)})
        for node in topology.nodes
    ]


def own_labels(node: Node) -> dict[str, str]:
    """What is known of a node and can be the value of a label, the widest first."""
    return {key: value for key, value in _told(node).items() if is_label_value(value)}


def labels_unknown(topology: StackTopology) -> Iterator[str]:
    """What no label can tell."""
    lost = {
        f"{key}={value!r}"
        for node in topology.nodes
        for key, value in _told(node).items()
        if value and not is_label_value(value)
    }
    for each in sorted(lost):
        yield f"{each} is no value of a label, and is left out"


def _told(node: Node) -> dict[str, str]:
    return {
        PLATFORM: node.platform,
        REGION: node.region,
        POOL: node.pool,
        FABRIC: node.fabric,
        FABRIC_ID: node.fabric_id if node.fabric_id != node.fabric else "",
    }


GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = "v1beta2"
"""Kueue 0.15 and newer; an older one's is asked of the cluster before anything is written."""

_OWN: Final = (POOL, FABRIC)


def kueue(topology: StackTopology, namespace: str) -> list[Manifest]:  # noqa: ARG001 - as the other formats
    """Both objects; they have the stack's name."""
    if not topology.nodes:
        raise NoTopology(f"{topology.title} has no nodes yet", hint="make them: `gpuform up`")
    name = object_name(topology)
    levels = [{"nodeLabel": key} for key in levels_of(topology)]
    flavor = {"nodeLabels": {STACK: mark_of(topology)}, "topologyName": name}
    version = f"{GROUP}/{VERSION}"
    return [
        WholeObject(version, "Topology", "topologies", name, {"spec": {"levels": levels}}),
        WholeObject(version, "ResourceFlavor", "resourceflavors", name, {"spec": flavor}),
    ]


def levels_of(topology: StackTopology) -> list[str]:
    """The labels that all nodes have, the widest first."""
    own = [key for key in _OWN if all(key in own_labels(node) for node in topology.nodes)]
    known = [node.labels for node in topology.nodes if node.labels is not None]
    found = known[0] if len(known) == len(topology.nodes) else {}
    keys = [*reversed(tier_keys(found)), domain_key(found)]
    shared = [key for key in keys if key and all(labels.get(key) for labels in known)]
    return [*own, *shared, HOST]


def kueue_unknown(topology: StackTopology) -> Iterator[str]:
    """What has to be on the nodes for it to work."""
    wanted = {
        each.name: each.labels
        for each in kubernetes_labels(topology, "")
        if isinstance(each, NodeMetadata)
    }
    without = [
        node.name
        for node in topology.nodes
        if node.labels is not None
        if any(node.labels.get(key) != value for key, value in wanted[node.name].items())
    ]
    unasked = any(node.labels is None for node in topology.nodes)
    if without or unasked:
        what = f"{len(without)} nodes have not" if without else "it is not known whether nodes have"
        yield (
            f"{what} the labels that Kueue goes by: `gpuform topology --format kubernetes-labels "
            "--apply` writes them"
        )
