"""Write a stack's node topology in the chosen format: an Ansible inventory, a Topograph model, or
another tool's format.

From Ansible's page 'How to build your inventory': YAML with `all`, `hosts`, `children`; the names
of groups have letters, digits and underscores.

From Topograph's page 'Modeling and API Simulation': `switches` is a map, `blocks` name the nodes,
and an annotation of a block names an accelerator domain.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuform.schemas.access import is_valid_host
from gpuform.stacks.topology_export.manifests import (
    Manifest,
    documents_text,
    kubernetes_labels,
    kueue,
    kueue_unknown,
    labels_unknown,
    mark_of,
)
from gpuform.stacks.topology_export.model import REGION, ZONE, Node, NoTopology, StackTopology
from gpuform.stacks.topology_export.slurm_topology import (
    Switch,
    block_unknown,
    checked,
    slinky,
    slurm_block,
    slurm_tree,
    switch_of_each,
    switches_of,
    tree_unknown,
)

DOMAIN: Final = "accelerator.topology.test/domain"


def topograph(topology: StackTopology) -> str:
    """The file as YAML. Raises NoTopology where a node's name is there twice."""
    import yaml  # noqa: PLC0415 - slow

    _check(topology)
    switches = switches_of(topology)
    under = switch_of_each(switches)
    groups: dict[tuple[str, str, str, str], list[Node]] = {}
    for node in topology.nodes:
        groups.setdefault((under[node], node.domain, node.region, node.zone), []).append(node)
    found = {
        "switches": {checked(each.name, "switch"): _switch(each) for each in switches},
        "blocks": [_block(key, nodes) for key, nodes in groups.items()],
    }
    return f"# {topology.title}; written by gpuform.\n" + str(
        yaml.safe_dump(found, sort_keys=False, width=1000)
    )


def _check(topology: StackTopology) -> None:
    if not topology.nodes:
        raise NoTopology(f"{topology.title} has no nodes yet", hint="make them: `gpuform up`")
    names = [checked(node.name, "node") for node in topology.nodes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise NoTopology(
            f"two nodes are called {twice}", hint="name the clusters whose nodes differ"
        )


def _switch(switch: Switch) -> dict[str, Any]:
    return {"switches": list(switch.switches)} if switch.switches else {}


def _block(key: tuple[str, str, str, str], nodes: list[Node]) -> dict[str, Any]:
    switch, domain, region, zone = key
    labels = {name: value for name, value in ((REGION, region), (ZONE, zone)) if value}
    found: dict[str, Any] = {"switch": switch, "nodes": [node.name for node in nodes]}
    if labels:
        found["labels"] = labels
    if domain:
        found["annotations"] = {DOMAIN: domain}
    return found


_NO_GROUP: Final = re.compile(r"[^A-Za-z0-9_]")


def inventory(topology: StackTopology) -> str:
    """The inventory as YAML. Raises NoTopology where a host's name is there twice, or is none."""
    import yaml  # noqa: PLC0415 - slow

    hosts: dict[str, dict[str, Any]] = {}
    groups: dict[tuple[str, str], list[str]] = {}
    for node in topology.nodes:
        if not is_valid_host(node.name):
            raise NoTopology(
                f"node {node.name!r} has no name that a host can have",
                hint="rename it on its platform, or name the other clusters",
            )
        if node.name in hosts:
            raise NoTopology(
                f"two nodes are called {node.name}", hint="name the clusters whose nodes differ"
            )
        hosts[node.name] = dict(_variables(topology, node))
        for key in _groups(topology, node):
            groups.setdefault(key, []).append(node.name)
    names = _names(list(groups))
    children: dict[str, Any] = {
        names[key]: {"hosts": {name: {} for name in groups[key]}} for key in sorted(groups)
    }
    found = {"all": {"hosts": hosts, **({"children": children} if children else {})}}
    text = yaml.dump(found, Dumper=_dumper(), sort_keys=False, width=1000)
    return f"# {topology.title}; written by gpuform.\n{text}"


def _dumper() -> Any:
    """Without anchors: equal hosts are no references to each other."""
    import yaml  # noqa: PLC0415 - slow

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - of the library
            return True

    return Plain


def _variables(topology: StackTopology, node: Node) -> Iterator[tuple[str, Any]]:
    if node.address and is_valid_host(node.address):
        yield "ansible_host", node.address
    told = {
        "resource": topology.names.get(node.resource, ""),
        "platform": node.platform,
        "region": node.region,
        "zone": node.zone,
        "pool": node.pool,
        "fabric": node.fabric,
        "fabric_id": node.fabric_id,
        "nvlink_domain": node.domain,
        "slurm_name": node.slurm,
    }
    yield from ((f"gpuform_{key}", _unsafe(value)) for key, value in told.items() if value)
    if node.tiers:
        yield "gpuform_switches", [_unsafe(tier) for tier in node.tiers]


def _unsafe(text: str) -> str:
    """Ansible evaluates `{{` in variables: what a platform tells is never evaluated."""
    return text.replace("{{", "{ {").replace("{%", "{ %").replace("{#", "{ #")


def _groups(topology: StackTopology, node: Node) -> Iterator[tuple[str, str]]:
    told = {
        "resource": topology.names.get(node.resource, ""),
        "platform": node.platform,
        "region": node.region,
        "pool": node.pool,
        "fabric": node.fabric,
        "nvlink": node.domain,
    }
    yield from ((key, value) for key, value in told.items() if value)


def _names(keys: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Where two would be written alike, each gets a mark of its own: the same in every run."""
    plain = {key: _NO_GROUP.sub("_", f"{key[0]}_{key[1]}") for key in keys}
    written = list(plain.values())
    return {
        key: name if written.count(name) == 1 else f"{name}_{_digest(key)}"
        for key, name in plain.items()
    }


def _digest(key: tuple[str, str]) -> str:
    return hashlib.sha256("\0".join(key).encode()).hexdigest()[:8]


_Manifests = Callable[[StackTopology, str], Sequence[Manifest]]
_Unknown = Callable[[StackTopology], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Format:
    """One of them: a text, or what is written into a Kubernetes.

    `of_one` is for one scheduler. `unknown` says what this format cannot tell.
    """

    text: Callable[[StackTopology], str] | None = None
    manifests: _Manifests | None = None
    of_one: bool = True
    unknown: _Unknown = lambda _: ()

    def written(self, topology: StackTopology, namespace: str) -> str:
        """The whole text. Raises NoTopology where it cannot be written."""
        if self.manifests is not None:
            return documents_text(self.manifests(topology, namespace), mark_of(topology))
        assert self.text is not None  # noqa: S101 - one of the two is there
        return self.text(topology)


@dataclass(frozen=True, slots=True)
class TopologyResult:
    """The topology and its text in one format; `unknown` are sentences about what is left out."""

    form: str
    topology: StackTopology
    text: str
    unknown: Sequence[str]


FORMATS: Final[Mapping[str, Format]] = {
    "slurm-tree": Format(slurm_tree, unknown=tree_unknown),
    "slurm-block": Format(slurm_block, unknown=block_unknown),
    "slinky": Format(manifests=slinky, unknown=tree_unknown),
    "kubernetes-labels": Format(manifests=kubernetes_labels, unknown=labels_unknown),
    "kueue": Format(manifests=kueue, unknown=kueue_unknown),
    "topograph": Format(topograph, of_one=False, unknown=tree_unknown),
    "inventory": Format(inventory, of_one=False),
}
"""By their names on the command line."""

APPLIED: Final = tuple(name for name, each in FORMATS.items() if each.manifests is not None)
"""Those that can be written into a Kubernetes."""
