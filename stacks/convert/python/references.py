"""Write the references of a topology as expressions of the Python program.

`expressions` calls `ReferenceWriter`; the names of variables come from `PythonNames`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_args, get_type_hints

from jinja2 import nodes
from pydantic import BaseModel

from gpuform.providers.catalog import list_lookups, load_lifecycle_class, load_lookup
from gpuform.providers.platform import platforms
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.declaration_writer.declarations import ConfigReference, DeclaredReference
from gpuform.stacks.declaration_writer.python_program import (
    Code,
    PythonNames,
    quote_text,
    render_literal,
)
from gpuform.stacks.expressions.template import ExpressionReference
from gpuform.stacks.topology.declarations import MODULES, Declaration, Repeatable, Topology

PULUMI_VALUES: Final = {"project": "pulumi.get_project()", "stack": "pulumi.get_stack()"}

Steps = Sequence[str | int | Code]


@dataclass(frozen=True, slots=True)
class PythonExpression:
    """A Python expression.

    `kind` is the known type of the value: a type of configuration, `models` or `model` for results
    of a lookup, or `any`. `is_output` marks an output of Pulumi, which the program can only pass
    on.
    """

    code: str
    kind: str = "any"
    is_output: bool = False
    model: type[BaseModel] | None = None
    """The model of the items of a lookup's result."""


@dataclass(frozen=True, slots=True)
class LoopVariables:
    """The Python variables for `each.key` and `each.value` of a loop.

    `kinds` are the kinds of the parts of the value by path. `holds_outputs`: a part of the value
    may be an output.
    """

    key: str
    value: str
    kinds: Mapping[tuple[str, ...], str]
    holds_outputs: bool = False


@dataclass(frozen=True, slots=True)
class ReferenceWriter:
    """Writes references as Python.

    `secret` are the configuration values that Pulumi keeps secret. `loop` are the variables of the
    surrounding loop, or None. `used` collects the names that the program has to import or define.
    """

    topology: Topology
    names: PythonNames
    secret: frozenset[str]
    loop: LoopVariables | None = None
    used: set[str] = field(default_factory=set)

    def find_expression(self, root: str, steps: Steps) -> PythonExpression | None:
        """Return the Python expression for a topology's reference, or None if Python has none."""
        if root in SECTIONS:
            return self._find_property(root, steps)
        if root == MODULES:
            return self._find_module_output(steps)
        if root == "each" and self.loop and steps:
            return self._find_loop_value(self.loop, steps)
        if root == "config" and steps and isinstance(steps[0], str):
            return self._find_config_value(steps[0], steps[1:])
        if root == "pulumi" and len(steps) == 1 and steps[0] in PULUMI_VALUES:
            return PythonExpression(PULUMI_VALUES[str(steps[0])], "string")
        if root == "stack_references" and len(steps) >= 2 and isinstance(steps[0], str):
            return self._build_stack_output(steps[0], steps[1:])
        return None

    def render_resource(self, root: str, steps: Steps) -> str | None:
        """Return the Python code for a resource, or `*instances` for an entry, else None."""
        declaration = self._find_declaration(root, steps)
        if declaration is None:
            return None
        name = self.use_variable(declaration)
        if declaration.is_single:
            return name if len(steps) == 1 else None
        if len(steps) == 1:
            return f"*{name}.values()"
        return f"{name}[{_render_subscript(steps[1])}]" if len(steps) == 2 else None

    def use_variable(self, declaration: Repeatable) -> str:
        """Return the variable of an entry or a module, and add the address to `used`.

        With a `for_each` the variable holds the instances by key.
        """
        self.used.add(declaration.address)
        return self.names(DeclaredReference(declaration.section, declaration.name))

    def find_lookup(self, reference: ExpressionReference) -> PythonExpression | None:
        """Return the function of a platform's lookup, or None for another reference.

        The platform is added to `used`.
        """
        if reference.root not in platforms() or not reference.steps:
            return None
        name = reference.steps[0]
        if name not in list_lookups(reference.root):
            return None
        self.used.add(reference.root)
        return PythonExpression(
            f"{reference.root}.{name}",
            model=_find_item_model(load_lookup(reference.root, str(name))),
        )

    def add_roots(self, reference: ExpressionReference, roots: dict[str, Any]) -> None:
        """Add to `roots` the arguments of `gpuform.stacks.expression` for one reference."""
        for path, code in self._iterate_roots(reference):
            parent = roots
            for step in path[:-1]:
                parent = parent.setdefault(step, {})
            parent[path[-1]] = Code(code)

    def _iterate_roots(
        self, reference: ExpressionReference
    ) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the arguments for a reference, each as path and code."""
        root, first = reference.root, reference.steps[0] if reference.steps else None
        known_name = str(first) if first is not None and not isinstance(first, nodes.Expr) else None
        if root in SECTIONS or root == MODULES:
            for name, declaration in self._get_declarations(root).items():
                # A name that an expression computes may be any name, so all entries are passed.
                if known_name in (None, name):
                    yield (root, name), self.use_variable(declaration)
        elif root == "config":
            for name in self.topology.config:
                if known_name in (None, name):
                    yield (root, name), self.names(ConfigReference(name))
        elif root == "each" and self.loop:
            yield (root, "key"), self.loop.key
            yield (root, "value"), self.loop.value
        else:
            yield from self._iterate_other_roots(reference, str(known_name))

    def _iterate_other_roots(
        self, reference: ExpressionReference, name: str
    ) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield path and code of the `pulumi` values, the stack output or the lookup referred to.

        `name` is the first step of the reference. Other roots yield nothing.
        """
        root = reference.root
        if root == "pulumi":
            yield from (((root, value_name), code) for value_name, code in PULUMI_VALUES.items())
        elif root == "stack_references":
            output = str(reference.steps[1])
            yield (root, name, output), self._build_stack_output(name, [output]).code
        elif (lookup := self.find_lookup(reference)) is not None:
            yield (root, name), lookup.code

    def _find_declaration(self, root: str, steps: Steps) -> Repeatable | None:
        """Return the entry or module named by the first step, or None without one."""
        if not steps or not isinstance(steps[0], str):
            return None
        return self._get_declarations(root).get(steps[0])

    def _get_declarations(self, root: str) -> Mapping[str, Repeatable]:
        """Return the modules, or the entries of the section `root`, by name.

        The result is empty for a root that is neither.
        """
        if root == MODULES:
            return self.topology.modules
        return self.topology.declarations.get(root, {})

    def _find_property(self, root: str, steps: Steps) -> PythonExpression | None:
        """Return the expression of a resource's property, by default the id.

        None if the steps name no single resource, or no property that is a Python name.
        """
        declaration = self._find_declaration(root, steps)
        if not isinstance(declaration, Declaration):
            return None
        own_step_count = 1 if declaration.is_single else 2
        resource = self.render_resource(root, steps[:own_step_count])
        # Of an entry with `for_each`, only one instance has properties.
        if resource is None or resource.startswith("*"):
            return None
        # As a value, a resource means its id.
        name, *remaining_steps = steps[own_step_count:] or ("id",)
        # Python has no attribute with another name; `expression` evaluates such a step at run time.
        if not isinstance(name, str) or not name.isidentifier():
            return None
        kind = "string" if name in ("id", "urn") else _find_property_kind(declaration, name)
        return _select_part(
            PythonExpression(f"{resource}.{name}", kind, is_output=True), remaining_steps
        )

    def _find_module_output(self, steps: Steps) -> PythonExpression | None:
        """Return the expression of a module's output, or None if the steps name none."""
        module = self._find_declaration(MODULES, steps)
        own_step_count = 1 if module is None or module.is_single else 2
        module_code = (
            self.render_resource(MODULES, steps[:own_step_count])
            if len(steps) > own_step_count
            else None
        )
        if module_code is None or not isinstance(steps[own_step_count], str):
            return None
        return _select_part(
            PythonExpression(f"{module_code}.outputs", is_output=True), steps[own_step_count:]
        )

    def _find_loop_value(self, loop: LoopVariables, steps: Steps) -> PythonExpression | None:
        """Return the expression of `each.key` or a part of `each.value`; None for other steps."""
        if steps[0] == "key" and len(steps) == 1:
            return PythonExpression(loop.key, "string")
        if steps[0] != "value":
            return None
        path = tuple(step for step in steps[1:] if isinstance(step, str))
        kind = loop.kinds.get(path, "any") if len(path) == len(steps) - 1 else "any"
        # Which part of the value is an output is unknown here, so every part counts as one.
        expression = PythonExpression(loop.value, "any", is_output=loop.holds_outputs)
        return _select_part(expression, steps[1:], kind)

    def _find_config_value(self, name: str, remaining_steps: Steps) -> PythonExpression | None:
        """Return the expression of a configuration value or its part, or None if not declared."""
        variable = self.topology.config.get(name)
        if variable is None:
            return None
        is_output = name in self.secret
        return _select_part(
            PythonExpression(self.names(ConfigReference(name)), variable.type, is_output),
            remaining_steps,
        )

    def _build_stack_output(self, name: str, steps: Steps) -> PythonExpression:
        """Return the expression of an output of the referenced stack `name`, or of its part.

        The first step is the name of the output.
        """
        variable = self.names.assign("stack_references", name)
        output = render_literal(steps[0], self.names)
        return _select_part(
            PythonExpression(f"{variable}.require_output({output})", is_output=True), steps[1:]
        )


def _find_item_model(function: Callable[..., Any]) -> type[BaseModel] | None:
    """Return the model of the items in a lookup's result, or None without one model."""
    (item, *others) = get_args(get_type_hints(function).get("return")) or (None,)
    is_model = isinstance(item, type) and issubclass(item, BaseModel) and not others
    return item if is_model else None


def _select_part(expression: PythonExpression, steps: Steps, kind: str = "any") -> PythonExpression:
    """Return the expression of a part of a value; `kind` is the kind of the part."""
    if not steps:
        return PythonExpression(
            expression.code, expression.kind if kind == "any" else kind, expression.is_output
        )
    code = expression.code + "".join(f"[{_render_subscript(step)}]" for step in steps)
    return PythonExpression(code, kind, expression.is_output)


def _render_subscript(step: str | int | Code) -> str:
    if isinstance(step, Code):
        return step.text
    return quote_text(step) if isinstance(step, str) else str(step)


def _find_property_kind(declaration: Declaration, name: str) -> str:
    """Return `string` for a property with this type in the model, or else `any`."""
    lifecycle = load_lifecycle_class(declaration.platform, declaration.kind)
    for model in (lifecycle.outputs, lifecycle.inputs):
        field_ = model.model_fields.get(name)
        if field_ is not None:
            # An optional text does not count: Python would write None into a text.
            return "string" if field_.annotation is str else "any"
    return "any"
