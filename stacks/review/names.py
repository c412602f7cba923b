"""How people are shown operations and resources: Pulumi's symbols, short types."""

from gpuform.schemas.plan import PlanAction
from gpuform.stacks.engine.urn import DYNAMIC_PACKAGE, MODULE_TYPE

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


def in_world(stack: str, *, emulated: bool) -> str:
    """A stack as people are shown it: `dev`, or `dev, emulated`."""
    return f"{stack}, emulated" if emulated else stack


def short_type(type_: str) -> str:
    """`pulumi-python:dynamic/gpuform.together:Cluster` -> `together:Cluster`; or `Module`."""
    if type_ == MODULE_TYPE:
        return "Module"
    dynamic = f"{DYNAMIC_PACKAGE}:dynamic"
    if not type_.startswith(dynamic):
        return type_.removeprefix("gpuform:")
    rest = type_.removeprefix(dynamic)[1:]
    return rest.removeprefix("gpuform.") if "/" in type_ else f"dynamic:{rest}"


def counted(number: int, noun: str) -> str:
    """`1 resource`, `2 resources`, `1,024 GPUs`."""
    return f"{number:,} {noun}" if abs(number) == 1 else f"{number:,} {noun}s"
