"""Two stacks that declare the same must be the same, but for when and as what it was made."""

import json
from collections.abc import Mapping
from typing import Any

OTHER = ("id", "created", "modified", "outputs", "sourcePosition", "stackTrace")
"""What differs from one creation of the same thing to the next, and with where it is declared."""


def kept(state: Any) -> Any:
    """What a stack's export holds, by URN, with resources in the place of their ids."""
    resources = state["deployment"]["resources"]
    ids = ids_of(resources)
    return {
        each["urn"]: {**same(each, ids), "outputs": sorted(each.get("outputs", {}))}
        for each in resources
    }


def ids_of(resources: Any) -> dict[str, str]:
    """What stands for each id: its resource."""
    ids = {
        each["provider"].rpartition("::")[2]: "provider" for each in resources if "provider" in each
    }
    return ids | {each["id"]: each["urn"] for each in resources if each.get("id")}


def same(resource: Any, ids: Mapping[str, str]) -> Any:
    """What must be the same each time that a resource is made."""
    text = json.dumps({key: value for key, value in resource.items() if key not in OTHER})
    for id_, stands_for in ids.items():
        text = text.replace(id_, stands_for)
    return json.loads(text)
