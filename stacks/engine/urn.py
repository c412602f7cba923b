"""Pulumi's resource names.

`urn:pulumi:<stack>::<project>::<qualified type>::<name>`: the qualified type is the chain of the
parents' types, joined with `$`, without the root stack's.
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
    """The URN of a resource; `parent` is its parent's URN, or empty."""
    if parent and type_of(parent) != STACK_TYPE:
        type_ = f"{qualified_type_of(parent)}${type_}"
    return f"urn:pulumi:{stack}::{project}::{type_}::{name}"


def inside(urn: str, parent: str) -> str:
    """The URN of the same resource in another parent."""
    head, project, _, name = _parts(urn)
    return make_urn(head.removeprefix("urn:pulumi:"), project, parent, type_of(urn), name)


def _parts(urn: str) -> list[str]:
    return urn.split("::", 3)


def qualified_type_of(urn: str) -> str:
    """The chain of types in a URN, the resource's own last."""
    return _parts(urn)[2]


def type_of(urn: str) -> str:
    """The resource's own type."""
    return qualified_type_of(urn).rsplit("$", 1)[-1]


def name_of(urn: str) -> str:
    """The resource's name in the program."""
    return _parts(urn)[3]


def is_provider(type_: str) -> bool:
    """Whether a type is a provider's: such entries are the engine's own, hidden from people."""
    return type_.startswith(PROVIDER_TYPE_PREFIX)


def is_noise(type_: str) -> bool:
    """Whether entries of this type are the engine's own, of which nobody wants to read."""
    return type_ == STACK_TYPE or is_provider(type_)


def is_listed(entry: Mapping[str, Any]) -> bool:
    """Whether plans and `status` count an entry: not the stack itself, providers, old objects."""
    is_old = entry.get("delete") or entry.get("pendingReplacement")
    return not (is_old or is_noise(str(entry.get("type"))))


def is_plugin(type_: str) -> bool:
    """Whether a type is one of gpuform's own resources in plugin form."""
    return type_.startswith(f"{PLUGIN_PACKAGE}:")


def own_type(type_: str) -> str:
    """`<platform>:<Kind>` of one of gpuform's own resources, in either form; else empty."""
    for prefix in (f"{DYNAMIC_PACKAGE}:dynamic/gpuform.", f"{PLUGIN_PACKAGE}:"):
        if type_.startswith(prefix):
            return type_.removeprefix(prefix)
    return ""


def in_dynamic_form(type_: str) -> str:
    """The type that one of gpuform's own resources has in dynamic form; others' as they are."""
    own = own_type(type_)
    return f"{DYNAMIC_PACKAGE}:dynamic/gpuform.{own}" if own else type_


def is_own(type_: str) -> bool:
    """Whether a type is one of gpuform's own resources, in either form."""
    return bool(own_type(type_))


def is_urn(text: str) -> bool:
    """Whether a text has the form of a URN."""
    return text.startswith("urn:pulumi:") and len(_parts(text)) == 4


def with_name(urn: str, name: str) -> str:
    """The URN of a resource that is named otherwise."""
    return "::".join([*_parts(urn)[:3], name])


def under(urn: str, parent: str) -> str:
    """The URN that the resource has under another parent; under none with an empty one."""
    stack, project = _parts(urn)[:2]
    return make_urn(stack.removeprefix("urn:pulumi:"), project, parent, type_of(urn), name_of(urn))


def in_stack(urn: str, stack: str, project: str) -> str:
    """The URN that the resource has in another stack; a stack's own resource is named after it."""
    name = f"{project}-{stack}" if type_of(urn) == STACK_TYPE else name_of(urn)
    return "::".join([f"urn:pulumi:{stack}", project, qualified_type_of(urn), name])
