"""Write the JSON Schemas of plans and node inventories, for programs that read them."""

import json
from typing import Any

from gpuform.schemas.plan import FORMAT_VERSION, Plan
from gpuform.schemas.resource_facts import NodeInventory, NodeRecord


def build_plan_schema() -> dict[str, Any]:
    """Return the schema of a plan in this release's format."""
    schema = Plan.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "gpuform plan"
    schema["properties"]["format_version"]["const"] = FORMAT_VERSION
    # Pydantic counts a field with a default as optional; every plan has this one.
    schema["required"] = ["format_version", *schema["required"]]
    return schema


def render_plan_schema() -> str:
    """Return the schema of a plan as the text of a file."""
    return json.dumps(build_plan_schema(), indent=2) + "\n"


def build_inventory_schema() -> dict[str, Any]:
    """Return the schema of an inventory of nodes in this release's format."""
    schema = NodeInventory.model_json_schema(mode="serialization")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "gpuform node inventory"
    # Every inventory has every field, also those with a default.
    schema["required"] = list(NodeInventory.model_fields)
    schema["$defs"]["NodeRecord"]["required"] = list(NodeRecord.model_fields)
    return schema


def render_inventory_schema() -> str:
    """Return the schema of an inventory of nodes as the text of a file."""
    return json.dumps(build_inventory_schema(), indent=2) + "\n"
