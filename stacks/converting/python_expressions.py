"""The expressions of topologies as Python: as a person writes them where that means the same.

Where it might not, `gpuform.stacks.expression` evaluates the text as a topology does.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jinja2 import nodes

from gpuform.stacks.authoring.python_values import Code, literal, text
from gpuform.stacks.converting.python_references import Found, References
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode, SequenceNode
from gpuform.stacks.expressions.needs import Need, needs_of
from gpuform.stacks.expressions.template import parse, pieces_of
from gpuform.stacks.topology.scope import has_template, template_of

_ARITHMETIC: Final[Mapping[type[nodes.BinExpr], str]] = {
    nodes.Add: "+",
    nodes.Sub: "-",
    nodes.Mul: "*",
    nodes.Div: "/",
    nodes.FloorDiv: "//",
    nodes.Mod: "%",
}
_COMPARISONS: Final = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "lteq": "<=",
    "gt": ">",
    "gteq": ">=",
    "in": "in",
    "notin": "not in",
}
_NUMBERS: Final = ("integer", "number")
_ONE_LINE: Final = ("string", "integer")
"""Kinds whose text is the same in Python and in a topology."""


_PLAIN: Final[Mapping[Any, str]] = {str: "string", int: "integer", bool: "boolean"}


class _NotTheSame(Exception):
    """The expression is left to `gpuform.stacks.expression`."""


@dataclass(frozen=True, slots=True)
class Expressions:
    """Writes the values of one entry, or of what stands outside of entries."""

    references: References

    def value(self, node: Node) -> Any:
        """The node's value: plain data, with `Code` where there are expressions."""
        if isinstance(node, SequenceNode):
            return [self.value(item) for item in node.items]
        if isinstance(node, MappingNode):
            return {key: self.value(entry.node) for key, entry in node.entries.items()}
        return self.scalar(node) if has_template(node) else node.value

    def scalar(self, node: ScalarNode) -> Code:
        """A text with expressions."""
        pieces = pieces_of(node.text)
        try:
            if len(pieces) == 1 and not isinstance(pieces[0], str):
                return Code(self._alone(pieces[0]))
            return Code(self.mixed(pieces))
        except _NotTheSame:
            return self._called(node.text)

    def resource(self, node: Node) -> str:
        """A resource that an option names, or the instances of an entry as `*instances`."""
        template = template_of(node, Diagnostics()) if isinstance(node, ScalarNode) else None
        need = template.reference if template else None
        found = self.references.resource(need.root, self.steps(need)) if need else None
        if found is None:
            raise AssertionError(f"{node.place}: the checked option names no resource")
        return found

    def condition(self, node: Node) -> str:
        """A `when`."""
        return literal(self.value(node), no_names)

    def _alone(self, piece: nodes.Expr) -> str:
        found = self.whole(piece)
        return found.code if found is not None else _bare(self.written(piece).code)

    def whole(self, piece: nodes.Expr) -> Found | None:
        """The expression, if it is a reference and nothing else."""
        need = next((each for each in needs_of(piece) if each.node is piece), None)
        return self._reference(need) if need else None

    def steps(self, need: Need) -> list[str | int | Code]:
        """The steps of a reference, of which some may be expressions."""
        return [
            step if not isinstance(step, nodes.Expr) else Code(self.written(step).code)
            for step in need.steps
        ]

    def _reference(self, need: Need) -> Found:
        found = self.references.find(need.root, self.steps(need))
        if found is None:
            raise _NotTheSame
        return found

    def written(self, node: nodes.Expr) -> Found:
        """An expression of values that are known while planning."""
        write = _WRITERS.get(type(node))
        found = write(self, node) if write else self.whole(node)
        if found is None or found.is_output:
            raise _NotTheSame
        return found

    def mixed(self, pieces: Sequence[str | nodes.Expr]) -> str:
        """A text of several parts: an f-string, or Pulumi's concatenation of outputs."""
        parts: list[str | Found] = []
        for piece in pieces:
            found = piece if isinstance(piece, str) else self.whole(piece) or self.written(piece)
            if isinstance(found, Found) and found.kind not in _ONE_LINE:
                raise _NotTheSame
            parts.append(found)
        if any(isinstance(part, Found) and part.is_output for part in parts):
            codes = (text(part) if isinstance(part, str) else part.code for part in parts)
            return f"pulumi.Output.concat({', '.join(codes)})"
        return formatted(parts)

    def _called(self, template: str) -> Code:
        """The text itself, with what it refers to."""
        roots: dict[str, Any] = {}
        for need in parse(template).needs:
            self.references.give(need, roots)
        given = (f"{root}={literal(value, no_names)}" for root, value in roots.items())
        self.references.used.add("expression")
        return Code(f"expression({', '.join([text(template), *given])})")


def formatted(parts: Sequence[str | Found]) -> str:
    """An f-string, or the only part if that is a text."""
    if all(isinstance(part, str) for part in parts):
        return text("".join(map(str, parts)))
    if len(parts) == 1 and isinstance(parts[0], Found) and parts[0].kind == "string":
        return parts[0].code
    inner = ""
    for part in parts:
        if isinstance(part, str):
            inner += text(part)[1:-1].replace("{", "{{").replace("}", "}}")
        elif set(part.code) & {'"', "\\"}:
            raise _NotTheSame  # Python 3.11 has neither inside the braces
        else:
            inner += f"{{{part.code}}}"
    return f'f"{inner}"'


def _bare(code: str) -> str:
    """Without the brackets around all of it."""
    try:
        whole = ast.parse(code, mode="eval").body
        inner = ast.parse(code[1:-1], mode="eval").body
    except SyntaxError:
        return code
    return code[1:-1] if code[:1] == "(" and ast.dump(whole) == ast.dump(inner) else code


def no_names(value: Any) -> str:
    """For values in which all that is no plain data is code already."""
    raise AssertionError(f"{value!r} is not code")


def _constant(_: Expressions, node: Any) -> Found:
    kinds = {bool: "boolean", str: "string", int: "integer", float: "number"}
    return Found(literal(node.value, no_names), kinds.get(type(node.value), "any"))


def _arithmetic(writer: Expressions, node: Any) -> Found:
    left, right = writer.written(node.left), writer.written(node.right)
    kinds = {left.kind, right.kind}
    texts = kinds == {"string"} and isinstance(node, nodes.Add)
    if not texts and not kinds <= set(_NUMBERS):
        raise _NotTheSame
    kind = "string" if texts else "integer" if kinds == {"integer"} else "number"
    kind = "number" if isinstance(node, nodes.Div) else kind
    return Found(f"({left.code} {_ARITHMETIC[type(node)]} {right.code})", kind)


def _compared(writer: Expressions, node: Any) -> Found:
    code = writer.written(node.expr).code
    for operand in node.ops:
        code += f" {_COMPARISONS[operand.op]} {writer.written(operand.expr).code}"
    return Found(f"({code})", "boolean")


def _joined(word: str) -> Callable[[Expressions, Any], Found]:
    def join(writer: Expressions, node: Any) -> Found:
        left, right = writer.written(node.left), writer.written(node.right)
        kind = left.kind if left.kind == right.kind else "any"
        return Found(f"({left.code} {word} {right.code})", kind)

    return join


def _not(writer: Expressions, node: Any) -> Found:
    return Found(f"(not {writer.written(node.node).code})", "boolean")


def _chosen(writer: Expressions, node: Any) -> Found:
    if node.expr2 is None:
        raise _NotTheSame
    test, one, other = (writer.written(each) for each in (node.test, node.expr1, node.expr2))
    kind = one.kind if one.kind == other.kind else "any"
    return Found(f"({one.code} if {test.code} else {other.code})", kind)


def _list(writer: Expressions, node: Any) -> Found:
    items = ", ".join(writer.written(item).code for item in node.items)
    return Found(f"[{items}]", "array")


def _concatenated(writer: Expressions, node: Any) -> Found:
    texts = (each.value if isinstance(each, nodes.Const) else each for each in node.nodes)
    pieces = [text if isinstance(text, str | nodes.Expr) else nodes.Const(text) for text in texts]
    return Found(writer.mixed(pieces), "string")


def _call(writer: Expressions, node: Any) -> Found:
    """`range`, and the lookups of platforms."""
    if node.dyn_args or node.dyn_kwargs:
        raise _NotTheSame
    given = [writer.written(each).code for each in node.args]
    given += [f"{each.key}={writer.written(each.value).code}" for each in node.kwargs]
    called = ", ".join(given)
    if isinstance(node.node, nodes.Name) and node.node.name == "range":
        return Found(f"range({called})", "range")
    need = next((each for each in needs_of(node.node) if each.node is node.node), None)
    found = writer.references.lookup(need) if need and len(need.steps) == 1 else None
    if found is None or found.model is None:
        raise _NotTheSame
    return Found(f"{found.code}({called})", "models", model=found.model)


def _filtered(writer: Expressions, node: Any) -> Found:
    """Of filters those that have one meaning: of texts, and of what lookups have found."""
    if node.node is None or node.kwargs or node.dyn_args or node.dyn_kwargs:
        raise _NotTheSame
    subject = writer.written(node.node)
    if node.name in ("lower", "upper") and subject.kind == "string" and not node.args:
        return Found(f"{subject.code}.{node.name}()", "string")
    if node.name in ("length", "count") and subject.kind in ("array", "models") and not node.args:
        return Found(f"len({subject.code})", "integer")
    if subject.kind == "models" and node.name == "selectattr" and len(node.args) == 3:
        attribute, test, wanted_ = node.args
        name = getattr(attribute, "value", None)
        fields = subject.model.model_fields if subject.model else {}
        if name in fields and getattr(test, "value", None) in ("eq", "equalto", "=="):
            wanted = writer.written(wanted_).code
            chosen = f"[each for each in {subject.code} if each.{name} == {wanted}]"
            return Found(chosen, "models", model=subject.model)
    if subject.kind == "models" and node.name == "first" and not node.args:
        code = subject.code
        # A chosen list is made for its first item only.
        first = f"next({code[1:-1]})" if code.startswith("[") else f"{code}[0]"
        return Found(first, "model", model=subject.model)
    raise _NotTheSame


def _attribute(writer: Expressions, node: Any) -> Found | None:
    """An attribute of what a lookup has found; everything else is a reference, or is left."""
    found = writer.whole(node)
    if found is not None:
        return found
    name = node.attr if isinstance(node, nodes.Getattr) else getattr(node.arg, "value", None)
    subject = writer.written(node.node)
    fields = subject.model.model_fields if subject.kind == "model" and subject.model else {}
    if name not in fields or fields[name].annotation not in _PLAIN:
        raise _NotTheSame
    return Found(f"{subject.code}.{name}", _PLAIN[fields[name].annotation])


_WRITERS: Final[Mapping[type[nodes.Node], Callable[[Expressions, Any], Found | None]]] = {
    nodes.Const: _constant,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    nodes.Compare: _compared,
    nodes.And: _joined("and"),
    nodes.Or: _joined("or"),
    nodes.Not: _not,
    nodes.CondExpr: _chosen,
    nodes.List: _list,
    nodes.Concat: _concatenated,
    nodes.Call: _call,
    nodes.Filter: _filtered,
    nodes.Getattr: _attribute,
    nodes.Getitem: _attribute,
}
