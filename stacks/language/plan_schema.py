"""The JSON Schema of plans, for those who read them by machine."""

import json
from typing import Any

from gpuform.schemas.plan import FORMAT_VERSION, Plan


def plan_schema() -> dict[str, Any]:
    """The schema of a plan of this release."""
    schema = Plan.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "gpuform plan"
    schema["properties"]["format_version"]["const"] = FORMAT_VERSION
    schema["required"] = ["format_version", *schema["required"]]
    return schema


def plan_schema_text() -> str:
    """The schema as the text of a file."""
    return json.dumps(plan_schema(), indent=2) + "\n"
