"""Write a topology as a Python program: loops, references, options and comments are kept.

`operations.converting` and the reference generator call `render_program_of_topology`.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gpuform.stacks.convert.python.expressions import (
    ExpressionWriter,
    reject_reference,
    render_f_string,
)
from gpuform.stacks.convert.python.references import PythonExpression, ReferenceWriter
from gpuform.stacks.convert.python.statements import (
    LoopHeader,
    build_loop_header,
    order_declarations,
    render_config_statements,
)
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
from gpuform.stacks.topology.checking import LISTS, SINGLE, list_items
from gpuform.stacks.topology.declarations import Declaration, Inclusion, Repeatable
from gpuform.stacks.topology.planning import PlannedTopology
from gpuform.stacks.topology.scope import parse_template

# Names of imports, loop variables and built-in functions in the program: a resource's variable must
# not hide them.
_RESERVED: Final = (
    "expression",
    "is_emulated",
    "key",
    "value",
    "item",
    "items",
    "re",
    "Fraction",
    "Module",
    "range",
    "len",
    "str",
)


def render_program_of_topology(
    planned: PlannedTopology, file: Path, secret_names: Collection[str], folder: Path
) -> str:
    """Return a program with the declarations of a checked topology, to be run in `folder`.

    Modules stay files of their own. `secret_names` are the configuration values that a stack of the
    project keeps encrypted.

    Raises:
        NotConverted: entries depend on each other in a cycle, or a `for_each` refers to its own
            instances.
    """
    return _ProgramWriter(planned, file, frozenset(secret_names), folder).render()


@dataclass(slots=True)
class _ProgramWriter:
    planned: PlannedTopology
    file: Path
    secret_names: frozenset[str]
    folder: Path
    names: PythonNames = field(default_factory=lambda: PythonNames(set(_RESERVED)))
    used: set[str] = field(default_factory=set)

    def render(self) -> str:
        """Return the source of the complete program.

        The order is: docstring, imports, configuration, stack references, resources, outputs.
        """
        topology = self.planned.topology
        secret_names = self.secret_names | {
            name for name, variable in topology.config.items() if variable.secret
        }
        references = ReferenceWriter(topology, self.names, secret_names, used=self.used)
        writer = ExpressionWriter(references)
        comments = _SourceComments()
        config_lines = [
            line
            for name, variable in topology.config.items()
            for line in render_config_statements(variable, self.names, secret=name in secret_names)
        ]
        stack_lines = [
            f"{self.names.assign('stack_references', name)} = pulumi.StackReference("
            f"{quote_text(name)}, stack_name={self.render_value(writer.convert_value(entry.node))})"
            for name, entry in topology.stack_references.items()
        ]
        # Only referenced resources need a variable: all references are known after the last entry.
        statements = [
            (
                declaration,
                comments.find_comments_above(declaration.position),
                self.build_statement(declaration, references),
            )
            for declaration in order_declarations(self.planned)
        ]
        output_lines = [
            line
            for name, entry in topology.outputs.items()
            for line in render_statement(
                f"pulumi.export({quote_text(name)}, ",
                writer.convert_value(entry.node),
                ")",
                self.names,
            )
        ]
        blocks = [
            "\n".join([*comment_lines, *statement.render(declaration.address in self.used)])
            for declaration, comment_lines, statement in statements
        ]
        config = ["config = pulumi.Config()", *config_lines] if config_lines else []
        parts = [
            "\n".join(self.render_imports([*config, *stack_lines])),
            "\n".join(config),
            "\n".join(stack_lines),
        ]
        description = (
            comments.find_header_comment(self.file) or f"The declarations of {self.file.name}."
        )
        # A backslash in the comment must not begin an escape sequence.
        docstring = f'"""{description}"""'.replace("\\", "\\\\")
        parts = [docstring, *parts, *blocks, "\n".join(output_lines)]
        return "\n\n".join(filter(None, parts)) + "\n"

    def render_imports(self, lines: list[str]) -> Iterator[str]:
        """Yield the import lines; called last, when all needed names are known."""
        code = "\n".join(lines)
        standard_lines = [
            line
            for name, line in (("Fraction(", "from fractions import Fraction"),)
            if name in code
        ]
        standard_lines += ["import re"] if "re.fullmatch(" in code else []
        yield from sorted(standard_lines, key=lambda line: line.startswith("from"))
        yield from [""] if standard_lines else []
        yield "import pulumi"
        declarations = self.planned.topology.declarations.values()
        platforms = {
            declaration.platform for section in declarations for declaration in section.values()
        }
        platforms |= {name for name in self.used if "." not in name and name != "expression"}
        if platforms:
            yield ""
            yield from render_platform_imports(platforms)
        gpuform_names = ["Module"] if self.planned.topology.modules else []
        gpuform_names += ["expression"] if "expression" in self.used else []
        gpuform_names += ["is_emulated"] if " if is_emulated() " in code else []
        if gpuform_names:
            yield from [] if platforms else [""]
            yield f"from gpuform.stacks import {', '.join(gpuform_names)}"

    def render_value(self, value: Any) -> str:
        return render_literal(value, self.names)

    def build_statement(
        self, declaration: Repeatable, references: ReferenceWriter
    ) -> "_DeclarationStatement":
        loop_header = build_loop_header(declaration, self.planned, ExpressionWriter(references))
        writer = ExpressionWriter(
            replace(references, loop=loop_header.loop) if loop_header else references
        )
        name = quote_text(declaration.name)
        if loop_header:
            name = render_f_string(
                [f"{declaration.name}-", PythonExpression(loop_header.loop.key, "string")]
            )
        condition = (
            writer.render_condition(declaration.when) if declaration.when is not None else ""
        )
        variable = self.names.assign(declaration.section, declaration.name)
        if isinstance(declaration, Inclusion):
            arguments = tuple(self.render_module_arguments(declaration, name, writer))
            return _DeclarationStatement(
                variable, "Module", arguments, loop_header, condition, is_read=False
            )
        assert isinstance(declaration, Declaration)  # noqa: S101 - there is no third class
        return _DeclarationStatement(
            variable,
            f"{declaration.platform}.{declaration.kind}",
            tuple(self.render_arguments(declaration, name, writer)),
            loop_header,
            condition,
            declaration.options.get("id") is not None,
        )

    def render_module_arguments(
        self, module: Inclusion, name: str, writer: ExpressionWriter
    ) -> Iterator[str]:
        # The path must hold on every machine, and `Path.relative_to` refuses a module above the
        # folder.
        path = os.path.relpath(module.file.resolve(), self.folder.resolve())
        yield f"{' ' * STEP}{name},"
        yield f"{' ' * STEP}{quote_text(Path(path).as_posix())},"
        values = {key: writer.convert_value(entry.node) for key, entry in module.arguments.items()}
        if values:
            yield from render_argument("", values, STEP, self.names)

    def render_arguments(
        self, declaration: Declaration, name: str, writer: ExpressionWriter
    ) -> Iterator[str]:
        """Yield the lines of a resource's arguments; null properties are left out.

        With the option `id` the resource is read, and the id takes the place of all properties.
        """
        options = dict(declaration.options)
        read_id = options.pop("id", None)
        yield f"{' ' * STEP}{name},"
        if read_id is not None:
            yield from render_argument("", writer.convert_value(read_id.node), STEP, self.names)
        else:
            for key, entry in declaration.properties.items():
                if not is_null(entry.node):
                    yield from render_argument(
                        f"{key}=", writer.convert_value(entry.node), STEP, self.names
                    )
        if options:
            yield from render_argument(
                "opts=", Code(_render_options(options, writer)), STEP, self.names
            )


@dataclass(frozen=True, slots=True)
class _DeclarationStatement:
    """The statement of an entry, rendered when all references to the entry are known."""

    variable: str
    kind: str
    arguments: tuple[str, ...]
    header: LoopHeader | None
    condition: str
    is_read: bool

    def render(self, is_used: bool) -> Iterator[str]:
        """Yield the lines of a declaration's Python code; only a used entry gets a variable."""
        target = ""
        if is_used:
            key = f"[{self.header.loop.key}]" if self.header else ""
            target = f"{self.variable}{key} = "
        lines = [f"{target}{self.kind}{'.get' if self.is_read else ''}(", *self.arguments, ")"]
        if self.condition:
            lines = [f"if {self.condition}:", *(f"{' ' * STEP}{line}" for line in lines)]
        if self.header:
            if is_used:
                yield f"{self.variable} = {{}}"
            yield from self.header.lines
            lines = [f"{' ' * STEP}{line}" for line in lines]
        yield from lines


@dataclass(slots=True)
class _SourceComments:
    """The comments of topology files, by the file names in positions."""

    _files: dict[str, list[str]] = field(default_factory=dict)

    def find_comments_above(self, position: SourcePosition) -> list[str]:
        lines = self._read_lines(position.file)
        comments: list[str] = []
        for line in reversed(lines[: position.line - 1]):
            comment = line.strip()
            if not comment.startswith("#"):
                break
            comments.append(comment)
        return comments[::-1]

    def find_header_comment(self, file: Path) -> str:
        """Return the comment at the beginning of a file as docstring text, or nothing."""
        comments = []
        for line in self._read_lines(str(file)):
            if not line.startswith("#"):
                break
            # This comment names the schema for YAML editors, which a program does not need.
            if not line.startswith("# yaml-language-server"):
                comments.append(line.lstrip("# ").rstrip())
        # Quotes of the comment would end the docstring.
        return "\n".join(comments).replace('"""', "'''").rstrip('"').strip()

    def _read_lines(self, file: str) -> list[str]:
        """Return the lines of a topology file, read once, without a byte order mark."""
        if file not in self._files:
            # The file was read before as a topology, so it exists and is UTF-8.
            self._files[file] = Path(file).read_text("utf-8").removeprefix("\ufeff").splitlines()
        return self._files[file]


# `import` is a keyword in Python.
_RENAMED: Final = {"import": "import_", "timeouts": "custom_timeouts"}


def _render_options(options: Mapping[str, Entry], writer: ExpressionWriter) -> str:
    arguments = (
        f"{_RENAMED.get(key, key)}={_render_option(key, entry, writer)}"
        for key, entry in options.items()
    )
    return f"pulumi.ResourceOptions({', '.join(arguments)})"


def _render_option(key: str, entry: Entry, writer: ExpressionWriter) -> str:
    if key in LISTS:
        return f"[{', '.join(map(writer.render_resource, list_items(entry)))}]"
    if key in SINGLE:
        return writer.render_resource(entry.node)
    if key == "aliases":
        return f"[{', '.join(_render_alias(item, writer) for item in list_items(entry))}]"
    if key == "timeouts" and isinstance(entry.node, MappingNode):
        durations = (
            f"{verb}={_render_node(duration.node, writer)}"
            for verb, duration in entry.node.entries.items()
        )
        return f"pulumi.CustomTimeouts({', '.join(durations)})"
    return _render_node(entry.node, writer)


def _render_alias(node: Node, writer: ExpressionWriter) -> str:
    """Return an item of `aliases` as the code of a `pulumi.Alias`.

    A parent that is a reference is rendered as a resource, any other as a value.
    """
    arguments = []
    for key, entry in node.entries.items() if isinstance(node, MappingNode) else ():
        is_resource = key == "parent" and _is_reference(entry.node)
        value = (
            writer.render_resource(entry.node) if is_resource else _render_node(entry.node, writer)
        )
        arguments.append(f"{'type_' if key == 'type' else key}={value}")
    return f"pulumi.Alias({', '.join(arguments)})"


def _is_reference(node: Node) -> bool:
    template = parse_template(node, Diagnostics()) if isinstance(node, ScalarNode) else None
    return template is not None and template.reference is not None


def _render_node(node: Node, writer: ExpressionWriter) -> str:
    return render_literal(writer.convert_value(node), reject_reference)
