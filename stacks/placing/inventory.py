"""An inventory for Ansible: the nodes as hosts, in groups by where they are.

From Ansible's page 'How to build your inventory': YAML with `all`, `hosts`, `children`; the names
of groups have letters, digits and underscores.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Any, Final

from gpuform.schemas.access import is_host
from gpuform.stacks.placing.model import Node, NoTopology, StackTopology

_NO_GROUP: Final = re.compile(r"[^A-Za-z0-9_]")


def inventory(topology: StackTopology) -> str:
    """The inventory as YAML. Raises NoTopology where a host's name is there twice, or is none."""
    import yaml  # noqa: PLC0415 - slow

    hosts: dict[str, dict[str, Any]] = {}
    groups: dict[tuple[str, str], list[str]] = {}
    for node in topology.nodes:
        if not is_host(node.name):
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
    if node.address and is_host(node.address):
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
