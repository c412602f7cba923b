"""What is written into a Kubernetes: labels and annotations of nodes, and objects of our own."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.stacks.topology_export.model import NoTopology, StackTopology

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
