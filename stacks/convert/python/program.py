"""A topology as a Python program: loops stay loops, references references, options options."""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gpuform.stacks.convert.python.expressions import Expressions, Header, header_of
from gpuform.stacks.convert.python.operations import formatted, no_names, ordered, settings_of
from gpuform.stacks.convert.python.references import Found, References
from gpuform.stacks.declaration_writer.python_program import (
    STEP,
    Code,
    PythonNames,
    quote_text,
    render_argument,
    render_literal,
    render_platform_imports,
    render_statement,
)
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import Entry, MappingNode, Node, ScalarNode, is_null
from gpuform.stacks.topology.declarations import Declaration, Inclusion, Repeatable
from gpuform.stacks.topology.options import LISTS, SINGLE, list_items
from gpuform.stacks.topology.planning import PlannedTopology
from gpuform.stacks.topology.scope import parse_template

_RESERVED: Final = (
    "expression",
    "is_emulated",
    "key",
    "value",
    "each",
    "re",
    "Fraction",
    "Module",
    "range",
    "len",
    "str",
)


def program_of(planned: PlannedTopology, file: Path, secret: Collection[str], folder: Path) -> str:
    """The program that declares what a checked topology does, for a folder to run it in.

    Modules stay files. `secret` are the configuration values that a stack of the project keeps
    encrypted. Raises NotConverted, with the place, for entries whose instances need each other back
    and forth.
    """
    return _Writer(planned, file, frozenset(secret), folder).text()


@dataclass(slots=True)
class _Writer:
    planned: PlannedTopology
    file: Path
    secret: frozenset[str]
    folder: Path
    names: PythonNames = field(default_factory=lambda: PythonNames(set(_RESERVED)))
    used: set[str] = field(default_factory=set)

    def text(self) -> str:
        topology = self.planned.topology
        secret = self.secret | {name for name, each in topology.config.items() if each.secret}
        references = References(topology, self.names, secret, used=self.used)
        outside = Expressions(references)
        comments = _Comments()
        settings = [
            line
            for name, variable in topology.config.items()
            for line in settings_of(variable, self.names, secret=name in secret)
        ]
        stacks = [
            f"{self.names.assign('stack_references', name)} = pulumi.StackReference("
            f"{quote_text(name)}, stack_name={self.written(outside.value(entry.node))})"
            for name, entry in topology.stack_references.items()
        ]
        # What nothing refers to needs no variable: that is known once all has been written.
        bodies = [
            (each, comments.before(each.position), self.entry(each, references))
            for each in ordered(self.planned)
        ]
        outputs = [
            line
            for name, entry in topology.outputs.items()
            for line in render_statement(
                f"pulumi.export({quote_text(name)}, ", outside.value(entry.node), ")", self.names
            )
        ]
        blocks = [
            "\n".join([*about, *body.lines(each.address in self.used)])
            for each, about, body in bodies
        ]
        config = ["config = pulumi.Config()", *settings] if settings else []
        parts = ["\n".join(self.imports([*config, *stacks])), "\n".join(config), "\n".join(stacks)]
        doc = comments.first_of(self.file) or f"What {self.file.name} declared."
        head = f'"""{doc}"""'.replace("\\", "\\\\")
        return (
            "\n\n".join(each for each in (head, *parts, *blocks, "\n".join(outputs)) if each) + "\n"
        )

    def imports(self, lines: list[str]) -> Iterator[str]:
        """After all else, which tells what is needed."""
        written = "\n".join(lines)
        standard = [
            line
            for name, line in (("Fraction(", "from fractions import Fraction"),)
            if name in written
        ]
        standard += ["import re"] if "re.fullmatch(" in written else []
        yield from sorted(standard, key=lambda line: line.startswith("from"))
        yield from [""] if standard else []
        yield "import pulumi"
        declarations = self.planned.topology.declarations.values()
        platforms = {each.platform for of_section in declarations for each in of_section.values()}
        platforms |= {name for name in self.used if "." not in name and name != "expression"}
        if platforms:
            yield ""
            yield from render_platform_imports(platforms)
        own = ["Module"] if self.planned.topology.modules else []
        own += ["expression"] if "expression" in self.used else []
        own += ["is_emulated"] if " if is_emulated() " in written else []
        if own:
            yield from [] if platforms else [""]
            yield f"from gpuform.stacks import {', '.join(own)}"

    def written(self, value: Any) -> str:
        return render_literal(value, self.names)

    def entry(self, declaration: Repeatable, references: References) -> "_Body":
        header = header_of(declaration, self.planned, Expressions(references))
        inside = Expressions(replace(references, loop=header.loop) if header else references)
        name = quote_text(declaration.name)
        if header:
            name = formatted([f"{declaration.name}-", Found(header.loop.key, "string")])
        condition = inside.condition(declaration.when) if declaration.when is not None else ""
        variable = self.names.assign(declaration.section, declaration.name)
        if isinstance(declaration, Inclusion):
            arguments = tuple(self.given(declaration, name, inside))
            return _Body(variable, "Module", arguments, header, condition, is_read=False)
        assert isinstance(declaration, Declaration)  # noqa: S101 - there is no third
        return _Body(
            variable,
            f"{declaration.platform}.{declaration.kind}",
            tuple(self.arguments(declaration, name, inside)),
            header,
            condition,
            declaration.options.get("id") is not None,
        )

    def given(self, module: Inclusion, name: str, inside: Expressions) -> Iterator[str]:
        """The arguments of a module."""
        path = os.path.relpath(module.file.resolve(), self.folder.resolve())
        yield f"{' ' * STEP}{name},"
        yield f"{' ' * STEP}{quote_text(Path(path).as_posix())},"
        values = {key: inside.value(entry.node) for key, entry in module.arguments.items()}
        if values:
            yield from render_argument("", values, STEP, self.names)

    def arguments(self, declaration: Declaration, name: str, inside: Expressions) -> Iterator[str]:
        options = dict(declaration.options)
        existing = options.pop("id", None)
        yield f"{' ' * STEP}{name},"
        if existing is not None:
            yield from render_argument("", inside.value(existing.node), STEP, self.names)
        else:
            for key, entry in declaration.properties.items():
                if not is_null(entry.node):
                    yield from render_argument(
                        f"{key}=", inside.value(entry.node), STEP, self.names
                    )
        if options:
            yield from render_argument(
                "opts=", Code(_options_code(options, inside)), STEP, self.names
            )


@dataclass(frozen=True, slots=True)
class _Body:
    """An entry's statements, but for what depends on whether something refers to it."""

    variable: str
    kind: str
    arguments: tuple[str, ...]
    header: Header | None
    condition: str
    is_read: bool

    def lines(self, is_used: bool) -> Iterator[str]:
        target = ""
        if is_used:
            target = (
                f"{self.variable}[{self.header.loop.key}] = "
                if self.header
                else f"{self.variable} = "
            )
        call = [f"{target}{self.kind}{'.get' if self.is_read else ''}(", *self.arguments, ")"]
        if self.condition:
            call = [f"if {self.condition}:", *(f"{' ' * STEP}{line}" for line in call)]
        if self.header:
            if is_used:
                yield f"{self.variable} = {{}}"
            yield from self.header.lines
            call = [f"{' ' * STEP}{line}" for line in call]
        yield from call


@dataclass(slots=True)
class _Comments:
    """Those of files that messages name as places do."""

    _files: dict[str, list[str]] = field(default_factory=dict)

    def before(self, place: SourcePosition) -> list[str]:
        """The lines of comments right above a line, without what is before them."""
        lines = self._lines(place.file)
        found: list[str] = []
        for line in reversed(lines[: place.line - 1]):
            comment = line.strip()
            if not comment.startswith("#"):
                break
            found.append(comment)
        return found[::-1]

    def first_of(self, file: Path) -> str:
        """The first comment of a file, if the file begins with one, as a text."""
        found = []
        for line in self._lines(str(file)):
            if not line.startswith("#"):
                break
            if not line.startswith("# yaml-language-server"):
                found.append(line.lstrip("# ").rstrip())
        return "\n".join(found).replace('"""', "'''").rstrip('"').strip()

    def _lines(self, file: str) -> list[str]:
        if file not in self._files:
            # It has been read before, as what it declares.
            self._files[file] = Path(file).read_text("utf-8").removeprefix("\ufeff").splitlines()
        return self._files[file]


_RENAMED: Final = {"import": "import_", "timeouts": "custom_timeouts"}


def _options_code(options: Mapping[str, Entry], inside: Expressions) -> str:
    """`pulumi.ResourceOptions(...)`."""
    given = (
        f"{_RENAMED.get(key, key)}={_option(key, entry, inside)}" for key, entry in options.items()
    )
    return f"pulumi.ResourceOptions({', '.join(given)})"


def _option(key: str, entry: Entry, inside: Expressions) -> str:
    if key in LISTS:
        return f"[{', '.join(map(inside.resource, list_items(entry)))}]"
    if key in SINGLE:
        return inside.resource(entry.node)
    if key == "aliases":
        return f"[{', '.join(_alias(item, inside) for item in list_items(entry))}]"
    if key == "timeouts" and isinstance(entry.node, MappingNode):
        spans = (f"{verb}={_code(each.node, inside)}" for verb, each in entry.node.entries.items())
        return f"pulumi.CustomTimeouts({', '.join(spans)})"
    return _code(entry.node, inside)


def _alias(node: Node, inside: Expressions) -> str:
    given = []
    for key, entry in node.entries.items() if isinstance(node, MappingNode) else ():
        is_resource = key == "parent" and _is_reference(entry.node)
        value = inside.resource(entry.node) if is_resource else _code(entry.node, inside)
        given.append(f"{'type_' if key == 'type' else key}={value}")
    return f"pulumi.Alias({', '.join(given)})"


def _is_reference(node: Node) -> bool:
    template = parse_template(node, Diagnostics()) if isinstance(node, ScalarNode) else None
    return template is not None and template.reference is not None


def _code(node: Node, inside: Expressions) -> str:
    return render_literal(inside.value(node), no_names)
