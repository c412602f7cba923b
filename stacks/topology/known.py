"""Values that decide what is declared, and how: they must be known while planning."""

from collections.abc import Iterator
from typing import Any

from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import UNKNOWN, contains_unknown
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import Node, scalars
from gpuform.stacks.topology.declarations import MODULES
from gpuform.stacks.topology.scope import Scope, template_of

_LATE = frozenset({*SECTIONS, MODULES, "stack_references"})


def known(node: Node, what: str, scope: Scope, problems: Diagnostics, *, planning: bool) -> Any:
    """The node's value; what is wrong goes to `problems`.

    `what` is how messages call it. Unless `planning`, what is not set yet is UNKNOWN in the value.
    """
    before = len(problems)
    late = sorted(_LATE & set(_roots(node, problems)))
    value = UNKNOWN if late else scope.value(node, problems)
    if late or (planning and contains_unknown(value) and len(problems) == before):
        message = f"{what} must be known while planning"
        why = f", and {late[0]} are known only when they are made" if late else ""
        hint = "make it of config that is not secret, each, and what the file says"
        problems.add(node.place, "not-known", message + why, hint)
    return value


def _roots(node: Node, problems: Diagnostics) -> Iterator[str]:
    for scalar in scalars(node):
        template = template_of(scalar, problems)
        yield from (need.root for need in (template.needs if template else ()))
