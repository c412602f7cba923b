"""Convert Terraform's meta-arguments to options, and its variables to configuration."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.stacks.authoring.declared import ConfigValue, Reference, Value, Variable
from gpuform.stacks.convert.secret_values import SecretValues
from gpuform.stacks.convert.terraform.expressions import Resolver, Unsaid
from gpuform.stacks.convert.terraform.files import Block, TerraformFiles
from gpuform.stacks.convert.terraform.kinds import TerraformKind
from gpuform.stacks.document.diagnostics import SourcePosition

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
    if after := [each for each in after if isinstance(each, Reference)]:
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
    used: dict[str, Variable] = field(default_factory=dict)

    def value(self, name: str) -> ConfigValue:
        """The configuration that stands for a variable. Raises Unsaid for one that is not there."""
        block = next((each for each in self.files.of("variable") if each.labels == (name,)), None)
        if block is None:
            raise Unsaid(f"var.{name}")
        if name not in self.used:
            self.used[name] = self._variable(name, block)
        return ConfigValue(name)

    def _variable(self, name: str, block: Block) -> Variable:
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
        return self._hidden(Variable(name, said)) if is_hidden else Variable(name, said)

    def hide(self, name: str) -> None:
        """Keeps a variable secret whatever the files say: a secret is made of it."""
        self.used[name] = self._hidden(self.used[name])

    def _hidden(self, variable: Variable) -> Variable:
        said = {**variable.said, "secret": True}
        value = said.pop("default", None)
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            self.secrets.wanted[variable.name] = text
        return Variable(variable.name, said)


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
