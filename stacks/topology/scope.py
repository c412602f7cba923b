"""Evaluate the values of a topology file, some of which may be unknown.

Checks and both registration modules evaluate nodes with `Scope`; `references` finds the
values that an expression reads.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from jinja2 import nodes

from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.document.diagnostics import Diagnostics, DocumentDiagnostic, SourcePosition
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode, SequenceNode, list_scalars
from gpuform.stacks.document.reading import read_source_text
from gpuform.stacks.document.syntax_errors import LINE_BREAK
from gpuform.stacks.expressions.template import (
    ExpressionReference,
    Template,
    compile_step,
    has_expression,
    parse,
)
from gpuform.stacks.expressions.values import ExpressionError
from gpuform.stacks.topology.configuration import (
    describe_unknown_limits,
    find_team_files,
    find_value_problem,
)
from gpuform.stacks.topology.declarations import (
    MODULES,
    Groups,
    Instance,
    InstanceGroup,
    ModuleInstance,
    Modules,
    Repetition,
)
from gpuform.stacks.topology.references import Names, References, UnreadEntry, create_empty_groups

_RUNNING = object()
_FAILS = "the expression cannot be evaluated with the values of its references"
_ASKED_OF_A_SECRET = (
    "a proposal cannot use a secret in an expression that no file of the project contains",
    "use the secret without changes, or ask a person to write this expression",
)


class ResourceValue(dict[str, Any]):
    """A resource in an expression: a mapping of properties that stands for its id."""

    @property
    def stands_for(self) -> Any:
        """Return the resource's id, the value of an expression with the resource's name alone."""
        return self["id"]


class CycleError(ExpressionError):
    """An input or output of a module depends on itself."""


class Scope:
    """Evaluates the nodes of one file with one set of names.

    `outer` is the scope in which the arguments of a module are written, None for a stack's
    topology.
    """

    def __init__(self, names: Names, outer: "Scope | None" = None) -> None:
        self.names, self.outer = names, outer
        self.references = References(names, self)

    def with_instances(self, groups: Groups, modules: Modules) -> "Scope":
        """Return a copy of the scope with the expanded instances."""
        return Scope(replace(self.names, groups=groups, modules=modules), self.outer)

    def enter_instance(self, instance: Repetition[Any], problems: Diagnostics) -> "Scope":
        """Return a scope with the `each` of an instance; this scope if there is no `for_each`."""
        if instance.declaration.is_single:
            return self
        value = instance.item
        if isinstance(value, ScalarNode | SequenceNode | MappingNode):
            value = self.evaluate_node(value, problems)
        return Scope(replace(self.names, each={"key": instance.key, "value": value}), self.outer)

    def enter_module(self, module: ModuleInstance, problems: Diagnostics) -> "Scope":
        """Return the scope of the file of an included module."""
        topology = module.declaration.topology
        names = Names(
            source=self.names.source,
            inputs=topology.inputs,
            groups=module.groups or create_empty_groups(),
            modules=module.modules,
            module=module,
            passed=self.names.passed,
            unread=topology.unread,
        )
        return Scope(names, self.enter_instance(module, problems))

    def find_module_scope(self, module: ModuleInstance | None) -> "Scope":
        """Return the scope of a module's file, starting from the topology's scope."""
        if module is None:
            return self
        return self.find_module_scope(module.module).enter_module(module, Diagnostics())

    def list_scopes(self) -> "Iterator[Scope]":
        """Yield this scope and the scopes of all included modules in file order."""
        yield self
        for module in self.list_modules():
            yield from self.enter_module(module, Diagnostics()).list_scopes()

    def list_groups(self) -> Iterator[InstanceGroup[Any]]:
        """Yield the groups of this file's entries and modules."""
        for section_groups in self.names.groups.values():
            yield from section_groups.values()
        yield from self.names.modules.values()

    def list_resources(self) -> Iterator[Instance]:
        """Yield the resources of this file, without modules."""
        for section_groups in self.names.groups.values():
            for group in section_groups.values():
                yield from group.instances.values()

    def list_modules(self) -> Iterator[ModuleInstance]:
        """Yield the instances of modules included by this file."""
        for group in self.names.modules.values():
            yield from group.instances.values()

    def evaluate_node(self, node: Node, problems: Diagnostics | None) -> Any:
        """Evaluate a node. Add problems to `problems`; a wrong value is UNKNOWN.

        Without `problems`, errors are reported elsewhere, and only a CycleError is raised.
        """
        if isinstance(node, ScalarNode):
            template = parse_template(node, Diagnostics() if problems is None else problems)
            if template is None:
                return UNKNOWN if contains_template(node) else node.value
            try:
                return self.evaluate(template, node.position, node.text)
            except UnreadEntry:
                return UNKNOWN
            except ExpressionError as error:
                if problems is not None:
                    position = find_part_position(node.position, error.where)
                    problems.add(position, "expression", str(error), error.hint)
                elif isinstance(error, CycleError):
                    raise
                return UNKNOWN
        if isinstance(node, SequenceNode):
            return [self.evaluate_node(item, problems) for item in node.items]
        return {
            key: self.evaluate_node(entry.node, problems) for key, entry in node.entries.items()
        }

    def evaluate(self, template: Template, position: SourcePosition, text: str = "") -> Any:
        """Return the value of a template. Errors name `position`, where the template is written.

        If a value that the template refers to is pending, the source of values returns a stand-in
        for the result. `text` is the template as written: a topology that an agent proposes may
        change a secret only with a text of the project's files.

        Raises:
            ExpressionError: the evaluation fails now.
            TopologyError: the evaluation fails later, when the values are known.
        """
        leaves: dict[tuple[str, ...], Any] = {}
        for reference in template.references:
            try:
                leaves.update(
                    self.references.find_values(reference, alone=reference is template.reference)
                )
            except ExpressionError as error:
                error.where = error.where or reference.find_source_text(text)
                raise
        pending = [path for path, leaf in leaves.items() if self.names.source.is_pending(leaf)]
        if not pending:
            return template.evaluate(build_variables(leaves))

        def make(values: Sequence[Any]) -> Any:
            known_leaves = {**leaves, **dict(zip(pending, values, strict=True))}
            try:
                return template.evaluate(build_variables(known_leaves))
            except ExpressionError as error:
                message = _FAILS if error.tells_values else str(error)
                problem = DocumentDiagnostic(position, "expression", message, error.hint)
                raise _create_error(problem) from None

        def refuse() -> None:
            project_files = find_team_files()
            if project_files and not (
                _is_passed_on(template, leaves) or project_files.has_expression(text)
            ):
                raise _create_error(DocumentDiagnostic(position, "expression", *_ASKED_OF_A_SECRET))

        return self.names.source.join([leaves[path] for path in pending], make, refuse)

    def find_resources(self, node: Node) -> list[Instance]:
        """Return the resources in the node's expressions, each once.

        Invalid references are left out; evaluation reports them.
        """
        resources: dict[Instance, None] = {}
        for scalar in list_scalars(node):
            template = parse_template(scalar, Diagnostics())
            for reference in template.references if template else ():
                try:
                    resources.update(dict.fromkeys(self.references.find_resources(reference)))
                except ExpressionError:
                    continue  # reported when the value is evaluated
        return list(resources)

    def find_named_resources(self, node: Node) -> list[Instance] | None:
        """Return the resources a node refers to as the node's complete value.

        Returns None if the node is another value, such as a text or a property of a resource.
        Returns an empty list for an invalid reference, which the evaluation reports.
        """
        template = parse_template(node, Diagnostics()) if isinstance(node, ScalarNode) else None
        if template is None or template.reference is None:
            return None
        try:
            return self.references.find_named_resources(template.reference)
        except ExpressionError:
            return []  # reported when the value is evaluated

    def get_step(self, reference: ExpressionReference, at: int) -> str | None:
        """Return a step of a reference as text, or None if the step is missing or unknown."""
        if at >= len(reference.steps):
            return None
        step: Any = reference.steps[at]
        if isinstance(step, nodes.Expr):
            step = self.evaluate(compile_step(step), SourcePosition(""))
            # A key that is known only later can name any instance.
            if self.names.source.is_pending(step):
                return None
        return str(step)

    def get_input(self, name: str) -> Any:
        """Return the argument for a module's input, or the input's default.

        In a module that no file includes, the source of values has the input.
        """
        # A module that is checked alone has inputs, but no arguments.
        if self.names.module is None or self.outer is None or self.names.inputs is None:
            return self.names.source.get_input(name)
        return self._evaluate_once(
            ("input", self.names.module, name), f"inputs.{name}", self._evaluate_input
        )

    def get_output(self, module: ModuleInstance, name: str) -> Any:
        """Return the value of a module's output, UNKNOWN before the module is expanded."""
        if not module.is_expanded:
            return UNKNOWN
        node = module.declaration.topology.outputs[name].node
        return self._evaluate_once(
            ("output", module, name),
            f"{module.address}.{name}",
            lambda _: self.enter_module(module, Diagnostics()).evaluate_node(node, None),
        )

    def list_input_resources(self, name: str) -> list[Instance]:
        """Return the resources in the expressions of a module's argument for the input `name`.

        Empty without an argument.
        """
        argument, outer = self._find_argument(name), self.outer
        if argument is None or outer is None:
            return []
        key = ("resources", self.names.module, name)
        return self._evaluate_once(key, "", lambda _: outer.find_resources(argument)) or []

    def list_output_resources(self, module: ModuleInstance, name: str) -> list[Instance]:
        """Return the resources in the expressions of a module's output."""
        node = module.declaration.topology.outputs[name].node

        def find(_key: tuple[Any, ...]) -> list[Instance]:
            return self.enter_module(module, Diagnostics()).find_resources(node)

        return self._evaluate_once(("resources out", module, name), "", find) or []

    def find_resources_named_by_input(self, name: str) -> list[Instance] | None:
        """Return the resources a module's argument refers to as the complete value.

        `name` is the input of the argument. Returns None if the argument is missing or is another
        value, such as a text or a property of a resource. Returns an empty list for an invalid
        reference.
        """
        argument = self._find_argument(name)
        if argument is None or self.outer is None:
            return None
        return self.outer.find_named_resources(argument)

    def find_resources_named_by_output(
        self, module: ModuleInstance, name: str
    ) -> list[Instance] | None:
        """Return the resources a module's output refers to as the complete value.

        Returns None if the output is another value, such as a text or a property of a resource.
        Returns an empty list for an invalid reference. The module must have the output.
        """
        node = module.declaration.topology.outputs[name].node
        return self.enter_module(module, Diagnostics()).find_named_resources(node)

    def _find_argument(self, name: str) -> Node | None:
        """Return the node of the argument for an input, or None."""
        module = self.names.module
        entry = module.declaration.arguments.get(name) if module else None
        return entry.node if entry else None

    def _evaluate_input(self, key: tuple[Any, ...]) -> Any:
        """Return the value of an input, which is validated once the value is known.

        `key` is the key of `_evaluate_once`: a word, the module and the name of the input. Returns
        the default if the module gets no argument, and UNKNOWN for a wrong argument, which is
        reported elsewhere.
        """
        _, module, name = key
        source, variable = self.names.source, module.declaration.topology.inputs[name]
        entry = module.declaration.arguments.get(name)
        if entry is None or self.outer is None:
            # `check_inputs` has reported a required input without an argument.
            value = variable.fields.get("default", UNKNOWN)
            return source.make_secret(value) if variable.secret else value
        value = self.outer.evaluate_node(entry.node, None)

        def require_valid(values: Sequence[Any]) -> Any:
            reason = find_value_problem(variable, values[0])
            if reason:
                message = f"{module.address}.with.{name}: {reason}"
                raise _create_error(DocumentDiagnostic(entry.node.position, "input", message))
            return values[0]

        def refuse() -> None:
            project_files = find_team_files()
            if project_files and not project_files.has_limits(variable):
                about = f"{module.address}.with.{name}"
                message, hint = describe_unknown_limits(about)
                raise _create_error(DocumentDiagnostic(entry.node.position, "input", message, hint))

        if source.is_pending(value):
            value = source.join([value], require_valid, refuse)
        elif find_value_problem(variable, value):
            return UNKNOWN  # reported at the argument
        return source.make_secret(value) if variable.secret else value

    def _evaluate_once(
        self, key: tuple[Any, ...], label: str, make: Callable[[tuple[Any, ...]], Any]
    ) -> Any:
        """Return the input or output of a module for `key`, evaluated once.

        Raises:
            CycleError: the value depends on itself. With an empty label, None is returned instead.
        """
        passed = self.names.passed
        if key not in passed:
            passed[key] = _RUNNING
            try:
                passed[key] = make(key)
            finally:
                if passed[key] is _RUNNING:
                    # After an error, the next evaluation has to begin again.
                    del passed[key]
        elif passed[key] is _RUNNING:
            # Lists of resources may meet a cycle that evaluation reports.
            if not label:
                return None
            hint = "remove one of the references between these modules"
            raise CycleError(f"{label} depends on itself", hint)
        return passed[key]


def find_named_modules(node: Node) -> Iterator[str]:
    """Yield the names of the modules in the node's expressions."""
    for scalar in list_scalars(node):
        template = parse_template(scalar, Diagnostics())
        for reference in template.references if template else ():
            first, *_ = reference.steps or (None,)
            if reference.root == MODULES and isinstance(first, str):
                yield first


def contains_template(node: ScalarNode) -> bool:
    """Return True if the scalar is a text with expressions."""
    return isinstance(node.value, str) and has_expression(node.value)


def parse_template(node: ScalarNode, problems: Diagnostics) -> Template | None:
    """Return the template of a scalar, or None for a scalar without expressions.

    An invalid template is reported to `problems`, and gives None too.
    """
    if not contains_template(node):
        return None
    try:
        return parse(node.text)
    except ExpressionError as error:
        position = find_part_position(node.position, error.where)
        problems.add(position, "expression", str(error), error.hint)
        return None


def _is_passed_on(template: Template, leaves: Mapping[tuple[str, ...], Any]) -> bool:
    """Return True if a template is a single value, passed on unchanged."""
    reference, (path, *others) = template.reference, leaves
    return reference is not None and not others and len(path) == 1 + len(reference.steps)


def build_variables(leaves: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Build the variables of an evaluation: nested mappings, with resources as ResourceValue."""
    roots: dict[str, Any] = {}
    for path, leaf in leaves.items():
        inner = roots
        for depth, step in enumerate(path[:-1], start=1):
            # As a value, a resource stands for its id; a plain mapping would not.
            is_resource = path[0] in SECTIONS and depth == len(path) - 1
            inner = inner.setdefault(step, ResourceValue() if is_resource else {})
        inner[path[-1]] = leaf
    return roots


_MOST: Final = 50
"""The maximum number of lines of a value that are searched."""


def find_part_position(value: SourcePosition, part: str) -> SourcePosition:
    """Return the position of `part` inside the value at a position, or the value's position.

    Only the first line of `part` is searched for, in the first 50 lines from the value on. A part
    that is written with escapes is not found.
    """
    first = part.partition("\n")[0]
    if not first or not value.file:
        return value
    try:
        lines = LINE_BREAK.split(read_source_text(Path(value.file)))
    # The file may be gone since it was read.
    except (OSError, ValueError):
        return value
    begin, pattern = value.line - 1, re.compile(re.escape(first) + r"(?!\w)")
    for at, line in enumerate(lines[begin : begin + _MOST], begin):
        match = pattern.search(line, value.column - 1 if at == begin else 0)
        if match:
            return value._replace(line=at + 1, column=match.start() + 1)
    return value


def _create_error(problem: DocumentDiagnostic) -> Exception:
    from gpuform.stacks.topology.registering import TopologyError  # noqa: PLC0415 - loads Pulumi

    return TopologyError([problem])
