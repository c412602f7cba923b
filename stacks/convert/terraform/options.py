"""Convert Terraform's meta-arguments, variables and argument values to options, configuration and
expressions.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.stacks.convert.registered_options import SecretValues
from gpuform.stacks.convert.terraform.files import Block, TerraformFiles
from gpuform.stacks.convert.terraform.kinds import TerraformKind
from gpuform.stacks.declaration_writer.declarations import (
    ConfigEntry,
    ConfigReference,
    InterpolatedText,
    ResourceReference,
    Value,
)
from gpuform.stacks.document.diagnostics import SourcePosition

Step = str | int


class Unsaid(Exception):
    """A value that is neither; its text is the expression's own."""


@dataclass(frozen=True, slots=True)
class Resolver:
    """What names mean in one instance. `reference` finds a resource's attribute by its path."""

    reference: Callable[[str, Sequence[Step]], ResourceReference | None]
    variable: Callable[[str], Value]
    local: Callable[[str], Any]
    key: Step | None = None
    each: Any = None

    def value(self, raw: Any) -> Value:
        """The value as python-hcl2 has it. Raises Unsaid."""
        if isinstance(raw, Mapping):
            return {key: self.value(item) for key, item in raw.items()}
        if isinstance(raw, list):
            return [self.value(item) for item in raw]
        if not isinstance(raw, str):
            return raw
        if raw.startswith('"'):
            return self._template(raw[1:-1])
        if raw.startswith("${") and raw.endswith("}"):
            return self._expression(raw[2:-1])
        return self._expression(raw)

    def _template(self, text: str) -> Value:
        parts = [
            part if isinstance(part, str) else self._expression(part.code) for part in _parts(text)
        ]
        if len(parts) == 1 and not isinstance(parts[0], str):
            return parts[0]
        joined: list[str | ResourceReference | ConfigReference] = []
        for part in parts:
            if isinstance(part, ResourceReference | ConfigReference):
                joined.append(_in_text(part))
                continue
            if isinstance(part, bool | list | Mapping | InterpolatedText) or part is None:
                raise Unsaid(text)
            plain = part if isinstance(part, str) else f"{part:g}"
            if joined and isinstance(joined[-1], str):
                joined[-1] += plain
            else:
                joined.append(plain)
        if all(isinstance(part, str) for part in joined):
            return "".join(map(str, joined))
        return InterpolatedText(tuple(joined))

    def _expression(self, code: str) -> Value:
        code = code.strip()
        while code.startswith("(") and code.endswith(")"):
            code = code[1:-1].strip()
        if code.startswith('"'):
            return self._template(code[1:-1])
        if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?|true|false|null", code):
            return json.loads(code)
        root, steps = self._path(code)
        return self._named(root, steps, code)

    def _named(self, root: str, steps: Sequence[Step], code: str) -> Value:
        if root == "var" and steps:
            return _inside(self.variable(str(steps[0])), steps[1:], code)
        if root == "local" and steps:
            return _inside(self.value(self.local(str(steps[0]))), steps[1:], code)
        if root == "count" and list(steps) == ["index"] and isinstance(self.key, int):
            return self.key
        if root == "each" and self.key is not None and steps:
            found = self.key if steps[0] == "key" else self.value(self.each)
            return _inside(found, steps[1:], code)
        reference = self.reference(root, steps)
        if reference is None:
            raise Unsaid(code)
        return reference

    def _path(self, code: str) -> tuple[str, list[Step]]:
        match = re.match(r"[A-Za-z_][\w-]*", code)
        if match is None:
            raise Unsaid(code)
        steps: list[Step] = []
        at = match.end()
        while at < len(code):
            step = _STEP.match(code, at)
            if step is None:
                raise Unsaid(code)
            at = step.end()
            if step["name"]:
                steps.append(step["name"])
            else:
                key = self._expression(step["key"])
                if isinstance(key, bool) or not isinstance(key, str | int):
                    raise Unsaid(code)
                steps.append(key)
        return match[0], steps


_STEP: Final = re.compile(r"\.(?P<name>[A-Za-z_][\w-]*|\d+)|\[(?P<key>[^\[\]]+)\]")


@dataclass(frozen=True, slots=True)
class _Code:
    code: str


_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}


def _parts(text: str) -> list[str | _Code]:
    """A template's texts and expressions. Raises Unsaid for directives."""
    found: list[str | _Code] = []
    plain, at = "", 0
    while at < len(text):
        if text.startswith(("$${", "%%{"), at):
            plain, at = plain + text[at + 1 : at + 3], at + 3
        elif text.startswith("%{", at):
            raise Unsaid(text)
        elif text.startswith("${", at):
            end = _end_of(text, at + 2)
            found += [plain] if plain else []
            found.append(_Code(text[at + 2 : end]))
            plain, at = "", end + 1
        elif text[at] == "\\":
            sign, length = _escape(text, at)
            plain, at = plain + sign, at + length
        else:
            plain, at = plain + text[at], at + 1
    return [*found, plain] if plain or not found else found


def _escape(text: str, at: int) -> tuple[str, int]:
    match = re.compile(r"\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})").match(text, at)
    if match:
        return chr(int(match[1] or match[2], 16)), len(match[0])
    return _ESCAPES.get(text[at + 1 : at + 2], text[at : at + 2]), 2


def _end_of(text: str, at: int) -> int:
    """Where an interpolation ends, with braces and texts inside of it skipped."""
    depth, quoted = 0, False
    while at < len(text):
        sign = text[at]
        if quoted and sign == "\\":
            at += 1
        elif sign == '"':
            quoted = not quoted
        elif not quoted and sign == "{":
            depth += 1
        elif not quoted and sign == "}":
            if not depth:
                return at
            depth -= 1
        at += 1
    raise Unsaid(text)


def _inside(value: Value, steps: Sequence[Step], code: str) -> Value:
    for step in steps:
        try:
            value = value[step]
        except (TypeError, LookupError):
            raise Unsaid(code) from None
    return value


def _in_text(part: ResourceReference | ConfigReference) -> ResourceReference | ConfigReference:
    """A resource itself, which means its id as a value, has to say so in a text."""
    if isinstance(part, ResourceReference) and not part.steps:
        return ResourceReference(part.section, part.name, ("id",), part.key)
    return part


META: Final = (
    *("count", "for_each", "provider", "depends_on", "lifecycle", "timeouts"),
    *("provisioner", "connection"),
)
"""`count` and `for_each` become an entry for each object of the state."""
_LEFT: Final = ("provisioner", "connection", "provider")

Leave = Callable[[SourcePosition, str], None]


def options_of(
    block: Block, resolver: Resolver, leave: Leave, kind: TerraformKind
) -> dict[str, Value]:
    """What an entry says beside its properties; what it cannot say is left."""
    name = ".".join(block.labels)
    found: dict[str, Value] = {}
    for what in _LEFT:
        if what in block.body:
            leave(block.place_of(what), f"{name}: {what} is not taken over")
    after = []
    for raw in block.body.get("depends_on") or ():
        try:
            after.append(resolver.value(raw))
        except Unsaid as code:
            leave(block.place_of("depends_on"), f"{name}: depends_on {code} is not taken over")
    if after := [each for each in after if isinstance(each, ResourceReference)]:
        found["depends_on"] = after
    for lifecycle in block.body.get("lifecycle") or ():
        found |= _lifecycle(lifecycle, (block, name), leave, kind)
    for spans in block.body.get("timeouts") or ():
        given = {verb: resolver.value(span) for verb, span in spans.items() if verb != "read"}
        found["timeouts"] = given
    return found


def _lifecycle(
    said: Mapping[str, Any],
    about: tuple[Block, str],
    leave: Leave,
    kind: TerraformKind,
) -> dict[str, Value]:
    block, name = about
    found: dict[str, Value] = {}
    for key, value in said.items():
        if key == "prevent_destroy":
            found |= {"protect": True} if value is True else {}
        elif key == "create_before_destroy":
            found |= {"delete_before_replace": False} if value is True else {}
        elif key == "ignore_changes" and isinstance(value, list):
            names = [_bare(str(each)) for each in value]
            kept = [kind.name(each) for each in names if each not in kind.spelt]
            found["ignore_changes"] = kept
            for each in (each for each in names if each in kind.spelt):
                leave(block.place_of(key), f"{name}: changes of {each} are not ignored here")
        else:
            leave(block.place_of(key), f"{name}: {key} is not taken over")
    return found


def _bare(text: str) -> str:
    return text.removeprefix("${").removesuffix("}").strip('"')


_BY_TYPE: Final = {"string": "string", "bool": "boolean", "number": "number"}
_LISTS: Final = ("list", "set", "tuple")
_OBJECTS: Final = ("map", "object")
_OF_VALUES: Final[Mapping[type, str]] = {
    bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object",
}  # fmt: skip
_LITERALS: Final = Resolver(lambda _root, _steps: None, lambda _: None, lambda _: None)


@dataclass(slots=True)
class TerraformVariables:
    """The variables that are used, in that order; what has no value stays to be set."""

    files: TerraformFiles
    secrets: SecretValues
    used: dict[str, ConfigEntry] = field(default_factory=dict)

    def value(self, name: str) -> ConfigReference:
        """The configuration that stands for a variable. Raises Unsaid for one that is not there."""
        block = next((each for each in self.files.of("variable") if each.labels == (name,)), None)
        if block is None:
            raise Unsaid(f"var.{name}")
        if name not in self.used:
            self.used[name] = self._variable(name, block)
        return ConfigReference(name)

    def _variable(self, name: str, block: Block) -> ConfigEntry:
        raw = self.files.values.get(name, block.body.get("default"))
        value = None if raw is None else _LITERALS.value(raw)
        said: dict[str, Value] = {}
        if (type_ := _type_of(block.body.get("type"), value)) != "string":
            said["type"] = type_
        if isinstance(description := block.body.get("description"), str):
            said["description"] = _LITERALS.value(description)
        if value is not None:
            said["default"] = value
        is_hidden = block.body.get("sensitive") is True or block.body.get("ephemeral") is True
        return self._hidden(ConfigEntry(name, said)) if is_hidden else ConfigEntry(name, said)

    def hide(self, name: str) -> None:
        """Keeps a variable secret whatever the files say: a secret is made of it."""
        self.used[name] = self._hidden(self.used[name])

    def _hidden(self, variable: ConfigEntry) -> ConfigEntry:
        said = {**variable.fields, "secret": True}
        value = said.pop("default", None)
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            self.secrets.missing_values[variable.name] = text
        return ConfigEntry(variable.name, said)


def _type_of(raw: Any, value: Any) -> str:
    text = str(raw or "").removeprefix("${").removesuffix("}").strip()
    if text == "number" and (value is None or isinstance(value, int)):
        return "integer" if isinstance(value, int) else "number"
    name = text.partition("(")[0]
    if name in _LISTS:
        return "array"
    if name in _OBJECTS:
        return "object"
    return _BY_TYPE.get(name) or _OF_VALUES.get(type(value), "string")
