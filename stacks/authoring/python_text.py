"""Write a topology as a Python program, in lines of at most 100 characters."""

import keyword
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Final

from gpuform.providers.platform import platforms
from gpuform.stacks.authoring.declared import (
    ConfigValue,
    Declared,
    Entry,
    Mixed,
    Reference,
    Value,
    Variable,
    in_order,
)

WIDTH: Final = 100
STEP: Final = 4


@dataclass(frozen=True, slots=True)
class Code:
    """An expression of Python, as it is written."""

    text: str


Names = Callable[[Reference | ConfigValue], str]
"""The variable of a resource or of a configuration value."""


def variable(name: str) -> str:
    """A name as a variable: what Python does not allow becomes an underscore."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not made or made[0].isdigit():
        made = f"_{made}"
    return f"{made}_" if keyword.iskeyword(made) or keyword.issoftkeyword(made) else made


def literal(value: Value, names: Names) -> str:
    """The value in one line; `Code` may stand in it at any depth."""
    if isinstance(value, Code):
        return value.text
    if isinstance(value, Reference):
        first, *rest = value.steps or ("id",)
        return f"{names(value)}.{first}{''.join(map(_subscript, rest))}"
    if isinstance(value, ConfigValue):
        return names(value)
    if isinstance(value, Mixed):
        return _formatted(value, names)
    if isinstance(value, Mapping):
        items = (f"{text(str(key))}: {literal(item, names)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(literal(item, names) for item in value)}]"
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        value = int(value)
    return repr(value)


def text(value: str) -> str:
    """A text in double quotes."""
    single = repr(f"'{value}")  # with a single quote inside, repr() prefers double ones
    if single.startswith('"'):
        return f'"{single[2:]}'
    return '"' + single[3:-1].replace("\\'", "'").replace('"', '\\"') + '"'


def argument(begin: str, value: Value, indent: int, names: Names) -> list[str]:
    """The lines of an argument or an item: `begin`, the value and a comma."""
    return _lines(f"{' ' * indent}{begin}", value, indent, names, ",")


def statement(begin: str, value: Value, end: str, names: Names) -> list[str]:
    """The lines of a statement that ends with the value and `end`."""
    return _lines(begin, value, 0, names, end)


def _lines(begin: str, value: Value, indent: int, names: Names, end: str) -> list[str]:
    line = f"{begin}{literal(value, names)}{end}"
    if len(line) <= WIDTH or not isinstance(value, Mapping | list | tuple) or not value:
        return [line]
    inner = indent + STEP
    if isinstance(value, Mapping):
        items = [argument(f"{text(str(key))}: ", item, inner, names) for key, item in value.items()]
        opener, closer = "{", "}"
    else:
        items = [argument("", item, inner, names) for item in value]
        opener, closer = "[", "]"
    lines = [line for item in items for line in item]
    return [f"{begin}{opener}", *lines, f"{' ' * indent}{closer}{end}"]


def _subscript(step: str | int) -> str:
    """Of the value of an output, which holds plain objects and lists."""
    return f"[{text(step) if isinstance(step, str) else step}]"


def _formatted(mixed: Mixed, names: Names) -> str:
    """`pulumi.Output.format`, whose text doubles braces."""
    template, values = "", []
    for part in mixed.parts:
        if isinstance(part, str):
            template += part.replace("{", "{{").replace("}", "}}")
        else:
            template += "{}"
            values.append(literal(part, names))
    return f"pulumi.Output.format({', '.join([text(template), *values])})"


_GETTERS: Final = {
    "string": "",
    "integer": "_int",
    "number": "_float",
    "boolean": "_bool",
    "array": "_object",
    "object": "_object",
}
_RENAMED: Final = {"import": "import_", "timeouts": "custom_timeouts"}


@dataclass(slots=True)
class PythonNames:
    """The variables of a program; `taken` are those that it has already, or must not have."""

    taken: set[str] = field(default_factory=set)
    _of: dict[tuple[str, str], str] = field(default_factory=dict)

    def give(self, group: str, name: str, given: str = "") -> str:
        """The variable of a resource (`group` is its section) or of a `config` value."""
        if (group, name) not in self._of:
            self._of[group, name] = given or self._free(group, name)
            self.taken.add(self._of[group, name])
        return self._of[group, name]

    def __call__(self, value: Reference | ConfigValue) -> str:
        if isinstance(value, ConfigValue):
            return self.give("config", value.name)
        return self.give(value.section, value.name)

    def _free(self, group: str, name: str) -> str:
        own = variable(name)
        reserved = {"pulumi", "config", *platforms(), *self.taken}
        numbered = (f"{own}_{number}" for number in count(2))
        tries = chain((own, f"{own}_{group.removesuffix('s')}"), numbered)
        return next(each for each in tries if each not in reserved)


def program_text(declared: Declared) -> str:
    """The program that declares this, and nothing else."""
    names = PythonNames()
    body = body_of(declared, names)
    config = ["config = pulumi.Config()"] if declared.variables else []
    return "\n\n".join(["\n".join(imports_of(declared)), *config, body])


def imports_of(declared: Declared) -> list[str]:
    """The lines that import what the program needs."""
    own = platform_imports({entry.platform for entry in declared.entries})
    return ["import pulumi", *(["", *own] if own else [])]


def platform_imports(names: Collection[str]) -> list[str]:
    """The lines that import these platforms, each under its name."""
    lines = []
    together: dict[str, list[str]] = {}
    for name in sorted(names):
        package = platforms()[name].package
        parent, _, last = package.rpartition(".")
        if parent and last == name:
            together.setdefault(parent, []).append(name)
        else:
            lines.append(f"import {package}" + (f" as {name}" if package != name else ""))
    return lines + [f"from {parent} import {', '.join(of)}" for parent, of in together.items()]


def body_of(declared: Declared, names: PythonNames) -> str:
    """The statements: configuration, resources after those that they need, outputs."""
    settings = [setting(each, names) for each in declared.variables]
    blocks = ["\n".join(settings)] if settings else []
    blocks += ["\n".join(_resource(entry, names)) for entry in in_order(declared.entries)]
    outputs = [
        line
        for name, value in declared.outputs.items()
        for line in statement(f"pulumi.export({text(name)}, ", value, ")", names)
    ]
    blocks += ["\n".join(outputs)] if outputs else []
    return "\n\n".join(blocks) + "\n"


def setting(each: Variable, names: PythonNames) -> str:
    """The statement that reads a configuration variable."""
    said = each.said
    secret = "_secret" if said.get("secret") is True else ""
    getter = f"{secret}{_GETTERS[str(said.get('type') or 'string')]}"
    name = names.give("config", each.name)
    required = f"config.require{getter}({text(each.name)})"
    default = said.get("default", said.get("emulator_default"))
    if default is None:
        return f"{name} = {required}"
    usual = f"config.get{getter}({text(each.name)}, {literal(default, names)})"
    if said.get("default") is None:
        return f"{name} = {usual} if is_emulated() else {required}"
    return f"{name} = {usual}"


def _resource(entry: Entry, names: PythonNames) -> Iterator[str]:
    options = dict(entry.options)
    existing = options.pop("id", None)
    made = names.give(entry.section, entry.name)
    call = f"{entry.platform}.{entry.kind}"
    if existing is not None:
        yield f"{made} = {call}.get("
    else:
        yield f"{made} = {call}("
    inner = " " * STEP
    yield f"{inner}{text(entry.name)},"
    if existing is not None:
        yield from argument("", existing, STEP, names)
    else:
        for name in _ordered(entry):
            yield from argument(f"{name}=", entry.properties[name], STEP, names)
    if options:
        yield f"{inner}opts={_options(options, names)},"
    yield ")"


def _ordered(entry: Entry) -> list[str]:
    order = {name: place for place, name in enumerate(entry.model.model_fields)}
    return sorted(entry.properties, key=lambda each: order.get(each, len(order)))


def _options(options: Mapping[str, Value], names: PythonNames) -> str:
    made = []
    for key, value in options.items():
        if key == "timeouts":
            spans = (f"{verb}={literal(span, names)}" for verb, span in value.items())
            written = f"pulumi.CustomTimeouts({', '.join(spans)})"
        elif key == "aliases":
            aliases = (_alias(each, names) for each in value)
            written = f"[{', '.join(aliases)}]"
        elif key in ("depends_on", "replace_with"):
            written = f"[{', '.join(map(names, value))}]"
        elif key in ("parent", "deleted_with"):
            written = names(value)
        else:
            written = literal(value, names)
        made.append(f"{_RENAMED.get(key, key)}={written}")
    return f"pulumi.ResourceOptions({', '.join(made)})"


def _alias(alias: Mapping[str, Any], names: PythonNames) -> str:
    parent = alias.get("parent")
    made = [
        f"{'type_' if key == 'type' else key}={literal(value, names)}"
        for key, value in alias.items()
        if key != "parent"
    ]
    if parent is not None:
        made.append(f"parent={names(parent) if isinstance(parent, Reference) else text(parent)}")
    return f"pulumi.Alias({', '.join(made)})"
