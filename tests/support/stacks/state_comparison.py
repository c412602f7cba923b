"""Compare stacks that declare the same, leaving out ids, times and source positions."""

import json
from collections.abc import Mapping
from typing import Any

VARYING_KEYS = ("id", "created", "modified", "outputs", "sourcePosition", "stackTrace")
"""Keys of a resource whose values differ between two creations of the same declaration."""


def normalize_export(state: Any) -> Any:
    """Return the resources of a stack's export by URN, with URNs in place of ids."""
    resources = state["deployment"]["resources"]
    ids = map_ids(resources)
    return {
        resource["urn"]: {
            **normalize_resource(resource, ids),
            "outputs": sorted(resource.get("outputs", {})),
        }
        for resource in resources
    }


def map_ids(resources: Any) -> dict[str, str]:
    """Return the replacement of each id: the URN of its resource, or "provider"."""
    ids = {
        resource["provider"].rpartition("::")[2]: "provider"
        for resource in resources
        if "provider" in resource
    }
    return ids | {resource["id"]: resource["urn"] for resource in resources if resource.get("id")}


def normalize_resource(resource: Any, ids: Mapping[str, str]) -> Any:
    """Return the parts of a resource that are the same each time that it is created."""
    encoded = json.dumps({key: value for key, value in resource.items() if key not in VARYING_KEYS})
    for id_, replacement in ids.items():
        encoded = encoded.replace(id_, replacement)
    return json.loads(encoded)
