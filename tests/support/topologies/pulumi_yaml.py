"""Pulumi YAML as its reference has it: a program checked by a package's schema, and evaluated.

Of the language, what the examples use; anything else is told as a problem.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpuform.stacks.engine.values import Secret

Spec = Mapping[str, Any]
ANYTHING: Spec = {"$ref": "pulumi.json#/Any"}
TEXT: Spec = {"type": "string"}
KEYS = {"name", "description", "runtime", "backend", "config", "variables", "resources", "outputs"}
OPTIONS = {"dependsOn", "deletedWith", "protect", "parent", "provider", "aliases", "ignoreChanges"}
CONFIG = {"string": str, "integer": int, "boolean": bool}
_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_STEP = re.compile(r'\.?([A-Za-z_$][\w$-]*)|\["((?:[^"\\]|\\")*)"\]|\[(\d+)\]')


def steps(expression: str) -> list[str | int] | None:
    """The names and places of a property access; None when it is none."""
    found: list[str | int] = []
    at = 0
    while at < len(expression):
        step = _STEP.match(expression, at)
        if step is None or (at == 0 and step[0].startswith((".", "["))):
            return None
        found.append(int(step[3]) if step[3] is not None else step[1] or step[2])
        at = step.end()
    return found or None


@dataclass
class Checked:
    """A program against a schema: `problems` has all that is wrong with it."""

    program: dict[str, Any]
    schema: dict[str, Any]
    problems: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, path: Path, schema: dict[str, Any]) -> "Checked":
        checked = cls(yaml.safe_load(path.read_text(encoding="utf-8")), schema)
        checked.check_program()
        return checked

    def section(self, name: str) -> dict[str, Any]:
        return self.program.get(name) or {}

    def _say(self, place: str, text: str) -> None:
        self.problems.append(f"{place}: {text}")

    def check_program(self) -> None:
        self._names("program", self.program, KEYS, {"name", "runtime", "resources"})
        if self.program.get("runtime") != "yaml":
            self._say("runtime", "is not yaml")
        roots = [*self.section("config"), *self.section("variables"), *self.section("resources")]
        for twice in {name for name in roots if roots.count(name) > 1}:
            self._say(twice, "is several things")
        for name, spec in self.section("config").items():
            self._names(f"config.{name}", spec, {"type", "default", "secret"}, {"type"})
            if not isinstance(spec.get("default"), CONFIG[spec["type"]] | None):
                self._say(f"config.{name}", "has a default of another type")
        for name, value in self.section("variables").items():
            self._type(value, f"variables.{name}")
        for name, resource in self.section("resources").items():
            self._resource(f"resources.{name}", resource)
        for name, value in self.section("outputs").items():
            self._type(value, f"outputs.{name}")

    def _names(self, place: str, given: Any, known: Any, required: Any = ()) -> None:
        for name in given:
            if name not in known:
                self._say(place, f"has no {name}")
        for name in required:
            if name not in given:
                self._say(place, f"lacks {name}")

    def _resource(self, place: str, resource: dict[str, Any]) -> None:
        self._names(place, resource, {"type", "properties", "options"}, {"type"})
        spec = self.schema["resources"].get(resource["type"])
        if spec is None:
            self._say(place, f"has an unknown type {resource['type']}")
            return
        self._object(
            resource.get("properties") or {}, spec["inputProperties"], spec["requiredInputs"], place
        )
        options = resource.get("options") or {}
        self._names(f"{place}.options", options, OPTIONS)
        with_ = [options["deletedWith"]] if "deletedWith" in options else []
        for each in (*options.get("dependsOn", ()), *with_):
            found = _REFERENCE.fullmatch(each)
            if not found or found[1] not in self.section("resources"):
                self._say(f"{place}.options", f"{each} is no resource")

    def _object(self, given: Any, properties: Spec, required: Any, place: str) -> None:
        self._names(place, given, properties, required)
        for name, value in given.items():
            if name in properties:
                self._assign(value, properties[name], f"{place}.{name}")

    def _assign(self, value: Any, spec: Spec, place: str) -> None:
        """Checks a value against the type that it is given for."""
        resolved = self._resolved(spec)
        if resolved == ANYTHING:
            self._type(value, place)
        elif isinstance(value, dict) and not _function(value):
            if resolved.get("type") != "object":
                self._say(place, "is an object")
            elif "properties" in resolved:
                self._object(value, resolved["properties"], resolved.get("required", ()), place)
            else:
                for key, item in value.items():
                    self._assign(item, resolved.get("additionalProperties", TEXT), f"{place}.{key}")
        elif isinstance(value, list):
            if resolved.get("type") != "array":
                self._say(place, "is a list")
                return
            for number, item in enumerate(value):
                self._assign(item, resolved["items"], f"{place}[{number}]")
        else:
            self._scalar(value, resolved, place)

    def _scalar(self, value: Any, wanted: Spec, place: str) -> None:
        actual = self._type(value, place)
        if actual == ANYTHING:
            return
        if "enum" in wanted and isinstance(value, str) and not _REFERENCE.search(value):
            if value not in [each["value"] for each in wanted["enum"]]:
                self._say(place, f"{value} is none of the values")
        elif not self._fits(actual, wanted):
            self._say(place, f"is {actual}, not {wanted.get('type')}")

    def _fits(self, actual: Spec, wanted: Spec) -> bool:
        actual, wanted = self._resolved(actual), self._resolved(wanted)
        if ANYTHING in (actual, wanted):
            return True
        kinds = (actual.get("type"), wanted.get("type"))
        if kinds == ("array", "array"):
            return self._fits(actual["items"], wanted["items"])
        if kinds == ("object", "object") and "properties" in actual and "properties" in wanted:
            names = actual["properties"]
            return set(wanted.get("required", ())) <= set(names) <= set(
                wanted["properties"]
            ) and all(self._fits(spec, wanted["properties"][name]) for name, spec in names.items())
        return kinds[0] == kinds[1] or kinds == ("integer", "number")

    def _type(self, value: Any, place: str) -> Spec:
        """The type of an expression; what is wrong inside of it is told."""
        if isinstance(value, str):
            return self._text(value, place)
        if isinstance(value, bool | int | float):
            kinds = {bool: "boolean", int: "integer", float: "number"}
            return {"type": kinds[type(value)]}
        if isinstance(value, list):
            items = [self._type(item, place) for item in value]
            return {"type": "array", "items": items[0] if items else ANYTHING}
        if isinstance(value, dict):
            if name := _function(value):
                return self._call(name, value[name], place)
            properties = {key: self._type(item, f"{place}.{key}") for key, item in value.items()}
            return {"type": "object", "properties": properties, "required": list(properties)}
        self._say(place, f"{value!r} is no value")
        return ANYTHING

    def _text(self, text: str, place: str) -> Spec:
        whole = _REFERENCE.fullmatch(text)
        if whole:
            return self._access(whole[1], place)
        for expression in _REFERENCE.findall(text):
            if not self._fits(self._access(expression, place), TEXT):
                self._say(place, f"{expression} is not a string")
        return TEXT

    def _call(self, name: str, argument: Any, place: str) -> Spec:
        if name == "fn::secret":
            return self._type(argument, place)
        if name != "fn::invoke":
            self._say(place, f"{name} is not known")
            return ANYTHING
        self._names(place, argument, {"function", "arguments", "return"}, {"function"})
        spec = self.schema["functions"].get(argument["function"])
        if spec is None:
            self._say(place, f"there is no function {argument['function']}")
            return ANYTHING
        inputs = spec["inputs"]
        self._object(argument.get("arguments", {}), inputs["properties"], inputs["required"], place)
        if "return" not in argument:
            return spec["outputs"]
        return self._inside(spec["outputs"], [argument["return"]], place)

    def _access(self, expression: str, place: str) -> Spec:
        path = steps(expression)
        if path is None:
            self._say(place, f"{expression} is no property access")
            return ANYTHING
        root, *rest = path
        if root in self.section("config"):
            return self._inside({"type": self.section("config")[root]["type"]}, rest, place)
        if root in self.section("variables"):
            silent = Checked(self.program, self.schema)
            return self._inside(silent._type(self.section("variables")[root], ""), rest, place)
        if root in self.section("resources"):
            spec = self.schema["resources"].get(self.section("resources")[root]["type"], {})
            properties = {**spec.get("properties", {}), "id": TEXT, "urn": TEXT}
            return self._inside({"type": "object", "properties": properties}, rest, place)
        self._say(place, f"there is no {root}")
        return ANYTHING

    def _inside(self, spec: Spec, path: list[Any], place: str) -> Spec:
        for step in path:
            spec = self._resolved(spec)
            if spec == ANYTHING:
                return ANYTHING
            if isinstance(step, int):
                found = spec.get("items")
            else:
                found = spec.get("properties", {}).get(step) or spec.get("additionalProperties")
            if found is None:
                self._say(place, f"there is no {step} in {spec.get('type')}")
                return ANYTHING
            spec = found
        return spec

    def _resolved(self, spec: Spec) -> Spec:
        reference = spec.get("$ref", "")
        if reference.startswith("#/types/"):
            return self.schema["types"][reference.removeprefix("#/types/")]
        return ANYTHING if reference else spec


Outputs = Callable[[str, str, dict[str, Any]], dict[str, Any]]
Invoke = Callable[[str, dict[str, Any]], dict[str, Any]]


@dataclass
class Evaluated:
    """A program's values, with the configuration's defaults.

    `outputs` gives those of a resource by its type, name and inputs; `invoke` a function's answer.
    """

    program: dict[str, Any]
    outputs: Outputs
    invoke: Invoke

    def inputs(self, name: str) -> dict[str, Any]:
        resource = self.program["resources"][name]
        return {key: self.value(item) for key, item in resource["properties"].items()}

    def value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            if name := _function(value):
                return self._call(name, self.value(value[name]))
            return {key: self.value(item) for key, item in value.items()}
        if not isinstance(value, str):
            return value
        whole = _REFERENCE.fullmatch(value)
        if whole:
            return self._access(whole[1])
        return _REFERENCE.sub(lambda found: str(self._access(found[1])), value)

    def _call(self, name: str, argument: Any) -> Any:
        if name == "fn::secret":
            return Secret(argument)
        answer = self.invoke(argument["function"], argument["arguments"])
        return answer[argument["return"]] if "return" in argument else answer

    def _access(self, expression: str) -> Any:
        path = steps(expression)
        assert path, expression
        root, *rest = path
        if root in self.program.get("config", {}):
            found = self.program["config"][root].get("default", root)  # or what a stack sets
        elif root in self.program.get("variables", {}):
            found = self.value(self.program["variables"][root])
        else:
            type_ = self.program["resources"][root]["type"]
            found = self.outputs(type_, str(root), self.inputs(str(root)))
        for step in rest:
            found = found[step]
        return found


def _function(value: Mapping[str, Any]) -> str:
    return next((key for key in value if key.startswith("fn::")), "") if len(value) == 1 else ""


def references(value: Any) -> Iterator[str]:
    """The roots of all that a value refers to."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)
    elif isinstance(value, str):
        for expression in _REFERENCE.findall(value):
            yield str((steps(expression) or [""])[0])
