"""The `config` and `inputs` of a topology's files, which are read without knowing any platform."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuform.schemas.checking import check
from gpuform.schemas.topology import NAME, ConfigInputs
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import (
    Entry,
    MappingNode,
    ScalarNode,
    entries,
    find,
    plain,
    scalars,
    steps_of,
)
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.topology.declarations import ConfigVariable
from gpuform.stacks.topology.files import read_all

_NAME = re.compile(NAME)


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
        for name, entry in entries(root.get(key), key, self.problems).items():
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
    for scalar in scalars(entry.node):
        if isinstance(scalar.value, str) and has_expression(scalar.value):
            problems.add(scalar.place, "expression", f"{key} holds no expressions")
    entries(entry.node, address, problems)
    values = plain(entry.node)
    said, found = check(ConfigInputs, values if isinstance(values, Mapping) else {})
    for problem in found:
        place = find(entry.node, steps_of(problem.path)).place
        problems.add(place, "value", f"{address}.{problem.path}: {problem.reason}")
    if key == "inputs" and "emulator_default" in said:
        place = find(entry.node, ("emulator_default",)).place
        hint = "declare it in the topology's config, and give the module its value"
        problems.add(place, "value", f"{address}: only config has an emulator_default", hint)
    # Nothing is told of the value of a variable that cannot be understood.
    return ConfigVariable(name, entry.place, {"secret": True} if found else said)
