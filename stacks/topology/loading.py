"""From topology files to declarations: what a file may say where, and defaults."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from gpuform.providers.catalog import list_platforms_with, load_lifecycle_class
from gpuform.providers.platform import list_unusable_platforms, platforms
from gpuform.schemas.checking import KEY_PROBLEM_PREFIXES, find_nearest_name, validate_inputs
from gpuform.schemas.models import InputModel
from gpuform.schemas.topology import (
    SECTIONS,
    EntryInputs,
    ModuleInputs,
    OptionsInputs,
    TopologyInputs,
    get_reference_fields,
)
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.document.checked import report_problems
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import (
    Entry,
    MappingNode,
    Node,
    ScalarNode,
    get_entries,
    is_null,
    to_plain_value,
)
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.topology.configuration import Names, variable_of
from gpuform.stacks.topology.declarations import MODULES, Declaration, Inclusion, Topology
from gpuform.stacks.topology.files import File, Way, included, included_file, read_all

TOP_LEVEL = (*TopologyInputs.model_fields, *SECTIONS)
ANCHORS = "x-"
"""Top-level keys that begin so are left alone: a place for anchors."""


def _check_keys(root: MappingNode, problems: Diagnostics) -> None:
    """What a file has at its top that is not known goes to `problems`."""
    for key, entry in root.entries.items():
        if key not in TOP_LEVEL and not key.startswith(ANCHORS):
            hint = _hint(key, TOP_LEVEL)
            problems.add(entry.place, "unknown-key", f"{key} is not known", hint)


def _is_section(section: str, place: SourcePosition, problems: Diagnostics) -> bool:
    """Whether a section is one; else that goes to `problems`."""
    if section in SECTIONS:
        return True
    hint = _hint(section, tuple(SECTIONS))
    problems.add(place, "unknown-key", f"{section} is no section", hint)
    return False


def _has_kind(platform: str, section: str, place: SourcePosition, problems: Diagnostics) -> bool:
    """Whether a platform has what a section declares; else that goes to `problems`."""
    kind = SECTIONS[section]
    having = list_platforms_with(kind)
    if platform in having:
        return True
    broken = list_unusable_platforms().get(platform)
    if broken is not None:
        because = f"the platform {platform} cannot be used: {broken.because}"
        problems.add(place, "platform", because, broken.hint)
        return False
    known = platform in platforms()
    message = f"{platform} has no {kind}" if known else f"{platform} is not a platform"
    near = find_nearest_name(platform, tuple(having))
    hint = f"did you mean {near}?" if near else f"{kind} is on {' and '.join(having)}"
    problems.add(place, "platform", message, hint)
    return False


def _hint(key: str, known: tuple[str, ...]) -> str:
    near = find_nearest_name(key, known)
    return f"did you mean {near}?" if near else f"use one of {', '.join(known)}"


_WITHOUT_DEFAULT = ("platform", "for_each", "when")

Defaults = Mapping[tuple[str, str], Mapping[str, Entry]]
"""By section and platform."""


def load(path: Path, problems: Diagnostics) -> Topology:
    """The topology of a file and of all that it includes; what is wrong goes to `problems`."""
    return _loaded(read_all(path, problems), problems)


def load_module(path: Path, way: Way, problems: Diagnostics) -> Topology:
    """The same of a module, which has inputs, if only none; `way` leads to it."""
    topology = _loaded(read_all(path, problems, way), problems)
    if topology.inputs is None:
        topology.inputs = {}
    return topology


def check_inputs(module: Inclusion, problems: Diagnostics) -> None:
    """Inputs that the module does not have, or that it needs and is not given."""
    inputs = module.topology.inputs or {}
    for name, entry in module.given.items():
        if name not in inputs:
            near = find_nearest_name(name, tuple(inputs))
            known = f"there is {', '.join(inputs)}" if inputs else "it has none"
            hint = f"did you mean {near}?" if near else known
            problems.add(entry.place, "input", f"{module.address} has no input {name}", hint)
    for name, variable in inputs.items():
        if name not in module.given and "default" not in variable.said:
            message = f"{module.address}: the input {name} is not given"
            declared = f"it is declared at {variable.place.own}"
            hint = f"add it: with: {{{name}: ...}}; {declared}"
            problems.add(module.place, "input", message, hint)


def _loaded(files: list[File], problems: Diagnostics) -> Topology:
    loader = _Loader(problems, is_module=any("inputs" in file.root.entries for file in files))
    defaults = {key: found for file in files for key, found in loader.defaults(file.root)}
    for file in files:
        _check_keys(file.root, problems)
        loader.add(file, defaults)
    return loader.topology


class _Loader:
    def __init__(self, problems: Diagnostics, *, is_module: bool) -> None:
        self.problems = problems
        self.topology = Topology(inputs={} if is_module else None)
        self.names = Names(problems)

    def defaults(self, root: MappingNode) -> Iterator[tuple[tuple[str, str], Mapping[str, Entry]]]:
        sections = get_entries(root.get("defaults"), "defaults", self.problems)
        for section, of_section in sections.items():
            if not _is_section(section, of_section.place, self.problems):
                continue
            shown = f"defaults.{section}"
            for platform, entry in get_entries(of_section.node, shown, self.problems).items():
                known = _has_kind(platform, section, entry.place, self.problems)
                if known and self.names.is_new(f"{shown}.{platform}", "", entry.place):
                    yield (section, platform), self.usual(section, platform, entry)

    def usual(self, section: str, platform: str, entry: Entry) -> Mapping[str, Entry]:
        """What entries have that do not say otherwise; there need not be any."""
        address = f"defaults.{section}.{platform}"
        found = get_entries(entry.node, address, self.problems)
        for key in found.keys() & set(_WITHOUT_DEFAULT):
            message = f"{key} has no default: write it in each entry"
            self.problems.add(found[key].place, "unknown-key", message)
        properties = _properties_of(found, section, platform, self.problems)
        model = load_lifecycle_class(platform, SECTIONS[section]).inputs
        self.refuse_unknown(model, properties, address)
        options = f"{address}.options"
        self.refuse_unknown(OptionsInputs, self.options(found, options), options)
        return found

    def refuse_unknown(
        self, model: type[InputModel], said: Mapping[str, Entry], address: str
    ) -> None:
        for problem in validate_inputs(model, dict.fromkeys(said, UNKNOWN))[1]:
            if problem.path in said and problem.reason.startswith(KEY_PROBLEM_PREFIXES):
                place, reason = said[problem.path].place, problem.reason
                message = f"{address}.{problem.path}: {reason}"
                self.problems.add_once(place, "unknown-key", reason, message)

    def add(self, file: File, defaults: Defaults) -> None:
        """Takes over what a file declares."""
        topology, root = self.topology, file.root
        if topology.inputs is not None:
            self.refuse_outside(root)
            for name, entry in self.names.of(root, "inputs"):
                topology.inputs[name] = variable_of("inputs", name, entry, self.problems)
        for name, entry in self.names.of(root, "config"):
            topology.config[name] = variable_of("config", name, entry, self.problems)
        for inclusion in self.inclusions(file):
            topology.modules[inclusion.name] = inclusion
        topology.stack_references.update(self.names.of(root, "stack_references"))
        topology.outputs.update(self.names.of(root, "outputs"))
        for section in SECTIONS:
            for name, entry in self.names.of(root, section):
                declaration = self.declaration(section, name, entry, defaults)
                if declaration is not None:
                    topology.declarations[section][name] = declaration

    def refuse_outside(self, root: MappingNode) -> None:
        """What a module cannot have."""
        for key in root.entries.keys() & {"config", "stack_references"}:
            message = f"{key} is the topology's alone: this file is a module, it has inputs"
            hint = "declare an input, and give it the value in `with` where the module is included"
            self.problems.add(root.entries[key].place, "module", message, hint)

    def inclusions(self, file: File) -> Iterator[Inclusion]:
        """The modules that a file includes, each with what its own file declares."""
        for node in included(file.root, Diagnostics()):
            if isinstance(node, MappingNode):
                found = self.inclusion(node, file)
                if found is not None:
                    yield found

    def inclusion(self, node: MappingNode, file: File) -> Inclusion | None:
        name = node.get("name")
        said = {
            key: UNKNOWN if key == "with" else to_plain_value(entry.node)
            for key, entry in node.entries.items()
        }
        problems = validate_inputs(ModuleInputs, said)[1]
        report_problems(problems, node, "include", self.problems)
        path = included_file(node.get("file"), file, self.problems) if "file" in said else None
        if not isinstance(name, ScalarNode) or not isinstance(name.value, str) or problems:
            return None
        if path is None or not self.names.is_good(MODULES, name.text, name.place):
            return None
        way = Way(file.way.files, (node.place._replace(included=()), *file.way.places))
        given = get_entries(node.get("with"), f"modules.{name.text}.with", self.problems)
        found = Inclusion(
            section=MODULES,
            name=name.text,
            place=node.place,
            for_each=node.get("for_each"),
            when=node.get("when"),
            file=path,
            given={key: each for key, each in given.items() if not is_null(each.node)},
            topology=load_module(path, way, self.problems),
        )
        check_inputs(found, self.problems)
        return found

    def declaration(
        self, section: str, name: str, entry: Entry, defaults: Defaults
    ) -> Declaration | None:
        address = f"{section}.{name}"
        own = get_entries(entry.node, address, self.problems)
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
            **_properties_of(general, section, platform, self.problems),
            **_properties_of(own, section, platform, self.problems),
        }
        return Declaration(
            section=section,
            name=name,
            place=entry.place,
            platform=platform,
            properties=properties,
            options=options,
            for_each=_node(own, "for_each"),
            when=_node(own, "when"),
        )

    def platform(
        self, section: str, address: str, entry: Entry | None, place: SourcePosition
    ) -> str | None:
        if entry is None:
            having = ", ".join(list_platforms_with(SECTIONS[section]))
            hint = f"add platform: one of {having}"
            self.problems.add(place, "platform", f"{address} has no platform", hint)
            return None
        node = entry.node
        if not isinstance(node, ScalarNode) or has_expression(node.text):
            message = "platform must be written out: it chooses what the other keys mean"
            self.problems.add(node.place, "platform", message)
            return None
        return node.text if _has_kind(node.text, section, node.place, self.problems) else None

    def options(self, said: Mapping[str, Entry], shown: str) -> Mapping[str, Entry]:
        return get_entries(_node(said, "options"), shown, self.problems)


def _node(said: Mapping[str, Entry], key: str) -> Node | None:
    return said[key].node if key in said else None


_OWN_KEYS = frozenset(EntryInputs.model_fields)


def _properties_of(
    said: Mapping[str, Entry], section: str, platform: str, problems: Diagnostics
) -> dict[str, Entry]:
    """Those that an entry or its defaults say: `volume` is volume_id, whose id it means."""
    model = load_lifecycle_class(platform, SECTIONS[section]).inputs
    short_of = get_reference_fields(model)
    found: dict[str, Entry] = {}
    for key, entry in said.items():
        if key in _OWN_KEYS:
            continue
        name = key if key in model.model_fields else short_of.get(key, key)
        if name in found:
            short = name.removesuffix("_id")
            message = f"{short} and {name} are the same: keep one of the two"
            problems.add(entry.place, "duplicate", message)
        found[name] = entry
    return found
