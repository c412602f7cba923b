"""Evaluates the values of a file, of which some are not known yet."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from jinja2 import nodes

from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.document.diagnostics import Diagnostic, Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode, SequenceNode, list_scalars
from gpuform.stacks.document.reading import LINE_BREAK, read_source_text
from gpuform.stacks.expressions.budget import ExpressionError
from gpuform.stacks.expressions.template import Need, Template, compile_step, has_expression, parse
from gpuform.stacks.topology.configuration import why_not
from gpuform.stacks.topology.declarations import (
    MODULES,
    Group,
    Groups,
    Instance,
    ModuleInstance,
    Modules,
    Repetition,
)
from gpuform.stacks.topology.names import Names, no_groups
from gpuform.stacks.topology.proposals import team_files, unknown_limits
from gpuform.stacks.topology.references import References

_RUNNING = object()
_FAILS = "the expression fails with the values that it gets"
_ASKED_OF_A_SECRET = (
    "a proposal makes something of a secret that no file of the project makes of one",
    "pass the secret on as it is, or let a person write this expression",
)


class ResourceValue(dict[str, Any]):
    """A resource in an expression: its properties by name. As a value it means its id."""

    @property
    def stands_for(self) -> Any:
        return self["id"]


class CircleError(ExpressionError):
    """What goes in or out of a module is made of itself."""


class Scope:
    """The values of expressions for one set of names.

    `outer` is the scope of what a module is given, where the file is one that is included.
    """

    def __init__(self, names: Names, outer: "Scope | None" = None) -> None:
        self.names, self.outer = names, outer
        self.references = References(names, self)

    def having(self, groups: Groups, modules: Modules) -> "Scope":
        """The scope once it is known which instances there are."""
        return Scope(replace(self.names, groups=groups, modules=modules), self.outer)

    def within(self, instance: Repetition[Any], problems: Diagnostics) -> "Scope":
        """The scope of an instance, with its `each`."""
        if instance.declaration.is_single:
            return self
        value = instance.item
        if isinstance(value, ScalarNode | SequenceNode | MappingNode):
            value = self.value(value, problems)
        return Scope(replace(self.names, each={"key": instance.key, "value": value}), self.outer)

    def inside(self, module: ModuleInstance, problems: Diagnostics) -> "Scope":
        """The scope of the file of a module that this one's file includes."""
        topology = module.declaration.topology
        names = Names(
            source=self.names.source,
            inputs=topology.inputs,
            groups=module.groups or no_groups(),
            modules=module.modules,
            module=module,
            passed=self.names.passed,
        )
        return Scope(names, self.within(module, problems))

    def of(self, module: ModuleInstance | None) -> "Scope":
        """The scope of a module's file, from the topology's own."""
        if module is None:
            return self
        return self.of(module.module).inside(module, Diagnostics())

    def every(self) -> "Iterator[Scope]":
        """This scope, and those of the modules that it includes, in the order of the files."""
        yield self
        for module in self.modules_here():
            yield from self.inside(module, Diagnostics()).every()

    def groups_here(self) -> Iterator[Group[Any]]:
        """The entries of this file, and the modules that it includes."""
        for of_section in self.names.groups.values():
            yield from of_section.values()
        yield from self.names.modules.values()

    def resources_here(self) -> Iterator[Instance]:
        """The resources of this file, without those of modules."""
        for of_section in self.names.groups.values():
            for group in of_section.values():
                yield from group.instances.values()

    def modules_here(self) -> Iterator[ModuleInstance]:
        """The modules that this file includes."""
        for group in self.names.modules.values():
            yield from group.instances.values()

    def value(self, node: Node, problems: Diagnostics | None) -> Any:
        """The node's value; what is wrong goes to `problems`, and is UNKNOWN in the value.

        Without `problems` it is told elsewhere; then only what is made of itself is raised.
        """
        if isinstance(node, ScalarNode):
            template = template_of(node, Diagnostics() if problems is None else problems)
            if template is None:
                return UNKNOWN if has_template(node) else node.value
            try:
                return self.evaluate(template, node.place, node.text)
            except ExpressionError as error:
                if problems is not None:
                    place = place_in(node.place, error.where)
                    problems.add(place, "expression", str(error), error.hint)
                elif isinstance(error, CircleError):
                    raise
                return UNKNOWN
        if isinstance(node, SequenceNode):
            return [self.value(item, problems) for item in node.items]
        return {key: self.value(entry.node, problems) for key, entry in node.entries.items()}

    def evaluate(self, template: Template, place: SourcePosition, text: str = "") -> Any:
        """The value of the template at a place, or what stands for it until it is known.

        Raises ExpressionError; a failure once the values are known is a TopologyError.
        """
        leaves: dict[tuple[str, ...], Any] = {}
        for need in template.needs:
            try:
                leaves.update(self.references.leaves(need, alone=need is template.reference))
            except ExpressionError as error:
                error.where = error.where or need.find_source_text(text)
                raise
        pending = [path for path, leaf in leaves.items() if self.names.source.is_pending(leaf)]
        if not pending:
            return template.evaluate(variables_of(leaves))

        def make(values: Sequence[Any]) -> Any:
            known = {**leaves, **dict(zip(pending, values, strict=True))}
            try:
                return template.evaluate(variables_of(known))
            except ExpressionError as error:
                shown = _FAILS if error.tells_values else str(error)
                late = Diagnostic(place, "expression", shown, error.hint)
                raise _wrong(late) from None

        def refuse() -> None:
            team = team_files()
            if team and not (_passes_on(template, leaves) or team.has_expression(text)):
                raise _wrong(Diagnostic(place, "expression", *_ASKED_OF_A_SECRET))

        return self.names.source.join([leaves[path] for path in pending], make, refuse)

    def resources(self, node: Node) -> list[Instance]:
        """The resources that the node's expressions refer to, each once."""
        found: dict[Instance, None] = {}
        for scalar in list_scalars(node):
            template = template_of(scalar, Diagnostics())
            for need in template.needs if template else ():
                try:
                    found.update(dict.fromkeys(self.references.resources(need)))
                except ExpressionError:
                    continue  # told when the value is evaluated
        return list(found)

    def named(self, node: Node) -> list[Instance] | None:
        """The resources that a value is, and nothing else; None when it is another value."""
        template = template_of(node, Diagnostics()) if isinstance(node, ScalarNode) else None
        if template is None or template.reference is None:
            return None
        try:
            return self.references.named(template.reference)
        except ExpressionError:
            return []  # told when the value is evaluated

    def step(self, need: Need, at: int) -> str | None:
        """A step of a reference as text; None when it is not there, or not known yet."""
        if at >= len(need.steps):
            return None
        step: Any = need.steps[at]
        if isinstance(step, nodes.Expr):
            step = self.evaluate(compile_step(step), SourcePosition(""))
            if self.names.source.is_pending(step):
                return None
        return str(step)

    def input(self, name: str) -> Any:
        """What the module is given, or the input's default."""
        if self.names.module is None or self.outer is None or self.names.inputs is None:
            return self.names.source.input(name)
        return self._passed(("input", self.names.module, name), f"inputs.{name}", self._given)

    def output(self, module: ModuleInstance, name: str) -> Any:
        """What a module gives out; UNKNOWN before it has been expanded."""
        if not module.is_expanded:
            return UNKNOWN
        node = module.declaration.topology.outputs[name].node
        return self._passed(
            ("output", module, name),
            f"{module.address}.{name}",
            lambda _: self.inside(module, Diagnostics()).value(node, None),
        )

    def resources_given(self, name: str) -> list[Instance]:
        """The resources that an input is made of."""
        given, outer = self._written(name), self.outer
        if given is None or outer is None:
            return []
        key = ("resources", self.names.module, name)
        return self._passed(key, "", lambda _: outer.resources(given)) or []

    def resources_out(self, module: ModuleInstance, name: str) -> list[Instance]:
        """The resources that an output is made of."""
        node, inside = module.declaration.topology.outputs[name].node, self.inside
        key = ("resources out", module, name)
        return self._passed(key, "", lambda _: inside(module, Diagnostics()).resources(node)) or []

    def named_given(self, name: str) -> list[Instance] | None:
        """The resources that an input is, and nothing else."""
        given = self._written(name)
        return self.outer.named(given) if given is not None and self.outer else None

    def named_out(self, module: ModuleInstance, name: str) -> list[Instance] | None:
        """The resources that an output is, and nothing else."""
        node = module.declaration.topology.outputs[name].node
        return self.inside(module, Diagnostics()).named(node)

    def _written(self, name: str) -> Node | None:
        """What is written where an input is given."""
        module = self.names.module
        entry = module.declaration.given.get(name) if module else None
        return entry.node if entry else None

    def _given(self, key: tuple[Any, ...]) -> Any:
        """The value of an input, checked once it is known."""
        _, module, name = key
        source, variable = self.names.source, module.declaration.topology.inputs[name]
        entry = module.declaration.given.get(name)
        if entry is None or self.outer is None:
            value = variable.said.get("default", UNKNOWN)
            return source.secret(value) if variable.secret else value
        value = self.outer.value(entry.node, None)

        def checked(values: Sequence[Any]) -> Any:
            why = why_not(variable, values[0])
            if why:
                about = f"{module.address}.with.{name}: {why}"
                raise _wrong(Diagnostic(entry.node.place, "input", about))
            return values[0]

        def refuse() -> None:
            team = team_files()
            if team and not team.has_limits(variable):
                about = f"{module.address}.with.{name}"
                raise _wrong(Diagnostic(entry.node.place, "input", *unknown_limits(about)))

        if source.is_pending(value):
            value = source.join([value], checked, refuse)
        elif why_not(variable, value):
            return UNKNOWN  # told where it is given
        return source.secret(value) if variable.secret else value

    def _passed(
        self, key: tuple[Any, ...], shown: str, make: Callable[[tuple[Any, ...]], Any]
    ) -> Any:
        """What goes in or out of a module, made once. What is made of itself is an error."""
        passed = self.names.passed
        if key not in passed:
            passed[key] = _RUNNING
            try:
                passed[key] = make(key)
            finally:
                if passed[key] is _RUNNING:
                    del passed[key]
        elif passed[key] is _RUNNING:
            if not shown:
                return None
            hint = "take out one of the references between these modules"
            raise CircleError(f"{shown} is made of itself", hint)
        return passed[key]


def named_modules(node: Node) -> Iterator[str]:
    """The modules that the node's expressions name."""
    for scalar in list_scalars(node):
        template = template_of(scalar, Diagnostics())
        for need in template.needs if template else ():
            if need.root == MODULES and need.steps and isinstance(need.steps[0], str):
                yield need.steps[0]


def has_template(node: ScalarNode) -> bool:
    """Whether the scalar is a text with expressions."""
    return isinstance(node.value, str) and has_expression(node.value)


def template_of(node: ScalarNode, problems: Diagnostics) -> Template | None:
    """The scalar's template; None when it is none, or cannot be parsed."""
    if not has_template(node):
        return None
    try:
        return parse(node.text)
    except ExpressionError as error:
        place = place_in(node.place, error.where)
        problems.add(place, "expression", str(error), error.hint)
        return None


def _passes_on(template: Template, leaves: Mapping[tuple[str, ...], Any]) -> bool:
    """Whether a template is one value as it is, and nothing that is made of it."""
    need, (path, *others) = template.reference, leaves
    return need is not None and not others and len(path) == 1 + len(need.steps)


def variables_of(leaves: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """The variables of an evaluation: objects inside objects, resources among them."""
    roots: dict[str, Any] = {}
    for path, leaf in leaves.items():
        inner = roots
        for depth, step in enumerate(path[:-1], start=1):
            is_resource = path[0] in SECTIONS and depth == len(path) - 1
            inner = inner.setdefault(step, ResourceValue() if is_resource else {})
        inner[path[-1]] = leaf
    return roots


_MOST: Final = 50
"""Lines of a value that are searched."""


def place_in(value: SourcePosition, part: str) -> SourcePosition:
    """Where a part of the value that begins at a place is written; that place, if it is not found.

    A part that is written with escapes is not found.
    """
    first = part.partition("\n")[0]
    if not first or not value.file:
        return value
    try:
        lines = LINE_BREAK.split(read_source_text(Path(value.file)))
    except (OSError, ValueError):
        return value
    begin, pattern = value.line - 1, re.compile(re.escape(first) + r"(?!\w)")
    for at, line in enumerate(lines[begin : begin + _MOST], begin):
        match = pattern.search(line, value.column - 1 if at == begin else 0)
        if match:
            return value._replace(line=at + 1, column=match.start() + 1)
    return value


def _wrong(what: Diagnostic) -> Exception:
    from gpuform.stacks.topology.errors import TopologyError  # noqa: PLC0415 - loads Pulumi

    return TopologyError([what])
