"""Expand `for_each` and `when` into instances, and report values that are written as another tool's
references.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from gpuform.schemas.checking import find_nearest_name
from gpuform.schemas.safe_text import escape_invisible, truncate
from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import contains_unknown
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import Entry, MappingNode, Node, ScalarNode, SequenceNode
from gpuform.stacks.expressions.budget import ExpressionError
from gpuform.stacks.expressions.template import has_expression, parse
from gpuform.stacks.expressions.values import ForeignReference, find_foreign_references
from gpuform.stacks.topology.declarations import (
    ALONE,
    MODULES,
    Group,
    Inclusion,
    Instance,
    ModuleInstance,
    Repeatable,
    Repetition,
    Topology,
)
from gpuform.stacks.topology.names import Names
from gpuform.stacks.topology.options import known
from gpuform.stacks.topology.references import roots
from gpuform.stacks.topology.scope import Scope, named_modules, place_in

_Made = TypeVar("_Made", bound=Repetition[Any])
_KEY = re.compile(r"[A-Za-z0-9_.-]+")
_FORMS = "for_each must be a map, or a list of texts and whole numbers"


def expand(topology: Topology, names: Names, problems: Diagnostics, *, planning: bool) -> Names:
    """The names with the instances of every declaration; what is wrong goes to `problems`.

    While `planning` everything that decides which instances there are must be known; else what is
    not leaves a group open, or an instance in.
    """
    scope = _expanded(topology, Scope(names), problems, planning)
    _refuse_same_names(scope, problems)
    return replace(scope.names, passed={})


def _expanded(topology: Topology, scope: Scope, problems: Diagnostics, planning: bool) -> Scope:
    """The scope of the topology with its instances, and with those in its modules."""
    expander, module = _Expander(scope, problems, planning), scope.names.module
    groups = {
        section: {name: expander.group(Instance, each) for name, each in declarations.items()}
        for section, declarations in topology.declarations.items()
    }
    modules = {
        name: expander.group(ModuleInstance, each) for name, each in topology.modules.items()
    }
    if module is not None:
        module.groups.update(groups)
        module.modules.update(modules)
    scope = scope.having(groups, modules)
    every: list[Group[Any]] = [group for found in groups.values() for group in found.values()]
    for group in [*every, *modules.values()]:
        if group.declaration.when is not None:
            expander.narrow(group, group.declaration.when, scope)
    for inclusion in _in_order(topology.modules):
        for each in modules[inclusion].instances.values():
            inside = scope.inside(each, problems)
            _expanded(each.declaration.topology, inside, problems, planning)
    return scope


def _in_order(modules: Mapping[str, Inclusion]) -> list[str]:
    """The modules of a file, each after those whose outputs it is given, where there is a way."""
    done: dict[str, None] = {}

    def visit(name: str, path: frozenset[str]) -> None:
        if name in modules and name not in done and name not in path:
            for entry in modules[name].given.values():
                for needed in named_modules(entry.node):
                    visit(needed, path | {name})
            done[name] = None

    for name in modules:
        visit(name, frozenset())
    return list(done)


class _Expander:
    def __init__(self, scope: Scope, problems: Diagnostics, planning: bool) -> None:
        self.scope, self.problems, self.planning = scope, problems, planning

    def group(self, make: type[_Made], declaration: Repeatable) -> Group[_Made]:
        group: Group[_Made] = Group(declaration)
        node, module = declaration.for_each, self.scope.names.module
        if node is None:
            group.instances[ALONE] = make(declaration, module=module)
            return group
        items = self.items(declaration, node)
        if items is None:
            group.open = True
        for key, item in (items or {}).items():
            if _KEY.fullmatch(key):
                group.instances[key] = make(declaration, key, item, module)
            else:
                message = f"{declaration.address}: {key!r} cannot be a part of a name"
                hint = "use letters, digits, hyphens, underscores and dots"
                self.problems.add(node.place, "for-each", message, hint)
        return group

    def items(self, declaration: Repeatable, node: Node) -> Mapping[str, Any] | None:
        """What there is an instance for, by key; None when that is not known yet."""
        if isinstance(node, MappingNode):
            return {key: entry.node for key, entry in node.entries.items()}
        value = self.known(declaration, node, "for_each", self.scope)
        if contains_unknown(value):
            return None
        if isinstance(value, Mapping):
            return value
        if not isinstance(value, list):
            self.problems.add(node.place, "for-each", f"{declaration.address}: {_FORMS}")
            return {}
        return self.by_key(declaration, node, value)

    def by_key(self, declaration: Repeatable, node: Node, items: list[Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for item in items:
            if isinstance(item, bool) or not isinstance(item, str | int):
                self.problems.add(node.place, "for-each", f"{declaration.address}: {_FORMS}")
            elif str(item) in found:
                message = f"{declaration.address}: {item!r} is in the list twice"
                self.problems.add(node.place, "for-each", message, "remove one of them")
            else:
                found[str(item)] = item
        return found

    def narrow(self, group: Group[Any], node: Node, scope: Scope) -> None:
        """Takes out the instances whose `when` is false."""
        for key, instance in list(group.instances.items()):
            within = scope.within(instance, self.problems)
            wanted = self.known(group.declaration, node, "when", within)
            if wanted is False:
                del group.instances[key]
                group.absent.add(key)
            elif wanted is not True and not contains_unknown(wanted):
                message = f"{instance.address}: `when` must be true or false"
                self.problems.add(node.place, "when", message)

    def known(self, declaration: Repeatable, node: Node, what: str, scope: Scope) -> Any:
        shown = f"{declaration.address}: {what}"
        return known(node, shown, scope, self.problems, planning=self.planning)


def _refuse_same_names(scope: Scope, problems: Diagnostics) -> None:
    """Two resources of one kind and platform with one name would have one URN, and so modules."""
    first: dict[tuple[str, ...], Repetition[Any]] = {}
    for each in scope.every():
        for instance in each.resources_here():
            own = instance.declaration
            _refuse_same((own.section, own.platform, instance.name), instance, first, problems)
        for module in each.modules_here():
            _refuse_same((MODULES, module.name), module, first, problems)


def _refuse_same(
    key: tuple[str, ...],
    instance: Repetition[Any],
    first: dict[tuple[str, ...], Repetition[Any]],
    problems: Diagnostics,
) -> None:
    other = first.setdefault(key, instance)
    if other is not instance:
        both = f"{other.address} and {instance.address}"
        message = f"{both} would both be called {instance.name}"
        problems.add(instance.declaration.place, "duplicate", message, "rename one of them")


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
            near = find_nearest_name(head, tuple(SECTIONS))
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
