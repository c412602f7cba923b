"""Random programs as data: their declarations, and their text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from randomized.memory_platform import TYPE

from gpuform.stacks.engine.urn import make_urn

STACK, PROJECT = "dev", "lab"
GROUP_TYPE = "lab:index:Group"
HEAD = "from pulumi import Alias, Output\nfrom randomized.memory_platform import Machine\n"

Kind = Literal["machine", "group", "read"]


@dataclass(frozen=True)
class Declaration:
    """One resource; it may name resources declared before it by their variables.

    `properties` and `options` hold the text of their values. `read_id` is the text of the id that
    is read; `outputs` whether a group registers outputs.
    """

    variable: str
    kind: Kind = "machine"
    name: str = ""
    parent: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    read_id: str = ""
    outputs: bool = False

    def format_lines(self) -> str:
        options = dict(self.options)
        if self.parent:
            options["parent"] = self.parent
        if self.kind == "read":
            options["id"] = self.read_id
        arguments = [repr(self.name)]
        if self.kind == "group":
            arguments = [repr(GROUP_TYPE), *arguments, _format_call("dict", self.properties)]
        else:
            arguments += [f"{key}={value}" for key, value in self.properties.items()]
        if options:
            arguments.append("opts=" + _format_call("ResourceOptions", options))
        make = "pulumi.ComponentResource" if self.kind == "group" else "Machine"
        lines = f"{self.variable} = {make}({', '.join(arguments)})\n"
        if self.outputs:
            lines += f"{self.variable}.register_outputs({{'n': 1}})\n"
        return lines


@dataclass(frozen=True, repr=False)
class Program:
    """The declarations and exports of a program, in order; `end` is its last statement."""

    declared: Sequence[Declaration] = ()
    exports: Mapping[str, str] = field(default_factory=dict)
    end: str = ""

    def __repr__(self) -> str:
        return f"<program\n{self.text}>"

    @property
    def text(self) -> str:
        exports = [f"pulumi.export({key!r}, {value})\n" for key, value in self.exports.items()]
        return HEAD + "".join([*(d.format_lines() for d in self.declared), *exports, self.end])

    @property
    def declarations_by_urn(self) -> dict[str, Declaration]:
        """Return the declarations by URN."""
        declarations: dict[str, Declaration] = {}
        by_variable: dict[str, str] = {"": ""}
        for declaration in self.declared:
            type_ = GROUP_TYPE if declaration.kind == "group" else TYPE
            urn = make_urn(STACK, PROJECT, by_variable[declaration.parent], type_, declaration.name)
            by_variable[declaration.variable] = urn
            declarations[urn] = declaration
        return declarations

    def has_inherited_option(self, option: str, declaration: Declaration) -> bool:
        """Return whether a resource has an option of its own or of a parent."""
        by_variable = {d.variable: d for d in self.declared}
        while option not in declaration.options:
            if not declaration.parent:
                return False
            declaration = by_variable[declaration.parent]
        return declaration.options[option] == "True"


def _format_call(name: str, arguments: Mapping[str, str]) -> str:
    return f"{name}({', '.join(f'{key}={value}' for key, value in arguments.items())})"
