"""From what was registered to what a topology says: entries, options, configuration, outputs."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import BaseModel

from gpuform.schemas.rules import FieldRules, get_field_rules
from gpuform.schemas.safe_text import escape_invisible
from gpuform.schemas.topology import NAME_PATTERN, SECTIONS
from gpuform.stacks.convert.matching import Computed, Index, match, same_path
from gpuform.stacks.convert.registered_options import NOWHERE, Disclosed, SecretValues, options_of
from gpuform.stacks.declaration_writer.declarations import (
    ConfigReference,
    Declarations,
    InterpolatedText,
    ResourceEntry,
    ResourceReference,
    Value,
    find_config_references,
    find_resource_references,
)
from gpuform.stacks.document.diagnostics import Diagnostic, SourcePosition
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.urn import MODULE_TYPE, STACK_REFERENCE_TYPE, STACK_TYPE, name_of
from gpuform.stacks.engine.values import PropertyMap, PropertyValue, Secret, unwrap_secrets
from gpuform.stacks.resource_rules import is_secret_property, kind_of
from gpuform.stacks.review.differences import find_inputs_model
from gpuform.stacks.review.value_text import PROVIDER_PROPERTY, short_type, to_display_value

_SECTION_OF: Final = {kind: section for section, kind in SECTIONS.items()}

Asked = Registration | Read
Indexes = Callable[[Sequence[str]], Sequence[Index]]
"""The outputs, run by run, that a value which depends on these URNs can have."""


@dataclass(frozen=True, slots=True)
class Registered:
    """What is to be said in another form: each resource, and the outputs, as each run had them."""

    resources: Sequence[Sequence[Asked]]
    outputs: Sequence[PropertyMap]


def references_to(
    resources: Sequence[Asked], problems: list[Diagnostic]
) -> dict[str, ResourceReference]:
    """How entries call the resources, by URN; what cannot be an entry goes to `problems`."""
    found: dict[str, ResourceReference] = {}
    first: dict[ResourceReference, Asked] = {}
    for asked in resources:
        if asked.type == STACK_TYPE:
            continue
        kind = kind_of(asked.type)
        if asked.type == STACK_REFERENCE_TYPE:
            what = f"{asked.name} reads another stack"
            hint = "take it out, convert, and write it by hand under stack_references"
            problems.append(problem_of(asked, "kind", what, hint))
            continue
        if asked.type == MODULE_TYPE:
            what = f"{asked.name} is an instance of a module, whose file is not told here"
            hint = "convert the topology that includes it: `gpuform convert`"
            problems.append(problem_of(asked, "kind", what, hint))
            continue
        if kind is None:
            what = (
                f"{asked.name} is a {short_type(asked.type)}, for which topologies have no section"
            )
            problems.append(problem_of(asked, "kind", what))
            continue
        reference = ResourceReference(_SECTION_OF[kind[1]], asked.name)
        if not re.fullmatch(NAME_PATTERN, asked.name):
            what = f"{asked.name!r} cannot be the name of an entry"
            hint = "rename it: letters, digits, hyphens, underscores, dots; `gpuform state rename`"
            problems.append(problem_of(asked, "name", what, hint))
        elif reference in first:
            what = f"two resources would be {reference.section}.{asked.name}"
            problems.append(problem_of(asked, "name", what, "rename one: `gpuform state rename`"))
        first.setdefault(reference, asked)
        found[asked.urn] = reference
    return found


@dataclass(slots=True)
class Declaring:
    """Says what was registered; what cannot be said goes to `problems`."""

    named: Mapping[str, ResourceReference]
    indexes: Indexes
    output_indexes: Callable[[str], Sequence[Index]]
    secrets: SecretValues
    problems: list[Diagnostic] = field(default_factory=list)

    def declared(self, registered: Registered) -> Declarations:
        entries = [
            self.entry(asked) for asked in registered.resources if asked[0].urn in self.named
        ]
        outputs = {
            name: self.output(name, [run.get(name) for run in registered.outputs])
            for name in sorted(registered.outputs[0])
        }
        return Declarations(entries, self.secrets.variables(), outputs)

    def entry(self, asked: Sequence[Asked]) -> ResourceEntry:
        first, reference = asked[0], self.named[asked[0].urn]
        platform, _ = kind_of(first.type) or ("", "")
        properties: dict[str, Value] = {}
        options: dict[str, Value] = {}
        if isinstance(first, Read):
            ids = [each.id for each in asked if isinstance(each, Read)]
            options["id"] = self.value(asked, "id", ids, first.dependencies)
        else:
            rules = get_field_rules(find_inputs_model(first.type) or BaseModel)
            for key in first.inputs:
                if key not in rules and key != PROVIDER_PROPERTY:
                    what = (
                        f"{escape_invisible(first.name)} has no property {escape_invisible(key)!r}"
                    )
                    hint = "take it out of the state, with `gpuform stack export` and `import`"
                    self.problems.append(problem_of(first, "property", what, hint))
                elif key != PROVIDER_PROPERTY and first.inputs[key] is not None:
                    needed = (first.property_dependencies or {}).get(key, ())
                    values = [each.inputs.get(key) for each in asked]
                    found = self.value(asked, key, values, needed)
                    properties[key] = in_order_of(rules.get(key), found)
        options |= options_of(asked, self)
        said = {self.address(each) for each in find_resource_references([properties, options])}
        after = [
            self.named[urn]
            for urn in first.dependencies
            if urn in self.named
            and urn != first.parent
            and self.address(self.named[urn]) not in said
        ]
        if after:
            options["depends_on"] = after
        return ResourceEntry(reference.section, reference.name, platform, properties, options)

    @staticmethod
    def address(reference: ResourceReference) -> str:
        return f"{reference.section}.{reference.name}"

    def value(
        self,
        asked: Sequence[Asked],
        key: str,
        values: Sequence[PropertyValue],
        needed: Sequence[str],
    ) -> Value:
        """A property or an option; one that was computed goes to `problems`."""
        indexes = self.indexes(needed)
        marked = is_secret_property(asked[0].type, key)
        try:
            found = self.said(values, indexes, (asked[0].name, key), marked=marked)
        except Computed:
            return self.refuse(asked[0], key, "is computed from outputs")
        except Disclosed:
            told = _disclosed(f"{asked[0].name}.{key}")
            self.problems.append(problem_of(asked[0], "secret", *told))
            return None
        if (
            len(values) == 1
            and isinstance(values[0], Secret)
            and any(find_config_references(found))
        ):
            return found  # what it was made of stays among the dependencies
        mentioned = {self.address(each) for each in find_resource_references(found)}
        missing = [
            name_of(urn)
            for urn in needed
            if urn in self.named and self.address(self.named[urn]) not in mentioned
        ]
        if missing:
            return self.refuse(asked[0], key, f"is computed from outputs of {', '.join(missing)}")
        return found

    def refuse(self, asked: Asked, key: str, why: str) -> None:
        """Notes a value that only its program can make."""
        message = f"{asked.name}.{key} {why}: a topology cannot say how"
        hint = "use the output itself or inside a text, or write the entry by hand"
        self.problems.append(problem_of(asked, "computed", message, hint))

    def output(self, name: str, values: Sequence[PropertyValue]) -> Value:
        try:
            return self.said(values, self.output_indexes(name), ("output", name))
        except Computed:
            message = (
                f"the output {name} is computed from outputs, which a topology cannot say of it"
            )
            hint = "export the output itself or inside a text"
            self.problems.append(
                Diagnostic(SourcePosition("outputs", NOWHERE), "computed", message, hint)
            )
            return None
        except Disclosed:
            place = SourcePosition("outputs", NOWHERE)
            self.problems.append(Diagnostic(place, "secret", *_disclosed(f"the output {name}")))
            return None

    def said(
        self,
        values: Sequence[PropertyValue],
        indexes: Sequence[Index],
        name: tuple[str, ...],
        *,
        marked: bool = False,
    ) -> Value:
        """The value with its references; secret parts are configuration.

        What is `marked` stays secret whatever it refers to. Raises Computed and Disclosed.
        """
        if any(isinstance(value, Secret) for value in values):
            inner = [unwrap_secrets(value) for value in values]
            return self._hidden(inner, indexes, name, marked)
        plain = [to_display_value(value, show_secrets=True) for value in values]
        path = same_path(plain, indexes)
        if path is not None:
            return path
        members = _members(values)
        if members is None:
            return self.secrets.kept(name, match(plain, indexes))
        if any(self.secrets.is_in(str(key)) for key, _ in members):
            raise Disclosed
        made = {
            key: self.said(each, indexes, (*name, str(key)), marked=marked) for key, each in members
        }
        return made if isinstance(values[0], dict) else list(made.values())

    def _hidden(
        self,
        values: Sequence[PropertyValue],
        indexes: Sequence[Index],
        name: tuple[str, ...],
        marked: bool,
    ) -> Value:
        """A secret: one that the topology refers to, or configuration.

        The keys of an object are as secret as its values: it is one configuration value, unless
        outputs are in it, which only a program puts there, with keys that its own text has.
        """
        plain = [to_display_value(value, show_secrets=True) for value in values]
        found = match(plain, indexes, secret=True)
        is_whole = len(values) == 1
        if isinstance(found, InterpolatedText):
            found = self.secrets.text(name, found)
        has_parts = any(find_resource_references(found)) or any(find_config_references(found))
        if isinstance(found, dict | list) and not is_whole and has_parts:
            members = _members(values) or []
            if any(self.secrets.is_in(str(key)) for key, _ in members):
                raise Disclosed
            # What is secret only because of what is beside it needs no more than that.
            parts = [*find_resource_references(found), *find_config_references(found)]
            marked = marked or any(map(indexes[0].hides, parts))
            made = {
                key: self._hidden(each, indexes, (*name, str(key)), marked) for key, each in members
            }
            return made if isinstance(found, dict) else list(made.values())
        if isinstance(found, InterpolatedText | ResourceReference | ConfigReference):
            if marked or indexes[0].hides(found):
                return found
            if not is_whole:
                raise Disclosed
        return self.secrets.value(name, plain[0])


def _disclosed(where: str) -> tuple[str, str]:
    return (
        f"{where} has a secret that a topology could not keep secret",
        "make it of secret configuration: `gpuform config set --secret`; or leave it out",
    )


def in_order_of(rules: FieldRules | None, value: Value) -> Value:
    """The value with objects in the order of their models, others in that of the alphabet."""
    if isinstance(value, list):
        return [in_order_of(rules, item) for item in value]
    if not isinstance(value, dict):
        return value
    if rules is not None and rules.is_map:
        return {key: in_order_of(replace(rules, is_map=False), value[key]) for key in sorted(value)}
    inner = rules.nested_rules if rules else {}
    names = [*(name for name in inner if name in value), *sorted(value.keys() - inner.keys())]
    return {name: in_order_of(inner.get(name), value[name]) for name in names}


def _members(values: Sequence[Any]) -> list[tuple[Any, list[Any]]] | None:
    """What is in objects or lists that are alike, member by member. Raises Computed."""
    first = values[0]
    if not isinstance(first, dict | list):
        return None
    if any(type(value) is not type(first) or len(value) != len(first) for value in values):
        raise Computed
    if isinstance(first, list):
        return [(at, list(items)) for at, items in enumerate(zip(*values, strict=True))]
    if any(set(value) != set(first) for value in values):
        raise Computed
    return [(key, [value[key] for value in values]) for key in first]


def problem_of(asked: Asked, rule: str, message: str, hint: str = "") -> Diagnostic:
    file, _, line = asked.place.rpartition(":")
    is_place = bool(file) and line.isdigit()
    place = SourcePosition(file, int(line)) if is_place else SourcePosition(asked.urn, NOWHERE)
    return Diagnostic(place, rule, message, hint)
