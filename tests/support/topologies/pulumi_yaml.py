"""Check a Pulumi YAML program against a package schema, and evaluate the program.

Of the language, only what the examples use is supported; anything else is reported as a problem.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpuform.providers.values import Secret

Spec = Mapping[str, Any]
ANYTHING: Spec = {"$ref": "pulumi.json#/Any"}
TEXT: Spec = {"type": "string"}
KEYS = {"name", "description", "runtime", "backend", "config", "variables", "resources", "outputs"}
OPTIONS = {"dependsOn", "deletedWith", "protect", "parent", "provider", "aliases", "ignoreChanges"}
CONFIG = {"string": str, "integer": int, "boolean": bool}
_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_STEP = re.compile(r'\.?([A-Za-z_$][\w$-]*)|\["((?:[^"\\]|\\")*)"\]|\[(\d+)\]')


def parse_access(expression: str) -> list[str | int] | None:
    """Return the names and indexes of a property access, or None for another expression."""
    parsed: list[str | int] = []
    at = 0
    while at < len(expression):
        step = _STEP.match(expression, at)
        if step is None or (at == 0 and step[0].startswith((".", "["))):
            return None
        parsed.append(int(step[3]) if step[3] is not None else step[1] or step[2])
        at = step.end()
    return parsed or None


@dataclass
class ProgramCheck:
    """The check of a program against a schema; `problems` lists everything wrong."""

    program: dict[str, Any]
    schema: dict[str, Any]
    problems: list[str] = field(default_factory=list)

    @classmethod
    def check_file(cls, path: Path, schema: dict[str, Any]) -> "ProgramCheck":
        checked = cls(yaml.safe_load(path.read_text(encoding="utf-8")), schema)
        checked.check_program()
        return checked

    def get_section(self, name: str) -> dict[str, Any]:
        return self.program.get(name) or {}

    def _add_problem(self, place: str, text: str) -> None:
        self.problems.append(f"{place}: {text}")

    def check_program(self) -> None:
        self._check_names("program", self.program, KEYS, {"name", "runtime", "resources"})
        if self.program.get("runtime") != "yaml":
            self._add_problem("runtime", "is not yaml")
        roots = [
            *self.get_section("config"),
            *self.get_section("variables"),
            *self.get_section("resources"),
        ]
        for twice in {name for name in roots if roots.count(name) > 1}:
            self._add_problem(twice, "is several things")
        for name, spec in self.get_section("config").items():
            self._check_names(f"config.{name}", spec, {"type", "default", "secret"}, {"type"})
            if not isinstance(spec.get("default"), CONFIG[spec["type"]] | None):
                self._add_problem(f"config.{name}", "has a default of another type")
        for name, value in self.get_section("variables").items():
            self._infer_type(value, f"variables.{name}")
        for name, resource in self.get_section("resources").items():
            self._check_resource(f"resources.{name}", resource)
        for name, value in self.get_section("outputs").items():
            self._infer_type(value, f"outputs.{name}")

    def _check_names(self, place: str, names: Any, known_names: Any, required: Any = ()) -> None:
        for name in names:
            if name not in known_names:
                self._add_problem(place, f"has no {name}")
        for name in required:
            if name not in names:
                self._add_problem(place, f"lacks {name}")

    def _check_resource(self, place: str, resource: dict[str, Any]) -> None:
        self._check_names(place, resource, {"type", "properties", "options"}, {"type"})
        spec = self.schema["resources"].get(resource["type"])
        if spec is None:
            self._add_problem(place, f"has an unknown type {resource['type']}")
            return
        self._check_object(
            resource.get("properties") or {}, spec["inputProperties"], spec["requiredInputs"], place
        )
        options = resource.get("options") or {}
        self._check_names(f"{place}.options", options, OPTIONS)
        with_ = [options["deletedWith"]] if "deletedWith" in options else []
        for reference in (*options.get("dependsOn", ()), *with_):
            match = _REFERENCE.fullmatch(reference)
            if not match or match[1] not in self.get_section("resources"):
                self._add_problem(f"{place}.options", f"{reference} is no resource")

    def _check_object(self, values: Any, properties: Spec, required: Any, place: str) -> None:
        self._check_names(place, values, properties, required)
        for name, value in values.items():
            if name in properties:
                self._check_assignment(value, properties[name], f"{place}.{name}")

    def _check_assignment(self, value: Any, spec: Spec, place: str) -> None:
        """Check a value against the type of the property that it is assigned to."""
        resolved = self._resolve_reference(spec)
        if resolved == ANYTHING:
            self._infer_type(value, place)
        elif isinstance(value, dict) and not _find_function(value):
            if resolved.get("type") != "object":
                self._add_problem(place, "is an object")
            elif "properties" in resolved:
                self._check_object(
                    value, resolved["properties"], resolved.get("required", ()), place
                )
            else:
                for key, item in value.items():
                    self._check_assignment(
                        item, resolved.get("additionalProperties", TEXT), f"{place}.{key}"
                    )
        elif isinstance(value, list):
            if resolved.get("type") != "array":
                self._add_problem(place, "is a list")
                return
            for number, item in enumerate(value):
                self._check_assignment(item, resolved["items"], f"{place}[{number}]")
        else:
            self._check_scalar(value, resolved, place)

    def _check_scalar(self, value: Any, expected: Spec, place: str) -> None:
        actual = self._infer_type(value, place)
        if actual == ANYTHING:
            return
        if "enum" in expected and isinstance(value, str) and not _REFERENCE.search(value):
            if value not in [allowed["value"] for allowed in expected["enum"]]:
                self._add_problem(place, f"{value} is none of the values")
        elif not self._is_assignable(actual, expected):
            self._add_problem(place, f"is {actual}, not {expected.get('type')}")

    def _is_assignable(self, actual: Spec, expected: Spec) -> bool:
        actual, expected = self._resolve_reference(actual), self._resolve_reference(expected)
        if ANYTHING in (actual, expected):
            return True
        kinds = (actual.get("type"), expected.get("type"))
        if kinds == ("array", "array"):
            return self._is_assignable(actual["items"], expected["items"])
        if kinds == ("object", "object") and "properties" in actual and "properties" in expected:
            names = actual["properties"]
            return set(expected.get("required", ())) <= set(names) <= set(
                expected["properties"]
            ) and all(
                self._is_assignable(spec, expected["properties"][name])
                for name, spec in names.items()
            )
        return kinds[0] == kinds[1] or kinds == ("integer", "number")

    def _infer_type(self, value: Any, place: str) -> Spec:
        """Return the type of an expression, and add problems inside the expression."""
        if isinstance(value, str):
            return self._infer_text_type(value, place)
        if isinstance(value, bool | int | float):
            kinds = {bool: "boolean", int: "integer", float: "number"}
            return {"type": kinds[type(value)]}
        if isinstance(value, list):
            items = [self._infer_type(item, place) for item in value]
            return {"type": "array", "items": items[0] if items else ANYTHING}
        if isinstance(value, dict):
            if name := _find_function(value):
                return self._infer_call_type(name, value[name], place)
            properties = {
                key: self._infer_type(item, f"{place}.{key}") for key, item in value.items()
            }
            return {"type": "object", "properties": properties, "required": list(properties)}
        self._add_problem(place, f"{value!r} is no value")
        return ANYTHING

    def _infer_text_type(self, text: str, place: str) -> Spec:
        reference = _REFERENCE.fullmatch(text)
        if reference:
            return self._infer_access_type(reference[1], place)
        for expression in _REFERENCE.findall(text):
            if not self._is_assignable(self._infer_access_type(expression, place), TEXT):
                self._add_problem(place, f"{expression} is not a string")
        return TEXT

    def _infer_call_type(self, name: str, argument: Any, place: str) -> Spec:
        if name == "fn::secret":
            return self._infer_type(argument, place)
        if name != "fn::invoke":
            self._add_problem(place, f"{name} is not known")
            return ANYTHING
        self._check_names(place, argument, {"function", "arguments", "return"}, {"function"})
        spec = self.schema["functions"].get(argument["function"])
        if spec is None:
            self._add_problem(place, f"there is no function {argument['function']}")
            return ANYTHING
        inputs = spec["inputs"]
        self._check_object(
            argument.get("arguments", {}), inputs["properties"], inputs["required"], place
        )
        if "return" not in argument:
            return spec["outputs"]
        return self._find_nested_type(spec["outputs"], [argument["return"]], place)

    def _infer_access_type(self, expression: str, place: str) -> Spec:
        path = parse_access(expression)
        if path is None:
            self._add_problem(place, f"{expression} is no property access")
            return ANYTHING
        root, *rest = path
        if root in self.get_section("config"):
            return self._find_nested_type(
                {"type": self.get_section("config")[root]["type"]}, rest, place
            )
        if root in self.get_section("variables"):
            unreported = ProgramCheck(self.program, self.schema)
            return self._find_nested_type(
                unreported._infer_type(self.get_section("variables")[root], ""), rest, place
            )
        if root in self.get_section("resources"):
            spec = self.schema["resources"].get(self.get_section("resources")[root]["type"], {})
            properties = {**spec.get("properties", {}), "id": TEXT, "urn": TEXT}
            return self._find_nested_type({"type": "object", "properties": properties}, rest, place)
        self._add_problem(place, f"there is no {root}")
        return ANYTHING

    def _find_nested_type(self, spec: Spec, path: list[Any], place: str) -> Spec:
        for step in path:
            spec = self._resolve_reference(spec)
            if spec == ANYTHING:
                return ANYTHING
            if isinstance(step, int):
                nested = spec.get("items")
            else:
                nested = spec.get("properties", {}).get(step) or spec.get("additionalProperties")
            if nested is None:
                self._add_problem(place, f"there is no {step} in {spec.get('type')}")
                return ANYTHING
            spec = nested
        return spec

    def _resolve_reference(self, spec: Spec) -> Spec:
        reference = spec.get("$ref", "")
        if reference.startswith("#/types/"):
            return self.schema["types"][reference.removeprefix("#/types/")]
        return ANYTHING if reference else spec


Outputs = Callable[[str, str, dict[str, Any]], dict[str, Any]]
Invoke = Callable[[str, dict[str, Any]], dict[str, Any]]


@dataclass
class EvaluatedProgram:
    """The values of a program, with the configuration's defaults.

    `outputs` returns the outputs of a resource by its type, name and inputs; `invoke` a function's
    answer.
    """

    program: dict[str, Any]
    outputs: Outputs
    invoke: Invoke

    def evaluate_inputs(self, name: str) -> dict[str, Any]:
        resource = self.program["resources"][name]
        return {key: self.evaluate(item) for key, item in resource["properties"].items()}

    def evaluate(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.evaluate(item) for item in value]
        if isinstance(value, dict):
            if name := _find_function(value):
                return self._call_function(name, self.evaluate(value[name]))
            return {key: self.evaluate(item) for key, item in value.items()}
        if not isinstance(value, str):
            return value
        reference = _REFERENCE.fullmatch(value)
        if reference:
            return self._evaluate_access(reference[1])
        return _REFERENCE.sub(lambda match: str(self._evaluate_access(match[1])), value)

    def _call_function(self, name: str, argument: Any) -> Any:
        if name == "fn::secret":
            return Secret(argument)
        answer = self.invoke(argument["function"], argument["arguments"])
        return answer[argument["return"]] if "return" in argument else answer

    def _evaluate_access(self, expression: str) -> Any:
        path = parse_access(expression)
        assert path, expression
        root, *rest = path
        if root in self.program.get("config", {}):
            value = self.program["config"][root].get("default", root)  # or what a stack sets
        elif root in self.program.get("variables", {}):
            value = self.evaluate(self.program["variables"][root])
        else:
            type_ = self.program["resources"][root]["type"]
            value = self.outputs(type_, str(root), self.evaluate_inputs(str(root)))
        for step in rest:
            value = value[step]
        return value


def _find_function(value: Mapping[str, Any]) -> str:
    return next((key for key in value if key.startswith("fn::")), "") if len(value) == 1 else ""


def find_references(value: Any) -> Iterator[str]:
    """Yield the first name of every reference inside a value."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from find_references(item)
    elif isinstance(value, list):
        for item in value:
            yield from find_references(item)
    elif isinstance(value, str):
        for expression in _REFERENCE.findall(value):
            yield str((parse_access(expression) or [""])[0])
