"""Random programs as data: what they declare, and their text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from randomized.world import TYPE

from gpuform.stacks.engine.urn import make_urn

STACK, PROJECT = "dev", "lab"
GROUP_TYPE = "lab:index:Group"
HEAD = "from pulumi import Alias, Output\nfrom randomized.world import Machine\n"

Kind = Literal["machine", "group", "read"]


@dataclass(frozen=True)
class Declared:
    """One resource; it may name those declared before it by their variables.

    `properties` and `options` hold the text of their values. `read_id` is the text of the id that
    is read; `outputs` whether a group registers some.
    """

    variable: str
    kind: Kind = "machine"
    name: str = ""
    parent: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    read_id: str = ""
    outputs: bool = False

    def line(self) -> str:
        options = dict(self.options)
        if self.parent:
            options["parent"] = self.parent
        if self.kind == "read":
            options["id"] = self.read_id
        given = [repr(self.name)]
        if self.kind == "group":
            given = [repr(GROUP_TYPE), *given, _call("dict", self.properties)]
        else:
            given += [f"{key}={value}" for key, value in self.properties.items()]
        if options:
            given.append("opts=" + _call("ResourceOptions", options))
        make = "pulumi.ComponentResource" if self.kind == "group" else "Machine"
        text = f"{self.variable} = {make}({', '.join(given)})\n"
        if self.outputs:
            text += f"{self.variable}.register_outputs({{'n': 1}})\n"
        return text


@dataclass(frozen=True, repr=False)
class Program:
    """What it declares and exports, in order; `end` is the statement that it ends with."""

    declared: Sequence[Declared] = ()
    exports: Mapping[str, str] = field(default_factory=dict)
    end: str = ""

    def __repr__(self) -> str:
        return f"<program\n{self.text}>"

    @property
    def text(self) -> str:
        exports = [f"pulumi.export({key!r}, {value})\n" for key, value in self.exports.items()]
        return HEAD + "".join([*(d.line() for d in self.declared), *exports, self.end])

    @property
    def urns(self) -> dict[str, Declared]:
        """What it declares, by URN."""
        found: dict[str, Declared] = {}
        by_variable: dict[str, str] = {"": ""}
        for each in self.declared:
            type_ = GROUP_TYPE if each.kind == "group" else TYPE
            urn = make_urn(STACK, PROJECT, by_variable[each.parent], type_, each.name)
            by_variable[each.variable] = urn
            found[urn] = each
        return found

    def inherited(self, option: str, each: Declared) -> bool:
        """Whether an option that children inherit holds for a resource."""
        by_variable = {d.variable: d for d in self.declared}
        while option not in each.options:
            if not each.parent:
                return False
            each = by_variable[each.parent]
        return each.options[option] == "True"


def _call(name: str, arguments: Mapping[str, str]) -> str:
    return f"{name}({', '.join(f'{key}={value}' for key, value in arguments.items())})"
