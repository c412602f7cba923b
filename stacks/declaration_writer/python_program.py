"""Render declarations as a Python program, in lines of at most 100 characters.

`convert` and `edits` call this module; only the longest values, which nothing can break,
exceed the width.
"""

import keyword
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Final

from gpuform.providers.platform import platforms
from gpuform.stacks.declaration_writer.declarations import (
    ConfigEntry,
    ConfigReference,
    Declarations,
    DeclaredReference,
    InterpolatedText,
    ResourceEntry,
    Value,
    sort_entries,
)

WIDTH: Final = 100
STEP: Final = 4


@dataclass(frozen=True, slots=True)
class Code:
    """A Python expression, which is written as it is."""

    text: str


VariableLookup = Callable[[DeclaredReference | ConfigReference], str]
"""Returns the name of the Python variable that holds a resource or a configuration value."""


def to_variable_name(name: str) -> str:
    """Return `name` as the name of a Python variable.

    Characters that Python does not allow become underscores. A keyword gets an underscore at its
    end. Two names can give the same variable name; `PythonNames` keeps them apart.
    """
    variable_name = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not variable_name or variable_name[0].isdigit():
        variable_name = f"_{variable_name}"
    is_keyword = keyword.iskeyword(variable_name) or keyword.issoftkeyword(variable_name)
    return f"{variable_name}_" if is_keyword else variable_name


def render_literal(value: Value, names: VariableLookup) -> str:
    """Return a value as a Python expression on one line.

    `Code` may stand in the value at any depth. A float without a fraction is written as an integer.
    """
    if isinstance(value, Code):
        return value.text
    if isinstance(value, DeclaredReference):
        first, *rest = value.steps or ("id",)
        return f"{names(value)}.{first}{''.join(map(_render_subscript, rest))}"
    if isinstance(value, ConfigReference):
        return names(value) + "".join(map(_render_subscript, value.steps))
    if isinstance(value, InterpolatedText):
        return _render_output_format(value, names)
    if isinstance(value, Mapping):
        items = (
            f"{quote_text(str(key))}: {render_literal(item, names)}" for key, item in value.items()
        )
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(render_literal(item, names) for item in value)}]"
    if isinstance(value, str):
        return quote_text(value)
    # State files hold numbers as floats, and a person writes 5 rather than 5.0; above 2**53 a float
    # is not exact.
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        value = int(value)
    return repr(value)


def quote_text(value: str) -> str:
    """Return a text as a Python literal in double quotes."""
    single = repr(f"'{value}")  # with a single quote inside, repr() prefers double ones
    if single.startswith('"'):
        return f'"{single[2:]}'
    return '"' + single[3:-1].replace("\\'", "'").replace('"', '\\"') + '"'


def render_argument(begin: str, value: Value, indent: int, names: VariableLookup) -> list[str]:
    """Return the lines of an argument or a list item: `begin`, the value and a comma."""
    return _render_lines(f"{' ' * indent}{begin}", value, indent, names, ",")


def render_statement(begin: str, value: Value, end: str, names: VariableLookup) -> list[str]:
    """Return the lines of a statement.

    `begin`, the value and `end`. Only the value is broken into lines.
    """
    return _render_lines(begin, value, 0, names, end)


def _render_lines(
    begin: str, value: Value, indent: int, names: VariableLookup, end: str
) -> list[str]:
    """Return the lines of a value between `begin` and `end`, split by items if too long.

    `begin` contains the indentation of the first line; `indent` is that of the last line.
    """
    line = f"{begin}{render_literal(value, names)}{end}"
    if len(line) <= WIDTH or not isinstance(value, Mapping | list | tuple) or not value:
        return [line]
    inner = indent + STEP
    if isinstance(value, Mapping):
        items = [
            render_argument(f"{quote_text(str(key))}: ", item, inner, names)
            for key, item in value.items()
        ]
        opener, closer = "{", "}"
    else:
        items = [render_argument("", item, inner, names) for item in value]
        opener, closer = "[", "]"
    lines = [line for item in items for line in item]
    return [f"{begin}{opener}", *lines, f"{' ' * indent}{closer}{end}"]


def _render_subscript(step: object) -> str:
    """Return a step into an output's value as a subscript.

    The values of outputs are plain objects and lists, without attributes.
    """
    return f"[{quote_text(step) if isinstance(step, str) else step}]"


def _render_output_format(interpolated_text: InterpolatedText, names: VariableLookup) -> str:
    template, values = "", []
    for part in interpolated_text.parts:
        if isinstance(part, str):
            # Output.format reads braces as str.format does.
            template += part.replace("{", "{{").replace("}", "}}")
        else:
            template += "{}"
            values.append(render_literal(part, names))
    return f"pulumi.Output.format({', '.join([quote_text(template), *values])})"


_GETTERS: Final = {
    "string": "",
    "integer": "_int",
    "number": "_float",
    "boolean": "_bool",
    "array": "_object",
    "object": "_object",
}
# `import` is a keyword in Python.
_RENAMED: Final = {"import": "import_", "timeouts": "custom_timeouts"}


@dataclass(slots=True)
class PythonNames:
    """The variable names of a program, each given once.

    `taken` are the names that the program already uses or must not use.
    """

    taken: set[str] = field(default_factory=set)
    _assigned: dict[tuple[str, str], str] = field(default_factory=dict)

    def assign(self, group: str, name: str, preferred: str = "") -> str:
        """Return the variable name of a resource or of another value; repeated calls agree.

        `group` is the section of a resource, or `config` for a configuration value. The first call
        decides the name: `preferred` as it is, or else a free name made of `name`.
        """
        if (group, name) not in self._assigned:
            self._assigned[group, name] = preferred or self._find_free_name(group, name)
            self.taken.add(self._assigned[group, name])
        return self._assigned[group, name]

    def __call__(self, value: DeclaredReference | ConfigReference) -> str:
        if isinstance(value, ConfigReference):
            return self.assign("config", value.name)
        return self.assign(value.section, value.name)

    def _find_free_name(self, group: str, name: str) -> str:
        """Return an unused variable name for `name`.

        A name in use is tried with the singular of `group` appended, then with numbers from 2.
        """
        plain_name = to_variable_name(name)
        # The program imports each platform under its own name.
        reserved = {"pulumi", "config", *platforms(), *self.taken}
        numbered = (f"{plain_name}_{number}" for number in count(2))
        candidates = chain((plain_name, f"{plain_name}_{group.removesuffix('s')}"), numbered)
        return next(candidate for candidate in candidates if candidate not in reserved)


def render_program(declarations: Declarations) -> str:
    """Return a complete Python program with only the given declarations."""
    names = PythonNames()
    body = render_body(declarations, names)
    config = ["config = pulumi.Config()"] if declarations.variables else []
    return "\n\n".join(["\n".join(render_imports(declarations)), *config, body])


def render_imports(declarations: Declarations) -> list[str]:
    """Return the import lines for `pulumi` and the platforms of the declarations."""
    platform_lines = render_platform_imports({entry.platform for entry in declarations.entries})
    return ["import pulumi", *(["", *platform_lines] if platform_lines else [])]


def render_platform_imports(names: Collection[str]) -> list[str]:
    """Return import lines for the named platforms, each under the platform's name."""
    lines = []
    names_by_parent: dict[str, list[str]] = {}
    for name in sorted(names):
        package = platforms()[name].package
        parent, _, last = package.rpartition(".")
        # Packages of one parent, such as gpuform.providers, share one `from ... import` line.
        if parent and last == name:
            names_by_parent.setdefault(parent, []).append(name)
        else:
            lines.append(f"import {package}" + (f" as {name}" if package != name else ""))
    return lines + [
        f"from {parent} import {', '.join(platform_names)}"
        for parent, platform_names in names_by_parent.items()
    ]


def render_body(declarations: Declarations, names: PythonNames) -> str:
    """Return the statements after the imports: configuration, resources, outputs.

    Each resource stands after the resources that it refers to. `names` gets the new variables.
    """
    config_lines = [render_config_read(variable, names) for variable in declarations.variables]
    blocks = ["\n".join(config_lines)] if config_lines else []
    blocks += [
        "\n".join(_render_resource(entry, names)) for entry in sort_entries(declarations.entries)
    ]
    outputs = [
        line
        for name, value in declarations.outputs.items()
        for line in render_statement(f"pulumi.export({quote_text(name)}, ", value, ")", names)
    ]
    blocks += ["\n".join(outputs)] if outputs else []
    return "\n\n".join(blocks) + "\n"


def render_config_read(variable: ConfigEntry, names: PythonNames) -> str:
    """Return the statement for reading a configuration variable.

    A variable with only an `emulator_default` is required outside of the emulator.
    """
    fields = variable.fields
    secret = "_secret" if fields.get("secret") is True else ""
    getter = f"{secret}{_GETTERS[str(fields.get('type') or 'string')]}"
    name = names.assign("config", variable.name)
    required = f"config.require{getter}({quote_text(variable.name)})"
    default = fields.get("default", fields.get("emulator_default"))
    if default is None:
        return f"{name} = {required}"
    optional = f"config.get{getter}({quote_text(variable.name)}, {render_literal(default, names)})"
    if fields.get("default") is None:
        return f"{name} = {optional} if is_emulated() else {required}"
    return f"{name} = {optional}"


def _render_resource(entry: ResourceEntry, names: PythonNames) -> Iterator[str]:
    """Yield the lines of the statement that declares a resource.

    With the option `id` the statement reads the existing resource by `get` instead of creating one.
    """
    options = dict(entry.options)
    read_id = options.pop("id", None)
    variable = names.assign(entry.section, entry.name)
    call = f"{entry.platform}.{entry.kind}"
    yield f"{variable} = {call}{'(' if read_id is None else '.get('}"
    indent = " " * STEP
    yield f"{indent}{quote_text(entry.name)},"
    if read_id is not None:
        yield from render_argument("", read_id, STEP, names)
    else:
        for name, value in entry.sort_properties():
            yield from render_argument(f"{name}=", value, STEP, names)
    if options:
        yield f"{indent}opts={_render_options(options, names)},"
    yield ")"


def _render_options(options: Mapping[str, Value], names: PythonNames) -> str:
    arguments = []
    for key, value in options.items():
        if key == "timeouts":
            spans = (f"{verb}={render_literal(span, names)}" for verb, span in value.items())
            written = f"pulumi.CustomTimeouts({', '.join(spans)})"
        elif key == "aliases":
            aliases = (_render_alias(alias, names) for alias in value)
            written = f"[{', '.join(aliases)}]"
        elif key in ("depends_on", "replace_with"):
            written = f"[{', '.join(map(names, value))}]"
        elif key in ("parent", "deleted_with"):
            written = names(value)
        else:
            written = render_literal(value, names)
        arguments.append(f"{_RENAMED.get(key, key)}={written}")
    return f"pulumi.ResourceOptions({', '.join(arguments)})"


def _render_alias(alias: Mapping[str, Any], names: PythonNames) -> str:
    parent = alias.get("parent")
    arguments = [
        f"{'type_' if key == 'type' else key}={render_literal(value, names)}"
        for key, value in alias.items()
        if key != "parent"
    ]
    if parent is not None:
        # An alias may name its parent by a URN instead of a resource.
        parent_code = names(parent) if isinstance(parent, DeclaredReference) else quote_text(parent)
        arguments.append(f"parent={parent_code}")
    return f"pulumi.Alias({', '.join(arguments)})"
