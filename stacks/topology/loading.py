"""From topology files to declarations: includes, defaults, and what a file may say where."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuform.providers.catalog import LIFECYCLES, platforms_with
from gpuform.schemas.checking import check
from gpuform.schemas.models import InputModel
from gpuform.schemas.reasons import nearest
from gpuform.schemas.topology import NAME, SECTIONS, ConfigInputs, EntryInputs, TopologyInputs
from gpuform.stacks.document.diagnostics import Diagnostics, Place
from gpuform.stacks.document.nodes import (
    Entry,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    find,
    plain,
)
from gpuform.stacks.document.paths import steps_of
from gpuform.stacks.document.reading import read_file
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.topology.declarations import ConfigVariable, Declaration, Topology

_NAME = re.compile(NAME)
_TOP_LEVEL = (*TopologyInputs.model_fields, *SECTIONS)
_OWN_KEYS = tuple(EntryInputs.model_fields)
_ANCHORS = "x-"
"""Top-level keys that begin so are left alone: a place for anchors."""

Defaults = Mapping[tuple[str, str], MappingNode]


def load(path: Path, problems: Diagnostics) -> Topology:
    """The topology of a file and of all that it includes; what is wrong goes to `problems`.

    Messages name files relative to the current folder, where they are inside it.
    """
    loader = _Loader(problems)
    roots = list(loader.files(path, ()))
    defaults = {key: node for root in roots for key, node in loader.defaults(root).items()}
    for root in roots:
        loader.add(root, defaults)
    return loader.topology


def shown(path: Path) -> str:
    """How messages name a file."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


class _Loader:
    def __init__(self, problems: Diagnostics) -> None:
        self.problems = problems
        self.topology = Topology()
        self.read: set[Path] = set()
        self.first: dict[tuple[str, str], Place] = {}
        """Where each name of each section was first declared."""

    def files(self, path: Path, including: tuple[Path, ...]) -> Iterator[MappingNode]:
        """The file's root, and those of what it includes; each file once."""
        self.read.add(path.resolve())
        root = read_file(path, shown(path), self.problems)
        self.known_keys(root)
        yield root
        for node in self.items(root, "include"):
            if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
                self.problems.add(node.place, "include", "a file to include is a path, as text")
                continue
            other = path.parent / node.value
            chain = (*including, path.resolve())
            if other.resolve() in chain:
                way = " -> ".join(shown(each) for each in (*chain, other))
                self.problems.add(node.place, "include", f"files include each other: {way}")
            elif not other.is_file():
                message = f"there is no file {shown(other)}"
                self.problems.add(node.place, "include", message, "paths are relative to this file")
            elif other.resolve() not in self.read:
                yield from self.files(other, chain)

    def known_keys(self, root: MappingNode) -> None:
        for key, entry in root.entries.items():
            if key in _TOP_LEVEL or key.startswith(_ANCHORS):
                continue
            near = nearest(key, _TOP_LEVEL)
            hint = f"did you mean {near}?" if near else f"use one of {', '.join(_TOP_LEVEL)}"
            self.problems.add(entry.place, "unknown-key", f"{key} is not known", hint)

    def items(self, root: MappingNode, key: str) -> tuple[Node, ...]:
        node = root.get(key)
        if node is None or (isinstance(node, ScalarNode) and node.value is None):
            return ()
        if isinstance(node, SequenceNode):
            return node.items
        self.problems.add(node.place, "shape", f"{key} must be a list")
        return ()

    def entries(self, node: Node | None, what: str) -> Mapping[str, Entry]:
        if isinstance(node, MappingNode):
            return node.entries
        if node is not None and not (isinstance(node, ScalarNode) and node.value is None):
            self.problems.add(node.place, "shape", f"{what} must be an object")
        return {}

    def defaults(self, root: MappingNode) -> dict[tuple[str, str], MappingNode]:
        found = {}
        for section, of_section in self.entries(root.get("defaults"), "defaults").items():
            if section not in SECTIONS:
                self.unknown_section(section, of_section.place)
                continue
            shown_as = f"defaults.{section}"
            for platform, entry in self.entries(of_section.node, shown_as).items():
                if not self.has_kind(platform, section, entry.place):
                    continue
                if isinstance(entry.node, MappingNode):
                    self.unusual_defaults(entry.node)
                    found[section, platform] = entry.node
                else:
                    self.entries(entry.node, f"{shown_as}.{platform}")
        return found

    def unusual_defaults(self, node: MappingNode) -> None:
        for key in ("platform", "for_each", "when"):
            if key in node.entries:
                message = f"{key} has no default: write it in each entry"
                self.problems.add(node.entries[key].place, "unknown-key", message)

    def unknown_section(self, section: str, place: Place) -> None:
        near = nearest(section, tuple(SECTIONS))
        hint = f"did you mean {near}?" if near else f"use one of {', '.join(SECTIONS)}"
        self.problems.add(place, "unknown-key", f"{section} is no section", hint)

    def has_kind(self, platform: str, section: str, place: Place) -> bool:
        kind = SECTIONS[section]
        if kind in LIFECYCLES.get(platform, ()):
            return True
        having = platforms_with(kind)
        if platform in LIFECYCLES:
            message = f"{platform} has no {kind}"
        else:
            message = f"{platform} is not a platform"
        near = nearest(platform, tuple(having))
        hint = f"did you mean {near}?" if near else f"{kind} is on {' and '.join(having)}"
        self.problems.add(place, "platform", message, hint)
        return False

    def add(self, root: MappingNode, defaults: Defaults) -> None:
        """Takes over what a file declares."""
        topology = self.topology
        for name, entry in self.named(root, "config"):
            topology.config[name] = self.variable(name, entry)
        topology.stack_references.update(self.named(root, "stack_references"))
        topology.outputs.update(self.named(root, "outputs"))
        for section in SECTIONS:
            for name, entry in self.named(root, section):
                declaration = self.declaration(section, name, entry, defaults)
                if declaration is not None:
                    topology.declarations[section][name] = declaration

    def named(self, root: MappingNode, key: str) -> Iterator[tuple[str, Entry]]:
        """The entries of a top-level key whose names are good, and new."""
        for name, entry in self.entries(root.get(key), key).items():
            first = self.first.setdefault((key, name), entry.place)
            if not _NAME.fullmatch(name):
                message = f"{name!r} is not a name: use letters, digits, hyphens, underscores, dots"
                self.problems.add(entry.place, "name", message)
            elif first != entry.place:
                message = f"{key}.{name} is declared twice: first at {first}"
                self.problems.add(entry.place, "duplicate", message, "rename or remove one")
            else:
                yield name, entry

    def variable(self, name: str, entry: Entry) -> ConfigVariable:
        node = entry.node
        values = plain(node)
        if not isinstance(values, dict):
            example = f"write {name}: {{default: {values}}}"
            self.problems.add(node.place, "shape", f"config.{name} must be an object", example)
            return ConfigVariable(name, entry.place, {})
        for text in _texts(node):
            if has_expression(str(text.value)):
                self.problems.add(text.place, "expression", "config holds no expressions")
        said = self.checked(ConfigInputs, values, entry, f"config.{name}")
        return ConfigVariable(name, entry.place, said)

    def checked(
        self, model: type[InputModel], values: dict[str, Any], entry: Entry, address: str
    ) -> dict[str, Any]:
        found, problems = check(model, values)
        for problem in problems:
            node = find(entry.node, steps_of(problem.path))
            message = f"{address}.{problem.path}: {problem.reason}"
            self.problems.add(node.place, "value", message)
        return {} if problems else found

    def declaration(
        self, section: str, name: str, entry: Entry, defaults: Defaults
    ) -> Declaration | None:
        own = self.entries(entry.node, f"{section}.{name}")
        if not isinstance(entry.node, MappingNode):
            self.entries(entry.node, f"{section}.{name}")
        platform = own.get("platform")
        if platform is None:
            having = ", ".join(platforms_with(SECTIONS[section]))
            message = f"{section}.{name} has no platform"
            self.problems.add(entry.place, "platform", message, f"add platform: one of {having}")
            return None
        if not isinstance(platform.node, ScalarNode) or has_expression(platform.node.text):
            message = "platform must be written out: it chooses what the other keys mean"
            self.problems.add(platform.node.place, "platform", message)
            return None
        chosen = platform.node.text
        if not self.has_kind(chosen, section, platform.node.place):
            return None
        general = defaults.get((section, chosen), MappingNode(entry.place)).entries
        merged = {**general, **own}
        options = {
            **self.entries(_node(general, "options"), f"defaults.{section}.{chosen}.options"),
            **self.entries(_node(own, "options"), f"{section}.{name}.options"),
        }
        properties = {key: value for key, value in merged.items() if key not in _OWN_KEYS}
        return Declaration(
            *(section, name, entry.place, chosen, properties, options),
            for_each=_node(own, "for_each"),
            when=_node(own, "when"),
        )


def _node(entries: Mapping[str, Entry], key: str) -> Node | None:
    return entries[key].node if key in entries else None


def _texts(node: Node) -> Iterator[ScalarNode]:
    if isinstance(node, ScalarNode):
        if isinstance(node.value, str):
            yield node
        return
    inner = node.items if isinstance(node, SequenceNode) else _values(node)
    for each in inner:
        yield from _texts(each)


def _values(node: MappingNode) -> tuple[Node, ...]:
    return tuple(entry.node for entry in node.entries.values())
