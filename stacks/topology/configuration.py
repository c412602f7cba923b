"""Read the `config` section of a topology, and convert a stack's configuration to typed values.

`loading` reads `config` and `inputs` with `read_variable`; `planning` gets the values of a stack
from `resolve_config`.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

from gpuform.providers.context import get_run_context
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.models import is_full_match
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
from gpuform.stacks.document.reading import read_file
from gpuform.stacks.engine.project import format_set_command
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.topology.declarations import ConfigVariable
from gpuform.stacks.topology.files import read_files


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """The decrypted value of a configuration variable in a stack."""

    value: Any
    secret: bool


class StackConfig(Protocol):
    """The configuration texts of a stack."""

    def get(self, name: str) -> str | None:
        """Return the text of a variable in the stack, or None."""

    def is_secret(self, name: str) -> bool:
        """Return True if the stack stores the value encrypted."""


def resolve_config(
    variables: Iterable[ConfigVariable],
    stack: StackConfig,
    problems: Diagnostics,
    *,
    emulated: bool = False,
) -> dict[str, ConfigValue]:
    """Return the values of the variables in a stack; a missing or wrong value is absent.

    With `emulated` platforms, `emulator_default` also counts as a default. Adds values of the wrong
    type or outside of the declared limits to `problems`; if an agent proposes the topology
    (`find_team_files`), also secrets whose limits are not in the project's files.
    """
    values = {}
    project_files = find_team_files()
    for variable in variables:
        name = variable.name
        secret = variable.secret or stack.is_secret(name)
        stored_text = stack.get(name)
        default = _find_default_field(variable)
        # `planning` reports variables without a value; checks of files alone allow them.
        if stored_text is None and not default:
            continue
        # A proposal could learn a secret from the limits that its value violates.
        if secret and project_files is not None and not project_files.has_limits(variable):
            problems.add(variable.position, "config", *describe_unknown_limits(f"config.{name}"))
            continue
        try:
            if stored_text is None:
                value = variable.fields[default]
            else:
                value = _parse_value(variable, stored_text)
            _require_allowed(variable, value)
        except _NotAllowedError as error:
            # Messages reach logs and reviews, where a secret must not be.
            formatted_value = "its value" if secret else _format_value(error.value)
            command = format_set_command(name, secret=secret)
            hint = (
                f"correct its {default}" if stored_text is None else f"set another one: {command}"
            )
            message = f"config.{name}: {formatted_value} {error}"
            problems.add(variable.position, "config", message, hint)
        else:
            # The value of `emulator_default` must not reach a real platform.
            if stored_text is not None or emulated or default == "default":
                values[name] = ConfigValue(value, secret)
    return values


def format_encryption_hint(name: str) -> str:
    """Return the hint to encrypt a configuration value declared as secret."""
    return (
        f"encrypt it: gpuform config set {name} < FILE. If others have seen the secret, replace it"
    )


def find_unencrypted_secrets(
    variables: Iterable[ConfigVariable], stack: StackConfig, file: str
) -> Iterator[str]:
    """Yield a message for each secret variable stored unencrypted in the stack's `file`.

    An empty value is not reported.
    """
    for variable in variables:
        if variable.secret and stack.get(variable.name) and not stack.is_secret(variable.name):
            yield (
                f"{variable.name} is a secret (declared at {variable.position}), and {file} "
                f"contains it in plain text: {format_encryption_hint(variable.name)}"
            )


def find_value_problem(variable: ConfigVariable, value: Any) -> str:
    """Return why `variable` cannot have `value`, or "" if the value is valid.

    The message contains the value, cut after 80 characters, unless the variable is secret.
    """
    try:
        _require_allowed(variable, value)
    except _NotAllowedError as error:
        return f"{'its value' if variable.secret else _format_value(error.value)} {error}"
    return ""


class _NotAllowedError(Exception):
    """The value violates the variable's declaration.

    The text gives the reason without the value.
    """

    def __init__(self, value: Any, reason: str) -> None:
        super().__init__(reason)
        self.value = value


EMULATOR_DEFAULT: Final = "emulator_default"
_LARGEST: Final = 2**53
"""The largest integer that Pulumi's wire format keeps: it has only doubles."""
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


def _find_default_field(variable: ConfigVariable) -> str:
    """Return the name of the field with the default, or ""."""
    names = (name for name in ("default", EMULATOR_DEFAULT) if name in variable.fields)
    return next(names, "")


def _parse_value(variable: ConfigVariable, text: str) -> Any:
    """Parse the text as a value of the variable's type. Raises _NotAllowedError."""
    try:
        return _PARSERS[variable.type](text)
    except ValueError:
        raise _NotAllowedError(text, f"is not {_WORDS[variable.type]}") from None


def _require_allowed(variable: ConfigVariable, value: Any) -> None:
    """Raise _NotAllowedError for the first violation of the declaration by `value`."""
    if not _IS_TYPE[variable.type](value):
        raise _NotAllowedError(value, f"is not {_WORDS[variable.type]}")
    for reason in _find_limit_problems(variable.fields, value):
        raise _NotAllowedError(value, reason)


def _find_limit_problems(declared_limits: Mapping[str, Any], value: Any) -> Iterator[str]:
    """Yield the reason for each declared limit violated by `value`.

    A `pattern` must match the whole text.
    """
    choices = declared_limits.get("enum")
    if choices is not None and not any(is_equal(value, choice) for choice in choices):
        yield f"is not one of {', '.join(map(_format_value, choices))}"
    # In Python, True and False are integers.
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from _find_number_problems(declared_limits, value)
    if isinstance(value, str | list):
        yield from _find_length_problems(declared_limits, len(value))
    pattern = declared_limits.get("pattern")
    if pattern and isinstance(value, str) and not is_full_match(pattern, value):
        yield f"does not match {pattern}"


def _find_number_problems(declared_limits: Mapping[str, Any], value: float) -> Iterator[str]:
    """Yield the reason for each limit (minimum, maximum, multiple) violated by a number."""
    names = ("minimum", "maximum", "multiple_of")
    minimum, maximum, step = (declared_limits.get(name) for name in names)
    if minimum is not None and value < minimum:
        yield f"is less than {minimum:g}"
    if maximum is not None and value > maximum:
        yield f"is more than {maximum:g}"
    # As exact fractions of the written digits: 0.3 is a multiple of 0.1.
    if step and Fraction(str(value)) % Fraction(str(step)):
        yield f"is not a multiple of {step:g}"


def _find_length_problems(declared_limits: Mapping[str, Any], length: int) -> Iterator[str]:
    """Yield the reason for a length below the minimum or above the maximum."""
    minimum, maximum = declared_limits.get("min_length"), declared_limits.get("max_length")
    if minimum is not None and length < minimum:
        yield f"is shorter than {minimum}"
    if maximum is not None and length > maximum:
        yield f"is longer than {maximum}"


def _format_value(value: Any) -> str:
    """Return the value as JSON for a message, cut after 80 characters."""
    encoded = json.dumps(value, ensure_ascii=False)
    return encoded if len(encoded) <= _LONGEST_SHOWN else f"{encoded[:_LONGEST_SHOWN]}..."


def _parse_integer(text: str) -> int:
    """Return the integer in `text`.

    Raises ValueError for another text, and for more than 2**53 in either direction.
    """
    if not _INTEGER.fullmatch(text) or abs(int(text)) > _LARGEST:
        raise ValueError(text)
    return int(text)


def _parse_number(text: str) -> float:
    """Return the decimal number in `text`. Raises ValueError for another text or infinity."""
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError(text)
    return float(text)


def _parse_boolean(text: str) -> bool:
    """Return the boolean for `true` or `false`. Raises ValueError for any other text."""
    return {"true": True, "false": False}[text] if text in ("true", "false") else _fail(text)


def _parse_json(text: str) -> Any:
    """Parse JSON.

    Raises ValueError, also for NaN, Infinity and integers that a double cannot hold.
    """
    try:
        # JSON has no NaN and no Infinity; Python's parser accepts both by default.
        return json.loads(
            text, parse_int=_parse_integer, parse_float=_parse_number, parse_constant=_fail
        )
    except RecursionError:
        raise ValueError(text) from None


def _fail(text: str) -> Any:
    """Raise ValueError with `text`, where only a function or an expression can stand."""
    raise ValueError(text)


_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "string": str,
    "integer": _parse_integer,
    "number": _parse_number,
    "boolean": _parse_boolean,
    "array": _parse_json,
    "object": _parse_json,
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
    """Read the configuration variables of a topology file and all included files."""
    names = NameRegistry(problems)
    return {
        name: read_variable("config", name, entry, problems)
        for file in read_files(path, problems)
        for name, entry in names.list_entries(file.root, "config")
    }


@dataclass(slots=True)
class NameRegistry:
    """The declared names of a topology, by which duplicates are found across its files."""

    problems: Diagnostics
    _first: dict[tuple[str, str], SourcePosition] = field(default_factory=dict)
    """Where each name of each top-level key was first declared."""

    def list_entries(self, root: MappingNode, key: str) -> Iterator[tuple[str, Entry]]:
        """Yield the entries of a top-level key with a valid and new name."""
        for name, entry in get_entries(root.get(key), key, self.problems).items():
            if self.accept_name(key, name, entry.position):
                yield name, entry

    def accept_name(self, key: str, name: str, position: SourcePosition) -> bool:
        """Return True if `name` is valid and new. Report any other name as a problem."""
        if _NAME.fullmatch(name):
            return self.register_name(key, name, position)
        message = f"{name!r} is not a valid name: use letters, digits, hyphens, underscores, dots"
        self.problems.add(position, "name", message)
        return False

    def register_name(self, key: str, name: str, position: SourcePosition) -> bool:
        """Return True if no other position declares `name`. Report a duplicate as a problem."""
        first = self._first.setdefault((key, name), position)
        # A file that is included twice declares its names twice at one position.
        if first == position:
            return True
        address = f"{key}.{name}" if name else key
        message = f"{address} is declared twice: first at {first}"
        self.problems.add(position, "duplicate", message, "rename or remove one of them")
        return False


def read_variable(key: str, name: str, entry: Entry, problems: Diagnostics) -> ConfigVariable:
    """Read an entry of `config` or `inputs`. Add its problems to `problems`.

    An invalid variable has no fields; after problems in its fields, it only counts as secret.
    """
    address = f"{key}.{name}"
    # `replicas: 2` is the usual mistake: a value in place of the declaration.
    if isinstance(entry.node, ScalarNode):
        example = f"write {name}: {{default: {entry.node.text}}}"
        problems.add(entry.node.position, "shape", f"{address} must be an object", example)
        return ConfigVariable(name, entry.position, {})
    for scalar in list_scalars(entry.node):
        if isinstance(scalar.value, str) and has_expression(scalar.value):
            problems.add(scalar.position, "expression", f"{key} cannot contain expressions")
    get_entries(entry.node, address, problems)
    values = to_plain_value(entry.node)
    fields, model_problems = validate_inputs(
        ConfigInputs, values if isinstance(values, Mapping) else {}
    )
    for problem in model_problems:
        position = find_nearest_node(entry.node, parse_path(problem.path)).position
        problems.add(position, "value", f"{address}.{problem.path}: {problem.reason}")
    # The including topology decides the values of a module, under the emulator too.
    if key == "inputs" and "emulator_default" in fields:
        position = find_nearest_node(entry.node, ("emulator_default",)).position
        hint = "declare it in the config of the topology, and pass the value to the module"
        message = f"{address}: only entries of config can have an emulator_default"
        problems.add(position, "value", message, hint)
    # No message may show the value of an invalid variable: it could be meant as a secret.
    return ConfigVariable(name, entry.position, {"secret": True} if model_problems else fields)


VARIABLE: Final = "GPUFORM_PROPOSED_TO"
"""The environment variable with the project folder that a topology is proposed to."""
_SECTIONS: Final = ("config", "inputs")
_NO_LIMITS: Final = ("default", "emulator_default", "description", "secret")


@dataclass(frozen=True, slots=True)
class TeamFiles:
    """The expressions and the limits of variables in the project's own files."""

    expressions: frozenset[str]
    limits: frozenset[str]

    def has_expression(self, text: str) -> bool:
        """Return True if a file contains `text` as a complete value."""
        return text in self.expressions

    def has_limits(self, variable: ConfigVariable) -> bool:
        """Return True if `variable` has no limits, or the limits of a variable in the files."""
        return _serialize_limits(variable.fields) in self.limits


def find_team_files() -> TeamFiles | None:
    """Return the files of the project for which an agent proposes this topology, or None.

    GPUFORM_PROPOSED_TO names that project's folder; without the variable nothing is proposed.
    """
    folder = get_run_context().environ.get(VARIABLE)
    return _read_folder(Path(folder)) if folder else None


def describe_unknown_limits(address: str) -> tuple[str, str]:
    """Return message and hint for a secret with limits unknown to the project's files."""
    message = (
        f"{address}: a proposal cannot check a secret against limits that no file of the "
        "project contains"
    )
    return (
        message,
        "declare the type and the limits as the project's files do, or ask a person to change them",
    )


@cache
def _read_folder(folder: Path) -> TeamFiles:
    """Collect the expressions and declared limits in the folder's YAML files, once per folder."""
    roots = [read_file(file, file.name, Diagnostics()) for file in _list_files(folder)]
    values = (scalar.value for root in roots for scalar in list_scalars(root))
    expressions = (value for value in values if isinstance(value, str) and has_expression(value))
    limits = (_serialize_limits(fields) for root in roots for fields in _list_variables(root))
    return TeamFiles(frozenset(expressions), frozenset([_serialize_limits({}), *limits]))


def _list_files(folder: Path) -> Iterator[Path]:
    """Yield the YAML files in the folder and below, hidden files and folders left out."""
    for ending in ("yaml", "yml"):
        # Any YAML file of the project can be a module.
        for file in folder.rglob(f"*.{ending}"):
            is_hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
            if file.is_file() and not is_hidden:
                yield file


def _list_variables(root: MappingNode) -> Iterator[Mapping[str, Any]]:
    """Yield the fields of each configuration variable and input declared in a file."""
    for section in _SECTIONS:
        entry = root.entries.get(section)
        if entry is not None and isinstance(entry.node, MappingNode):
            values = to_plain_value(entry.node).values()
            yield from (fields for fields in values if isinstance(fields, Mapping))


def _serialize_limits(fields: Mapping[str, Any]) -> str:
    """Return the limits of a variable as JSON, for comparison with other limits."""
    limits = {"type": "string", **fields}
    # The other fields decide which values are wrong, and so reveal a secret.
    for name in _NO_LIMITS:
        limits.pop(name, None)
    return json.dumps(limits, sort_keys=True, default=str)
