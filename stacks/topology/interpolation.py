"""Report values that are written as another tool's references, with the form that gpuform has."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from gpuform.schemas.checking import nearest
from gpuform.schemas.safe_text import escape_invisible, truncate
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import Entry, MappingNode, Node, ScalarNode, SequenceNode
from gpuform.stacks.expressions.budget import ExpressionError
from gpuform.stacks.expressions.foreign import ForeignReference, find_foreign_references
from gpuform.stacks.expressions.template import has_expression, parse
from gpuform.stacks.topology.declarations import Topology
from gpuform.stacks.topology.references import roots
from gpuform.stacks.topology.scope import place_in

_SCRIPT: Final = re.compile(r"(?:script|prolog|epilog|command|_conf)s?$")
"""Names of properties that hold programs, whose own variables are none of gpuform's business."""
_MARKS: Final = ("${", "#{", "%{", "<%")
_LONGEST_SHOWN: Final = 80
_OF_PULUMI: Final = (["stack"], ["project"])
_GENERAL: Final = "{{ SECTION.NAME.PROPERTY }}"


def refuse_foreign_references(topology: Topology, problems: Diagnostics) -> None:
    """Add a problem for each value that reads like a reference of another tool.

    A program (a text of several lines, or a property that holds one) has variables of its own:
    there only what names an entry of the topology counts.
    """
    names = _DeclaredNames(topology)
    for name, node in _values_of(topology):
        for key, scalar in _scalars(name, node):
            for foreign in _find_in(scalar):
                is_program = "\n" in str(scalar.value) or _SCRIPT.search(key) is not None
                if is_program and not names.has_entry(foreign):
                    continue
                # a hyphen stands for a default in shells: `${HOST-example.com}`
                needs_entry = foreign.is_whole or "-" in "".join(foreign.steps[:1])
                if needs_entry and not names.section_of(foreign.steps[0]):
                    continue
                shown = truncate(escape_invisible(foreign.text), _LONGEST_SHOWN)
                problems.add(
                    place_in(scalar.place, foreign.text),
                    "interpolation",
                    f"{shown} is written for another tool: gpuform would take it as text",
                    _hint(foreign, names.suggest(foreign)),
                )
    for module in topology.modules.values():
        refuse_foreign_references(module.topology, problems)


def _hint(foreign: ForeignReference, suggestion: str | None) -> str:
    if foreign.text == "${{":
        return "leave the $ out: {{ ... }}; for the character itself write {{ '$' }} before it"
    use = f"write {suggestion or _GENERAL}"
    if suggestion is None and foreign.text.startswith(("%{", "<%")):
        use = "write a choice as {{ a if b else c }}; to declare several, use for_each"
    quoted = foreign.text.replace("\\", "\\\\").replace("'", "\\'")
    return f"{use}; for the text itself write {{{{ '{quoted}' }}}}"


class _DeclaredNames:
    """The entries that a file's references can name."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def section_of(self, name: str) -> str | None:
        """Return the one section that declares an entry of a name, or None."""
        declared = self._topology.declarations
        sections = [section for section in declared if name in declared[section]]
        if name in self._topology.modules:
            sections.append("modules")
        return sections[0] if len(sections) == 1 else None

    def has_entry(self, foreign: ForeignReference) -> bool:
        """Return whether a foreign reference begins with the name of an entry, or its section."""
        head, *rest = foreign.steps or [""]
        declared = self._topology.declarations
        return bool(rest) and (
            self.section_of(head) is not None or rest[0] in declared.get(head, {})
        )

    def suggest(self, foreign: ForeignReference) -> str | None:
        """Return the expression that refers to the same, or None if nothing is like it."""
        head, *rest = foreign.steps or [""]
        steps: list[str] | None = None
        own = "config" if self._topology.inputs is None else "inputs"
        if foreign.steps[:2] == ["terraform", "workspace"]:
            steps = ["pulumi", "stack"]
        elif head in roots():
            steps = [head, *rest] if head != "pulumi" or rest[:1] in _OF_PULUMI else None
        elif head == "var" and rest:
            steps = [own, *rest]
        elif head == "module" and rest:
            steps = ["modules", *rest]
        else:
            # `NAME.PROPERTY` of Pulumi; `TYPE.NAME.PROPERTY` of Terraform, behind `data` or not
            for at, name in enumerate(foreign.steps[:3]):
                section = self.section_of(name)
                if section is not None:
                    steps = [section, *foreign.steps[at:]]
                    break
            near = nearest(head, tuple(SECTIONS))
            if steps is None and near and rest:
                steps = [near, *rest]
        if steps is None:
            return None
        return f"{{{{ {steps[0]}{''.join(map(_step, steps[1:]))} }}}}"


def _step(step: str) -> str:
    if step.isdigit():
        return f"[{step}]"
    return f".{step}" if step.isidentifier() else f"['{step}']"


def _values_of(topology: Topology) -> Iterator[tuple[str, Node]]:
    """Yield every value that may hold expressions, with the name of what it is a value of."""
    for of_section in topology.declarations.values():
        for declaration in of_section.values():
            for own in (declaration.for_each, declaration.when):
                if own is not None:
                    yield "", own
            yield from _nodes(declaration.properties)
            yield from _nodes(declaration.options)
    for module in topology.modules.values():
        yield from _nodes(module.given)
    yield from _nodes(topology.stack_references)
    yield from _nodes(topology.outputs)


def _nodes(entries: Mapping[str, Entry]) -> Iterator[tuple[str, Node]]:
    for name, entry in entries.items():
        yield name, entry.node


def _scalars(name: str, node: Node) -> Iterator[tuple[str, ScalarNode]]:
    """Yield every text inside, with the key that is nearest to it."""
    if isinstance(node, ScalarNode):
        if isinstance(node.value, str):
            yield name, node
    elif isinstance(node, SequenceNode):
        for item in node.items:
            yield from _scalars(name, item)
    elif isinstance(node, MappingNode):
        for key, entry in node.entries.items():
            yield from _scalars(key, entry.node)


def _find_in(scalar: ScalarNode) -> Iterator[ForeignReference]:
    text = str(scalar.value)
    if not any(mark in text for mark in _MARKS):
        return
    if not has_expression(text):
        yield from find_foreign_references((text,))
        return
    try:
        yield from find_foreign_references(parse(scalar.text).parts)
    except ExpressionError:
        return  # reported where the value is evaluated
