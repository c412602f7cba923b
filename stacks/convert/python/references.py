"""What the references of a topology are in the Python program that is made of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_args, get_type_hints

from jinja2 import nodes
from pydantic import BaseModel

from gpuform.providers.catalog import list_lookups, load_lifecycle_class, load_lookup
from gpuform.providers.platform import platforms
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.declaration_writer.declarations import ConfigReference, ResourceReference
from gpuform.stacks.declaration_writer.python_program import (
    Code,
    PythonNames,
    quote_text,
    render_literal,
)
from gpuform.stacks.expressions.template import ExpressionReference
from gpuform.stacks.topology.declarations import MODULES, Declaration, Repeatable, Topology

ABOUT: Final = {"project": "pulumi.get_project()", "stack": "pulumi.get_stack()"}

Steps = Sequence[str | int | Code]


@dataclass(frozen=True, slots=True)
class Found:
    """An expression of Python.

    `kind` is what it is known to be: a type of configuration, `models` of a lookup, or `any`. An
    `is_output` is one of Pulumi's, which can only be handed on.
    """

    code: str
    kind: str = "any"
    is_output: bool = False
    model: type[BaseModel] | None = None
    """What lookups have found is made of these."""


@dataclass(frozen=True, slots=True)
class Loop:
    """What `each` is: the names of the loop's variables and the kind of the values, by steps."""

    key: str
    value: str
    kinds: Mapping[tuple[str, ...], str]
    holds_outputs: bool = False


@dataclass(frozen=True, slots=True)
class References:
    """Finds what references are. `secret` are the configuration values that Pulumi keeps secret.

    `used` gathers the names that the program has to import or define for it.
    """

    topology: Topology
    names: PythonNames
    secret: frozenset[str]
    loop: Loop | None = None
    used: set[str] = field(default_factory=set)

    def find(self, root: str, steps: Steps) -> Found | None:
        """The reference; None for one that is not written as one."""
        if root in SECTIONS:
            return self._of_resource(root, steps)
        if root == MODULES:
            return self._of_module(steps)
        if root == "each" and self.loop and steps:
            return self._of_each(self.loop, steps)
        if root == "config" and steps and isinstance(steps[0], str):
            return self._of_config(steps[0], steps[1:])
        if root == "pulumi" and len(steps) == 1 and steps[0] in ABOUT:
            return Found(ABOUT[str(steps[0])], "string")
        if root == "stack_references" and len(steps) >= 2 and isinstance(steps[0], str):
            return self._of_stack(steps[0], steps[1:])
        return None

    def resource(self, root: str, steps: Steps) -> str | None:
        """A resource itself, or an entry's instances as `*instances`; None for another value."""
        declaration = self._declaration(root, steps)
        if declaration is None:
            return None
        name = self.variable(declaration)
        if declaration.is_single:
            return name if len(steps) == 1 else None
        if len(steps) == 1:
            return f"*{name}.values()"
        return f"{name}[{_subscript(steps[1])}]" if len(steps) == 2 else None

    def variable(self, declaration: Repeatable) -> str:
        """The variable of an entry's resource or module, or of its instances by key."""
        self.used.add(declaration.address)
        return self.names(ResourceReference(declaration.section, declaration.name))

    def lookup(self, need: ExpressionReference) -> Found | None:
        """A platform's lookup."""
        if need.root not in platforms() or not need.steps:
            return None
        name = need.steps[0]
        if name not in list_lookups(need.root):
            return None
        self.used.add(need.root)
        return Found(f"{need.root}.{name}", model=_model_of(load_lookup(need.root, str(name))))

    def give(self, need: ExpressionReference, roots: dict[str, Any]) -> None:
        """Adds to `roots` what `gpuform.stacks.expression` has to be given for a reference."""
        for path, code in self._given(need):
            inner = roots
            for step in path[:-1]:
                inner = inner.setdefault(step, {})
            inner[path[-1]] = Code(code)

    def _given(self, need: ExpressionReference) -> Iterator[tuple[tuple[str, ...], str]]:
        root, first = need.root, need.steps[0] if need.steps else None
        known = str(first) if first is not None and not isinstance(first, nodes.Expr) else None
        if root in SECTIONS or root == MODULES:
            for name, declaration in self._declared(root).items():
                if known in (None, name):
                    yield (root, name), self.variable(declaration)
        elif root == "config":
            for name in self.topology.config:
                if known in (None, name):
                    yield (root, name), self.names(ConfigReference(name))
        elif root == "each" and self.loop:
            yield (root, "key"), self.loop.key
            yield (root, "value"), self.loop.value
        else:
            yield from self._given_elsewhere(need, str(known))

    def _given_elsewhere(
        self, need: ExpressionReference, name: str
    ) -> Iterator[tuple[tuple[str, ...], str]]:
        root = need.root
        if root == "pulumi":
            yield from (((root, about), code) for about, code in ABOUT.items())
        elif root == "stack_references":
            output = str(need.steps[1])
            yield (root, name, output), self._of_stack(name, [output]).code
        elif (found := self.lookup(need)) is not None:
            yield (root, name), found.code

    def _declaration(self, root: str, steps: Steps) -> Repeatable | None:
        if not steps or not isinstance(steps[0], str):
            return None
        return self._declared(root).get(steps[0])

    def _declared(self, root: str) -> Mapping[str, Repeatable]:
        if root == MODULES:
            return self.topology.modules
        return self.topology.declarations.get(root, {})

    def _of_resource(self, root: str, steps: Steps) -> Found | None:
        declaration = self._declaration(root, steps)
        if not isinstance(declaration, Declaration):
            return None
        own = 1 if declaration.is_single else 2
        resource = self.resource(root, steps[:own])
        if resource is None or resource.startswith("*"):
            return None
        name, *rest = steps[own:] or ("id",)
        if not isinstance(name, str) or not name.isidentifier():
            return None
        kind = "string" if name in ("id", "urn") else _kind_of(declaration, name)
        return _inside(Found(f"{resource}.{name}", kind, is_output=True), rest)

    def _of_module(self, steps: Steps) -> Found | None:
        module = self._declaration(MODULES, steps)
        own = 1 if module is None or module.is_single else 2
        found = self.resource(MODULES, steps[:own]) if len(steps) > own else None
        if found is None or not isinstance(steps[own], str):
            return None
        return _inside(Found(f"{found}.outputs", is_output=True), steps[own:])

    def _of_each(self, loop: Loop, steps: Steps) -> Found | None:
        if steps[0] == "key" and len(steps) == 1:
            return Found(loop.key, "string")
        if steps[0] != "value":
            return None
        way = tuple(step for step in steps[1:] if isinstance(step, str))
        kind = loop.kinds.get(way, "any") if len(way) == len(steps) - 1 else "any"
        # The part of a value that an output decides cannot be told from the others here.
        found = Found(loop.value, "any", is_output=loop.holds_outputs)
        return _inside(found, steps[1:], kind)

    def _of_config(self, name: str, rest: Steps) -> Found | None:
        variable = self.topology.config.get(name)
        if variable is None:
            return None
        is_output = name in self.secret
        return _inside(Found(self.names(ConfigReference(name)), variable.type, is_output), rest)

    def _of_stack(self, name: str, steps: Steps) -> Found:
        made = self.names.assign("stack_references", name)
        output = render_literal(steps[0], self.names)
        return _inside(Found(f"{made}.require_output({output})", is_output=True), steps[1:])


def _model_of(function: Callable[..., Any]) -> type[BaseModel] | None:
    """The model of the items that a lookup finds, if it finds several of one."""
    (item, *others) = get_args(get_type_hints(function).get("return")) or (None,)
    is_model = isinstance(item, type) and issubclass(item, BaseModel) and not others
    return item if is_model else None


def _inside(found: Found, steps: Steps, kind: str = "any") -> Found:
    """A part of a value."""
    if not steps:
        return Found(found.code, found.kind if kind == "any" else kind, found.is_output)
    code = found.code + "".join(f"[{_subscript(step)}]" for step in steps)
    return Found(code, kind, found.is_output)


def _subscript(step: str | int | Code) -> str:
    if isinstance(step, Code):
        return step.text
    return quote_text(step) if isinstance(step, str) else str(step)


def _kind_of(declaration: Declaration, name: str) -> str:
    """What a property is, where its model says that it is always a text or a whole number."""
    lifecycle = load_lifecycle_class(declaration.platform, declaration.kind)
    for model in (lifecycle.outputs, lifecycle.inputs):
        field_ = model.model_fields.get(name)
        if field_ is not None:
            return "string" if field_.annotation is str else "any"
    return "any"
