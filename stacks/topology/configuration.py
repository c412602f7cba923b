"""Read the `config` section of a topology, and convert a stack's configuration to typed values."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Protocol

from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.topology import NAME_PATTERN, ConfigInputs
from gpuform.schemas.values import is_equal
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import (
    Entry,
    MappingNode,
    ScalarNode,
    find_nearest_node,
    get_entries,
    list_scalars,
    parse_path,
    to_plain_value,
)
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.topology.declarations import ConfigVariable
from gpuform.stacks.topology.files import read_all
from gpuform.stacks.topology.proposals import team_files, unknown_limits


@dataclass(frozen=True, slots=True)
class Stacked:
    """The value of a configuration variable in a stack, in the clear."""

    value: Any
    secret: bool


class StackConfig(Protocol):
    """Where a stack's texts are."""

    def get(self, name: str) -> str | None:
        """The text that the stack sets, if it sets one."""

    def is_secret(self, name: str) -> bool:
        """Whether the stack keeps it encrypted."""


def configured(
    variables: Iterable[ConfigVariable],
    stack: StackConfig,
    problems: Diagnostics,
    *,
    emulated: bool = False,
) -> dict[str, Stacked]:
    """The stack's values of the variables; those without one are left out, and what is wrong.

    Where the platforms are `emulated`, `emulator_default` is the default as well.
    """
    found = {}
    team = team_files()
    for variable in variables:
        name = variable.name
        secret = variable.secret or stack.is_secret(name)
        text = stack.get(name)
        default = _default(variable)
        if text is None and not default:
            continue
        if secret and team is not None and not team.has_limits(variable):
            problems.add(variable.place, "config", *unknown_limits(f"config.{name}"))
            continue
        try:
            value = _allowed(
                variable, variable.said[default] if text is None else _parsed(variable, text)
            )
        except _NotAllowedError as error:
            shown = "its value" if secret else _shown(error.value)
            command = f"gpuform config set{' --secret' if secret else ''} {name} VALUE"
            hint = f"correct its {default}" if text is None else f"set another one: {command}"
            problems.add(variable.place, "config", f"config.{name}: {shown} {error}", hint)
        else:
            if text is not None or emulated or default == "default":
                found[name] = Stacked(value, secret)
    return found


def encrypting(name: str) -> str:
    """What to do about a secret value that stands in the clear."""
    return (
        f"encrypt it: gpuform config set {name} < FILE; and change the secret itself where others "
        "have seen it"
    )


def in_the_clear(
    variables: Iterable[ConfigVariable], stack: StackConfig, file: str
) -> Iterator[str]:
    """What is declared secret and stands in the clear in the stack's `file`, in words."""
    for each in variables:
        if each.secret and stack.get(each.name) and not stack.is_secret(each.name):
            yield (
                f"{each.name} is a secret (declared at {each.place}) and stands in the clear in "
                f"{file}: {encrypting(each.name)}"
            )


def why_not(variable: ConfigVariable, value: Any) -> str:
    """Why a variable cannot have a value, with the value unless it is secret; "" when it can."""
    try:
        _allowed(variable, value)
    except _NotAllowedError as error:
        return f"{'its value' if variable.secret else _shown(error.value)} {error}"
    return ""


class _NotAllowedError(Exception):
    """`value` is not what the variable declares; the text says why, without the value."""

    def __init__(self, value: Any, why: str) -> None:
        super().__init__(why)
        self.value = value


EMULATOR_DEFAULT: Final = "emulator_default"
_LARGEST: Final = 2**53
"""Greater whole numbers do not survive Pulumi's wire, which knows doubles only."""
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,16}")
_NUMBER: Final = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?")
_LONGEST_SHOWN: Final = 80
_WORDS: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list, as JSON",
    "object": "an object, as JSON",
}


def _default(variable: ConfigVariable) -> str:
    """The field that has it; empty where none does."""
    return next((each for each in ("default", EMULATOR_DEFAULT) if each in variable.said), "")


def _parsed(variable: ConfigVariable, text: str) -> Any:
    try:
        return _PARSERS[variable.type](text)
    except ValueError:
        raise _NotAllowedError(text, f"is not {_WORDS[variable.type]}") from None


def _allowed(variable: ConfigVariable, value: Any) -> Any:
    """The value, if it is of the declared type and within the declared limits."""
    if not _IS_TYPE[variable.type](value):
        raise _NotAllowedError(value, f"is not {_WORDS[variable.type]}")
    for why in _limits(variable.said, value):
        raise _NotAllowedError(value, why)
    return value


def _limits(said: Mapping[str, Any], value: Any) -> Iterator[str]:
    """What the value breaks of the declared limits."""
    choices = said.get("enum")
    if choices is not None and not any(is_equal(value, each) for each in choices):
        yield f"is not one of {', '.join(map(_shown, choices))}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_limits(said, value)
    if isinstance(value, str | list):
        yield from _length_limits(said, len(value))
    pattern = said.get("pattern")
    if pattern and isinstance(value, str) and not re.fullmatch(pattern, value):
        yield f"does not match {pattern}"


def _number_limits(said: Mapping[str, Any], value: float) -> Iterator[str]:
    least, most, step = said.get("minimum"), said.get("maximum"), said.get("multiple_of")
    if least is not None and value < least:
        yield f"is less than {least:g}"
    if most is not None and value > most:
        yield f"is more than {most:g}"
    # Exactly, as it is written: 0.3 is a multiple of 0.1.
    if step and Fraction(str(value)) % Fraction(str(step)):
        yield f"is not a multiple of {step:g}"


def _length_limits(said: Mapping[str, Any], length: int) -> Iterator[str]:
    least, most = said.get("min_length"), said.get("max_length")
    if least is not None and length < least:
        yield f"is shorter than {least}"
    if most is not None and length > most:
        yield f"is longer than {most}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text) or abs(int(text)) > _LARGEST:
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError(text)
    return float(text)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text] if text in ("true", "false") else _fail(text)


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_int=_integer, parse_float=_number, parse_constant=_fail)
    except RecursionError:
        raise ValueError(text) from None


def _fail(text: str) -> Any:
    raise ValueError(text)


_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "string": str,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "array": _json,
    "object": _json,
}
_IS_TYPE: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


_NAME = re.compile(NAME_PATTERN)


def read_config(path: Path, problems: Diagnostics) -> dict[str, ConfigVariable]:
    """What a topology file and all that it includes declare; what is wrong goes to `problems`."""
    names = Names(problems)
    return {
        name: variable_of("config", name, entry, problems)
        for file in read_all(path, problems)
        for name, entry in names.of(file.root, "config")
    }


@dataclass(slots=True)
class Names:
    """The entries of files by name, each name once for a top-level key."""

    problems: Diagnostics
    _first: dict[tuple[str, str], SourcePosition] = field(default_factory=dict)
    """Where each name of each top-level key was first declared."""

    def of(self, root: MappingNode, key: str) -> Iterator[tuple[str, Entry]]:
        """The entries of a top-level key whose names are good, and new."""
        for name, entry in get_entries(root.get(key), key, self.problems).items():
            if self.is_good(key, name, entry.place):
                yield name, entry

    def is_good(self, key: str, name: str, place: SourcePosition) -> bool:
        """Whether it is a name, and new; else that goes to the problems."""
        if _NAME.fullmatch(name):
            return self.is_new(key, name, place)
        message = f"{name!r} is not a name: use letters, digits, hyphens, underscores, dots"
        self.problems.add(place, "name", message)
        return False

    def is_new(self, key: str, name: str, place: SourcePosition) -> bool:
        """False, and a problem, for what another place declares already."""
        first = self._first.setdefault((key, name), place)
        if first == place:
            return True
        shown = f"{key}.{name}" if name else key
        message = f"{shown} is there twice: first at {first}"
        self.problems.add(place, "duplicate", message, "rename or remove one of them")
        return False


def variable_of(key: str, name: str, entry: Entry, problems: Diagnostics) -> ConfigVariable:
    """One entry of `config` or `inputs`; what is wrong with it goes to `problems`."""
    address = f"{key}.{name}"
    if isinstance(entry.node, ScalarNode):
        example = f"write {name}: {{default: {entry.node.text}}}"
        problems.add(entry.node.place, "shape", f"{address} must be an object", example)
        return ConfigVariable(name, entry.place, {})
    for scalar in list_scalars(entry.node):
        if isinstance(scalar.value, str) and has_expression(scalar.value):
            problems.add(scalar.place, "expression", f"{key} holds no expressions")
    get_entries(entry.node, address, problems)
    values = to_plain_value(entry.node)
    said, found = validate_inputs(ConfigInputs, values if isinstance(values, Mapping) else {})
    for problem in found:
        place = find_nearest_node(entry.node, parse_path(problem.path)).place
        problems.add(place, "value", f"{address}.{problem.path}: {problem.reason}")
    if key == "inputs" and "emulator_default" in said:
        place = find_nearest_node(entry.node, ("emulator_default",)).place
        hint = "declare it in the topology's config, and give the module its value"
        problems.add(place, "value", f"{address}: only config has an emulator_default", hint)
    # Nothing is told of the value of a variable that cannot be understood.
    return ConfigVariable(name, entry.place, {"secret": True} if found else said)
