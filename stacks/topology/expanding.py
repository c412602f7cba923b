"""Expand `for_each` and `when` into instances, and report references of other tools.

`planning` calls `expand` and `refuse_foreign_references` for each topology; `scope`
evaluates the values.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from gpuform.schemas.checking import find_nearest_name
from gpuform.schemas.safe_text import escape_invisible, truncate
from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import contains_unknown, sort_by_dependencies
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import Entry, MappingNode, Node, ScalarNode, SequenceNode
from gpuform.stacks.expressions.template import has_expression, parse
from gpuform.stacks.expressions.values import (
    ExpressionError,
    ForeignReference,
    find_foreign_references,
)
from gpuform.stacks.topology.checking import require_known
from gpuform.stacks.topology.declarations import (
    ALONE,
    Inclusion,
    Instance,
    InstanceGroup,
    ModuleInstance,
    Repeatable,
    Repetition,
    Topology,
)
from gpuform.stacks.topology.references import Names, list_roots
from gpuform.stacks.topology.scope import Scope, find_named_modules, find_part_position

_Made = TypeVar("_Made", bound=Repetition[Any])
_KEY = re.compile(r"[A-Za-z0-9_.-]+")
_FORMS = "for_each must be a map, or a list of strings and whole numbers"


def expand(topology: Topology, names: Names, problems: Diagnostics, *, planning: bool) -> Names:
    """Return `names` with the instances of every declaration. Add problems to `problems`.

    While `planning`, every value that decides which instances exist must be known. Otherwise an
    unknown `for_each` leaves its group open, and an unknown `when` keeps the instance.
    """
    scope = _expand_scope(topology, Scope(names), problems, planning)
    _refuse_same_names(scope, problems)
    return replace(scope.names, passed={})


def _expand_scope(topology: Topology, scope: Scope, problems: Diagnostics, planning: bool) -> Scope:
    """Expand `for_each` and `when` of a topology and all its modules into instances.

    Returns a copy of `scope` with the instances. Adds the instances of a module to the module, and
    every problem to `problems`. While `planning`, an unknown `for_each` or `when` is a problem;
    otherwise an unknown `for_each` leaves its group open, and an unknown `when` keeps the instance.
    """
    expander, module = _Expander(scope, problems, planning), scope.names.module
    groups = {
        section: {
            name: expander.create_group(Instance, declaration)
            for name, declaration in declarations.items()
        }
        for section, declarations in topology.declarations.items()
    }
    modules = {
        name: expander.create_group(ModuleInstance, declaration)
        for name, declaration in topology.modules.items()
    }
    if module is not None:
        module.groups.update(groups)
        module.modules.update(modules)
    # `when` may refer to other groups, so that all groups must exist first.
    scope = scope.with_instances(groups, modules)
    resource_groups: list[InstanceGroup[Any]] = [
        group for section_groups in groups.values() for group in section_groups.values()
    ]
    for group in [*resource_groups, *modules.values()]:
        if group.declaration.when is not None:
            expander.remove_disabled(group, group.declaration.when, scope)
    # An argument may refer to the outputs of another module, which must be expanded first.
    for inclusion in _sort_modules(topology.modules):
        for module_instance in modules[inclusion].instances.values():
            inside = scope.enter_module(module_instance, problems)
            _expand_scope(module_instance.declaration.topology, inside, problems, planning)
    return scope


def _sort_modules(modules: Mapping[str, Inclusion]) -> list[str]:
    """Sort the modules of a file by the dependencies between arguments and modules.

    Modules in a cycle keep the order of the file; evaluation reports the cycle.
    """

    def list_dependencies(name: str) -> Iterator[str]:
        for entry in modules[name].arguments.values():
            yield from find_named_modules(entry.node)

    return sort_by_dependencies(modules, list_dependencies)


class _Expander:
    def __init__(self, scope: Scope, problems: Diagnostics, planning: bool) -> None:
        self.scope, self.problems, self.planning = scope, problems, planning

    def create_group(self, make: type[_Made], declaration: Repeatable) -> InstanceGroup[_Made]:
        """Return the group of a declaration with the instances: one for each item of `for_each`.

        Without `for_each` the group has one instance. If the keys are unknown, the group is `open`
        and has no instances. A key that cannot be part of a name is reported as a problem. `make`
        is the class of the instances.
        """
        group: InstanceGroup[_Made] = InstanceGroup(declaration)
        node, module = declaration.for_each, self.scope.names.module
        if node is None:
            group.instances[ALONE] = make(declaration, module=module)
            return group
        items = self.evaluate_items(declaration, node)
        if items is None:
            group.open = True
        for key, item in (items or {}).items():
            # Keys become parts of names in URNs.
            if _KEY.fullmatch(key):
                group.instances[key] = make(declaration, key, item, module)
            else:
                message = f"{declaration.address}: {key!r} cannot be part of a name"
                hint = "use letters, digits, hyphens, underscores and dots"
                self.problems.add(node.position, "for-each", message, hint)
        return group

    def evaluate_items(self, declaration: Repeatable, node: Node) -> Mapping[str, Any] | None:
        """Return the items of `for_each` by key, or None if the keys are unknown.

        The values of a mapping written in the file stay nodes. A value of another type is reported,
        and has no items.
        """
        if isinstance(node, MappingNode):
            return {key: entry.node for key, entry in node.entries.items()}
        value = self.require_known(declaration, node, "for_each", self.scope)
        if contains_unknown(value):
            return None
        if isinstance(value, Mapping):
            return value
        if not isinstance(value, list):
            self.problems.add(node.position, "for-each", f"{declaration.address}: {_FORMS}")
            return {}
        return self.index_items(declaration, node, value)

    def index_items(self, declaration: Repeatable, node: Node, items: list[Any]) -> dict[str, Any]:
        """Return the items of a list, by the item as text; report duplicates and wrong types."""
        items_by_key: dict[str, Any] = {}
        for item in items:
            # In Python, True is an integer: its key would be the text "True".
            if isinstance(item, bool) or not isinstance(item, str | int):
                self.problems.add(node.position, "for-each", f"{declaration.address}: {_FORMS}")
            elif str(item) in items_by_key:
                message = f"{declaration.address}: {item!r} is in the list twice"
                self.problems.add(node.position, "for-each", message, "remove one of them")
            else:
                items_by_key[str(item)] = item
        return items_by_key

    def remove_disabled(self, group: InstanceGroup[Any], node: Node, scope: Scope) -> None:
        """Move the instances whose `when` is false to the absent keys of the group.

        An instance with an unknown or wrong `when` stays; a wrong value is reported.
        """
        for key, instance in list(group.instances.items()):
            within = scope.enter_instance(instance, self.problems)
            is_enabled = self.require_known(group.declaration, node, "when", within)
            if is_enabled is False:
                del group.instances[key]
                group.absent.add(key)
            elif is_enabled is not True and not contains_unknown(is_enabled):
                message = f"{instance.address}: `when` must be true or false"
                self.problems.add(node.position, "when", message)

    def require_known(self, declaration: Repeatable, node: Node, option: str, scope: Scope) -> Any:
        """Return the value of a declaration's option; report a value unknown while planning.

        Values of resources are always reported, others only if this run plans.
        """
        label = f"{declaration.address}: {option}"
        return require_known(node, label, scope, self.problems, planning=self.planning)


def _refuse_same_names(scope: Scope, problems: Diagnostics) -> None:
    """Report resources or modules with equal URNs, also in different files of the topology.

    A URN contains the kind, the platform and the name of a resource.
    """
    first_instances: dict[tuple[str, ...], Repetition[Any]] = {}
    for file_scope in scope.list_scopes():
        instances: list[Repetition[Any]] = [*file_scope.list_resources()]
        for instance in [*instances, *file_scope.list_modules()]:
            declared = instance.declaration
            key = (declared.section, getattr(declared, "platform", ""), instance.name)
            other = first_instances.setdefault(key, instance)
            if other is not instance:
                both = f"{other.address} and {instance.address}"
                message = f"{both} would both have the name {instance.name}"
                problems.add(declared.position, "duplicate", message, "rename one of them")


_SCRIPT: Final = re.compile(r"(?:script|prolog|epilog|command|_conf)s?$")
"""Names of properties that hold programs. The programs' own variables are not references."""
_MARKS: Final = ("${", "#{", "%{", "<%")
_LONGEST_SHOWN: Final = 80
_OF_PULUMI: Final = (["stack"], ["project"])
_GENERAL: Final = "{{ SECTION.NAME.PROPERTY }}"


def refuse_foreign_references(topology: Topology, problems: Diagnostics) -> None:
    """Add a problem for each value written like a reference of another tool, also in modules.

    In a program (a text of several lines, or a property that holds one) only references to an entry
    of the topology count: a program has variables of its own. A bare name, or a first name with a
    hyphen, counts only as the name of an entry.
    """
    names = _DeclaredNames(topology)
    for name, node in _list_values(topology):
        for key, scalar in _list_texts(name, node):
            for foreign in _find_in(scalar):
                is_program = "\n" in str(scalar.value) or _SCRIPT.search(key) is not None
                if is_program and not names.has_entry(foreign):
                    continue
                # a hyphen stands for a default in shells: `${HOST-example.com}`
                needs_entry = foreign.is_whole or "-" in "".join(foreign.steps[:1])
                if needs_entry and not names.find_section(foreign.steps[0]):
                    continue
                quoted_text = truncate(escape_invisible(foreign.text), _LONGEST_SHOWN)
                problems.add(
                    find_part_position(scalar.position, foreign.text),
                    "interpolation",
                    f"{quoted_text} is the syntax of another tool: gpuform would treat it "
                    "as plain text",
                    _suggest_replacement(foreign, names.suggest(foreign)),
                )
    for module in topology.modules.values():
        refuse_foreign_references(module.topology, problems)


def _suggest_replacement(foreign: ForeignReference, suggestion: str | None) -> str:
    """Return the hint for a foreign reference: the expression, and how to write the plain text."""
    if foreign.text == "${{":
        return "remove the $: {{ ... }}; for a literal $ write {{ '$' }} before the expression"
    advice = f"write {suggestion or _GENERAL}"
    if suggestion is None and foreign.text.startswith(("%{", "<%")):
        advice = (
            "write a condition as {{ a if b else c }}; to declare several resources, use for_each"
        )
    quoted = foreign.text.replace("\\", "\\\\").replace("'", "\\'")
    return f"{advice}; for the literal text write {{{{ '{quoted}' }}}}"


class _DeclaredNames:
    """The entries that references in a file can name."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def find_section(self, name: str) -> str | None:
        """Return the section, or `modules`, with an entry `name`; None without exactly one."""
        declared = self._topology.declarations
        sections = [section for section in declared if name in declared[section]]
        if name in self._topology.modules:
            sections.append("modules")
        return sections[0] if len(sections) == 1 else None

    def has_entry(self, foreign: ForeignReference) -> bool:
        """Return True if a foreign reference is `NAME.STEP` or `SECTION.NAME` of an entry."""
        head, *rest = foreign.steps or [""]
        declared = self._topology.declarations
        return bool(rest) and (
            self.find_section(head) is not None or rest[0] in declared.get(head, {})
        )

    def suggest(self, foreign: ForeignReference) -> str | None:
        """Return the expression for the target of a foreign reference, or None if unknown."""
        head, *rest = foreign.steps or [""]
        steps: list[str] | None = None
        inputs_root = "config" if self._topology.inputs is None else "inputs"
        # Terraform's workspace is Pulumi's stack.
        if foreign.steps[:2] == ["terraform", "workspace"]:
            steps = ["pulumi", "stack"]
        elif head in list_roots():
            steps = [head, *rest] if head != "pulumi" or rest[:1] in _OF_PULUMI else None
        elif head == "var" and rest:
            steps = [inputs_root, *rest]
        elif head == "module" and rest:
            steps = ["modules", *rest]
        else:
            # `NAME.PROPERTY` of Pulumi; `TYPE.NAME.PROPERTY` of Terraform, after `data` or not
            for at, name in enumerate(foreign.steps[:3]):
                section = self.find_section(name)
                if section is not None:
                    steps = [section, *foreign.steps[at:]]
                    break
            # A misspelled section, such as `cluster.train.id`.
            nearest_section = find_nearest_name(head, SECTIONS)
            if steps is None and nearest_section and rest:
                steps = [nearest_section, *rest]
        if steps is None:
            return None
        return f"{{{{ {steps[0]}{''.join(map(_format_step, steps[1:]))} }}}}"


def _format_step(step: str) -> str:
    """Return one step of a reference: `[0]`, `.name`, or `['other-name']`."""
    if step.isdigit():
        return f"[{step}]"
    return f".{step}" if step.isidentifier() else f"['{step}']"


def _list_values(topology: Topology) -> Iterator[tuple[str, Node]]:
    """Yield every node with possible expressions, and the name of the node's property.

    Of an included module only the arguments are listed, not `for_each` and `when`.
    """
    entries: list[Mapping[str, Entry]] = []
    for section_declarations in topology.declarations.values():
        for declaration in section_declarations.values():
            conditions = (declaration.for_each, declaration.when)
            yield from (("", node) for node in conditions if node is not None)
            entries += [declaration.properties, declaration.options]
    entries += [module.arguments for module in topology.modules.values()]
    for named_entries in (*entries, topology.stack_references, topology.outputs):
        yield from ((name, entry.node) for name, entry in named_entries.items())


def _list_texts(name: str, node: Node) -> Iterator[tuple[str, ScalarNode]]:
    """Yield every text inside `node` with the nearest key."""
    if isinstance(node, ScalarNode):
        if isinstance(node.value, str):
            yield name, node
    elif isinstance(node, SequenceNode):
        for item in node.items:
            yield from _list_texts(name, item)
    elif isinstance(node, MappingNode):
        for key, entry in node.entries.items():
            yield from _list_texts(key, entry.node)


def _find_in(scalar: ScalarNode) -> Iterator[ForeignReference]:
    """Yield the foreign references in a text, outside of valid expressions."""
    scalar_text = str(scalar.value)
    # Most texts have no mark and need no regular expression.
    if not any(mark in scalar_text for mark in _MARKS):
        return
    if not has_expression(scalar_text):
        yield from find_foreign_references((scalar_text,))
        return
    try:
        yield from find_foreign_references(parse(scalar.text).parts)
    except ExpressionError:
        return  # reported where the value is evaluated
