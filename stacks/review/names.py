"""How people are shown operations and resources: Pulumi's symbols, short types."""

from gpuform.schemas.plan import PlanAction
from gpuform.stacks.engine.urn import DYNAMIC_PACKAGE, STACK_TYPE, is_provider

PROVIDER_PROPERTY = "__provider"
"""Where the SDK keeps a dynamic resource's code: not a property that anybody declared."""

SYMBOLS = {
    PlanAction.SAME: " ",
    PlanAction.CREATE: "+",
    PlanAction.UPDATE: "~",
    PlanAction.REPLACE: "+-",
    PlanAction.DELETE: "-",
    PlanAction.IMPORT: "=",
    PlanAction.READ: ">",
    PlanAction.REFRESH: "~",
}

STYLES = {
    "+": "add",
    "=": "add",
    "++": "add",
    "~": "change",
    "+-": "replace",
    "-": "remove",
    "--": "remove",
    ">": "dim",
    ">>": "replace",
    "<": "dim",
    "<<": "dim",
}


def short_type(type_: str) -> str:
    """`pulumi-python:dynamic/gpuform.together:Cluster` -> `together:Cluster`."""
    dynamic = f"{DYNAMIC_PACKAGE}:dynamic"
    if not type_.startswith(dynamic):
        return type_.removeprefix("gpuform:")
    rest = type_.removeprefix(dynamic)[1:]
    return rest.removeprefix("gpuform.") if "/" in type_ else f"dynamic:{rest}"


def is_noise(type_: str) -> bool:
    """Whether entries of this type are the engine's own, of which nobody wants to read."""
    return type_ == STACK_TYPE or is_provider(type_)


def counted(number: int, noun: str) -> str:
    """`1 resource`, `2 resources`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
