"""Check GPU nodes and pools: rules over several fields, texts as the platform's own provider checks
them, and regions (SCP reference, 'Environment and Region List').

Each rule gets what is declared; UNKNOWN is a value not known yet, and a rule that needs it says
nothing.

The names, lengths and characters are from the official Terraform provider (gpunode_resource.go);
the API reference has no rules.
"""

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from gpuform.schemas.checking import nearest
from gpuform.schemas.models import Problem
from gpuform.schemas.values import UNKNOWN

LONGEST_NODE_NAME: Final = 24
LONGEST_PREFIX: Final = LONGEST_NODE_NAME - len("-000")
PASSWORD_SIGNS: Final = "@$!%*#&"  # noqa: S105 - what passwords are made of
LONGEST_INIT_SCRIPT: Final = 16384
NODE_NAME_RULE: Final = (
    f"must have 3 to {LONGEST_NODE_NAME} lower-case letters, digits and hyphens, begin with a "
    "letter and not end with a hyphen"
)

_FABRIC = re.compile(r"[a-zA-Z][a-zA-Z0-9-]{1,13}[a-zA-Z0-9]")
_NODE = re.compile(r"[a-z][a-z0-9-]{1,22}[a-z0-9]")
_PREFIX = re.compile(rf"[a-z][a-z0-9-]{{1,{LONGEST_PREFIX - 2}}}[a-z0-9]")
_PASSWORD = re.compile(rf"[A-Za-z0-9{PASSWORD_SIGNS}]{{9,20}}")


def checked_fabric_name(text: str) -> str:
    """Raises ValueError that says the rule."""
    if not _FABRIC.fullmatch(text):
        raise ValueError(
            "must have 3 to 15 letters, digits and hyphens, begin with a letter and not end with a "
            "hyphen"
        )
    return text


def is_node_name(text: str) -> bool:
    """Whether the platform takes it for the name of a Linux GPU node."""
    return _NODE.fullmatch(text) is not None


def checked_node_name(text: str) -> str:
    """Raises ValueError that says the rule."""
    if not is_node_name(text):
        raise ValueError(NODE_NAME_RULE)
    return text


def checked_prefix(text: str) -> str:
    """Raises ValueError that says the rule."""
    if not _PREFIX.fullmatch(text):
        raise ValueError(
            f"must have 3 to {LONGEST_PREFIX} lower-case letters, digits and hyphens, begin with a "
            "letter and not end with a hyphen: -001, -002, ... are added to it"
        )
    return text


def checked_password(text: str) -> str:
    """Raises ValueError that says the rule, and never the password."""
    kinds = (str.isupper, str.islower, str.isdigit, PASSWORD_SIGNS.__contains__)
    if not _PASSWORD.fullmatch(text) or not all(any(map(kind, text)) for kind in kinds):
        raise ValueError(
            "must have 9 to 20 characters: upper-case letters, lower-case letters, digits and "
            f"signs ({' '.join(PASSWORD_SIGNS)}), at least one of each and no others"
        )
    return text


def checked_ip_address(text: str) -> str:
    """Raises ValueError when it is no IPv4 address."""
    try:
        IPv4Address(text)
    except ValueError:
        raise ValueError(
            f"{text} is not an IPv4 address: use one of the subnet, such as 192.168.0.10"
        ) from None
    return text


def checked_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    """Raises ValueError that names the tag which is too long."""
    for key, value in tags.items():
        if not 1 <= len(key) <= 128:
            raise ValueError(f"the key {key[:20]!r} must have 1 to 128 characters")
        if len(value) > 256:
            raise ValueError(f"the value of {key!r} must have at most 256 characters")
    return tags


FabricName = Annotated[str, AfterValidator(checked_fabric_name)]
NodeName = Annotated[str, AfterValidator(checked_node_name)]
NamePrefix = Annotated[str, AfterValidator(checked_prefix)]
Password = Annotated[str, AfterValidator(checked_password)]
InitScript = Annotated[str, Field(max_length=LONGEST_INIT_SCRIPT)]
IpAddress = Annotated[str, AfterValidator(checked_ip_address)]
Tags = Annotated[dict[str, str], AfterValidator(checked_tags)]


Values = Mapping[str, Any]

ALONE: Final = (
    "one server cannot make a fabric (the platform makes 2 to 5 at a time): make it with an "
    "scp.NodePool, and declare the pool's cluster_fabric_id here"
)


def server_problems(values: Values) -> Iterator[Problem]:
    """A type of server is declared. (One that was found for a gpu_type stands beside that.)"""
    if values.get("server_type_id") is None and values.get("gpu_type") is None:
        yield Problem(
            "server_type_id",
            "is required: declare the id of a product, or a gpu_type such as H100",
        )


def node_problems(values: Values) -> Iterator[Problem]:
    """NAT and its public IP go together."""
    nat, public_ip = values.get("nat_enabled"), values.get("public_ip_address_id")
    if nat is True and public_ip is None:
        yield Problem(
            "public_ip_address_id",
            "is required with nat_enabled: declare the id of a public IP",
        )
    if public_ip not in (None, UNKNOWN) and nat in (None, False):
        yield Problem(
            "nat_enabled", "is required with public_ip_address_id: declare it true, or remove both"
        )


def gpu_node_problems(values: Values) -> Iterator[Problem]:
    yield from server_problems(values)
    yield from node_problems(values)
    yield from _repair(values)
    if values.get("cluster_fabric_id") == "":
        yield Problem("cluster_fabric_id", f"is empty, the fabric has no members yet: {ALONE}")


def node_pool_problems(values: Values) -> Iterator[Problem]:
    yield from server_problems(values)
    count, nodes = values.get("count"), values.get("nodes")
    if count is None and nodes is None:
        yield Problem("count", "is required: declare how many nodes, or each of them in nodes")
    if count is not None and nodes is not None:
        yield Problem("count", "does not go with nodes, which are counted: keep one of the two")
    if nodes is not None and values.get("remove") is not None:
        yield Problem("remove", "goes with count only: remove the node from nodes instead")
    declared = values.get("drain")
    if isinstance(declared, Mapping) and declared.get("nodes"):
        if nodes is not None:
            yield Problem("drain.nodes", "goes with count only: remove the node from nodes instead")
        elif values.get("remove"):
            yield Problem("remove", "does not go with drain.nodes, which says the same")
    yield from _repair(values)
    if isinstance(nodes, Mapping):
        yield from _nodes(nodes, values.get("gpu_node_name_prefix"))


def without_empty(values: dict[str, Any]) -> dict[str, Any]:
    """An empty init_script is none, and so is the id of a fabric without members."""
    empty = [name for name in ("init_script", "cluster_fabric_id") if values.get(name) == ""]
    return {name: value for name, value in values.items() if name not in empty}


def node_name(key: str, node: Values, prefix: str) -> Any:
    """The name of a pool's node; UNKNOWN as long as it is."""
    return node.get("gpu_node_name", f"{prefix}-{key}")


def _repair(values: Values) -> Iterator[Problem]:
    """The platform knows no scheduler: who says that a node is not ready has to be declared."""
    repair, drain = values.get("repair"), values.get("drain")
    on = repair.get("on") if isinstance(repair, Mapping) else None
    if not isinstance(on, list) or "not_ready" not in on or drain is UNKNOWN:
        return
    schedulers = drain if isinstance(drain, Mapping) else {}
    if all(schedulers.get(name) is None for name in ("kubernetes", "slurm")):
        yield Problem(
            "repair.on",
            "has not_ready, which a scheduler tells: declare drain.kubernetes or drain.slurm",
        )


def _nodes(nodes: Values, prefix: Any) -> Iterator[Problem]:
    if not nodes:
        yield Problem("nodes", "is empty: a pool has one node or more")
    taken: dict[str, str] = {}
    for key, node in nodes.items():
        if not isinstance(node, Mapping) or not isinstance(prefix, str):
            continue
        name = node_name(key, node, prefix)
        if not isinstance(name, str):
            continue
        if "gpu_node_name" not in node and not is_node_name(name):
            yield Problem(
                f"nodes.{key}",
                f"would be named {name}, and a name {NODE_NAME_RULE}: use another key, or declare "
                "its gpu_node_name",
            )
        elif name in taken:
            yield Problem(
                f"nodes.{key}",
                f"is named {name} like {taken[name]}: give each node its own gpu_node_name",
            )
        taken.setdefault(name, key)


REGIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "s": ("kr-west1", "kr-east1"),
        "g": ("kr-south1", "kr-south2", "kr-south3"),
        "e": ("kr-west1", "kr-east1"),
    }
)
"""Environment -> its regions."""


def checked_region(region: str) -> str:
    """The region, if it is one. Raises ValueError with the nearest, or with all."""
    known = {each: None for regions in REGIONS.values() for each in regions}
    if region in known:
        return region
    near = nearest(region, known)
    advice = f"did you mean {near}?" if near else f"use one of {', '.join(known)}"
    raise ValueError(f"{region} is not a region of Samsung SCP: {advice}")


RegionId = Annotated[str, AfterValidator(checked_region)]


def service_url(region: str, environment: str) -> str:
    """The address of the API. Raises ValueError that lists the pairs when there is none such."""
    if region not in REGIONS.get(environment, ()):
        raise ValueError(
            f"SCP has no region {region} in environment {environment}: {all_regions()}"
        )
    return f"https://multinodegpucluster.{region}.{environment}.samsungsdscloud.com"


def environments_of(region: str) -> list[str]:
    """The environments that have a region; none for one that is not known."""
    return [each for each, regions in REGIONS.items() if region in regions]


def all_regions() -> str:
    """The regions of each environment, for messages."""
    return "; ".join(f"{each} has {', '.join(regions)}" for each, regions in REGIONS.items())
