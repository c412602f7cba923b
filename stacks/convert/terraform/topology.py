"""Terraform's files and state as a topology that takes over what they have made.

Each resource of a known type becomes an entry with the id of its object. What the files say that an
entry cannot say is listed, with its line; an entry that would not be whole is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.schemas.rules import FieldRules, get_field_rules
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.convert.registered_options import NOWHERE, SecretValues
from gpuform.stacks.convert.terraform.files import (
    STATE,
    Block,
    Instance,
    TerraformFiles,
    read_terraform,
)
from gpuform.stacks.convert.terraform.kinds import (
    KINDS,
    TerraformKind,
    as_raw,
    flat,
    is_plain,
    spelt,
)
from gpuform.stacks.convert.terraform.options import (
    META,
    Leave,
    Resolver,
    Step,
    TerraformVariables,
    Unsaid,
    options_of,
)
from gpuform.stacks.declaration_writer.declarations import (
    ConfigEntry,
    ConfigReference,
    Declarations,
    InterpolatedText,
    ResourceEntry,
    ResourceReference,
    Value,
    find_config_references,
    find_resource_references,
)
from gpuform.stacks.document.diagnostics import Diagnostic, Diagnostics, SourcePosition

Key = tuple[str, str, Step | None]


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The topology, what is not in it, and secret values that the stack has to keep."""

    declared: Declarations
    left: Sequence[Diagnostic]
    secrets: Mapping[str, str]


def topology_of_terraform(folder: Path) -> TakenOver:
    """Raises EngineError for files that are missing or cannot be read."""
    return _Taking(read_terraform(folder), folder).taken()


class _Left(Exception):
    """The entry would not be whole."""


@dataclass(slots=True)
class _Taking:
    files: TerraformFiles
    folder: Path
    left: Diagnostics = field(default_factory=Diagnostics)
    secrets: SecretValues = field(default_factory=SecretValues)
    variables: TerraformVariables = field(init=False)
    names: dict[Key, ResourceReference] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.variables = TerraformVariables(self.files, self.secrets)

    def taken(self) -> TakenOver:
        pairs = list(_paired(self.files, self.folder, self._leave))
        for _, instance in pairs:
            name = instance.name if instance.key is None else f"{instance.name}-{instance.key}"
            key = (instance.type, instance.name, instance.key)
            self.names[key] = ResourceReference(KINDS[instance.type].section, name)
        entries = []
        for block, instance in pairs:
            try:
                entries.append(self._entry(block, instance))
            except _Left as why:
                self._leave(block.place, f"{instance.address}: {why}")
        entries = self._whole(entries)
        outputs = dict(self._outputs({entry.address for entry in entries}))
        variables = [*self.variables.used.values(), *self.secrets.list_variables()]
        declared = Declarations(entries, variables, outputs)
        return TakenOver(declared, list(self.left), self.secrets.missing_values)

    def _leave(self, place: SourcePosition, message: str) -> None:
        self.left.add(place, "terraform", message)

    def _entry(self, block: Block, instance: Instance) -> ResourceEntry:
        kind, reference = KINDS[instance.type], self._name(instance)
        lifecycle = load_lifecycle_class(kind.platform, SECTIONS[kind.section])
        rules = get_field_rules(lifecycle.inputs)
        resolver = self._resolver(block, instance)
        attributes = flat(instance.attributes, kind)
        properties: dict[str, Value] = {}
        for theirs, raw in self._arguments(block, kind, attributes):
            name = kind.name(theirs)
            if name not in rules:
                self._leave(
                    block.place_of(theirs), f"{instance.address}: {theirs} has no like here"
                )
                continue
            about = (block, instance, resolver, attributes)
            value = self._value(raw, theirs, rules[name], about)
            if value is not None:
                properties[name] = kind.words(name, value)
        properties = {**kind.whole(properties, attributes), **kind.more(instance.attributes)}
        if kind.needed and not any(name in properties for name in kind.needed):
            properties |= self._asked(block, instance, kind.needed[-1])
        for name, model_field in lifecycle.inputs.model_fields.items():
            if model_field.is_required() and name not in properties:
                properties[name] = self._missing(name, rules[name], instance, attributes)
        id_ = kind.id(properties, instance.attributes)
        if id_ is None:
            raise _Left("the state does not tell its id")
        properties = spelt(properties, lifecycle.inputs)
        options = {"import": id_, **options_of(block, resolver, self._leave, kind)}
        return ResourceEntry(reference.section, reference.name, kind.platform, properties, options)

    def _name(self, instance: Instance) -> ResourceReference:
        return self.names[instance.type, instance.name, instance.key]

    def _arguments(
        self, block: Block, kind: TerraformKind, attributes: Mapping[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        for name, raw in block.body.items():
            if name in META or name in kind.ignored:
                continue
            if name not in kind.inner:
                yield name, raw
            elif isinstance(raw, Mapping):
                yield from raw.items()
            else:
                self._leave(block.place_of(name), f"{name} is as it is in the state: {raw}")
                inner = attributes.get(name)
                yield from ((n, as_raw(v)) for n, v in (inner or {}).items())

    def _value(
        self,
        raw: Any,
        name: str,
        rules: FieldRules,
        about: tuple[Block, Instance, Resolver, Mapping[str, Any]],
    ) -> Value:
        block, instance, resolver, attributes = about
        kind = KINDS[instance.type]
        is_secret = rules.holds_secret or name in instance.sensitive
        try:
            value = _said(resolver, raw, is_worded=kind.name(name) in kind.worded)
        except Unsaid as code:
            known = attributes.get(kind.name(name))
            if known is None:
                if rules.secret:
                    return self._secret(name)
                raise _Left(f"{name} is {code}, and the state does not tell its value") from None
            said = "what is written" if is_secret else code
            message = f"{instance.address}: {name} is as it is in the state, not {said}"
            self._leave(block.place_of(name), message)
            value = known
        return self._hidden((instance.name, name), value) if is_secret else value

    def _hidden(self, name: tuple[str, str], value: Value) -> Value:
        """A secret: configuration, but for what it refers to."""
        for each in find_config_references(value):
            self.variables.hide(each.name)
        if isinstance(value, InterpolatedText):
            return self.secrets.replace_literal_parts(name, value)
        if isinstance(value, ConfigReference | ResourceReference):
            return value
        if any(find_resource_references(value)) or any(find_config_references(value)):
            if isinstance(value, Mapping):
                return {
                    key: self._hidden((name[0], f"{name[1]}_{key}"), value[key]) for key in value
                }
            return [self._hidden(name, item) for item in value]
        return self.secrets.get_reference(name, value)

    def _missing(
        self, name: str, rules: FieldRules, instance: Instance, attributes: Mapping[str, Any]
    ) -> Value:
        value = attributes.get(name)
        if value is not None:
            is_secret = rules.holds_secret or name in instance.sensitive
            return self._hidden((instance.name, name), value) if is_secret else value
        if rules.secret:
            return self._secret(name)
        raise _Left(f"neither the files nor the state tell its {name}")

    def _asked(self, block: Block, instance: Instance, name: str) -> Mapping[str, Value]:
        """What neither the files nor the state tell: configuration that a person has to set."""
        self.variables.used.setdefault(name, ConfigEntry(name, {"type": "string"}))
        self._leave(
            block.place,
            f"{instance.address}: neither the files nor the state tell its {name}: set it with "
            f"`gpuform config set {name} VALUE`",
        )
        return {name: ConfigReference(name)}

    def _secret(self, name: str) -> ConfigReference:
        """A secret that a person has to give."""
        self.secrets.declare_variable(name)
        return ConfigReference(name)

    def _resolver(self, block: Block | None = None, instance: Instance | None = None) -> Resolver:
        key = instance.key if instance else None
        each = None
        if block is not None and isinstance(table := block.body.get("for_each"), Mapping):
            each = table.get(str(key))
        elif block is not None and "for_each" in block.body:
            each = as_raw(key)
        return Resolver(self._reference, self.variables.value, self._local, key, each)

    def _local(self, name: str) -> Any:
        for block in self.files.of("locals"):
            if name in block.body:
                return block.body[name]
        raise Unsaid(f"local.{name}")

    def _reference(self, root: str, steps: Sequence[Step]) -> ResourceReference | None:
        if root not in KINDS or not steps:
            return None
        rest = list(steps[1:])
        key = rest.pop(0) if rest and (root, str(steps[0]), rest[0]) in self.names else None
        found = self.names.get((root, str(steps[0]), key))
        if found is None:
            return None
        kind = KINDS[root]
        if not rest or (len(rest) == 1 and rest[0] in kind.ids):
            return found
        known = load_lifecycle_class(kind.platform, SECTIONS[kind.section]).list_property_names()
        rest[0] = kind.name(str(rest[0]))
        is_same = rest[0] in known and rest[0] not in kind.worded
        return ResourceReference(found.section, found.name, tuple(rest)) if is_same else None

    def _whole(self, entries: list[ResourceEntry]) -> list[ResourceEntry]:
        """Without those that refer to what was left out, and so on."""
        while True:
            kept = {entry.address for entry in entries}
            broken = {
                entry.address: f"{each.section}.{each.name}"
                for entry in entries
                for each in find_resource_references([dict(entry.properties), dict(entry.options)])
                if f"{each.section}.{each.name}" not in kept
            }
            if not broken:
                return entries
            for address, other in broken.items():
                place = SourcePosition(str(self.folder), NOWHERE)
                self._leave(place, f"{address} refers to {other}, which is not taken over")
            entries = [entry for entry in entries if entry.address not in broken]

    def _outputs(self, kept: set[str]) -> Iterator[tuple[str, Value]]:
        resolver = self._resolver()
        for block in self.files.of("output"):
            name = ".".join(block.labels)
            try:
                value = resolver.value(block.body.get("value"))
            except Unsaid as code:
                self._leave(block.place, f"output {name} is {code}")
                continue
            if not all(
                f"{each.section}.{each.name}" in kept for each in find_resource_references(value)
            ):
                self._leave(block.place, f"output {name} is of something that is not taken over")
                continue
            if block.body.get("sensitive") is True:
                value = self._hidden(("output", name), value)
                if not self._is_secret(value):
                    why = "is sensitive, and what it is made of is not"
                    self._leave(block.place, f"output {name} {why}: a topology cannot keep it so")
                    continue
            yield name, value

    def _is_secret(self, value: Value) -> bool:
        """Whether it is secret by what it refers to; a literal has become configuration."""
        if any(find_config_references(value)):
            return True
        sections = {kind.section: kind.platform for kind in KINDS.values()}
        return any(
            each.steps
            and each.steps[0]
            in load_lifecycle_class(
                sections[each.section], SECTIONS[each.section]
            ).list_secret_names()
            for each in find_resource_references(value)
        )


def _said(resolver: Resolver, raw: Any, *, is_worded: bool) -> Value:
    """An argument's value; of one that has other words here only a plain one. Raises Unsaid."""
    value = resolver.value(raw)
    if is_worded and not is_plain(value):
        text = str(raw)
        raise Unsaid(text[2:-1] if text.startswith("${") and text.endswith("}") else text)
    return value


def _paired(files: TerraformFiles, folder: Path, leave: Leave) -> Iterator[tuple[Block, Instance]]:
    """The resources of known types with their objects; the others are left."""
    state = SourcePosition(str(folder / STATE), NOWHERE)
    blocks = {each.labels: each for each in files.of("resource")}
    for block in files.of("module"):
        leave(block.place, f"module {'.'.join(block.labels)} is not taken over")
    made = {(each.type, each.name) for each in files.instances if not each.module}
    for labels, block in blocks.items():
        if len(labels) == 2 and labels[0] in KINDS and labels not in made:
            leave(block.place, f"{'.'.join(labels)} has no object in the state")
        elif len(labels) != 2 or labels[0] not in KINDS:
            leave(block.place, f"{'.'.join(labels)} is of a type that is not known here")
    for instance in files.instances:
        found = blocks.get((instance.type, instance.name))
        if instance.module or (found is None and instance.type in KINDS):
            leave(state, f"{instance.address} is in the state, and not in these files")
        elif found is not None and instance.type in KINDS:
            yield found, instance
