"""Load topology files into declarations: check keys, merge defaults, and read included modules.

`planning`, the language server and the converters call `load`. Values stay nodes; `scope` evaluates
them later.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from gpuform.providers.catalog import list_platforms_with, load_lifecycle_class
from gpuform.providers.platform import list_unusable_platforms, platforms
from gpuform.schemas.checking import (
    KEY_PROBLEM_PREFIXES,
    find_nearest_name,
    suggest_name,
    validate_inputs,
)
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
from gpuform.stacks.document.reading import report_problems
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.topology.configuration import NameRegistry, read_variable
from gpuform.stacks.topology.declarations import MODULES, Declaration, Inclusion, Topology
from gpuform.stacks.topology.files import (
    TOPOLOGY_ITSELF,
    InclusionPath,
    TopologyFile,
    get_inclusions,
    read_files,
    resolve_included_file,
)

TOP_LEVEL = (*TopologyInputs.model_fields, *SECTIONS)
ANCHORS = "x-"
"""The prefix of top-level keys that gpuform ignores, for YAML anchors."""


def _check_keys(root: MappingNode, problems: Diagnostics) -> None:
    """Report unknown top-level keys of a file, except keys with the prefix `x-`."""
    for key, entry in root.entries.items():
        if key not in TOP_LEVEL and not key.startswith(ANCHORS):
            hint = suggest_name(key, TOP_LEVEL, f"use one of {', '.join(TOP_LEVEL)}")
            problems.add(entry.position, "unknown-key", f"{key} is not known", hint)


def _check_kind(
    platform: str, section: str, position: SourcePosition, problems: Diagnostics
) -> bool:
    """Return True if a platform has the section's kind of resource. Report any other platform."""
    kind = SECTIONS[section]
    supporting_platforms = list_platforms_with(kind)
    if platform in supporting_platforms:
        return True
    unusable = list_unusable_platforms().get(platform)
    if unusable is not None:
        unusable_message = f"the platform {platform} cannot be used: {unusable.because}"
        problems.add(position, "platform", unusable_message, unusable.hint)
        return False
    is_known = platform in platforms()
    message = f"{platform} has no {kind}" if is_known else f"{platform} is not a platform"
    supported = f"{kind} exists on {' and '.join(supporting_platforms)}"
    hint = suggest_name(platform, supporting_platforms, supported)
    problems.add(position, "platform", message, hint)
    return False


_WITHOUT_DEFAULT = ("platform", "for_each", "when")

Defaults = Mapping[tuple[str, str], Mapping[str, Entry]]
"""The entries of `defaults` by section and platform."""


def load(
    path: Path, problems: Diagnostics, inclusion_path: InclusionPath = TOPOLOGY_ITSELF
) -> Topology:
    """Load the topology of a file and all included files. Add problems to `problems`.

    `inputs` in one of the files makes all of them a module. The topology has unread files if a file
    could not be read to its end. `inclusion_path` holds the inclusions that led to the file.
    """
    earlier_problems = list(problems)
    files = read_files(path, problems, inclusion_path)
    new_rules = {problem.rule for problem in problems if problem not in earlier_problems}
    loader = _Loader(problems, is_module=any("inputs" in file.root.entries for file in files))
    defaults = {
        key: section_defaults
        for file in files
        # The defaults of one file hold for the entries of every included file.
        for key, section_defaults in loader.read_defaults(file.root)
    }
    for file in files:
        _check_keys(file.root, problems)
        loader.add_file(file, defaults)
    # A repeated key leaves out only the repetition; after any other problem, all may be missing.
    loader.topology.unread.has_unread_files = bool(new_rules - {"duplicate"})
    return loader.topology


def load_module(path: Path, inclusion_path: InclusionPath, problems: Diagnostics) -> Topology:
    """Load a module's file: `inputs` is a mapping also if the file declares no inputs."""
    topology = load(path, problems, inclusion_path)
    topology.inputs = topology.inputs or {}
    return topology


def check_inputs(module: Inclusion, problems: Diagnostics) -> None:
    """Report arguments without a declared input, and required inputs without an argument."""
    inputs = module.topology.inputs or {}
    if module.topology.unread.has_unread_files:
        return
    for name, entry in module.arguments.items():
        if name not in inputs:
            listed = f"its inputs are {', '.join(inputs)}" if inputs else "it has no inputs"
            hint = suggest_name(name, inputs, listed)
            problems.add(entry.position, "input", f"{module.address} has no input {name}", hint)
    for name, variable in inputs.items():
        if name not in module.arguments and "default" not in variable.fields:
            message = f"{module.address}: the input {name} is missing"
            declared = f"the input is declared at {variable.position.own}"
            hint = f"add `with: {{{name}: ...}}`; {declared}"
            problems.add(module.position, "input", message, hint)


class _Loader:
    def __init__(self, problems: Diagnostics, *, is_module: bool) -> None:
        self.problems = problems
        self.topology = Topology(inputs={} if is_module else None)
        self.names = NameRegistry(problems)

    def read_defaults(
        self, root: MappingNode
    ) -> Iterator[tuple[tuple[str, str], Mapping[str, Entry]]]:
        """Yield the entries of each valid section and platform in the file's `defaults`."""
        sections = get_entries(root.get("defaults"), "defaults", self.problems)
        for section, section_entry in sections.items():
            if section not in SECTIONS:
                message = f"{section} is not a section of a topology"
                hint = suggest_name(section, SECTIONS, f"use one of {', '.join(SECTIONS)}")
                self.problems.add(section_entry.position, "unknown-key", message, hint)
                continue
            address = f"defaults.{section}"
            for platform, entry in get_entries(section_entry.node, address, self.problems).items():
                is_known = _check_kind(platform, section, entry.position, self.problems)
                key = f"{address}.{platform}"
                if is_known and self.names.register_name(key, "", entry.position):
                    yield (section, platform), self.read_platform_defaults(section, platform, entry)

    def read_platform_defaults(
        self, section: str, platform: str, entry: Entry
    ) -> Mapping[str, Entry]:
        """Read the defaults of a platform in a section, and report keys without defaults."""
        address = f"defaults.{section}.{platform}"
        default_entries = get_entries(entry.node, address, self.problems)
        for key in default_entries.keys() & set(_WITHOUT_DEFAULT):
            message = f"{key} cannot have a default: write it in each entry"
            self.problems.add(default_entries[key].position, "unknown-key", message)
        properties = _read_properties(default_entries, section, platform, self.problems)
        model = load_lifecycle_class(platform, SECTIONS[section]).inputs
        self.report_unknown_keys(model, properties, address)
        options = f"{address}.options"
        self.report_unknown_keys(
            OptionsInputs, self.read_options(default_entries, options), options
        )
        return default_entries

    def report_unknown_keys(
        self, model: type[InputModel], properties: Mapping[str, Entry], address: str
    ) -> None:
        """Report keys unknown to `model`. Wrong values and missing keys are not reported."""
        for problem in validate_inputs(model, dict.fromkeys(properties, UNKNOWN))[1]:
            # Defaults need not be complete or valid alone: only their keys count.
            if problem.path in properties and problem.reason.startswith(KEY_PROBLEM_PREFIXES):
                position, reason = properties[problem.path].position, problem.reason
                message = f"{address}.{problem.path}: {reason}"
                self.problems.add_once(position, "unknown-key", reason, message)

    def add_file(self, file: TopologyFile, defaults: Defaults) -> None:
        topology, root = self.topology, file.root
        if topology.inputs is not None:
            self.report_topology_keys(root)
            for name, entry in self.names.list_entries(root, "inputs"):
                topology.inputs[name] = read_variable("inputs", name, entry, self.problems)
        for name, entry in self.names.list_entries(root, "config"):
            topology.config[name] = read_variable("config", name, entry, self.problems)
        for key in root.entries.keys() - set(TOP_LEVEL):
            self.skip_section(key, root)
        for inclusion in self.read_inclusions(file):
            topology.modules[inclusion.name] = inclusion
        topology.stack_references.update(self.names.list_entries(root, "stack_references"))
        topology.outputs.update(self.names.list_entries(root, "outputs"))
        for section in SECTIONS:
            for name, entry in self.names.list_entries(root, section):
                declaration = self.read_declaration(section, name, entry, defaults)
                if declaration is not None:
                    topology.declarations[section][name] = declaration
                else:
                    topology.unread.addresses.add((section, name))

    def skip_section(self, key: str, root: MappingNode) -> None:
        """Remember the names below a misspelled section as unread: `cluster` for `clusters`."""
        section, node = find_nearest_name(key, TOP_LEVEL), root.get(key)
        if section and isinstance(node, MappingNode):
            self.topology.unread.addresses.update((section, name) for name in node.entries)

    def report_topology_keys(self, root: MappingNode) -> None:
        """Report top-level keys allowed only in the topology of a stack."""
        for key in root.entries.keys() & {"config", "stack_references"}:
            message = (
                f"{key} is allowed only in the topology of a stack: this file has inputs, so it "
                "is a module"
            )
            hint = "declare an input, and pass the value in the `with` of the module's `include`"
            self.problems.add(root.entries[key].position, "module", message, hint)

    def read_inclusions(self, file: TopologyFile) -> Iterator[Inclusion]:
        """Yield the included modules of a file, with the declarations of each module's file."""
        # Reading the files has reported the shape of `include` already.
        for node in get_inclusions(file.root, Diagnostics()):
            if isinstance(node, MappingNode):
                inclusion, name = self.read_inclusion(node, file), node.get("name")
                if inclusion is not None:
                    yield inclusion
                elif isinstance(name, ScalarNode):
                    self.topology.unread.addresses.add((MODULES, name.text))

    def read_inclusion(self, node: MappingNode, file: TopologyFile) -> Inclusion | None:
        """Read an entry of `include` with the included module, or return None after a problem.

        An argument of null leaves the input its default.
        """
        name = node.get("name")
        fields = {
            # `check_inputs` compares the arguments with the module's own inputs.
            key: UNKNOWN if key == "with" else to_plain_value(entry.node)
            for key, entry in node.entries.items()
        }
        problems = validate_inputs(ModuleInputs, fields)[1]
        report_problems(problems, node, "include", self.problems)
        path = None
        if "file" in fields:
            path = resolve_included_file(node.get("file"), file, self.problems)
        # The model's problems have been reported already.
        if not isinstance(name, ScalarNode) or not isinstance(name.value, str) or problems:
            return None
        if path is None or not self.names.accept_name(MODULES, name.text, name.position):
            return None
        inclusion_path = InclusionPath(
            file.inclusion_path.files,
            (node.position._replace(included=()), *file.inclusion_path.positions),
        )
        arguments = get_entries(node.get("with"), f"modules.{name.text}.with", self.problems)
        inclusion = Inclusion(
            section=MODULES,
            name=name.text,
            position=node.position,
            for_each=node.get("for_each"),
            when=node.get("when"),
            file=path,
            arguments={
                key: argument for key, argument in arguments.items() if not is_null(argument.node)
            },
            topology=load_module(path, inclusion_path, self.problems),
        )
        check_inputs(inclusion, self.problems)
        return inclusion

    def read_declaration(
        self, section: str, name: str, entry: Entry, defaults: Defaults
    ) -> Declaration | None:
        """Return the declaration of an entry, completed by the defaults of the platform.

        Returns None, and reports a problem, if the platform is missing or cannot be used. An option
        that is null in the entry removes the default.
        """
        address = f"{section}.{name}"
        own_entries = get_entries(entry.node, address, self.problems)
        platform = self.read_platform(section, address, own_entries.get("platform"), entry.position)
        if platform is None:
            return None
        default_entries = defaults.get((section, platform), {})
        options = {
            **self.read_options(default_entries, f"defaults.{section}.{platform}.options"),
            **self.read_options(own_entries, f"{address}.options"),
        }
        # An option of null removes the default's.
        options = {key: option for key, option in options.items() if not is_null(option.node)}
        properties = {
            **_read_properties(default_entries, section, platform, self.problems),
            **_read_properties(own_entries, section, platform, self.problems),
        }
        return Declaration(
            section=section,
            name=name,
            position=entry.position,
            platform=platform,
            properties=properties,
            options=options,
            for_each=_get_node(own_entries, "for_each"),
            when=_get_node(own_entries, "when"),
        )

    def read_platform(
        self, section: str, address: str, entry: Entry | None, position: SourcePosition
    ) -> str | None:
        """Return the platform of an entry; report a missing or unusable one and return None."""
        if entry is None:
            supporting_platforms = ", ".join(list_platforms_with(SECTIONS[section]))
            hint = f"add platform: one of {supporting_platforms}"
            self.problems.add(position, "platform", f"{address} has no platform", hint)
            return None
        node = entry.node
        if not isinstance(node, ScalarNode) or has_expression(node.text):
            message = "platform must be a literal value, because the other keys depend on it"
            self.problems.add(node.position, "platform", message)
            return None
        return node.text if _check_kind(node.text, section, node.position, self.problems) else None

    def read_options(
        self, declared_entries: Mapping[str, Entry], label: str
    ) -> Mapping[str, Entry]:
        """Return the `options` of an entry or of defaults; empty without options.

        Another value than a mapping is reported as a problem. `label` names the options in it.
        """
        return get_entries(_get_node(declared_entries, "options"), label, self.problems)


def _get_node(declared_entries: Mapping[str, Entry], key: str) -> Node | None:
    """Return the node of the value under `key`, or None without such a key."""
    return declared_entries[key].node if key in declared_entries else None


_OWN_KEYS = frozenset(EntryInputs.model_fields)


def _read_properties(
    declared_entries: Mapping[str, Entry], section: str, platform: str, problems: Diagnostics
) -> dict[str, Entry]:
    """Read the properties of an entry or of the entry's defaults.

    The short name `volume` sets `volume_id`; both together are a problem.
    """
    model = load_lifecycle_class(platform, SECTIONS[section]).inputs
    short_of = get_reference_fields(model)
    properties: dict[str, Entry] = {}
    for key, entry in declared_entries.items():
        if key in _OWN_KEYS:
            continue
        name = key if key in model.model_fields else short_of.get(key, key)
        if name in properties:
            short = name.removesuffix("_id")
            message = f"{short} and {name} are two names of one property: remove one of them"
            problems.add(entry.position, "duplicate", message)
        properties[name] = entry
    return properties
