"""Terraform's variables as configuration of a topology."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.stacks.authoring.declared import ConfigValue, Value, Variable
from gpuform.stacks.converting.secret_values import SecretValues
from gpuform.stacks.converting.terraform.expressions import Resolver, Unsaid
from gpuform.stacks.converting.terraform.files import Block, TerraformFiles

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
