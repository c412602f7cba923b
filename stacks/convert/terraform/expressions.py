"""Resolve Terraform's expressions to values of a topology.

`topology` creates one `ExpressionResolver` for each instance.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from gpuform.stacks.convert.terraform.resource_types import Step, to_hcl_literal
from gpuform.stacks.declaration_writer.declarations import (
    EachReference,
    InterpolatedText,
    ModuleReference,
    Reference,
    Value,
    to_reference_in_text,
)
from gpuform.stacks.document.diagnostics import SourcePosition


class UnresolvedExpression(Exception):
    """Raised for an expression without an equivalent; the message is the expression."""


_QUOTED_TEXT: Final = re.compile(r'"(?:[^"\\$]|\\.|\$(?!\{)|\$\{[^{}]*\})*"', re.DOTALL)
"""One quoted text; interpolations may have quotes of their own. `"a" == "b"` is no such text."""


_ITEMS: Final = re.compile(
    r"\[\s*for\s+(?P<item>[A-Za-z_]\w*)\s+in\s+(?P<path>[^\s:]+)\s*:"
    r"\s*(?P=item)(?P<rest>(\.\w+)*)\s*\]"
)
"""A list of the items of a list or of all instances of a resource, or of one attribute of each."""


def _is_in_parentheses(code: str) -> bool:
    """Return True if the first parenthesis of the expression closes at its end."""
    depth = 0
    for position, character in enumerate(code):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return code.startswith("(") and position == len(code) - 1
    return False


def join_text_parts(parts: Sequence[Value], template: str) -> str | InterpolatedText:
    """Return the text of the parts, an InterpolatedText if one of them is a reference.

    Raises:
        UnresolvedExpression: a part is a boolean, null, list or object; the error shows `template`.
    """
    joined_parts: list[str | Reference] = []
    flat_parts = (
        inner
        for part in parts
        # An argument of a module may be a text with references, and the module adds to it.
        for inner in (part.parts if isinstance(part, InterpolatedText) else (part,))
    )
    for part in flat_parts:
        if isinstance(part, Reference):
            joined_parts.append(to_reference_in_text(part))
            continue
        if isinstance(part, bool | list | Mapping) or part is None:
            raise UnresolvedExpression(template)
        part_text = part if isinstance(part, str) else f"{part:g}"
        if joined_parts and isinstance(joined_parts[-1], str):
            joined_parts[-1] += part_text
        else:
            joined_parts.append(part_text)
    if all(isinstance(part, str) for part in joined_parts):
        return "".join(map(str, joined_parts))
    return InterpolatedText(tuple(joined_parts))


@dataclass(frozen=True, slots=True)
class ExpressionResolver:
    """Resolves the expressions of one instance.

    `find_reference` returns the reference to a resource's attribute by its path, or None; for a
    path to all instances of a resource it returns a list of references. `get_variable` returns the
    part of a variable at the given steps, `get_local` the raw expression of a local, or the
    reference to a module's input or output. `find_data` returns the part of a data source's result
    at the steps after `data`. `key` is the instance's `each.key`, and `each_value` the raw
    expression of its `each.value`, or None.
    """

    find_reference: Callable[[str, Sequence[Step]], Value]
    get_variable: Callable[[str, Sequence[Step]], Value]
    get_local: Callable[[str], Any]
    key: Step | EachReference | None = None
    each_value: Any = None
    find_data: Callable[[Sequence[Step], str], Value] | None = None

    def resolve(self, raw: Any) -> Value:
        """Return the value of an argument; `raw` is python-hcl2's form.

        Raises:
            UnresolvedExpression: the value contains an expression without an equivalent.
        """
        if isinstance(raw, Mapping):
            return {key: self.resolve(item) for key, item in raw.items()}
        if isinstance(raw, list):
            return [self.resolve(item) for item in raw]
        if not isinstance(raw, str):
            return raw
        # python-hcl2 keeps the quotes of literals, so that texts differ from expressions.
        if raw.startswith('"'):
            return self._resolve_template(raw[1:-1])
        if raw.startswith("${") and raw.endswith("}"):
            return self._resolve_expression(raw[2:-1])
        return self._resolve_expression(raw)

    def resolve_local(self, name: str, steps: Sequence[Step] = ()) -> Value:
        """Return the value of a local, or of its part at the steps.

        Raises:
            UnresolvedExpression: the value or the part has no equivalent.
        """
        return self._resolve_part(self.get_local(name), steps, f"local.{name}")

    def can_resolve(self, raw: Any) -> bool:
        """Return True if the expression of an argument has an equivalent."""
        try:
            return self.resolve(raw) is not None
        except UnresolvedExpression:
            return False

    def _resolve_template(self, template: str) -> Value:
        """Return the value of a quoted text with `${...}` expressions.

        A single expression keeps its type. Otherwise the result is a text, or an InterpolatedText
        if a part is a reference.

        Raises:
            UnresolvedExpression: a part cannot be resolved, or is a boolean, null, list or object.
        """
        parts = [
            part if isinstance(part, str) else self._resolve_expression(part.code)
            for part in _split_template(template)
        ]
        # As in Terraform, a template of one interpolation keeps the type of its value:
        # `"${var.gpus}"` stays a number.
        if len(parts) == 1 and not isinstance(parts[0], str):
            return parts[0]
        return join_text_parts(parts, template)

    def _resolve_expression(self, code: str) -> Value:
        """Return the value of an expression: a literal, a template, or the value of a path.

        Raises:
            UnresolvedExpression: the expression is of another form or refers to something unknown.
        """
        code = code.strip()
        while _is_in_parentheses(code):
            code = code[1:-1].strip()
        if _QUOTED_TEXT.fullmatch(code):
            return self._resolve_template(code[1:-1])
        # JSON and HCL write these literals alike.
        if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?|true|false|null", code):
            return json.loads(code)
        # `[for server in PATH : server.id]` is another spelling of `PATH[*].id`.
        items = _ITEMS.fullmatch(code)
        path = f"{items['path']}[*]{items['rest']}" if items else code
        root, steps = self._parse_path(path)
        return self._resolve_reference(root, steps, code)

    def _resolve_reference(self, root: str, steps: Sequence[Step], code: str) -> Value:
        """Return the value of a path in `var`, `local`, `count` or `each`, or a resource reference.

        `code` is the expression for the error.

        Raises:
            UnresolvedExpression: the path refers to nothing known.
        """
        if root == "var" and steps:
            return self.get_variable(str(steps[0]), steps[1:])
        if root == "local" and steps:
            return self._resolve_part(self.get_local(str(steps[0])), steps[1:], code)
        if (
            root == "count"
            and list(steps) == ["index"]
            and isinstance(self.key, int | EachReference)
        ):
            return self.key
        if root == "each" and list(steps) == ["key"] and self.key is not None:
            return self.key
        if root == "each" and steps and steps[0] == "value" and self.each_value is not None:
            return self._resolve_part(self.each_value, steps[1:], code)
        if root == "data" and self.find_data is not None:
            return self.find_data(steps, code)
        reference = self.find_reference(root, steps)
        if reference is None:
            raise UnresolvedExpression(code)
        return reference

    def _resolve_part(self, raw: Any, steps: Sequence[Step], code: str) -> Value:
        """Return the value of the part of an expression at the steps.

        Only this part needs an equivalent. `code` is the whole expression for the error.

        Raises:
            UnresolvedExpression: the expression has no such part, or the part has no equivalent.
        """
        steps = list(steps)
        if isinstance(raw, ModuleReference):
            # As for variables, an expression of a topology has no step for all items.
            if SPLAT in steps:
                raise UnresolvedExpression(code)
            return replace(raw, steps=(*raw.steps, *steps))
        try:
            while steps and not isinstance(raw, str):
                raw = raw[steps.pop(0)]
            # The steps continue a path: `local.train.image_id` with `train = TYPE.NAME`.
            if steps and isinstance(raw, str) and not raw.startswith('"'):
                root, first_steps = self._parse_path(strip_interpolation(raw))
                return self._resolve_reference(root, [*first_steps, *steps], code)
        except (TypeError, LookupError, UnresolvedExpression):
            raise UnresolvedExpression(code) from None
        return select_part(self.resolve(raw), steps, code)

    def _parse_path(self, code: str) -> tuple[str, list[Step]]:
        """Return the root and the steps of a reference: `var.regions["a"].name`."""
        match = re.match(r"[A-Za-z_][\w-]*", code)
        if match is None:
            raise UnresolvedExpression(code)
        steps: list[Step] = []
        position = match.end()
        while position < len(code):
            step = _STEP.match(code, position)
            if step is None:
                raise UnresolvedExpression(code)
            position = step.end()
            if step["name"]:
                # A step such as `.0` is an index, as in brackets.
                steps.append(int(step["name"]) if step["name"].isdigit() else step["name"])
            elif step["splat"]:
                steps.append(SPLAT)
            else:
                key = self._resolve_expression(step["key"])
                # The value of a variable is known only to the stack, so a variable as key names no
                # instance. Python's bool is an int, but Terraform has no such keys.
                if isinstance(key, bool) or not isinstance(key, str | int):
                    raise UnresolvedExpression(code)
                steps.append(key)
        return match[0], steps


_SET: Final = re.compile(r"(toset|setunion|setintersection|setsubtract|fileset)\(")
"""The begin of an expression that is a set: Terraform's functions with a set as result."""


def find_each_value(
    for_each: Any,
    key: str,
    get_local: Callable[[str], Any],
    is_set_variable: Callable[[str], bool],
) -> Any:
    """Return the raw expression of `each.value`, or None if the map has no such key.

    The expression is the value at `key` if `for_each` is a map. Terraform takes sets as well: there
    `each.value` is the key itself.

    Raises:
        UnresolvedExpression: `for_each` names a local or a variable that the files do not declare.
    """
    if isinstance(for_each, Mapping):
        return for_each.get(key)
    code = strip_interpolation(str(for_each)).strip()
    if match := re.fullmatch(r"local\.([A-Za-z_][\w-]*)", code):
        return find_each_value(get_local(match[1]), key, get_local, is_set_variable)
    match = re.fullmatch(r"var\.([A-Za-z_][\w-]*)", code)
    if _SET.match(code) or (match and is_set_variable(match[1])):
        return to_hcl_literal(key)
    return f"${{{code}[{to_hcl_literal(key)}]}}"


_STEP: Final = re.compile(
    r"\.(?P<name>[A-Za-z_][\w-]*|\d+)|(?P<splat>\.\*|\[\*\])|\[(?P<key>[^\[\]]+)\]"
)
SPLAT: Final = "*"
"""The step of a path for all items of a list: `.*` or `[*]`."""


@dataclass(frozen=True, slots=True)
class _Interpolation:
    code: str


_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}


def _split_template(template: str) -> list[str | _Interpolation]:
    """Return the literal texts and interpolations of a template, in order.

    Raises:
        UnresolvedExpression: the template has a directive (`%{ if }`).
    """
    parts: list[str | _Interpolation] = []
    literal, position = "", 0
    while position < len(template):
        # HCL doubles the first character to write a literal `${` or `%{`.
        if template.startswith(("$${", "%%{"), position):
            literal, position = literal + template[position + 1 : position + 3], position + 3
        elif template.startswith("%{", position):
            raise UnresolvedExpression(template)
        elif template.startswith("${", position):
            end = _find_interpolation_end(template, position + 2)
            parts += [literal] if literal else []
            parts.append(_Interpolation(template[position + 2 : end]))
            literal, position = "", end + 1
        elif template[position] == "\\":
            character, length = _read_escape(template, position)
            literal, position = literal + character, position + length
        else:
            literal, position = literal + template[position], position + 1
    return [*parts, literal] if literal or not parts else parts


def _read_escape(text: str, position: int) -> tuple[str, int]:
    """Return the character of an escape sequence, and the length of the sequence."""
    match = re.compile(r"\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})").match(text, position)
    if match:
        return chr(int(match[1] or match[2], 16)), len(match[0])
    return _ESCAPES.get(text[position + 1 : position + 2], text[position : position + 2]), 2


def _find_interpolation_end(text: str, position: int) -> int:
    """Return the position of an interpolation's closing brace.

    Braces and texts inside are skipped. Raises UnresolvedExpression without a closing brace.
    """
    depth, is_quoted = 0, False
    while position < len(text):
        character = text[position]
        if is_quoted and character == "\\":
            position += 1
        elif character == '"':
            is_quoted = not is_quoted
        elif not is_quoted and character == "{":
            depth += 1
        elif not is_quoted and character == "}":
            if not depth:
                return position
            depth -= 1
        position += 1
    raise UnresolvedExpression(text)


def select_part(value: Value, steps: Sequence[Step], code: str) -> Value:
    """Return the part of a value at the steps, or the value itself without steps.

    Raises:
        UnresolvedExpression: the value has no such part; the error shows `code`.
    """
    for position, step in enumerate(steps):
        if step == SPLAT and isinstance(value, list):
            return [select_part(item, steps[position + 1 :], code) for item in value]
        try:
            value = value[step]
        # A variable becomes a reference without parts, so `var.network.name` ends here as well.
        except (TypeError, LookupError):
            raise UnresolvedExpression(code) from None
    return value


class ReportOmission(Protocol):
    """Reports something that was not converted, at its position."""

    def __call__(self, position: SourcePosition, message: str, hint: str = "") -> None: ...


def strip_interpolation(text: str) -> str:
    """Return a text without an enclosing `${...}` and quotes."""
    return text.removeprefix("${").removesuffix("}").strip('"')


_LITERAL_RESOLVER: Final = ExpressionResolver(
    lambda _root, _steps: None, lambda _name, _steps: None, lambda _name: None
)


def resolve_literal(raw: Any) -> Value:
    """Return the value of an argument that must be a literal, such as a default.

    Raises UnresolvedExpression for another expression.
    """
    return _LITERAL_RESOLVER.resolve(raw)
