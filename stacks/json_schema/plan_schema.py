"""Write the JSON Schema of plans, for programs that read plans."""

import json
from typing import Any

from gpuform.schemas.plan import FORMAT_VERSION, Plan


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
