"""The names that a resource may have had: Pulumi's aliases, own and inherited ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuform.stacks.engine.urn import STACK_TYPE, make_urn, name_of, type_of


@dataclass(frozen=True, slots=True)
class Alias:
    """One alias of a registration: a whole URN, or what was different in the old one.

    Empty parts are as they are now; `no_parent`: it had no parent but the stack.
    """

    urn: str = ""
    name: str = ""
    type: str = ""
    stack: str = ""
    project: str = ""
    parent: str = ""
    no_parent: bool = False


@dataclass(frozen=True, slots=True)
class UrnParts:
    """What a URN is made of, before it is one."""

    stack: str
    project: str
    parent: str
    type: str
    name: str


def alias_urns(
    resource: UrnParts, aliases: Sequence[Alias], used: Mapping[str, str]
) -> tuple[str, ...]:
    """The URNs to look for, the best first.

    `used` tells for each URN of this run that was found under an alias which one that was: what
    is inside such a resource may be known under it, too.
    """
    own = [_collapse(resource, alias, used) for alias in aliases]
    inherited: list[str] = []
    if resource.parent in used:
        was = used[resource.parent]
        inherited.append(_inherited(resource, resource.type, resource.name, was))
        inherited += [_inherited(resource, type_of(urn), name_of(urn), was) for urn in own]
    return tuple(dict.fromkeys([*own, *inherited]))


def _collapse(resource: UrnParts, alias: Alias, used: Mapping[str, str]) -> str:
    if alias.urn:
        return alias.urn
    parent = used.get(alias.parent, alias.parent) or resource.parent
    if alias.no_parent or (parent and type_of(parent) == STACK_TYPE):
        parent = ""
    return make_urn(
        alias.stack or resource.stack,
        alias.project or resource.project,
        parent,
        alias.type or resource.type,
        alias.name or resource.name,
    )


def _inherited(resource: UrnParts, type_: str, name: str, parent_was: str) -> str:
    """Children are often named after their parent: the old parent's name then begins theirs."""
    parent_is = name_of(resource.parent)
    if name.startswith(parent_is):
        name = name_of(parent_was) + name.removeprefix(parent_is)
    return make_urn(resource.stack, resource.project, parent_was, type_, name)
