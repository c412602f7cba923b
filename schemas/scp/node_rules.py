"""Check declared GPU nodes and pools of Samsung Cloud Platform: combinations, names and regions.

Used by the inputs and the client of SCP. A rule gets the declared values; a rule that needs an
UNKNOWN value reports nothing. Regions are from the SCP reference, 'Environment and Region List'.
Names, lengths and characters are from the official Terraform provider (gpunode_resource.go): the
API reference has no rules.
"""

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from gpuform.schemas.checking import suggest_name
from gpuform.schemas.models import Problem, require_full_match
from gpuform.schemas.values import UNKNOWN

MAX_NODE_NAME_LENGTH: Final = 24
# a node of a pool is named PREFIX-001
MAX_PREFIX_LENGTH: Final = MAX_NODE_NAME_LENGTH - len("-000")
PASSWORD_SIGNS: Final = "@$!%*#&"  # noqa: S105 - what passwords are made of
MAX_INIT_SCRIPT_LENGTH: Final = 16384
NODE_NAME_RULE: Final = (
    f"must have 3 to {MAX_NODE_NAME_LENGTH} lower-case letters, digits and hyphens, begin with a "
    "letter and not end with a hyphen"
)

_NODE_NAME = re.compile(r"[a-z][a-z0-9-]{1,22}[a-z0-9]")
_PASSWORD = re.compile(rf"[A-Za-z0-9{PASSWORD_SIGNS}]{{9,20}}")


def is_valid_node_name(name: str) -> bool:
    """Return True if ``name`` is a valid name of a Linux GPU node on Samsung Cloud Platform."""
    return _NODE_NAME.fullmatch(name) is not None


def validate_password(password: str) -> str:
    """Return ``password`` if a password of 9 to 20 characters of four kinds; else ValueError.

    Upper-case letters, lower-case letters, digits and `PASSWORD_SIGNS`. The message does not
    contain the password.
    """
    kinds = (str.isupper, str.islower, str.isdigit, PASSWORD_SIGNS.__contains__)
    if not _PASSWORD.fullmatch(password) or not all(any(map(kind, password)) for kind in kinds):
        raise ValueError(
            "must have 9 to 20 characters: upper-case letters, lower-case letters, digits and "
            f"signs ({' '.join(PASSWORD_SIGNS)}), at least one of each and no others"
        )
    return password


def validate_ip_address(address: str) -> str:
    """Return ``address`` if valid as an IPv4 address. Raises ValueError otherwise."""
    try:
        IPv4Address(address)
    except ValueError:
        raise ValueError(
            f"{address} is not an IPv4 address: use one of the subnet, such as 192.168.0.10"
        ) from None
    return address


def validate_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    """Return ``tags`` if keys have 1 to 128 and values at most 256 characters; else ValueError.

    The message names the tag.
    """
    for key, value in tags.items():
        # limits of the Terraform provider
        if not 1 <= len(key) <= 128:
            raise ValueError(f"the key {key[:20]!r} must have 1 to 128 characters")
        if len(value) > 256:
            raise ValueError(f"the value of {key!r} must have at most 256 characters")
    return tags


FabricName = Annotated[
    str,
    require_full_match(
        r"[a-zA-Z][a-zA-Z0-9-]{1,13}[a-zA-Z0-9]",
        "must have 3 to 15 letters, digits and hyphens, begin with a letter and not end with a "
        "hyphen",
    ),
]
NodeName = Annotated[str, require_full_match(_NODE_NAME.pattern, NODE_NAME_RULE)]
NamePrefix = Annotated[
    str,
    require_full_match(
        rf"[a-z][a-z0-9-]{{1,{MAX_PREFIX_LENGTH - 2}}}[a-z0-9]",
        f"must have 3 to {MAX_PREFIX_LENGTH} lower-case letters, digits and hyphens, begin with a "
        "letter and not end with a hyphen: -001, -002, ... are added to it",
    ),
]
Password = Annotated[str, AfterValidator(validate_password)]
InitScript = Annotated[str, Field(max_length=MAX_INIT_SCRIPT_LENGTH)]
IpAddress = Annotated[str, AfterValidator(validate_ip_address)]
Tags = Annotated[dict[str, str], AfterValidator(validate_tags)]


Values = Mapping[str, Any]

NEEDS_NODE_POOL: Final = (
    "one server cannot create a fabric (the platform creates 2 to 5 at a time): create it with an "
    "scp.NodePool, and declare the pool's cluster_fabric_id here"
)


def find_server_type_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem if no server type is declared.

    A server_type_id may be declared together with the gpu_type that the id belongs to.
    """
    # the gpu_type is looked up in the list of products
    if values.get("server_type_id") is None and values.get("gpu_type") is None:
        yield Problem(
            "server_type_id", "is required: declare the id of a product, or a gpu_type such as H100"
        )


def find_nat_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem if only one of nat_enabled and public_ip_address_id is declared."""
    nat, public_ip = values.get("nat_enabled"), values.get("public_ip_address_id")
    if nat is True and public_ip is None:
        yield Problem(
            "public_ip_address_id", "is required with nat_enabled: declare the id of a public IP"
        )
    if public_ip not in (None, UNKNOWN) and nat in (None, False):
        yield Problem(
            "nat_enabled", "is required with public_ip_address_id: declare it true, or remove both"
        )


def find_gpu_node_problems(values: Values) -> Iterator[Problem]:
    """Yield the problems between the inputs of a GPU node: server type, NAT, repair, fabric id."""
    yield from find_server_type_problems(values)
    yield from find_nat_problems(values)
    yield from _find_repair_problems(values)
    if values.get("cluster_fabric_id") == "":
        yield Problem(
            "cluster_fabric_id", f"is empty, the fabric has no members yet: {NEEDS_NODE_POOL}"
        )


def find_node_pool_problems(values: Values) -> Iterator[Problem]:
    """Yield the problems between the inputs of a node pool.

    These are a missing server type or number of nodes, `count` beside `nodes`, several ways to
    remove a node, `not_ready` repairs without a scheduler, and invalid or repeated names of nodes.
    """
    yield from find_server_type_problems(values)
    count, nodes = values.get("count"), values.get("nodes")
    if count is None and nodes is None:
        yield Problem("count", "is required: declare how many nodes, or each of them in nodes")
    if count is not None and nodes is not None:
        yield Problem(
            "count", "conflicts with nodes, whose entries set the count: keep one of the two"
        )
    # with named nodes, a missing key already says which node to remove
    if nodes is not None and values.get("remove") is not None:
        yield Problem("remove", "is valid only with count: remove the node from nodes instead")
    declared = values.get("drain")
    if isinstance(declared, Mapping) and declared.get("nodes"):
        if nodes is not None:
            yield Problem(
                "drain.nodes", "is valid only with count: remove the node from nodes instead"
            )
        elif values.get("remove"):
            yield Problem("remove", "conflicts with drain.nodes: keep one of the two")
    yield from _find_repair_problems(values)
    if isinstance(nodes, Mapping):
        yield from _find_node_problems(nodes, values.get("gpu_node_name_prefix"))


def remove_empty_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return ``values`` without an empty init_script and without an empty cluster_fabric_id."""
    # the id of a fabric without members is an empty output, and an empty script runs nothing
    empty_fields = [name for name in ("init_script", "cluster_fabric_id") if values.get(name) == ""]
    return {name: value for name, value in values.items() if name not in empty_fields}


def get_node_name(key: str, node: Values, prefix: str) -> Any:
    """Return the name of a pool's node: declared, or made of the prefix and the node's key.

    UNKNOWN if not known yet.
    """
    return node.get("gpu_node_name", f"{prefix}-{key}")


def _find_repair_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem if `repair.on` has not_ready and `drain` names no scheduler.

    SCP reports no schedulers, so `not_ready` can only come from a declared one.
    """
    repair, drain = values.get("repair"), values.get("drain")
    on = repair.get("on") if isinstance(repair, Mapping) else None
    if not isinstance(on, list) or "not_ready" not in on or drain is UNKNOWN:
        return
    schedulers = drain if isinstance(drain, Mapping) else {}
    if all(schedulers.get(name) is None for name in ("kubernetes", "slurm")):
        yield Problem(
            "repair.on",
            "includes not_ready, which only a scheduler reports: declare "
            "drain.kubernetes or drain.slurm",
        )


def _find_node_problems(nodes: Values, prefix: Any) -> Iterator[Problem]:
    """Yield a problem for a pool without nodes, and for each invalid or repeated node name.

    A declared name is only compared: its form was checked with the field. `prefix` is the pool's
    declared name prefix; an UNKNOWN prefix or node is skipped.
    """
    if not nodes:
        yield Problem("nodes", "is empty: a pool has one node or more")
    keys_by_name: dict[str, str] = {}
    for key, node in nodes.items():
        if not isinstance(node, Mapping) or not isinstance(prefix, str):
            continue
        name = get_node_name(key, node, prefix)
        if not isinstance(name, str):
            continue
        # a declared name was validated as a field; a name made from prefix and key was not
        if "gpu_node_name" not in node and not is_valid_node_name(name):
            yield Problem(
                f"nodes.{key}",
                f"would be named {name}, and a name {NODE_NAME_RULE}: use another key, or declare "
                "its gpu_node_name",
            )
        elif name in keys_by_name:
            yield Problem(
                f"nodes.{key}",
                f"is named {name} like {keys_by_name[name]}: give each node its own gpu_node_name",
            )
        keys_by_name.setdefault(name, key)


REGIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "s": ("kr-west1", "kr-east1"),
        "g": ("kr-south1", "kr-south2", "kr-south3"),
        "e": ("kr-west1", "kr-east1"),
    }
)
"""The regions of each environment."""


def validate_region(region: str) -> str:
    """Return ``region`` if one of the environments has the region.

    Raises ValueError with the nearest region, or with all regions.
    """
    all_region_ids = {region_id: None for regions in REGIONS.values() for region_id in regions}
    if region in all_region_ids:
        return region
    advice = suggest_name(region, all_region_ids, f"use one of {', '.join(all_region_ids)}")
    raise ValueError(f"{region} is not a region of Samsung SCP: {advice}")


RegionId = Annotated[str, AfterValidator(validate_region)]


def build_service_url(region: str, environment: str) -> str:
    """Return the base URL of SCP's API for a region of an environment: `s`, `g` or `e`.

    Raises ValueError with all pairs of region and environment if there is no such pair.
    """
    # the name of the host contains both region and environment
    if region not in REGIONS.get(environment, ()):
        raise ValueError(
            f"SCP has no region {region} in environment {environment}: {describe_regions()}"
        )
    return f"https://multinodegpucluster.{region}.{environment}.samsungsdscloud.com"


def find_environments(region: str) -> list[str]:
    """Return the environments with a region; empty for an unknown region."""
    return [environment for environment, regions in REGIONS.items() if region in regions]


def describe_regions() -> str:
    """Return the regions of each environment as one line for messages."""
    return "; ".join(
        f"{environment} has {', '.join(regions)}" for environment, regions in REGIONS.items()
    )
