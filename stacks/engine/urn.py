"""Build and parse Pulumi's resource names.

`urn:pulumi:<stack>::<project>::<qualified type>::<name>`: the qualified type is the chain of the
parents' types, joined with `$`, without the root stack's. All packages of the engine call this
module.
"""

from collections.abc import Mapping
from typing import Any

STACK_TYPE = "pulumi:pulumi:Stack"
STACK_REFERENCE_TYPE = "pulumi:pulumi:StackReference"
MODULE_TYPE = "gpuform:stacks:Module"
"""The type of a module's component; it is in the URN of all that is in one."""
PROVIDER_TYPE_PREFIX = "pulumi:providers:"
DYNAMIC_PACKAGE = "pulumi-python"
PLUGIN_PACKAGE = "gpuform"
PLUGIN_PROVIDER_TYPE = PROVIDER_TYPE_PREFIX + PLUGIN_PACKAGE
BUILTIN_PACKAGE = "pulumi"


def make_urn(stack: str, project: str, parent: str, type_: str, name: str) -> str:
    """Build the URN of a resource; `parent` is the parent's URN, or empty."""
    if parent and type_of(parent) != STACK_TYPE:
        type_ = f"{get_qualified_type(parent)}${type_}"
    return f"urn:pulumi:{stack}::{project}::{type_}::{name}"


def _split(urn: str) -> list[str]:
    """Split a URN into `urn:pulumi:<stack>`, the project, the qualified type and the name.

    A text that is not a URN gives fewer parts.
    """
    # A name may contain `::`, a type may not: the rest belongs to the name.
    return urn.split("::", 3)


def get_qualified_type(urn: str) -> str:
    """Return the chain of types in a URN, the resource's own type last."""
    return _split(urn)[2]


def type_of(urn: str) -> str:
    """Return the resource's own type, the last of the chain in the URN."""
    return get_qualified_type(urn).rsplit("$", 1)[-1]


def name_of(urn: str) -> str:
    """Return the resource's name in the program."""
    return _split(urn)[3]


def get_stack_and_project(urn: str) -> tuple[str, str]:
    """Return the names of the stack and the project in a URN."""
    stack, project, *_ = _split(urn)
    return stack.removeprefix("urn:pulumi:"), project


def is_provider(type_: str) -> bool:
    """Return True for the type of a provider resource, which people do not see."""
    return type_.startswith(PROVIDER_TYPE_PREFIX)


def is_noise(type_: str) -> bool:
    """Return True for types of the engine's own entries: the stack and providers."""
    return type_ == STACK_TYPE or is_provider(type_)


def is_listed(entry: Mapping[str, Any]) -> bool:
    """Return True if plans and `status` count an entry of the checkpoint.

    Not counted are the stack, providers, old objects and entries that wait for a replacement.
    """
    is_old = entry.get("delete") or entry.get("pendingReplacement")
    return not (is_old or is_noise(str(entry.get("type"))))


def is_plugin(type_: str) -> bool:
    """Return True for a type of gpuform's own resources in plugin form."""
    return type_.startswith(f"{PLUGIN_PACKAGE}:")


def get_own_type(type_: str) -> str:
    """Return `<platform>:<Kind>` of a gpuform resource in either form, else an empty text."""
    for prefix in (f"{DYNAMIC_PACKAGE}:dynamic/gpuform.", f"{PLUGIN_PACKAGE}:"):
        if type_.startswith(prefix):
            return type_.removeprefix(prefix)
    return ""


def to_dynamic_type(type_: str) -> str:
    """Return the dynamic form of a gpuform type; return other types unchanged."""
    own = get_own_type(type_)
    return f"{DYNAMIC_PACKAGE}:dynamic/gpuform.{own}" if own else type_


def is_own(type_: str) -> bool:
    """Return True for a type of gpuform's own resources, in either form."""
    return bool(get_own_type(type_))


def is_of_program(type_: str) -> bool:
    """Return True for a dynamic resource whose provider is code of the program."""
    return type_.startswith("pulumi-python:dynamic") and not is_own(type_)


def is_urn(text: str) -> bool:
    """Return True if a text has the form of a URN."""
    return text.startswith("urn:pulumi:") and len(_split(text)) == 4


def with_name(urn: str, name: str) -> str:
    """Return the URN with another resource name."""
    return "::".join([*_split(urn)[:3], name])


def with_parent(urn: str, parent: str) -> str:
    """Return the URN of the resource under another parent, or under none for an empty `parent`."""
    stack, project = _split(urn)[:2]
    return make_urn(stack.removeprefix("urn:pulumi:"), project, parent, type_of(urn), name_of(urn))


def with_stack(urn: str, stack: str, project: str) -> str:
    """Return the URN of the resource in another stack, with the new name of a stack resource."""
    name = f"{project}-{stack}" if type_of(urn) == STACK_TYPE else name_of(urn)
    return "::".join([f"urn:pulumi:{stack}", project, get_qualified_type(urn), name])
