"""From topology files to declarations: what a file may say where, and defaults."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpuform.providers.catalog import lifecycle_class, platforms_with
from gpuform.schemas.checking import ABOUT_KEYS, check
from gpuform.schemas.models import InputModel
from gpuform.schemas.topology import NAME, SECTIONS, ConfigInputs, OptionsInputs
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.document.diagnostics import Diagnostics, Place
from gpuform.stacks.document.nodes import Entry, MappingNode, Node, ScalarNode, find, plain, scalars
from gpuform.stacks.document.paths import steps_of
from gpuform.stacks.document.shapes import entries, is_null
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.topology.declarations import ConfigVariable, Declaration, Topology
from gpuform.stacks.topology.files import read_all
from gpuform.stacks.topology.properties import properties_of
from gpuform.stacks.topology.sections import check_keys, has_kind, is_section

_NAME = re.compile(NAME)
_WITHOUT_DEFAULT = ("platform", "for_each", "when")

Defaults = Mapping[tuple[str, str], Mapping[str, Entry]]
"""By section and platform."""


def load(path: Path, problems: Diagnostics) -> Topology:
    """The topology of a file and of all that it includes; what is wrong goes to `problems`."""
    loader = _Loader(problems)
    roots = read_all(path, problems)
    defaults = {key: found for root in roots for key, found in loader.defaults(root)}
    for root in roots:
        check_keys(root, problems)
        loader.add(root, defaults)
    return loader.topology


class _Loader:
    def __init__(self, problems: Diagnostics) -> None:
        self.problems = problems
        self.topology = Topology()
        self.first: dict[tuple[str, str], Place] = {}
        """Where each name of each top-level key was first declared."""

    def defaults(self, root: MappingNode) -> Iterator[tuple[tuple[str, str], Mapping[str, Entry]]]:
        sections = entries(root.get("defaults"), "defaults", self.problems)
        for section, of_section in sections.items():
            if not is_section(section, of_section.place, self.problems):
                continue
            shown = f"defaults.{section}"
            for platform, entry in entries(of_section.node, shown, self.problems).items():
                known = has_kind(platform, section, entry.place, self.problems)
                if known and self.is_new(f"{shown}.{platform}", "", entry.place):
                    yield (section, platform), self.usual(section, platform, entry)

    def usual(self, section: str, platform: str, entry: Entry) -> Mapping[str, Entry]:
        """What entries have that do not say otherwise; there need not be any."""
        address = f"defaults.{section}.{platform}"
        found = entries(entry.node, address, self.problems)
        for key in found.keys() & set(_WITHOUT_DEFAULT):
            message = f"{key} has no default: write it in each entry"
            self.problems.add(found[key].place, "unknown-key", message)
        properties = properties_of(found, section, platform, self.problems)
        model = lifecycle_class(platform, SECTIONS[section]).inputs
        self.refuse_unknown(model, properties, address)
        options = f"{address}.options"
        self.refuse_unknown(OptionsInputs, self.options(found, options), options)
        return found

    def refuse_unknown(
        self, model: type[InputModel], said: Mapping[str, Entry], address: str
    ) -> None:
        for problem in check(model, dict.fromkeys(said, UNKNOWN))[1]:
            if problem.path in said and problem.reason.startswith(ABOUT_KEYS):
                place, reason = said[problem.path].place, problem.reason
                message = f"{address}.{problem.path}: {reason}"
                self.problems.add_once(place, "unknown-key", reason, message)

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
        for name, entry in entries(root.get(key), key, self.problems).items():
            if not _NAME.fullmatch(name):
                message = f"{name!r} is not a name: use letters, digits, hyphens, underscores, dots"
                self.problems.add(entry.place, "name", message)
            elif self.is_new(key, name, entry.place):
                yield name, entry

    def is_new(self, key: str, name: str, place: Place) -> bool:
        first = self.first.setdefault((key, name), place)
        if first == place:
            return True
        shown = f"{key}.{name}" if name else key
        message = f"{shown} is there twice: first at {first}"
        self.problems.add(place, "duplicate", message, "rename or remove one of them")
        return False

    def variable(self, name: str, entry: Entry) -> ConfigVariable:
        address = f"config.{name}"
        if isinstance(entry.node, ScalarNode):
            example = f"write {name}: {{default: {entry.node.text}}}"
            self.problems.add(entry.node.place, "shape", f"{address} must be an object", example)
            return ConfigVariable(name, entry.place, {})
        for scalar in scalars(entry.node):
            if isinstance(scalar.value, str) and has_expression(scalar.value):
                self.problems.add(scalar.place, "expression", "config holds no expressions")
        entries(entry.node, address, self.problems)
        values = plain(entry.node)
        said, problems = check(ConfigInputs, values if isinstance(values, dict) else {})
        for problem in problems:
            place = find(entry.node, steps_of(problem.path)).place
            self.problems.add(place, "value", f"{address}.{problem.path}: {problem.reason}")
        # Nothing is told of the value of a variable that cannot be understood.
        return ConfigVariable(name, entry.place, {"secret": True} if problems else said)

    def declaration(
        self, section: str, name: str, entry: Entry, defaults: Defaults
    ) -> Declaration | None:
        address = f"{section}.{name}"
        own = entries(entry.node, address, self.problems)
        platform = self.platform(section, address, own.get("platform"), entry.place)
        if platform is None:
            return None
        general = defaults.get((section, platform), {})
        options = {
            **self.options(general, f"defaults.{section}.{platform}.options"),
            **self.options(own, f"{address}.options"),
        }
        options = {key: each for key, each in options.items() if not is_null(each.node)}
        properties = {
            **properties_of(general, section, platform, self.problems),
            **properties_of(own, section, platform, self.problems),
        }
        return Declaration(
            *(section, name, entry.place, platform, properties, options),
            for_each=_node(own, "for_each"),
            when=_node(own, "when"),
        )

    def platform(self, section: str, address: str, entry: Entry | None, place: Place) -> str | None:
        if entry is None:
            having = ", ".join(platforms_with(SECTIONS[section]))
            hint = f"add platform: one of {having}"
            self.problems.add(place, "platform", f"{address} has no platform", hint)
            return None
        node = entry.node
        if not isinstance(node, ScalarNode) or has_expression(node.text):
            message = "platform must be written out: it chooses what the other keys mean"
            self.problems.add(node.place, "platform", message)
            return None
        return node.text if has_kind(node.text, section, node.place, self.problems) else None

    def options(self, said: Mapping[str, Entry], shown: str) -> Mapping[str, Entry]:
        return entries(_node(said, "options"), shown, self.problems)


def _node(said: Mapping[str, Entry], key: str) -> Node | None:
    return said[key].node if key in said else None
